//! The effects of an edit on an object of a release, before any rule is applied.
//!
//! Entry point: [`Facts`]. Invariant: independent of policies, exceptions and modes, so that other
//! policies can judge the same facts later; only additions are searched just where a policy seals.
//! Plain values, which may include those of Secrets. Must not be logged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::circumstances::Circumstances;
use super::edit::{Evidence, Reason};
use super::records::RecordFacts;
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Declared;

/// The effects of an edit of any object.
#[derive(Clone, Debug)]
pub enum Facts {
    /// To an object that a release declares.
    Edit(EditFacts),
    /// To a record of Helm.
    Record(RecordFacts),
}

/// The effects of one edit, as seen by the releases that were consulted.
#[derive(Clone, Debug)]
pub struct EditFacts {
    /// The releases that were consulted, in order.
    pub claims: Vec<ClaimFacts>,
    /// The number of further claims: no release is consulted after one that allows the edit.
    pub unheard: usize,
    /// Other knowledge about the object.
    pub circumstances: Circumstances,
}

/// The effects of one edit, as one release sees it.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    /// The release.
    pub release: ReleaseId,
    /// Its revision.
    pub revision: u64,
    /// A Helm operation is running.
    pub pending: bool,
    /// The edit is a deletion that the state of the record authorises.
    pub authorised: bool,
    /// The evidence that settled doubts.
    pub evidence: EvidenceKind,
    /// The manifests that the edit was compared with, each with its changes.
    pub alternatives: Vec<AlternativeFacts>,
    /// The number of further manifests: none is checked after one that allows the edit.
    pub unweighed: usize,
}

/// The changes of one edit, compared with one manifest.
#[derive(Clone, Debug)]
pub struct AlternativeFacts {
    /// What the manifest declares of the object.
    pub declared: Arc<Declared>,
    /// Its fields.
    pub fields: Arc<Fields>,
    /// The differences of the object from it.
    pub changes: Vec<ChangeFacts>,
    /// The reason why the edit is allowed if nothing differs.
    pub reason: Reason,
    /// The paths below which additions were searched, as one text; `None` where they were not.
    pub seal: Option<String>,
}

/// One difference from a manifest.
#[derive(Clone, Debug)]
pub struct ChangeFacts {
    /// What changes.
    pub change: FieldChange,
    /// The kind of the difference.
    pub kind: ChangeKind,
    /// Of a list element that appears, disappears or is repeated: the element before and after, as messages
    /// show it. `None` where that is not known.
    pub element: Option<Box<ElementValues>>,
}

/// A list element before and after an edit; a list where there are several with its keys.
#[derive(Clone, Debug)]
pub struct ElementValues {
    /// Before.
    pub old: Option<Value>,
    /// After.
    pub new: Option<Value>,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A declared field is not as declared.
    #[default]
    Declared,
    /// The same, where a client-side Helm operation may have merged list elements that share a key.
    Merged,
    /// A field that undoes a release is set.
    Sealed,
    /// An owner is set, with which the garbage collector would delete the object.
    Owner,
    /// Something is added below a path that a policy seals.
    Added,
}

/// The evidence that settled doubts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceKind {
    /// The arbiter was not asked.
    #[default]
    None,
    /// The API server's own form of the manifest.
    Canonical,
    /// The arbiter was asked and could not tell.
    Unavailable,
    /// There was no arbiter to ask.
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
