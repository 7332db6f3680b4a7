//! The GuardedReleases of a cluster: creates and deletes them, writes their statuses, and sets the fields
//! that users control.
//!
//! Entry points: [`GuardedReleases`] and [`suspended`] for the guard, [`list`], [`get`] and [`set`] for
//! commands. Invariant: only a leader writes statuses, at a bounded rate. Where the CustomResourceDefinition
//! is absent there are no GuardedReleases, and that is not an error. Decides nothing about the content.

mod remembered;
mod setting;

use std::num::NonZeroU32;

use governor::Quota;
use kube::core::Request as Requests;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use serde::Deserialize;
use serde_json::{Value, json};

pub use self::remembered::Remembered;
pub use self::setting::{Setting, set};
use super::call::{self, CallError, PATIENCE};
use super::definition::confirm_absence;
use super::lease::Leadership;
use super::pages::Pages;
use super::resource::{GROUP, Resource, VERSION, segment};
use super::writer::{SendError, Writer};
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseStatus, LeaseReference};
use kubemoor_policy::signing::SigningKey;
use kubemoor_policy::suspension::{Suspended, Suspension};

pub const KIND: &str = "GuardedRelease";
pub const PLURAL: &str = "guardedreleases";

/// How many seconds' worth of writes may be made at once after a pause: many releases may be upgraded at one time.
const BURST: NonZeroU32 = match NonZeroU32::new(5) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// Objects per page of a list.
const PAGE: u32 = 100;

/// Reads and writes GuardedReleases for the guard.
pub struct GuardedReleases {
    client: kube::Client,
    /// The namespaces that they lie in; empty for all.
    namespaces: Vec<String>,
    writer: Writer,
}

impl GuardedReleases {
    /// Those of the cluster behind `client`; at most `writes_per_second`, and after a pause five times as many at once.
    pub fn new(client: kube::Client, leadership: Leadership, writes_per_second: NonZeroU32) -> Self {
        let burst = writes_per_second.saturating_mul(BURST);
        let rate = Quota::per_second(writes_per_second).allow_burst(burst);
        Self { writer: Writer::new(client.clone(), rate, leadership), client, namespaces: Vec::new() }
    }

    /// The same, but none outside these namespaces; in all if there are none.
    #[must_use]
    pub fn within(self, namespaces: Vec<String>) -> Self {
        Self { namespaces, ..self }
    }

    /// The namespaces that they lie in; empty for all.
    pub(crate) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// The client that they are reached by.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The knowledge of an earlier guard; empty where the CustomResourceDefinition is absent.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn remembered(&self, key: &SigningKey) -> Result<Vec<Remembered>, CallError> {
        let listed = list_within(&self.client, &self.namespaces).await?;
        Ok(listed.iter().filter_map(|guarded| Remembered::of(guarded, key)).collect())
    }

    /// Creates the GuardedRelease of a release, and returns it; `None` if it exists already.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn create(&self, release: &ReleaseId) -> Result<Option<Box<GuardedRelease>>, SendError> {
        let body = json!({
            "apiVersion": api_version(), "kind": KIND,
            "metadata": {"name": release.name, "namespace": release.namespace},
            "spec": {},
        });
        let request = requests(Some(&release.namespace))?.create(&PostParams::default(), bytes(&body)?);
        match self.writer.send(request.map_err(CallError::from)?).await {
            Err(SendError::Call(CallError::Refused { code: 409, .. })) => Ok(None),
            outcome => outcome.map(|body| stored(&body)),
        }
    }

    /// Removes one, if it still is the one with the uid `uid`.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn remove(&self, release: &ReleaseId, uid: &str) -> Result<(), SendError> {
        let parameters = DeleteParams::background()
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let request = requests(Some(&release.namespace))?
            .delete(&segment(&release.name)?, &parameters)
            .map_err(CallError::from)?;
        match self.writer.send(request).await {
            Err(SendError::Call(error)) if error.is_overtaken() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Writes a status over the one of `live`, unless that has changed since. Returns the object as it is then.
    ///
    /// # Errors
    /// See [`SendError`]; a conflict when `live` is outdated.
    pub async fn set_status(
        &self,
        live: &GuardedRelease,
        status: &GuardedReleaseStatus,
    ) -> Result<Option<Box<GuardedRelease>>, SendError> {
        let (name, namespace) =
            (live.metadata.name.as_deref().unwrap_or_default(), live.metadata.namespace.as_deref());
        let body = json!({
            "apiVersion": api_version(), "kind": KIND,
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": live.metadata.resource_version},
            "spec": live.spec, "status": status,
        });
        let request = requests(namespace)?
            .replace_subresource("status", &segment(name)?, &PostParams::default(), bytes(&body)?)
            .map_err(CallError::from)?;
        self.writer.send(request).await.map(|body| stored(&body))
    }
}

/// The object that an answer holds.
fn stored(body: &[u8]) -> Option<Box<GuardedRelease>> {
    typed(serde_json::from_slice(body).ok()?)
}

/// The GuardedReleases in `namespace` (`None`: all); none where the definition
/// is absent.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn list(
    client: &kube::Client,
    namespace: Option<&str>,
) -> Result<Option<Vec<GuardedRelease>>, CallError> {
    let mut pages = Pages::<Value>::objects(client, &resource(), namespace)?.of(PAGE);
    let mut found = Vec::new();
    loop {
        match pages.next().await {
            Ok(Some(page)) => {
                found.extend(page.into_items().into_iter().filter_map(typed).map(|object| *object));
            }
            Ok(None) => return Ok(Some(found)),
            Err(error) => return confirm_absence(client, PLURAL, error).await.map(|()| None),
        }
    }
}

/// The Lease of the guard that maintains the GuardedReleases in `namespace` (`None`: all), from the first of
/// them; `None` if that names no Lease.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn lease(
    client: &kube::Client,
    namespace: Option<&str>,
) -> Result<Option<LeaseReference>, CallError> {
    let page = Pages::<Value>::objects(client, &resource(), namespace)?.of(1).next().await?;
    let first = page.and_then(|page| page.into_items().into_iter().find_map(typed));
    Ok(first.and_then(|guarded| guarded.status?.lease))
}

/// The GuardedRelease of a release; none where the definition is absent.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn get(client: &kube::Client, release: &ReleaseId) -> Result<Option<GuardedRelease>, CallError> {
    let name = segment(&release.name)?;
    let request =
        requests(Some(&release.namespace))?.get(&name, &GetParams::default()).map_err(CallError::from)?;
    match call::fetch::<Value>(client, request, PATIENCE).await {
        Ok(object) => Ok(typed(object).map(|object| *object)),
        Err(error) => confirm_absence(client, PLURAL, error).await.map(|()| None),
    }
}

/// The releases in `namespaces` (empty: in all) that people have suspended; none where the definition is absent.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn suspended(client: &kube::Client, namespaces: &[String]) -> Result<Suspended, CallError> {
    let listed = list_within(client, namespaces).await?;
    Ok(listed.iter().filter_map(|it| Some((it.release()?, Suspension::of(&it.spec)?))).collect())
}

/// An object, also if its status is not one of this version. Without who wrote
/// which field, which is most of it and of no use here: these are kept.
pub fn typed(mut object: Value) -> Option<Box<GuardedRelease>> {
    object.pointer_mut("/metadata")?.as_object_mut()?.remove("managedFields");
    if let Ok(whole) = GuardedRelease::deserialize(&object) {
        return Some(Box::new(whole));
    }
    object.as_object_mut()?.remove("status");
    serde_json::from_value(object).ok().map(Box::new)
}

/// Where they are served.
pub fn resource() -> Resource {
    Resource::new(GROUP, VERSION, KIND, PLURAL)
}

/// Those in `namespaces`, without those that may not be read; in all if that is empty.
async fn list_within(client: &kube::Client, namespaces: &[String]) -> Result<Vec<GuardedRelease>, CallError> {
    if namespaces.is_empty() {
        return Ok(list(client, None).await?.unwrap_or_default());
    }
    let mut found = Vec::new();
    for namespace in namespaces {
        match list(client, Some(namespace)).await {
            Ok(more) => found.extend(more.unwrap_or_default()),
            // Its watch says so, and the others count all the same.
            Err(error) if error.is_forbidden() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

fn requests(namespace: Option<&str>) -> Result<Requests, CallError> {
    Ok(Requests::new(resource().path(namespace)?))
}

fn bytes(body: &Value) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(body).map_err(|error| CallError::Unformed { reason: error.to_string() })
}

#[cfg(test)]
mod tests;
