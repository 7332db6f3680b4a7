//! The metrics of the program's parts.
//!
//! Entry point: `Metrics::register`. Invariant: the states of releases are counted at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::registry::Registry;

use super::memory;
use kubemoor_guard::guard::state::State;
use kubemoor_helm::index::Index;
use kubemoor_runtime::metrics::{
    AdmissionMetrics, EmergencyMetrics, GuardMetrics, NoticeMetrics, RecordMetrics, declarations, releases,
};

/// The metrics, one struct for each component.
#[derive(Clone)]
pub(super) struct Metrics {
    pub(super) admission: AdmissionMetrics,
    pub(super) records: RecordMetrics,
    pub(super) guard: GuardMetrics,
    pub(super) emergency: EmergencyMetrics,
    pub(super) notices: NoticeMetrics,
    /// The index from which the states of releases are counted.
    pub(super) index: Arc<RwLock<Index>>,
}

impl Metrics {
    /// Registers all of them; those of each release (`of_releases`) where they are wanted.
    pub(super) fn register(registry: &mut Registry, state: &Arc<State>, of_releases: bool) -> Self {
        let index = Arc::new(RwLock::new(Index::within(memory::for_declarations())));
        let (counted, reports) = (Arc::clone(&index), Arc::clone(state));
        let cache = Arc::clone(index.read().cache());
        declarations::register(registry, move || [cache.asked(), cache.read()]);
        let metrics = Self {
            admission: AdmissionMetrics::register(registry),
            records: RecordMetrics::register(registry, move || states(&counted.read())),
            guard: GuardMetrics::register(registry),
            emergency: EmergencyMetrics::register(registry),
            notices: NoticeMetrics::register(registry),
            index,
        };
        releases::register(registry, of_releases, move || reports.standings());
        metrics
    }
}

/// Counts the releases in each state.
fn states(index: &Index) -> Vec<(&'static str, u64)> {
    let mut counts = BTreeMap::new();
    for release in index.releases() {
        let state = match &release.invalid {
            Some(_) => "record-invalid",
            None => release.state.status.as_str(),
        };
        *counts.entry(state).or_default() += 1;
    }
    counts.into_iter().collect()
}
