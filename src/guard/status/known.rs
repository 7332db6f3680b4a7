//! The knowledge about GuardedReleases while their statuses are kept.
//!
//! Entry point: [`Known`]. Invariant: plain state, which only [`super::Statuses`] changes. Must not decide anything.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::due::Due;
use super::shelf::StatusCache;
use crate::model::ReleaseId;
use crate::policy::suspension::Suspended;
use crate::telemetry::FailureLog;

/// What is known while it runs.
#[derive(Default)]
pub(super) struct Known {
    pub(super) live: StatusCache,
    /// The releases of a running listing.
    pub(super) listing: Option<HashSet<ReleaseId>>,
    /// Whether a listing is complete.
    pub(super) listed: bool,
    /// Whether a watch is established, which requires the CustomResourceDefinition.
    pub(super) watched: bool,
    /// The time from which a missing definition counts as absent.
    pub(super) absent_at: Option<Instant>,
    pub(super) due: Due,
    pub(super) written: HashMap<ReleaseId, Instant>,
    /// The spec.reconcileAt that was handed to the loop last.
    pub(super) reconciled: HashMap<ReleaseId, String>,
    pub(super) suspended: Suspended,
    pub(super) watching: FailureLog,
    pub(super) writing: FailureLog,
}
