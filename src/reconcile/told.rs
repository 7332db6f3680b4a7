//! What the loop tells people, counts and keeps.
//!
//! Entry point: [`Told`]. Invariant: of values only redacted findings. Must not
//! word a sentence for a log: the caller that logs it does.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::brake::{Drifting, Reach};
use super::drifts::Drift;
use super::report::DriftKind;
use crate::helm::release::Release;
use crate::model::{ObjectId, ReleaseId};

/// Something to tell.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// An object of a release, and what happened to it.
    Object { release: Arc<Release>, object: Arc<ObjectId>, drift: Box<Drift>, fate: Fate },
    /// A drift of this kind was found.
    Found(DriftKind),
    /// So long after it arose.
    DetectedAfter(SignedDuration),
    /// Somebody else put it right.
    Present(DriftKind),
    /// The API server does not let some of it change in place.
    Untaken(DriftKind),
    /// So much drifts that repairs of this reach stop; `namespace` is that of the
    /// release whose repair was to be next.
    Braked { reach: Reach, namespace: String, drifting: Drifting },
    /// Repairs of this reach go on, by an order for this release.
    Eased { reach: Reach, release: ReleaseId },
    /// Repairs of this release are on hold.
    Held { release: Arc<Release>, until: Timestamp },
    /// Since when the oldest drift lasts.
    Oldest(Option<Timestamp>),
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// It was put right, after so many attempts.
    Repaired { attempts: u32 },
    /// It was put right but for fields that cannot be changed in place.
    Partly { attempts: u32 },
    /// An attempt failed; the drift says why.
    Failed,
    /// It stays as it is; the drift says why.
    Reported,
    /// Only a dry run could tell whether it is drift.
    InDoubt,
    /// Somebody changes it back each time.
    Contested,
    /// It was re-created, and is gone again, because its release dropped it.
    TakenBack,
    /// The same, but it cannot be deleted, for this reason.
    CannotTakeBack(String),
    /// It was re-created, and the records cannot be read again, for this reason.
    Unread(String),
}
