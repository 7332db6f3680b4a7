//! The knowledge about GuardedReleases while their statuses are kept.
//!
//! Entry point: [`Known`]. Invariant: plain state, which only [`super::Statuses`] changes. Must not decide anything.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::due::Due;
use super::shelf::StatusCache;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::suspension::Suspended;
use kubemoor_runtime::telemetry::FailureLog;

/// What is known while it runs.
#[derive(Default)]
pub(super) struct Known {
    pub(super) live: StatusCache,
    /// How far each watch is: of one namespace, or of all.
    pub(super) following: HashMap<Option<Arc<str>>, Following>,
    /// The time from which a missing definition counts as absent.
    pub(super) absent_at: Option<Instant>,
    pub(super) due: Due,
    pub(super) written: HashMap<ReleaseId, Instant>,
    /// The spec.reconcileAt that was handed to the loop last.
    pub(super) reconciled: HashMap<ReleaseId, String>,
    pub(super) suspended: Suspended,
    pub(super) writing: FailureLog,
}

/// How far one watch is.
#[derive(Default)]
pub(super) struct Following {
    /// The releases of a running listing.
    pub(super) listing: Option<HashSet<ReleaseId>>,
    /// Whether a listing is complete.
    pub(super) listed: bool,
    /// Whether a watch is established, which requires the CustomResourceDefinition.
    pub(super) watched: bool,
    pub(super) failures: FailureLog,
}

impl Known {
    /// How far the watch of `namespace` (`None`: of all) is.
    pub(super) fn following(&mut self, namespace: &Option<Arc<str>>) -> &mut Following {
        self.following.entry(namespace.clone()).or_default()
    }

    /// Whether the GuardedRelease of this release is known, and its changes are watched.
    pub(super) fn is_followed(&self, release: &ReleaseId) -> bool {
        let speaks = |namespace: &Option<Arc<str>>| {
            namespace.as_deref().is_none_or(|namespace| namespace == release.namespace)
        };
        self.following.iter().any(|(namespace, it)| speaks(namespace) && it.listed && it.watched)
    }
}
