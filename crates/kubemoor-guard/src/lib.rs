//! The guard: [`webhook`] answers the API server, [`guard`] runs the drift loop, [`admin`] serves health, metrics and
//! the ledger.

use std::sync::Arc;

use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::arbiter::Arbiter;
use kubemoor_cluster::mirror::autoscalers::AutoscalerMirror;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_policy::agreement::SharedSettledValues;

pub mod admin;
pub mod guard;
pub mod webhook;

/// The guarded cluster: its client, and the caches of its state. The webhook and the loop share one.
pub struct LiveCluster {
    pub client: kube::Client,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    pub releases: Arc<Releases>,
    pub kinds: Arc<ServedKinds>,
    pub objects: Objects,
    /// Compares values by dry runs; `None` if the guard makes no writes, not even dry runs.
    pub arbiter: Option<Arbiter>,
    pub allowances: Arc<Allowances>,
    pub autoscalers: Arc<AutoscalerMirror>,
    /// Values that dry runs have settled.
    pub settled: Arc<SharedSettledValues>,
    /// What the loop knows of each release.
    pub state: Arc<guard::state::LoopState>,
}

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-verdict/src/samples.rs"]
mod sample_verdicts;
