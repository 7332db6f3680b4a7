//! DriftPolicies and their statuses.
//!
//! Entry points: [`list`], [`resource`]; [`PolicyStatuses::set`] for a guard. Invariant: only a leader writes statuses, at
//! a bounded rate, each only if the policy's version is still the judged one. Decides nothing about the
//! content.

use http::Request;
use serde_json::{Value, json};

use super::call::{self, CallError};
use super::lease::Leadership;
use super::pages::Pages;
use super::resource::{GROUP, Resource, VERSION, segment};
use super::writer::{SendError, Writer};

/// Writes statuses of DriftPolicies.
pub(crate) struct PolicyStatuses(Writer);

/// A DriftPolicy as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'p> {
    pub(crate) name: &'p str,
    pub(crate) generation: i64,
    pub(crate) resource_version: &'p str,
}

impl PolicyStatuses {
    /// Those of the cluster behind `client`, written while this process leads by `leadership`.
    pub(crate) fn new(client: kube::Client, leadership: Leadership) -> Self {
        Self(Writer::seldom(client, leadership))
    }

    /// Writes the conditions of a policy, unless that has changed since.
    ///
    /// # Errors
    /// See [`SendError`]; a conflict when the policy has changed.
    pub(crate) async fn set(&self, policy: Seen<'_>, conditions: Vec<Value>) -> Result<(), SendError> {
        self.0.send(request(policy, conditions)?).await.map(drop)
    }
}

/// The kind of the policies.
pub fn resource() -> Resource {
    Resource::new(GROUP, VERSION, "DriftPolicy", "driftpolicies")
}

/// The policies of the cluster as they are kept, of those that match the label selector `labels`.
///
/// # Errors
/// When the API server gives no usable answer; `NotFound` where the definition is not installed.
pub async fn list(client: &kube::Client, labels: Option<&str>) -> Result<Vec<Value>, CallError> {
    let pages = Pages::objects(client, &resource(), None)?;
    labels.into_iter().fold(pages, Pages::labelled).all().await
}

fn request(policy: Seen<'_>, conditions: Vec<Value>) -> Result<Request<Vec<u8>>, CallError> {
    let path = format!("{}/{}/status?fieldManager=kubemoor", resource().path(None)?, segment(policy.name)?);
    let body = json!({
        "metadata": {"resourceVersion": policy.resource_version},
        "status": {"observedGeneration": policy.generation, "conditions": conditions},
    });
    call::carry(Request::patch(path), "application/merge-patch+json", &body)
}
