//! The loop's published knowledge about one release.
//!
//! Entry points: [`ReleaseReport`], [`Happening`]. Invariant: shows values only as [`Finding`]s,
//! which redact. Must not decide anything.

use std::sync::Arc;

use jiff::Timestamp;
use smol_str::SmolStr;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::guarded::OrderAnswer;
use kubemoor_verdict::deletion;
use kubemoor_verdict::edit::Finding;
use kubemoor_verdict::health::{Control, Facts, Health, ObjectFacts, ObjectState, RecordFacts, Unwatched};

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
    /// Those that were seen alive with the release's annotations, and their agreements; sorted.
    pub seen_alive: Vec<SeenAlive>,
    /// How many of them were seen alive as they are declared.
    pub confirmed: usize,
    /// Those of the seen objects that are not repaired without the confirmation of a person;
    /// sorted.
    pub unconfirmed: Vec<ObjectId>,
    /// The drifting objects, in order.
    pub drifted: Vec<Drifted>,
    /// The first error in the manifest's annotations that allow changes of an object; such
    /// annotations have no effect. In the order of objects.
    pub flaws: Vec<(ObjectId, Flaw)>,
    /// Declared objects in the release's namespace that another release owns by the object's
    /// annotations, and that are compared with that release alone; in the order of objects.
    pub foreign: Vec<(ObjectId, ReleaseId)>,
    /// Declared objects that the guard has no right to watch, in the order of kinds.
    pub unwatched: Vec<Unwatched>,
    /// Objects that may differ or are not judged: allowed, opted out, outside of the release's
    /// namespace, owned by another release, not created by a failed operation; in the order of
    /// objects.
    pub excused: Vec<ObjectFacts>,
    /// The facts of its records.
    pub records: RecordFacts,
    /// The treatment of its drift.
    pub control: Control,
    /// The field manager with which Helm writes its objects; `None` if no object has ever shown it.
    pub manager: Option<SmolStr>,
    /// Whether this replica led when the report was made: only the leader decides about drifts.
    pub leads: bool,
    /// The answer to the last order; `None` if this process received no order.
    pub answer: Option<OrderAnswer>,
}

/// One object that is not as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Drifted {
    /// The object.
    pub object: Arc<ObjectId>,
    /// What is wrong with it.
    pub kind: DriftKind,
    /// Its changed fields, at most [`SHOWN_FIELDS`] of them.
    pub findings: Vec<Finding>,
    /// The field manager that wrote the changes, as far as the object records it.
    pub by: Option<String>,
    /// The time since which the loop knows of it.
    pub since: Timestamp,
    /// The result of the last repair; `None` if none was tried.
    pub repaired: Option<Result<(), String>>,
    /// The reason why it is not repaired; `None` while it is.
    pub kept: Option<Arc<str>>,
    /// The field manager that changes it back after each repair; empty if the object records no
    /// name.
    pub contested_by: Option<String>,
    /// Whether it stays unchanged because the declared values were never seen in the live object.
    pub unconfirmed: bool,
    /// Only a dry run could tell whether it is drift.
    pub doubt: bool,
    /// An exception allows it.
    pub allowed: bool,
}

/// The most fields of one object that a report names.
pub const SHOWN_FIELDS: usize = 20;

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriftKind {
    /// It does not exist.
    Missing,
    /// Declared fields have other values.
    Changed,
    /// Declared fields have their values and belong to a manager that would
    /// make Helm's next upgrade fail.
    Ownership,
    /// It is being deleted, and a finalizer may be blocking the deletion. It drifts if fields differ,
    /// or if finalizers have held it for some minutes.
    Terminating,
    /// It is nested too deeply to be judged.
    Unreadable,
}

/// Something that happened to one object: it was found drifted, was repaired,
/// or could not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// The release.
    pub release: ReleaseId,
    /// The revision that the object is compared with.
    pub revision: u64,
    /// The object; `repaired` and `kept` say what happened.
    pub drifted: Drifted,
}

/// Something that happened, for those who tell others.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// To one object.
    Object(Box<Incident>),
    /// Repairs stop because of too much drift: in one namespace, or everywhere.
    Braked {
        /// The namespace; none for the whole cluster.
        namespace: Option<String>,
        /// The number of drifting objects there.
        drifting: usize,
        /// The number of objects that are declared in the cluster.
        declared: usize,
    },
    /// Repairs continue there.
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
    /// The state of the object.
    pub fn state(&self) -> ObjectState {
        match self.kind {
            _ if self.allowed => ObjectState::Allowed,
            DriftKind::Terminating if self.findings.is_empty() => ObjectState::Deleting,
            _ if self.doubt => ObjectState::InDoubt,
            DriftKind::Missing => ObjectState::Missing,
            DriftKind::Changed | DriftKind::Terminating => ObjectState::Changed,
            DriftKind::Ownership => ObjectState::Ownership,
            DriftKind::Unreadable => ObjectState::Unreadable,
        }
    }
}

impl Drifted {
    /// What holds an object that is being deleted, as a clause; `None` if nothing is known to.
    fn held(&self) -> Option<String> {
        let finalizers = self.findings.iter().find(|it| deletion::finishes(&self.object, &it.path))?;
        let names = finalizers.new.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(format!("it is being deleted, and held by the finalizers {names}"))
    }
}

impl ReleaseReport {
    /// The facts about the release.
    pub fn facts(&self) -> Facts {
        let objects = self.drifted.iter().map(|it| ObjectFacts {
            kept: match it.kind {
                DriftKind::Terminating => it.held(),
                _ => it.doubt.then(|| it.kept.as_deref().unwrap_or("it was not asked yet").to_owned()),
            },
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

    /// The health of the release.
    pub fn health(&self) -> Health {
        Health::of(&self.facts())
    }
}
