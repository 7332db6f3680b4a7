//! What is known of GuardedReleases while their statuses are kept.
//!
//! Entry point: [`Known`]. Invariant: plain state, which only [`super::Statuses`] changes. Must not decide anything.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::due::Due;
use super::shelf::Shelf;
use crate::model::ReleaseId;
use crate::policy::suspension::Suspended;
use crate::telemetry::FailureLog;

/// What is known while it runs.
#[derive(Default)]
pub(super) struct Known {
    pub(super) live: Shelf,
    /// Those of a listing under way.
    pub(super) listing: Option<HashSet<ReleaseId>>,
    /// Whether all there is was listed.
    pub(super) listed: bool,
    /// Whether a watch stands, which it does only where there is a definition.
    pub(super) watched: bool,
    /// When a definition that is still not there counts as absent.
    pub(super) absent_at: Option<Instant>,
    pub(super) due: Due,
    pub(super) written: HashMap<ReleaseId, Instant>,
    /// The spec.reconcileAt that was handed to the loop last.
    pub(super) reconciled: HashMap<ReleaseId, String>,
    pub(super) suspended: Suspended,
    pub(super) watching: FailureLog,
    pub(super) writing: FailureLog,
}
