//! Creates, lists and deletes DriftAllowances. Equal requests yield the same allowance, so a request can be repeated.

use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE, RefusalKind};
use crate::client::discovery::confirm_absence;
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, GROUP, VERSION, segment};
use crate::client::writer::ClusterWriter;
use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_policy::resource::{AllowedObject, DriftAllowance, DriftAllowanceSpec, Requester};
use kubemoor_policy::signing::hex;

/// The label, and its value, of allowances that Kubemoor created.
pub const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubemoor");

const PLURAL: &str = "driftallowances";

/// The maximum number of open allowances of one namespace that have effect at one time.
pub const MOST_HERE: usize = 250;

/// The maximum length of the readable part (kind and name of the object) of an allowance's name.
const NAMED: usize = 40;

/// The maximum number of a requester's groups that are stored: a token may carry hundreds.
const GROUPS: usize = 32;

#[derive(Clone, Debug)]
pub struct AllowanceRequest<'a> {
    pub object: &'a ObjectId,
    /// The allowance's namespace: the object's, or its release's.
    pub namespace: &'a str,
    /// The paths as text; may include `*` and `delete`.
    pub paths: Vec<String>,
    pub until: Timestamp,
    pub reason: Option<&'a str>,
    /// The requesting user; `None` if the API server cannot tell.
    pub by: Option<&'a Actor>,
}

#[derive(Clone, Debug)]
pub enum AllowanceCreation {
    Created(DriftAllowance),
    /// An equal request created it before.
    AlreadyExists(DriftAllowance),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateAllowanceError {
    #[error("cannot create the allowance: {0}")]
    Call(#[from] ClusterError),
    #[error(
        "the cluster has no CustomResourceDefinition of DriftAllowance: apply the output of `kubemoor \
         manifests crds`"
    )]
    NotDefined,
    #[error("the guard runs with --read-only and creates no allowances")]
    ReadOnly,
    #[error(
        "namespace {namespace} has {MOST_HERE} open allowances, or the cluster has reached its limit: delete \
         some"
    )]
    Full { namespace: String },
    #[error("another allowance named {name} already exists: delete it")]
    Taken { name: String },
}

impl AllowanceCreation {
    pub fn resource(&self) -> &DriftAllowance {
        match self {
            Self::Created(resource) | Self::AlreadyExists(resource) => resource,
        }
    }
}

/// The DriftAllowance for a request.
pub fn resource(request: &AllowanceRequest<'_>) -> DriftAllowance {
    let AllowanceRequest { object, namespace, paths, until, reason, by } = request;
    let mut resource = DriftAllowance::new(
        &name(request),
        DriftAllowanceSpec {
            object: AllowedObject {
                group: object.group.to_string(),
                kind: object.kind.to_string(),
                namespace: object.namespace.as_deref().map(str::to_owned),
                name: object.name.to_string(),
            },
            paths: paths.clone(),
            until: until.to_string(),
            reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
            requested_by: by.map(|by| Requester {
                user: by.user.clone(),
                groups: by.groups.iter().take(GROUPS).cloned().collect(),
            }),
        },
    );
    resource.metadata = ObjectMeta {
        namespace: Some((*namespace).to_owned()),
        labels: Some([(MADE_BY.0.to_owned(), MADE_BY.1.to_owned())].into()),
        ..resource.metadata
    };
    resource
}

/// Creates an allowance, unless an equal request has created it already.
pub async fn create_allowance(
    client: &kube::Client,
    resource: &DriftAllowance,
    within: Duration,
) -> Result<AllowanceCreation, CreateAllowanceError> {
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let request = allowance_resource()
        .requests(Some(namespace))?
        .create(&PostParams::default(), call::encode(resource)?);
    let request = request.map_err(ClusterError::from)?;
    match call::fetch::<DriftAllowance>(client, request, within).await {
        Ok(made) => return Ok(AllowanceCreation::Created(made)),
        Err(error) if error.refusal() == Some(RefusalKind::AlreadyExists) => {}
        // A 404 that names an object is about the namespace. Without a name the kind is not served.
        Err(error) if error.is_not_found() && !error.proves_absence() => {
            return Err(CreateAllowanceError::NotDefined);
        }
        Err(error) => return Err(error.into()),
    }
    let request = allowance_resource()
        .requests(Some(namespace))?
        .get(&segment(name)?, &GetParams::default())
        .map_err(ClusterError::from)?;
    let there: DriftAllowance = call::fetch(client, request, within).await?;
    let same = there.spec.object == resource.spec.object
        && there.spec.paths == resource.spec.paths
        && there.spec.until == resource.spec.until
        && there.metadata.deletion_timestamp.is_none();
    if same {
        Ok(AllowanceCreation::AlreadyExists(there))
    } else {
        Err(CreateAllowanceError::Taken { name: name.to_owned() })
    }
}

/// The allowances of one namespace, or of all, that match the label selector `labels`. Without the
/// CustomResourceDefinition the error [is not found](ClusterError::is_not_found).
pub async fn list(
    client: &kube::Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<DriftAllowance>, ClusterError> {
    Pages::objects(client, &allowance_resource(), namespace)?.selected(labels, None).all().await
}

/// The current allowance; `None` if it does not exist.
pub async fn read(client: &kube::Client, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError> {
    let request =
        allowance_resource().requests(Some(namespace))?.get(&segment(name)?, &GetParams::default())?;
    match call::fetch(client, request, PATIENCE).await {
        Ok(object) => Ok(Some(object)),
        Err(error) => confirm_absence(client, PLURAL, error).await.map(|()| None),
    }
}

/// Deletes an allowance if its uid still is `uid`. Returns whether it was deleted.
pub async fn delete(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Result<bool, ClusterError> {
    let request = deletion(namespace, name, uid)?;
    match call::send(client, request, BODY_CAP, PATIENCE).await {
        Ok(_) => Ok(true),
        // It does not exist any more, or was replaced by another one.
        Err(error) if error.proves_absence() || error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes an allowance while this process leads, if its uid still is `uid`.
pub(crate) async fn delete_ended_allowance(
    writer: &ClusterWriter,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), ClusterError> {
    match writer.send(deletion(namespace, name, Some(uid))?).await {
        Err(error) if error.is_overtaken() => Ok(()),
        outcome => outcome.map(drop),
    }
}

pub fn allowance_resource() -> ApiResource {
    ApiResource::new(GROUP, VERSION, "DriftAllowance", PLURAL)
}

fn deletion(namespace: &str, name: &str, uid: Option<&str>) -> Result<Request<Vec<u8>>, ClusterError> {
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
    Ok(allowance_resource().requests(Some(namespace))?.delete(&segment(name)?, &parameters)?)
}

/// `deployment-web-1f2e3d4c5b`: readable, and the same for the same request.
fn name(request: &AllowanceRequest<'_>) -> String {
    let AllowanceRequest { object, namespace, paths, until, by, reason: _ } = request;
    let mut hash = Sha256::new();
    let user = by.map(|by| by.user.as_str()).unwrap_or_default();
    let until = until.to_string();
    let object_namespace = object.namespace.as_deref().unwrap_or_default();
    let parts =
        [&object.group, &object.kind, object_namespace, &object.name, namespace, user, until.as_str()];
    for part in parts.into_iter().chain(paths.iter().map(String::as_str)) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hex(hash.finalize().iter().take(5));
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let readable: String =
        format!("{}-{}", object.kind, object.name).chars().map(plain).take(NAMED).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

#[cfg(test)]
mod tests;
