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
use crate::client::definition::confirm_absence;
use crate::client::pages::Pages;
use crate::client::resource::{GROUP, Resource, VERSION};
use kubemoor_declare::model::{Gvk, ObjectId, ReleaseId};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::{Compiled, compile};
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::{DriftAllowance, DriftPolicy};

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
    let listed: Vec<DriftPolicy> = own(client, ("DriftPolicy", "driftpolicies"), None).await?;
    Ok(listed.iter().filter_map(|policy| compile(policy).ok()).map(Arc::new).collect())
}

/// The valid DriftAllowances of a namespace, open or not.
///
/// # Errors
/// When they cannot be read.
pub async fn allowances(client: &kube::Client, namespace: &str) -> Result<Vec<Allowance>, CallError> {
    let listed: Vec<DriftAllowance> =
        own(client, ("DriftAllowance", "driftallowances"), Some(namespace)).await?;
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
    let listed = Pages::<Value>::objects(client, &resource, Some(namespace))?.all().await?;
    let autoscaled = |object: &Value| {
        let (id, scales) = autoscalers::read(object)?;
        Some(Autoscaled { id, scales, named: ReleaseId::named_by(object) })
    };
    Ok(listed.iter().filter_map(autoscaled).collect())
}

/// The objects of one of Kubemoor's own kinds; none where it is not defined.
async fn own<T: DeserializeOwned>(
    client: &kube::Client,
    (kind, plural): (&str, &str),
    namespace: Option<&str>,
) -> Result<Vec<T>, CallError> {
    let resource = Resource::new(GROUP, VERSION, kind, plural);
    match Pages::<Value>::objects(client, &resource, namespace)?.all().await {
        Ok(items) => Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()),
        Err(error) => confirm_absence(client, plural, error).await.map(|()| Vec::new()),
    }
}
