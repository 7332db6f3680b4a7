//! What the loop knows of one release, as others are told of it.
//!
//! Entry points: [`ReleaseReport`], [`Happening`]. Invariant: values are shown
//! only as [`Finding`]s, which redact. Must not decide anything.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{ObjectId, ReleaseId};
use crate::policy::agreement::SeenAlive;
use crate::policy::flaw::Flaw;
use crate::policy::guarded::OrderAnswer;
use crate::verdict::edit::Finding;
use crate::verdict::health::{Control, Facts, Health, ObjectFacts, ObjectState, RecordFacts, Unwatched};

/// What the loop knows of one release.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseReport {
    /// The release.
    pub release: ReleaseId,
    /// The uid of that revision's record, as far as it is known.
    pub record: Option<String>,
    /// SHA-256 of that revision's manifest as it was first seen.
    pub digest: [u8; 32],
    /// How many objects the revision declares.
    pub declared: usize,
    /// Which of them were seen alive with the release's annotations, and what
    /// they agreed with; sorted.
    pub seen_alive: Vec<SeenAlive>,
    /// How many of them were seen alive as they are declared.
    pub confirmed: usize,
    /// Which of those that were seen alive no repair may be made of without
    /// somebody's word; sorted.
    pub unconfirmed: Vec<ObjectId>,
    /// What is not as declared, in the order of objects.
    pub drifted: Vec<Drifted>,
    /// The first thing that is wrong with the annotations by which the manifest
    /// allows changes of an object, and for which they allow nothing; in the
    /// order of objects.
    pub flaws: Vec<(ObjectId, Flaw)>,
    /// What the revision declares and another release owns by the object's
    /// annotations, to which alone it is held; in the order of objects.
    pub foreign: Vec<(ObjectId, ReleaseId)>,
    /// What the revision declares and the guard has no right to look at, in the
    /// order of kinds.
    pub unwatched: Vec<Unwatched>,
    /// What may differ or is not judged: allowed, opted out, another release's, not
    /// created by an operation that failed; in the order of objects.
    pub excused: Vec<ObjectFacts>,
    /// What its records say.
    pub records: RecordFacts,
    /// What is done about its drift.
    pub control: Control,
    /// Whether the loop led: only then it has decided what is done about drifts.
    pub leads: bool,
    /// The answer to the last order; none if this process was given none.
    pub answer: Option<OrderAnswer>,
}

/// One object that is not as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Drifted {
    /// The object.
    pub object: Arc<ObjectId>,
    /// What is wrong with it.
    pub kind: DriftKind,
    /// Its fields that are not as declared, at most [`SHOWN_FIELDS`] of them.
    pub findings: Vec<Finding>,
    /// The field manager that wrote what is not as declared, as far as the
    /// object tells.
    pub by: Option<String>,
    /// Since when the loop knows.
    pub since: Timestamp,
    /// What came of the last repair; none if none was tried.
    pub repaired: Option<Result<(), String>>,
    /// Why it is not repaired; none while it is.
    pub kept: Option<Arc<str>>,
    /// Who changes it back each time it is repaired; a name by the object's
    /// field managers, or empty where nobody's is there.
    pub contested_by: Option<String>,
    /// Whether it stays as it is because what is declared was never seen in the
    /// live object.
    pub unconfirmed: bool,
    /// Only a dry run could tell whether it is drift at all.
    pub doubt: bool,
    /// An exception allows it.
    pub allowed: bool,
}

/// The most fields of one object that a report names.
pub const SHOWN_FIELDS: usize = 20;

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriftKind {
    /// It is not there.
    Missing,
    /// Declared fields have other values.
    Changed,
    /// Declared fields have their values and belong to a manager that would
    /// make Helm's next upgrade fail.
    Ownership,
    /// It is being deleted, and a finalizer may be blocking the deletion.
    Terminating,
    /// It is nested deeper than what is judged.
    Unreadable,
}

/// Something that happened to one object: it was found drifted, was repaired,
/// or could not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// The release.
    pub release: ReleaseId,
    /// The revision that the object is held to.
    pub revision: u64,
    /// The object; `repaired` and `kept` say what happened.
    pub drifted: Drifted,
}

/// Something that happened, for those who tell others.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// To one object.
    Object(Box<Incident>),
    /// So much drifts that repairs stop: in one namespace, or everywhere.
    Braked {
        /// The namespace; none for the whole cluster.
        namespace: Option<String>,
        /// How many objects drift there.
        drifting: usize,
        /// Of how many that are declared in the cluster.
        declared: usize,
    },
    /// Repairs go on there.
    Eased {
        /// The namespace; none for the whole cluster.
        namespace: Option<String>,
    },
}

impl DriftKind {
    /// The kind's name, as in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Ownership => "ownership",
            Self::Terminating => "terminating",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Drifted {
    /// How the object stands.
    pub fn state(&self) -> ObjectState {
        match self.kind {
            _ if self.allowed => ObjectState::Allowed,
            DriftKind::Terminating => ObjectState::Deleting,
            _ if self.doubt => ObjectState::InDoubt,
            DriftKind::Missing => ObjectState::Missing,
            DriftKind::Changed => ObjectState::Changed,
            DriftKind::Ownership => ObjectState::Ownership,
            DriftKind::Unreadable => ObjectState::Unreadable,
        }
    }
}

impl ReleaseReport {
    /// What is known of the release.
    pub fn facts(&self) -> Facts {
        let objects = self.drifted.iter().map(|it| ObjectFacts {
            kept: it.doubt.then(|| it.kept.as_deref().unwrap_or("it was not asked yet").to_owned()),
            contested_by: it.contested_by.clone(),
            unconfirmed: it.unconfirmed,
            ..ObjectFacts::new(ObjectId::clone(&it.object), it.state())
        });
        Facts {
            release: self.release.clone(),
            record: self.records,
            control: self.control.clone(),
            declared: self.declared,
            objects: objects.chain(self.excused.iter().cloned()).collect(),
            unwatched: self.unwatched.clone(),
        }
    }

    /// How the release stands.
    pub fn health(&self) -> Health {
        Health::of(&self.facts())
    }
}
