//! One request to a guard's own HTTP API, which speaks like the API server:
//! JSON, and Statuses for refusals.
//!
//! Entry point: [`get`].

use std::time::Duration;

use super::call::{self, BODY_CAP, CallError};

/// The body of `path` and query at the server of `client`.
///
/// # Errors
/// See [`CallError`]; a Status of the guard's is a refusal.
pub async fn get(client: &kube::Client, path: &str, within: Duration) -> Result<Vec<u8>, CallError> {
    call::send(client, call::get(path)?, BODY_CAP, within).await
}
