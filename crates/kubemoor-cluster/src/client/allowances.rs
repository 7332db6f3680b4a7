//! Making, listing and deleting DriftAllowances.
//!
//! Entry points: [`resource`], [`make`], [`list`], [`delete`]; `Clearing` for a guard. Invariant:
//! the same request makes the same allowance, so that it may be repeated.

use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::core::Request as Requests;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::call::{self, BODY_CAP, CallError, PATIENCE};
use super::definition::confirm_absence;
use super::lease::Leadership;
use super::pages::Pages;
use super::resource::{GROUP, Resource, VERSION, segment};
use super::writer::{SendError, Writer};
use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_policy::resource::{AllowedObject, DriftAllowance, DriftAllowanceSpec, Requester};

/// The label of allowances that Kubemoor made, and its value.
pub const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubemoor");

/// What allowances are called in paths.
const PLURAL: &str = "driftallowances";

/// The most open allowances of one namespace that count at one time.
pub const MOST_HERE: usize = 250;

/// How many characters of an object's name its allowance's name may hold.
const NAMED: usize = 40;

/// The maximum number of a requester's groups that are stored: a token may carry hundreds.
const GROUPS: usize = 32;

/// A requested allowance.
#[derive(Clone, Debug)]
pub struct AllowanceRequest<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The allowance's namespace: the object's, or its release's.
    pub namespace: &'a str,
    /// The paths as texts, `*` and `delete` among them.
    pub paths: Vec<String>,
    /// Until when.
    pub until: Timestamp,
    /// Why.
    pub reason: Option<&'a str>,
    /// Who asks; `None` where the API server cannot say.
    pub by: Option<&'a Actor>,
}

/// An allowance that exists.
#[derive(Clone, Debug)]
pub enum Ensured {
    /// It was made.
    Made(DriftAllowance),
    /// An equal request has made it before.
    There(DriftAllowance),
}

/// Clears allowances away while a process leads.
pub(crate) struct Clearing(Writer);

/// Why there is no allowance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MakeError {
    /// The API server gave no usable answer.
    #[error("the allowance cannot be made: {0}")]
    Call(#[from] CallError),
    /// The definition is not installed.
    #[error("DriftAllowances are not known to this cluster: apply what `kubemoor manifests crds` prints")]
    NotDefined,
    /// Every write is forgone.
    #[error("the guard runs with --read-only and makes none")]
    ReadOnly,
    /// There are as many as count.
    #[error(
        "namespace {namespace} has {MOST_HERE} open allowances, or the cluster as many as count: delete some"
    )]
    Full {
        /// The namespace.
        namespace: String,
    },
    /// Something else has its name.
    #[error("an allowance for something else has the name {name} already: delete it")]
    Taken {
        /// The name.
        name: String,
    },
}

impl Ensured {
    /// The allowance.
    pub fn resource(&self) -> &DriftAllowance {
        match self {
            Self::Made(resource) | Self::There(resource) => resource,
        }
    }
}

/// The allowance that a request amounts to.
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

/// Makes an allowance, unless an equal request has made it.
///
/// # Errors
/// See [`MakeError`].
pub async fn make(
    client: &kube::Client,
    resource: &DriftAllowance,
    within: Duration,
) -> Result<Ensured, MakeError> {
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let body =
        serde_json::to_vec(resource).map_err(|error| CallError::Unformed { reason: error.to_string() })?;
    let request = requests(Some(namespace))?.create(&PostParams::default(), body).map_err(CallError::from)?;
    match call::fetch::<DriftAllowance>(client, request, within).await {
        Ok(made) => return Ok(Ensured::Made(made)),
        Err(CallError::Refused { code: 409, reason, .. }) if reason == "AlreadyExists" => {}
        // What is named is the namespace. Without a name the kind is not served.
        Err(error) if error.is_not_found() && !error.proves_absence() => return Err(MakeError::NotDefined),
        Err(error) => return Err(error.into()),
    }
    let request =
        requests(Some(namespace))?.get(&segment(name)?, &GetParams::default()).map_err(CallError::from)?;
    let there: DriftAllowance = call::fetch(client, request, within).await?;
    let same = there.spec.object == resource.spec.object
        && there.spec.paths == resource.spec.paths
        && there.spec.until == resource.spec.until
        && there.metadata.deletion_timestamp.is_none();
    if same { Ok(Ensured::There(there)) } else { Err(MakeError::Taken { name: name.to_owned() }) }
}

/// The allowances of one namespace, or of all.
///
/// # Errors
/// When the API server gives no usable answer; `NotFound` where the definition
/// is not installed.
pub async fn list(client: &kube::Client, namespace: Option<&str>) -> Result<Vec<DriftAllowance>, CallError> {
    labelled(client, namespace, None).await
}

/// Of these only what matches the label selector `labels`.
///
/// # Errors
/// See [`list`].
pub async fn labelled(
    client: &kube::Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<DriftAllowance>, CallError> {
    let pages = Pages::objects(client, &defined(), namespace)?;
    labels.into_iter().fold(pages, Pages::labelled).all().await
}

/// The current allowance; `None` if it does not exist.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn read(client: &kube::Client, namespace: &str, name: &str) -> Result<Option<Value>, CallError> {
    let request = requests(Some(namespace))?.get(&segment(name)?, &GetParams::default())?;
    match call::fetch(client, request, PATIENCE).await {
        Ok(object) => Ok(Some(object)),
        Err(error) => confirm_absence(client, PLURAL, error).await.map(|()| None),
    }
}

/// Deletes an allowance, if it still is the one with the uid `uid`. Whether it
/// was there.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn delete(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Result<bool, CallError> {
    let request = deletion(namespace, name, uid)?;
    match call::send(client, request, BODY_CAP, PATIENCE).await {
        Ok(_) => Ok(true),
        // It does not exist any more, or was replaced by another one.
        Err(error) if error.proves_absence() => Ok(false),
        Err(CallError::Refused { code: 409, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Clearing {
    /// For the cluster behind `client`, while this process leads by `leadership`.
    pub(crate) fn new(client: kube::Client, leadership: Leadership) -> Self {
        Self(Writer::seldom(client, leadership))
    }

    /// Deletes an allowance, if it still is the one with the uid `uid`.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn delete(&self, namespace: &str, name: &str, uid: &str) -> Result<(), SendError> {
        match self.0.send(deletion(namespace, name, Some(uid))?).await {
            Err(SendError::Call(error)) if error.is_overtaken() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

/// Where they are served.
pub fn defined() -> Resource {
    Resource::new(GROUP, VERSION, "DriftAllowance", PLURAL)
}

fn deletion(namespace: &str, name: &str, uid: Option<&str>) -> Result<Request<Vec<u8>>, CallError> {
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
    Ok(requests(Some(namespace))?.delete(&segment(name)?, &parameters)?)
}

fn requests(namespace: Option<&str>) -> Result<Requests, CallError> {
    Ok(Requests::new(defined().path(namespace)?))
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
    let digest: String = hash.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let readable: String =
        format!("{}-{}", object.kind, object.name).chars().map(plain).take(NAMED).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

#[cfg(test)]
mod tests;
