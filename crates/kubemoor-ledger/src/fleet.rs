//! The states of releases in many clusters, as the guards store them in a shared PostgreSQL database.
//!
//! Entry points: [`ReleaseState`] for writers, [`FleetFilter`] for readers. Invariant: one row per cluster
//! and release. Times are the database's own, so that clocks of clusters need not agree. Of the users' values
//! only a keyed hash is stored. Plain values.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use kubemoor_declare::model::ReleaseId;

/// A cluster whose guard has not reported for that long is shown as stale. The view `fleet` uses the same
/// value.
pub const STALE_AFTER: Duration = Duration::from_secs(120);

/// The state of one release in its guard's status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseState {
    /// The release.
    pub release: ReleaseId,
    /// Its revision.
    pub revision: u64,
    /// How many objects it declares.
    pub declared: u64,
    /// How many of them drifted.
    pub drifted: u64,
    /// Since when the oldest drift lasts.
    pub oldest_drift: Option<Timestamp>,
    /// `True`, `False` or `Unknown`.
    pub ready: &'static str,
    /// The state in one word.
    pub reason: &'static str,
    /// Helm's status of the release.
    pub status: &'static str,
    /// Its chart, with the version.
    pub chart: Option<String>,
    /// SHA-256 of the values that the user gave; it is kept under the ledger's key alone.
    pub values: Option<[u8; 32]>,
    /// The mode for edits that drift.
    pub edits: String,
    /// The mode for drift.
    pub drift: String,
    /// The state in a sentence.
    pub message: String,
}

/// The guard's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardState {
    /// Its version.
    pub version: &'static str,
    /// When its certificate ends.
    pub certificate_until: Option<Timestamp>,
}

/// The filter on rows. An empty field matches all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFilter {
    /// The clusters: one of them.
    pub clusters: Vec<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The release's name.
    pub release: Option<String>,
}

/// What releases are looked for, and in which order. What is empty or false does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSearch {
    /// Which rows.
    pub filter: FleetFilter,
    /// In one of these states, by their words, or in one of the two below.
    pub reasons: Vec<String>,
    /// With drift, in whichever state.
    pub drifted: bool,
    /// Of a guard that is silent, in whichever state.
    pub stale: bool,
    /// Each of them is part of the namespace, the name, the chart or the message.
    pub words: Vec<String>,
    /// The order.
    pub order: FleetOrder,
    /// Whether it is the other way round.
    pub is_reversed: bool,
    /// From which row on.
    pub offset: u32,
    /// The most rows.
    pub limit: u32,
}

/// The order of releases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FleetOrder {
    /// By name.
    #[default]
    Name,
    /// By cluster.
    Cluster,
    /// By state: as these words come, then others, and `InSync` last.
    State(Vec<&'static str>),
    /// The most drift first.
    Drifted,
    /// The highest revision first.
    Revision,
}

/// Releases that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFound {
    /// Some of them.
    pub releases: Vec<ReleaseView>,
    /// How many there are, up to [`COUNTED`] and one.
    pub total: u64,
}

/// Up to so many releases that were found are counted.
pub const COUNTED: u64 = 10_000;

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Its name.
    pub cluster: String,
    /// The releases in each state, by its word.
    pub states: BTreeMap<String, StateCount>,
    /// Since when the oldest drift lasts.
    pub oldest_drift: Option<Timestamp>,
    /// The version of its guard.
    pub version: String,
    /// When the certificate of its guard ends.
    pub certificate_until: Option<Timestamp>,
    /// When its guard was heard of last.
    pub heard: Timestamp,
    /// Whether the last update is too old.
    pub is_stale: bool,
}

/// The releases of one cluster in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateCount {
    /// How many there are.
    pub releases: u64,
    /// How many of them have objects that drifted.
    pub drifted: u64,
}

/// One release of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseView {
    /// The cluster's name.
    pub cluster: String,
    /// The release.
    pub release: ReleaseId,
    /// Its revision.
    pub revision: u64,
    /// How many objects it declares.
    pub declared: u64,
    /// How many of them drifted.
    pub drifted: u64,
    /// Since when the oldest drift lasts.
    pub oldest_drift: Option<Timestamp>,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// `True`, `False` or `Unknown`.
    pub ready: String,
    /// The state in one word.
    pub reason: String,
    /// Helm's status of the release.
    pub status: String,
    /// Its chart, with the version.
    pub chart: Option<String>,
    /// A hash of its values, which differs from other hashes in this ledger if the values do.
    pub values: Option<String>,
    /// The mode for edits that drift.
    pub edits: String,
    /// The mode for drift.
    pub drift: String,
    /// The state in a sentence.
    pub message: String,
    /// Since when its guard is silent, where it is.
    pub stale_since: Option<Timestamp>,
}
