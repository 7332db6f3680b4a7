//! Reads policies and related objects once, for a command.
//!
//! Entry points: [`policies`], [`allowances`], [`labels`], [`autoscaled`]. Invariant: invalid objects have no
//! effect, as in the guard. A cluster without the CustomResourceDefinitions has none.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

use super::super::autoscalers::{self, Scales};
use super::super::kinds::Kinds;
use crate::client::call::{self, CallError, PATIENCE};
use crate::client::pages::Pages;
use crate::client::resource::{GROUP, Resource, VERSION};
use crate::model::{Gvk, ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::compile::{Compiled, compile};
use crate::policy::resolver::Labels;
use crate::policy::resource::{DriftAllowance, DriftPolicy};

/// An autoscaler.
pub struct Autoscaled {
    /// Its place.
    pub id: ObjectId,
    /// What it scales, and how far.
    pub scales: Scales,
    /// The release whose object it says to be, true or not.
    pub named: Option<ReleaseId>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Option<Labels>,
}

/// The valid DriftPolicies of the cluster.
///
/// # Errors
/// When they cannot be read.
pub async fn policies(client: &kube::Client) -> Result<Vec<Arc<Compiled>>, CallError> {
    let resource = Resource::new(GROUP, VERSION, "DriftPolicy", "driftpolicies");
    let listed: Vec<DriftPolicy> = list(client, &resource, None).await?;
    Ok(listed.iter().filter_map(|policy| compile(policy).ok()).map(Arc::new).collect())
}

/// The valid DriftAllowances of a namespace, open or not.
///
/// # Errors
/// When they cannot be read.
pub async fn allowances(client: &kube::Client, namespace: &str) -> Result<Vec<Allowance>, CallError> {
    let resource = Resource::new(GROUP, VERSION, "DriftAllowance", "driftallowances");
    let listed: Vec<DriftAllowance> = list(client, &resource, Some(namespace)).await?;
    Ok(listed.iter().filter_map(|allowance| Allowance::compile(allowance).ok()).collect())
}

/// The labels of a namespace.
///
/// # Errors
/// When it cannot be read.
pub async fn labels(client: &kube::Client, namespace: &str) -> Result<Labels, CallError> {
    let path = Resource::new("", "v1", "Namespace", "namespaces").path(None)?;
    let request = call::get(&format!("{path}/{}", crate::client::resource::segment(namespace)?))?;
    let named: Named = call::fetch(client, request, PATIENCE).await?;
    Ok(named.metadata.labels.unwrap_or_default())
}

/// The autoscalers of a namespace, and what each scales.
///
/// # Errors
/// When the autoscalers cannot be read.
pub async fn autoscaled(
    client: &kube::Client,
    kinds: &Kinds,
    namespace: &str,
) -> Result<Vec<Autoscaled>, CallError> {
    let newest = Gvk {
        group: "autoscaling".to_owned(),
        version: "v2".to_owned(),
        kind: "HorizontalPodAutoscaler".to_owned(),
    };
    let Some(resource) = kinds.resource(&newest) else { return Ok(Vec::new()) };
    let listed: Vec<Value> = list(client, &resource, Some(namespace)).await?;
    let autoscaled = |object: &Value| {
        let (id, scales) = autoscalers::read(object)?;
        Some(Autoscaled { id, scales, named: ReleaseId::named_by(object) })
    };
    Ok(listed.iter().filter_map(autoscaled).collect())
}

async fn list<T: DeserializeOwned>(
    client: &kube::Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<Vec<T>, CallError> {
    match Pages::<Value>::objects(client, resource, namespace)?.all().await {
        Ok(items) => Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
