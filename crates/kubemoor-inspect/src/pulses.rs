//! The guards' statuses of releases, and whether a guard still maintains them.
//!
//! Entry point: [`Pulses::told`]. Invariant: each Lease is read once. A status that no guard maintains is
//! never shown as the present state.

use std::collections::HashMap;

use jiff::Timestamp;
use tokio::sync::Mutex;

use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::lease::pulse::pulse;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::{DriftedObject, GuardedReleaseStatus, LeaseReference};
use kubemoor_verdict::health::reported::{Pulse, ReportedHealth};

/// The Leases of the guards whose statuses were read.
pub struct Pulses {
    client: kube::Client,
    known: Mutex<HashMap<LeaseReferenceKey, Result<Pulse, String>>>,
}

type LeaseReferenceKey = (String, String);

impl Pulses {
    pub fn new(client: kube::Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The guard's status of the release and the objects that it names as drifting; `None` without one.
    pub async fn of(
        &self,
        release: &ReleaseId,
    ) -> Result<Option<(ReportedHealth, Vec<DriftedObject>)>, CallError> {
        let guarded = guarded::get(&self.client, release).await?;
        let Some(status) = guarded.and_then(|guarded| guarded.status) else { return Ok(None) };
        let drifts = status.drifts.clone();
        Ok(Some((self.told(status).await, drifts)))
    }

    /// The current meaning of a status.
    pub async fn told(&self, status: GuardedReleaseStatus) -> ReportedHealth {
        let pulse = match &status.lease {
            Some(lease) => self.pulse(lease).await,
            None => Pulse::Unknown,
        };
        ReportedHealth::of(status, &pulse, Timestamp::now())
    }

    /// The Leases that could not be read: a sentence each.
    pub(crate) async fn notes(&self) -> Vec<String> {
        let known = self.known.lock().await;
        let failed = known.iter().filter_map(|((namespace, name), read)| {
            let why = read.as_ref().err()?;
            Some(format!(
                "whether a guard still keeps the statuses is not known: the Lease {name} in namespace {namespace} cannot be read: {why}"
            ))
        });
        failed.collect()
    }

    async fn pulse(&self, lease: &LeaseReference) -> Pulse {
        let mut known = self.known.lock().await;
        let key = (lease.namespace.clone(), lease.name.clone());
        if !known.contains_key(&key) {
            let read = pulse(&self.client, lease).await.map_err(|error| error.to_string());
            known.insert(key.clone(), read);
        }
        known.get(&key).and_then(|read| read.clone().ok()).unwrap_or(Pulse::Unknown)
    }
}
