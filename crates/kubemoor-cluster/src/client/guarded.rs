//! Requests for Kubemoor's own kinds: GuardedReleases (create, delete, statuses, and the fields that users control) and
//! the statuses of DriftPolicies. Only the leader writes statuses, at a limited rate. Without the
//! CustomResourceDefinition there are no objects, and that is not an error.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use kube::core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::discovery::confirm_absence;
use crate::client::lease::Leadership;
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, GROUP, VERSION, segment};
use crate::client::writer::{ClusterWriter, at_least_one};
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::{
    GuardedRelease, GuardedReleaseStatus, LeaseReference, SuspendedReleases, Suspension, hidden_digest,
};
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::drifts::FirstManifest;
use kubemoor_reconcile::event::LoopOrder;

pub const KIND: &str = "GuardedRelease";
pub const PLURAL: &str = "guardedreleases";

/// The burst after a pause, in seconds' worth of writes: many releases may be upgraded at the same time.
const BURST: NonZeroU32 = at_least_one(5);

const PAGE: u32 = 100;

/// Reads and writes GuardedReleases for the guard.
pub struct GuardedReleases {
    client: kube::Client,
    /// The namespaces to use; empty for all.
    namespaces: Vec<String>,
    writer: ClusterWriter,
}

impl GuardedReleases {
    /// Makes at most `writes_per_second` writes per second, and after a pause five times as many at once.
    pub fn new(client: kube::Client, leadership: Leadership, writes_per_second: NonZeroU32) -> Self {
        let burst = writes_per_second.saturating_mul(BURST);
        let rate = Quota::per_second(writes_per_second).allow_burst(burst);
        Self { writer: ClusterWriter::new(client.clone(), rate, leadership), client, namespaces: Vec::new() }
    }

    /// Limits it to these namespaces; empty for all.
    #[must_use]
    pub fn within(self, namespaces: Vec<String>) -> Self {
        Self { namespaces, ..self }
    }

    /// The namespaces to use; empty for all.
    pub(crate) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The state that an earlier guard stored; empty without the CustomResourceDefinition.
    pub async fn remembered(&self, key: &SigningKey) -> Result<Vec<LoopOrder>, ClusterError> {
        let listed = list_within(&self.client, &self.namespaces).await?;
        Ok(listed.iter().filter_map(|guarded| remembered(guarded, key)).collect())
    }

    /// Creates the GuardedRelease of a release, and returns it; `None` if it exists already.
    pub async fn create(&self, release: &ReleaseId) -> Result<Option<Box<GuardedRelease>>, ClusterError> {
        let body = json!({
            "apiVersion": api_version(), "kind": KIND,
            "metadata": {"name": release.name, "namespace": release.namespace},
            "spec": {},
        });
        let request = resource()
            .requests(Some(&release.namespace))?
            .create(&PostParams::default(), call::encode(&body)?);
        match self.writer.send(request?).await {
            Err(error) if error.is_conflict() => Ok(None),
            outcome => outcome.map(|body| stored(&body)),
        }
    }

    /// Deletes the GuardedRelease of a release, if its uid still is `uid`.
    pub async fn remove(&self, release: &ReleaseId, uid: &str) -> Result<(), ClusterError> {
        let parameters = DeleteParams::background()
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let request =
            resource().requests(Some(&release.namespace))?.delete(&segment(&release.name)?, &parameters)?;
        match self.writer.send(request).await {
            Err(error) if error.is_overtaken() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Replaces the status of `live`; a conflict if the object has changed since. Returns the updated object.
    pub async fn set_status(
        &self,
        live: &GuardedRelease,
        status: &GuardedReleaseStatus,
    ) -> Result<Option<Box<GuardedRelease>>, ClusterError> {
        let (name, namespace) =
            (live.metadata.name.as_deref().unwrap_or_default(), live.metadata.namespace.as_deref());
        let body = json!({
            "apiVersion": api_version(), "kind": KIND,
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": live.metadata.resource_version},
            "spec": live.spec, "status": status,
        });
        let request = resource().requests(namespace)?.replace_subresource(
            "status",
            &segment(name)?,
            &PostParams::default(),
            call::encode(&body)?,
        )?;
        self.writer.send(request).await.map(|body| stored(&body))
    }
}

fn stored(body: &[u8]) -> Option<Box<GuardedRelease>> {
    typed(serde_json::from_slice(body).ok()?)
}

/// The GuardedReleases in `namespace` (`None`: all); `None` without the CustomResourceDefinition.
pub async fn list(
    client: &kube::Client,
    namespace: Option<&str>,
) -> Result<Option<Vec<GuardedRelease>>, ClusterError> {
    let mut pages = Pages::<Value>::objects(client, &resource(), namespace)?.starting_with(PAGE);
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
pub async fn lease(
    client: &kube::Client,
    namespace: Option<&str>,
) -> Result<Option<LeaseReference>, ClusterError> {
    let page = Pages::<Value>::objects(client, &resource(), namespace)?.starting_with(1).next().await?;
    let first = page.and_then(|page| page.into_items().into_iter().find_map(typed));
    Ok(first.and_then(|guarded| guarded.status?.lease))
}

/// The GuardedRelease of a release; `None` if it or the CustomResourceDefinition does not exist.
pub async fn get(client: &kube::Client, release: &ReleaseId) -> Result<Option<GuardedRelease>, ClusterError> {
    let name = segment(&release.name)?;
    let request = resource().requests(Some(&release.namespace))?.get(&name, &GetParams::default())?;
    match call::fetch::<Value>(client, request, PATIENCE).await {
        Ok(object) => Ok(typed(object).map(|object| *object)),
        Err(error) => confirm_absence(client, PLURAL, error).await.map(|()| None),
    }
}

/// The releases in `namespaces` (empty: all) that users have suspended; none without the CustomResourceDefinition.
pub async fn suspended(
    client: &kube::Client,
    namespaces: &[String],
) -> Result<SuspendedReleases, ClusterError> {
    let listed = list_within(client, namespaces).await?;
    Ok(listed.iter().filter_map(|it| Some((it.release()?, Suspension::from_spec(&it.spec)?))).collect())
}

/// Reads an object, without its status if this version cannot read that. Removes `managedFields`, which is most of the
/// object and not needed here.
pub fn typed(mut object: Value) -> Option<Box<GuardedRelease>> {
    object.pointer_mut("/metadata")?.as_object_mut()?.remove("managedFields");
    if let Ok(whole) = GuardedRelease::deserialize(&object) {
        return Some(Box::new(whole));
    }
    object.as_object_mut()?.remove("status");
    serde_json::from_value(object).ok().map(Box::new)
}

pub fn resource() -> ApiResource {
    ApiResource::new(GROUP, VERSION, KIND, PLURAL)
}

/// The GuardedReleases in `namespaces` (empty: all), without namespaces that may not be read.
async fn list_within(
    client: &kube::Client,
    namespaces: &[String],
) -> Result<Vec<GuardedRelease>, ClusterError> {
    if namespaces.is_empty() {
        return Ok(list(client, None).await?.unwrap_or_default());
    }
    let mut found = Vec::new();
    for namespace in namespaces {
        match list(client, Some(namespace)).await {
            Ok(more) => found.extend(more.unwrap_or_default()),
            // The watch of this namespace reports it. The other namespaces are still used.
            Err(error) if error.is_forbidden() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSetting {
    Suspend(Suspension),
    Resume,
    /// The time makes each request differ from the last.
    Reconcile(String),
}

/// Changes a setting in the GuardedRelease of a release; returns the API server's warnings.
pub async fn set(
    client: &kube::Client,
    release: &ReleaseId,
    setting: &UserSetting,
    within: Duration,
) -> Result<Vec<String>, ClusterError> {
    let spec = match setting {
        UserSetting::Suspend(Suspension { until, reason }) => json!({
            "suspend": true,
            "suspendUntil": until.map(|until| until.to_string()),
            "suspendReason": Some(reason).filter(|reason| !reason.is_empty()),
        }),
        UserSetting::Resume => json!({"suspend": null, "suspendUntil": null, "suspendReason": null}),
        UserSetting::Reconcile(at) => json!({"reconcileAt": at}),
    };
    let request = resource().requests(Some(&release.namespace))?.patch(
        &segment(&release.name)?,
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": spec})),
    )?;
    call::send_warned(client, request, BODY_CAP, within).await.map(|(_, warnings)| warnings)
}

/// The condition reason of a release with an object that another client keeps changing back.
const CONTESTED: &str = "Contested";

/// The state of a release that an earlier guard with this key stored in its GuardedRelease's status.
pub fn remembered(guarded: &GuardedRelease, key: &SigningKey) -> Option<LoopOrder> {
    let (release, status) = (guarded.release()?, guarded.status.as_ref()?);
    let is_contested = status.conditions.iter().any(|condition| condition.reason == CONTESTED);
    let drifts = status.drifts.iter().filter(|_| is_contested);
    let (uid, revision) = (status.record_uid.clone(), status.revision);
    let shown = digest(&status.manifest_digest)?;
    let digest = hidden_digest(key, &release, (revision, uid.as_deref()), shown);
    Some(LoopOrder::Remember {
        first: FirstManifest { uid, revision, digest },
        seen: status.seen.iter().map(|object| object.seen(key, &release)).collect(),
        contested: drifts.map(|drift| drift.object.id(&release.namespace)).collect(),
        manager: status.field_manager.clone().map(Into::into),
        release,
    })
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Writes the conditions of a policy; a conflict if it has changed since `resource_version`.
pub(crate) async fn set_policy_status(
    writer: &ClusterWriter,
    name: &str,
    generation: i64,
    resource_version: &str,
    conditions: Vec<Value>,
) -> Result<(), ClusterError> {
    let body = json!({
        "metadata": {"resourceVersion": resource_version},
        "status": {"observedGeneration": generation, "conditions": conditions},
    });
    let parameters = PatchParams { field_manager: Some("kubemoor".to_owned()), ..PatchParams::default() };
    let requests = policy_resource().requests(None)?;
    let request = requests.patch_subresource("status", &segment(name)?, &parameters, &Patch::Merge(body))?;
    writer.send(request).await.map(drop)
}

pub fn policy_resource() -> ApiResource {
    ApiResource::new(GROUP, VERSION, "DriftPolicy", "driftpolicies")
}

/// The policies as stored in the cluster that match the label selector `labels`. Without the CustomResourceDefinition
/// the error [is not found](ClusterError::is_not_found).
pub async fn list_policies(client: &kube::Client, labels: Option<&str>) -> Result<Vec<Value>, ClusterError> {
    Pages::objects(client, &policy_resource(), None)?.selected(labels, None).all().await
}

#[cfg(test)]
mod tests;
