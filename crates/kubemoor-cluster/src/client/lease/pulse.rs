//! Whether some guard still leads, for readers of its statuses.
//!
//! Entry point: [`pulse`]. Invariant: reads only.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::time::timeout;

use super::super::call::CallError;
use super::{ATTEMPT, reading};
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_verdict::health::reported::Pulse;

/// When a Lease was renewed last.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn pulse(client: &kube::Client, lease: &LeaseReference) -> Result<Pulse, CallError> {
    let leases = Api::<Lease>::namespaced(client.clone(), &lease.namespace);
    let read = timeout(ATTEMPT, reading::read(&leases, &lease.name)).await;
    let read = read.map_err(|_| CallError::Late { within: ATTEMPT })??;
    Ok(match read {
        None => Pulse::Gone,
        Some(lease) => match lease.spec.and_then(|spec| spec.renew_time) {
            Some(renewed) => Pulse::Renewed(renewed.0),
            None => Pulse::Unknown,
        },
    })
}
