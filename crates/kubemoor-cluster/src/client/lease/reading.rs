//! Reads the Lease.
//!
//! Entry point: [`read`]. Invariant: only the API server's own word is absence: a proxy that answers 404 takes the lead from
//! nobody and ends no withdrawal. Must not write.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use super::super::call::CallError;

/// The Lease of this name, if it is there.
///
/// # Errors
/// When the API server gives no usable answer.
pub(super) async fn read(leases: &Api<Lease>, name: &str) -> Result<Option<Lease>, CallError> {
    match leases.get(name).await.map_err(CallError::from) {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if error.proves_absence() => Ok(None),
        Err(error) => Err(error),
    }
}
