//! The health of a release as a whole: its state, the counts of its objects, and the sentences
//! about it.
//!
//! Entry points: [`Health::of`] derives all of it from one value, [`Facts`]; [`reported::ReportedHealth::of`]
//! reads it back from the status of a GuardedRelease. The guard's statuses and metrics,
//! `get releases`, `diff` and `explain` show these results and count nothing themselves. Invariant:
//! state, counts and sentences never contradict each other; the counts add up to the number of
//! declared objects. Must not read a cluster.

mod counts;
mod reason;
pub mod reported;
mod words;

pub use self::counts::Counts;
pub use self::reason::Reason;
pub use self::words::named;

use std::time::Duration;

use jiff::Timestamp;

use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::Release;
use kubemoor_helm::state::is_locked;
use kubemoor_policy::suspension::Suspension;

/// The facts about a release.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The release.
    pub release: ReleaseId,
    /// The facts of its records.
    pub record: RecordFacts,
    /// The treatment of its drift.
    pub control: Control,
    /// How many objects it declares.
    pub declared: usize,
    /// Those of them that do not plainly match, in the order of objects.
    pub objects: Vec<ObjectFacts>,
    /// Those that the guard may not read, by kind.
    pub unwatched: Vec<Unwatched>,
}

/// The facts of a release's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    /// The revision that the objects are compared with.
    pub revision: u64,
    /// The last deployed revision, if it is another one.
    pub deployed: Option<u64>,
    /// The state of the record.
    pub state: RecordState,
}

/// The state of the record of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// It is deployed.
    Deployed,
    /// A Helm operation is under way.
    Underway,
    /// A Helm operation has been under way for too long.
    Locked,
    /// The last Helm operation failed.
    Failed,
    /// The latest record cannot be read.
    Invalid,
    /// The release is uninstalled.
    Gone,
}

/// The treatment of drift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The drift mode of the release's policy.
    pub drift: DriftMode,
    /// The emergency switch is off: nothing is judged, nothing is repaired.
    pub open: bool,
    /// A person has suspended repairs of the release.
    pub suspended: Option<Suspension>,
    /// Repairs have stopped because too much drifts at once.
    pub braked: bool,
}

/// One object that does not plainly match its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The object.
    pub object: ObjectId,
    /// Its state.
    pub state: ObjectState,
    /// The reason why it stays so.
    pub kept: Option<String>,
    /// The field manager that keeps changing it back; empty where it has no name.
    pub contested_by: Option<String>,
    /// Its declared values were never seen in the live object, so the guard does not write them.
    pub unconfirmed: bool,
}

/// The state of an object that does not plainly match its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectState {
    /// It is missing.
    Missing,
    /// Declared fields have other values.
    Changed,
    /// Its fields match, and a field manager owns some of them with which Helm's next
    /// upgrade conflicts.
    Ownership,
    /// It is nested too deep to be compared.
    Unreadable,
    /// Declared fields may have other values; only a dry run could tell.
    InDoubt,
    /// It is being deleted.
    Deleting,
    /// It differs or is missing as an exception allows.
    Allowed,
    /// The operation that failed or is under way has not created it.
    Awaited,
    /// Its manifest opts it out.
    OptedOut,
    /// Another release owns it.
    Foreign,
    /// It lies outside of the release's namespace and was not seen to name the release: the guard neither
    /// reads it nor tells anything of it.
    Outside,
    /// It could not be read.
    Unread,
}

/// Declared objects of a kind that the guard may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwatched {
    /// The kind.
    pub kind: String,
    /// How many objects of it are declared.
    pub objects: usize,
    /// The message of the API server.
    pub why: String,
}

/// The health of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether all of it matches.
    pub ready: Ready,
    /// Whether a person has to act.
    pub stalled: bool,
    /// The state in one word.
    pub reason: Reason,
    /// The counts of its objects by state.
    pub counts: Counts,
    /// The state in a sentence or two.
    pub message: String,
}

/// The condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// All that is declared matches, or differs as it may.
    True,
    /// Something does not match.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Health {
    /// Derives the health from facts.
    pub fn of(facts: &Facts) -> Self {
        let counts = Counts::of(facts);
        let reason = Reason::of(facts, &counts);
        let message = words::message(reason, &counts, facts);
        Self { ready: reason.ready(), stalled: reason.is_stalled(), reason, counts, message }
    }
}

impl RecordFacts {
    /// The facts of the records of `release` at `now`.
    pub fn of(release: &Release, operation_timeout: Duration, now: Timestamp) -> Self {
        let status = release.state.status;
        let state = if release.invalid.is_some() {
            RecordState::Invalid
        } else if is_locked(release, operation_timeout, now) {
            RecordState::Locked
        } else if status.is_pending() || status == Status::Uninstalling {
            RecordState::Underway
        } else if status == Status::Failed {
            RecordState::Failed
        } else if status == Status::Uninstalled {
            RecordState::Gone
        } else {
            RecordState::Deployed
        };
        let deployed = release.baseline.as_ref().map(|baseline| baseline.revision);
        Self { revision: release.state.revision, deployed, state }
    }
}

impl Facts {
    /// The objects that the guard may not read and the reason, as a clause; `None` if there are
    /// none.
    pub fn unwatched_clause(&self) -> Option<String> {
        words::unwatched(self)
    }
}

impl Control {
    /// The treatment by a drift mode, with repairs neither suspended nor stopped.
    pub fn of(drift: DriftMode) -> Self {
        Self { drift, open: false, suspended: None, braked: false }
    }
}

impl ObjectState {
    /// The state's name, as in statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Ownership => "ownership",
            Self::Unreadable => "unreadable",
            Self::InDoubt => "in-doubt",
            Self::Deleting => "terminating",
            Self::Allowed => "allowed",
            Self::Awaited => "not-created",
            Self::OptedOut => "opted-out",
            Self::Foreign => "foreign",
            Self::Outside => "outside",
            Self::Unread => "unread",
        }
    }

    /// Whether a forced server-side apply of the manifest would change the object.
    pub fn is_drift(self) -> bool {
        matches!(self, Self::Missing | Self::Changed | Self::Ownership | Self::Unreadable)
    }
}

impl ObjectFacts {
    /// An object with nothing but its state.
    pub fn new(object: ObjectId, state: ObjectState) -> Self {
        Self { object, state, kept: None, contested_by: None, unconfirmed: false }
    }
}

impl Ready {
    /// The condition's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

#[cfg(test)]
mod tests;
