//! What an edit does to an object of a release, before any rule is asked.
//!
//! Entry point: [`Facts`]. Invariant: nothing here hangs on a policy, an exception or a mode, but
//! for additions, which are looked for only where a policy seals: so other policies can judge the same
//! facts later. Plain values; those of Secrets are among them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::circumstances::Circumstances;
use super::edit::{Evidence, Reason};
use super::records::RecordFacts;
use crate::declaration::fields::FieldChange;
use crate::helm::release::Declared;
use crate::model::ReleaseId;

/// What an edit does, to whatever object.
#[derive(Clone, Debug)]
pub enum Facts {
    /// To an object that a release declares.
    Edit(EditFacts),
    /// To a record of Helm.
    Record(RecordFacts),
}

/// What one edit does, as the releases see it that were heard about it.
#[derive(Clone, Debug)]
pub struct EditFacts {
    /// The releases that were heard, in their order.
    pub claims: Vec<ClaimFacts>,
    /// How many more speak for the object: none was heard after one that lets the edit pass.
    pub unheard: usize,
    /// What else was known of the object.
    pub circumstances: Circumstances,
}

/// What one edit does, as one release sees it.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    /// The release.
    pub release: ReleaseId,
    /// Its revision.
    pub revision: u64,
    /// An operation of Helm is under way.
    pub pending: bool,
    /// The edit is a deletion that the state of the record authorises.
    pub authorised: bool,
    /// What doubts were settled by.
    pub evidence: EvidenceKind,
    /// The manifests that the edit was held against, each with what it changes.
    pub alternatives: Vec<AlternativeFacts>,
    /// How many more there are: none is looked at after one that lets the edit pass.
    pub unweighed: usize,
}

/// What one edit changes, held against one manifest.
#[derive(Clone, Debug)]
pub struct AlternativeFacts {
    /// What the manifest declares of the object.
    pub declared: Arc<Declared>,
    /// By what the object would differ from it.
    pub changes: Vec<ChangeFacts>,
    /// Why the edit passes if nothing differs.
    pub reason: Reason,
    /// The paths below which additions were looked for, as one text; none where they were not.
    pub seal: Option<String>,
}

/// One difference from a manifest.
#[derive(Clone, Debug)]
pub struct ChangeFacts {
    /// What changes.
    pub change: FieldChange,
    /// What kind of difference it is.
    pub kind: ChangeKind,
}

/// What kind of difference a change is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A declared field is not as declared.
    #[default]
    Declared,
    /// A field that undoes a release is set.
    Sealed,
    /// An owner is set, with which the garbage collector would delete the object.
    Owner,
    /// Something is added below a path that a policy seals.
    Added,
}

/// What doubts were settled by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceKind {
    /// Nobody was asked.
    #[default]
    None,
    /// The API server's own form of the manifest.
    Canonical,
    /// Who was asked could not tell.
    Unavailable,
    /// There was nobody to ask.
    Nowhere,
}

impl From<Evidence<'_>> for EvidenceKind {
    fn from(evidence: Evidence<'_>) -> Self {
        match evidence {
            Evidence::None => Self::None,
            Evidence::Canonical(_) => Self::Canonical,
            Evidence::Unavailable => Self::Unavailable,
            Evidence::Nowhere => Self::Nowhere,
        }
    }
}
