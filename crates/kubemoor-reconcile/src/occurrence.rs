//! The reports of the loop for logs, metrics and the ledger.
//!
//! Entry point: [`Occurrence`]. Invariant: of values only redacted findings. Must not
//! word a sentence for a log: the caller that logs it does.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::brake::{Drifting, Reach};
use super::drifts::Drift;
use super::report::DriftKind;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;

/// Something to tell.
#[derive(Clone, Debug)]
pub enum Occurrence {
    /// An object of a release, and what happened to it.
    Object { release: Arc<Release>, object: Arc<ObjectId>, drift: Box<Drift>, fate: Fate },
    /// A drift of this kind was found.
    Found(DriftKind),
    /// A drift was detected this long after it arose.
    DetectedAfter(SignedDuration),
    /// Another writer repaired it.
    Present(DriftKind),
    /// The API server does not allow some of its fields to change in place.
    Untaken(DriftKind),
    /// Repairs in this extent stop because of too much drift; `namespace` is that of the release
    /// whose repair was next.
    Braked { reach: Reach, namespace: String, drifting: Drifting },
    /// Repairs in this extent continue, after an order for this release.
    Eased { reach: Reach, release: ReleaseId },
    /// Repairs in a namespace (`None`: all) are not stopped any more, because this replica leads no more, or because the
    /// namespace has no release any more.
    Unbraked { namespace: Option<String> },
    /// Repairs of this release are on hold.
    Held { release: Arc<Release>, until: Timestamp },
    /// The beginning of the oldest drift.
    Oldest(Option<Timestamp>),
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It was repaired, after this number of attempts.
    Repaired { attempts: u32 },
    /// It was repaired except for fields that the API server refuses to set.
    Partly { attempts: u32 },
    /// An attempt failed; the drift has the reason.
    Failed,
    /// It stays unchanged; the drift has the reason.
    Reported,
    /// Only a dry run could tell whether it is drift.
    InDoubt,
    /// Another writer changes it back each time.
    Contested,
    /// It was re-created, and is gone again, because its release dropped it.
    TakenBack,
    /// The same, but it cannot be deleted, for this reason.
    CannotTakeBack(String),
    /// It was re-created, and the records cannot be read again, for this reason.
    Unread(String),
}
