//! The state of a release in one word.
//!
//! Entry point: `Reason::of`. Invariant: `InSync` means that no object drifts, is in doubt or is
//! unread. Must not write sentences.

use super::{Counts, Facts, ObjectFacts, Ready, RecordState};
use kubemoor_declare::model::DriftMode;

/// The state of a release in one word, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its latest record cannot be read.
    RecordInvalid,
    /// A Helm operation has been under way for too long.
    PendingLocked,
    /// Its last operation failed.
    ReleaseFailed,
    /// It is uninstalled; only its history is left.
    ReleaseMissing,
    /// A person has suspended it.
    Suspended,
    /// A Helm operation is under way.
    OperationUnderway,
    /// Repairs have stopped because too many objects drift at once.
    Braked,
    /// Something does not match, and the guard has never seen it match.
    Unconfirmed,
    /// Another writer reverts each repair.
    Contested,
    /// Something does not match.
    Drifted,
    /// Some object may not match, and no dry run could tell.
    Unsettled,
    /// All objects that the guard may read match, and there are others.
    Unwatched,
    /// The policy ignores drift.
    DriftIgnored,
    /// All of it matches, or differs as it may.
    InSync,
}

impl Reason {
    /// All reasons, the worst first.
    pub const ALL: [Self; 14] = [
        Self::RecordInvalid,
        Self::PendingLocked,
        Self::ReleaseFailed,
        Self::ReleaseMissing,
        Self::Suspended,
        Self::OperationUnderway,
        Self::Braked,
        Self::Unconfirmed,
        Self::Contested,
        Self::Drifted,
        Self::Unsettled,
        Self::Unwatched,
        Self::DriftIgnored,
        Self::InSync,
    ];

    pub(super) fn of(facts: &Facts, counts: &Counts) -> Self {
        let any = |is: fn(&ObjectFacts) -> bool| facts.objects.iter().any(|it| it.state.is_drift() && is(it));
        match facts.record.state {
            RecordState::Invalid => return Self::RecordInvalid,
            RecordState::Locked => return Self::PendingLocked,
            RecordState::Failed => return Self::ReleaseFailed,
            RecordState::Gone => return Self::ReleaseMissing,
            RecordState::Deployed | RecordState::Underway => {}
        }
        if facts.control.suspended.is_some() {
            Self::Suspended
        } else if facts.record.state == RecordState::Underway {
            Self::OperationUnderway
        } else if facts.control.drift == DriftMode::Ignore {
            Self::DriftIgnored
        } else if counts.drifted == 0 {
            match (counts.in_doubt, counts.unwatched) {
                (0, 0) => Self::InSync,
                (0, _) => Self::Unwatched,
                (_, _) => Self::Unsettled,
            }
        } else if facts.control.braked {
            Self::Braked
        } else if any(|it| it.unconfirmed) {
            Self::Unconfirmed
        } else if any(|it| it.contested_by.is_some()) {
            Self::Contested
        } else {
            Self::Drifted
        }
    }

    /// The status of `Ready` for this reason.
    pub fn ready(self) -> Ready {
        match self {
            Self::InSync => Ready::True,
            Self::Suspended
            | Self::OperationUnderway
            | Self::Unsettled
            | Self::Unwatched
            | Self::DriftIgnored => Ready::Unknown,
            Self::Drifted
            | Self::Contested
            | Self::ReleaseMissing
            | Self::Braked
            | Self::Unconfirmed
            | Self::ReleaseFailed
            | Self::PendingLocked
            | Self::RecordInvalid => Ready::False,
        }
    }

    /// Whether a person has to act before anything continues.
    pub fn is_stalled(self) -> bool {
        matches!(
            self,
            Self::Braked
                | Self::Unconfirmed
                | Self::ReleaseFailed
                | Self::PendingLocked
                | Self::RecordInvalid
        )
    }

    /// The reason's name, as in conditions and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RecordInvalid => "RecordInvalid",
            Self::PendingLocked => "PendingLocked",
            Self::ReleaseFailed => "ReleaseFailed",
            Self::ReleaseMissing => "ReleaseMissing",
            Self::Suspended => "Suspended",
            Self::OperationUnderway => "OperationUnderway",
            Self::Braked => "Braked",
            Self::Unconfirmed => "Unconfirmed",
            Self::Contested => "Contested",
            Self::Drifted => "Drifted",
            Self::Unsettled => "Unsettled",
            Self::Unwatched => "Unwatched",
            Self::DriftIgnored => "DriftIgnored",
            Self::InSync => "InSync",
        }
    }
}
