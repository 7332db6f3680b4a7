//! Reads, creates, applies, deletes and watches objects of any kind, and finds the releases that objects with Helm's
//! label name. Writes are rate-limited, a delete requires the object's uid, and no error quotes a Secret's values.
//! Every stored object can be read, one with too much nesting at least in its metadata, so that none can end a watch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use http::Request;
use kube::core::Request as Requests;
use kube::core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::lease::Leadership;
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, Meta, Partial, segment};
use crate::client::watch::{ObjectEvent, ObjectForm, Watch};
use crate::client::writer::ClusterWriter;
use kubemoor_declare::model::{self, MANAGED_BY, ObjectId, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};
use kubemoor_reconcile::event::{HelmManager, LiveObject, Sighting};

/// Reads and writes single objects. Cheap to clone; clones share one rate.
#[derive(Clone)]
pub struct Objects {
    client: kube::Client,
    writer: ClusterWriter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectTarget {
    pub resource: ApiResource,
    /// Its namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    pub name: String,
}

pub struct LiveObjectWatch {
    watch: Watch<WholeObject>,
    resource: ApiResource,
}

impl Objects {
    /// Limits writes to `writes_per_second`, in bursts of at most as many.
    pub fn new(client: kube::Client, writes_per_second: NonZeroU32) -> Self {
        let rate = Quota::per_second(writes_per_second);
        Self { writer: ClusterWriter::new(client.clone(), rate, Leadership::alone()), client }
    }

    /// Writes only while this process leads. Dry runs store nothing and are always possible.
    pub fn led(self, leadership: Leadership) -> Self {
        Self { writer: self.writer.led(leadership), ..self }
    }

    /// The whole live object; `None` if it does not exist; [`ClusterError::Unserved`] if the API server does not serve
    /// the kind.
    pub async fn read(&self, target: &ObjectTarget) -> Result<Option<LiveObject>, ClusterError> {
        let request = target.requests()?.get(&target.segment()?, &GetParams::default())?;
        let raw = call::found(call::fetch::<Box<RawValue>>(&self.client, request, PATIENCE).await)?;
        Ok(raw.map(|raw| live(&target.resource, WholeObject::read(raw))))
    }

    pub async fn get(&self, target: &ObjectTarget) -> Result<Option<Value>, ClusterError> {
        let request = target.requests()?.get(&target.segment()?, &GetParams::default())?;
        call::found(call::fetch(&self.client, request, PATIENCE).await)
    }

    pub async fn sight(&self, target: &ObjectTarget) -> Result<Option<Sighting>, ClusterError> {
        let request = target.requests()?.get_metadata(&target.segment()?, &GetParams::default())?;
        let partial = call::found(call::fetch::<Partial>(&self.client, request, PATIENCE).await)?;
        Ok(partial.map(|partial| sighting(&target.resource, partial.metadata)))
    }

    /// Creates the object by POST as the field manager `manager`, as Helm 3 does. Returns the stored object.
    pub async fn create(
        &self,
        target: &ObjectTarget,
        object: &Value,
        manager: &str,
    ) -> Result<Value, ClusterError> {
        let parameters = PostParams { dry_run: false, field_manager: Some(manager.to_owned()) };
        let request = target.requests()?.create(&parameters, call::encode(object)?)?;
        self.write(target, request).await
    }

    /// Applies the object server-side as the field manager `manager`, as Helm 4 does; `force` takes fields from other
    /// managers. Creates it if it does not exist. Returns the stored object.
    pub async fn apply(
        &self,
        target: &ObjectTarget,
        object: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ClusterError> {
        let parameters = PatchParams { force, ..PatchParams::apply(manager) };
        let request = target.patch(object, &parameters)?;
        self.write(target, request).await
    }

    /// Changes an existing object by a JSON merge patch as the field manager `manager`. A `metadata.resourceVersion` in
    /// it is a precondition. Returns the stored object.
    pub async fn merge(
        &self,
        target: &ObjectTarget,
        patch: &Value,
        manager: &str,
    ) -> Result<Value, ClusterError> {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let request = target.requests()?.patch(&target.segment()?, &parameters, &Patch::Merge(patch));
        self.write(target, request?).await
    }

    /// The object as the API server would store it after a forced apply as `manager`; stores nothing.
    pub(crate) async fn dry_run(
        &self,
        target: &ObjectTarget,
        object: &Value,
        manager: &str,
        within: Duration,
    ) -> Result<Value, ClusterError> {
        let request = target.patch(object, &PatchParams::apply(manager).force().dry_run())?;
        let answer = call::send(&self.client, request, BODY_CAP, within).await;
        call::decode(&answer.map_err(|error| target.redact_error(error))?)
    }

    /// Checks whether the API server would accept the object as a new one; stores nothing. For an existing name the API
    /// server reports the conflict after it has validated the new object, and before it compares the two:
    /// [`RefusalKind::AlreadyExists`](call::RefusalKind) means that the object is valid. Returns the warnings.
    pub async fn dry_run_create(
        &self,
        target: &ObjectTarget,
        object: &Value,
    ) -> Result<Vec<String>, ClusterError> {
        let parameters = PostParams { dry_run: true, field_manager: None };
        let request = target.requests()?.create(&parameters, call::encode(object)?)?;
        let answer = call::send_warned(&self.client, request, BODY_CAP, PATIENCE).await;
        answer.map(|(_, warnings)| warnings).map_err(|error| target.redact_error(error))
    }

    /// Deletes the object if its uid still is `uid`; otherwise it is a conflict. Its dependents are deleted in the
    /// background.
    pub async fn delete(&self, target: &ObjectTarget, uid: &str) -> Result<(), ClusterError> {
        let parameters = DeleteParams::background()
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let request = target.requests()?.delete(&target.segment()?, &parameters)?;
        self.send(target, request).await.map(drop)
    }

    /// Watches all objects of `resource` in `namespace` (`None`: in all) that match the label selector `selector`.
    pub fn watch(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> LiveObjectWatch {
        LiveObjectWatch {
            watch: Watch::new(self.client.clone(), resource, namespace, selector),
            resource: resource.clone(),
        }
    }

    async fn write(&self, target: &ObjectTarget, request: Request<Vec<u8>>) -> Result<Value, ClusterError> {
        call::decode(&self.send(target, request).await?)
    }

    async fn send(&self, target: &ObjectTarget, request: Request<Vec<u8>>) -> Result<Vec<u8>, ClusterError> {
        self.writer.send(request).await.map_err(|error| target.redact_error(error))
    }
}

impl LiveObjectWatch {
    /// The next event. Never ends; failures are reported and retried. Safe to cancel.
    pub async fn next(&mut self) -> ObjectEvent<LiveObject> {
        let Ok(event) =
            self.watch.next().await.try_map(|whole| Ok::<_, Infallible>(live(&self.resource, whole)));
        event
    }

    /// Makes the next event start a new listing.
    pub fn relist(&mut self) {
        self.watch.relist();
    }
}

impl ObjectTarget {
    fn requests(&self) -> Result<Requests, ClusterError> {
        self.resource.requests(self.namespace.as_deref())
    }

    fn segment(&self) -> Result<String, ClusterError> {
        segment(&self.name)
    }

    fn patch(&self, object: &Value, parameters: &PatchParams) -> Result<Request<Vec<u8>>, ClusterError> {
        Ok(self.requests()?.patch(&self.segment()?, parameters, &Patch::Apply(object))?)
    }

    /// Removes the values from an error about a Secret.
    fn redact_error(&self, error: ClusterError) -> ClusterError {
        if self.resource.is_secret() { error.without_values() } else { error }
    }
}

/// Objects on the first page of a list: whole ones may be large.
const WHOLE_PAGE: u32 = 50;

/// An object whose resource is known to the caller.
pub(crate) struct WholeObject {
    meta: Meta,
    object: Option<Value>,
    managed: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ObjectHead<'t> {
    #[serde(borrow)]
    metadata: &'t RawValue,
}

pub(crate) fn live(resource: &ApiResource, whole: WholeObject) -> LiveObject {
    let WholeObject { meta, object, managed } = whole;
    LiveObject { sighting: sighting(resource, meta), object, managed }
}

impl ObjectForm for WholeObject {
    type Wire = Box<RawValue>;
    const PAGE: u32 = WHOLE_PAGE;
    const METADATA: bool = false;

    fn read(wire: Box<RawValue>) -> Self {
        let metadata = serde_json::from_str(wire.get()).map(|head: ObjectHead<'_>| head.metadata);
        let Ok(metadata) = metadata else {
            return Self { meta: Meta::default(), object: None, managed: None };
        };
        let meta = serde_json::from_str(metadata.get()).unwrap_or_default();
        let object = parse_without_field(wire.get(), "metadata").ok();
        let Some(((mut object, _), (metadata, managed))) =
            object.zip(parse_without_field(metadata.get(), "managedFields").ok())
        else {
            return Self { meta, object: None, managed: None };
        };
        object.insert("metadata".to_owned(), Value::Object(metadata));
        Self { meta, object: Some(Value::Object(object)), managed: managed.map(ToOwned::to_owned) }
    }

    fn version(&self) -> &str {
        &self.meta.resource_version
    }
}

pub(crate) fn sighting(resource: &ApiResource, meta: Meta) -> Sighting {
    let annotations = meta.annotations.unwrap_or_default();
    let release = ReleaseId::from_annotations(|key| annotations.get(key).cloned());
    let entries = meta.managed_fields.unwrap_or_default();
    let mut writers: Vec<_> =
        entries.iter().filter(|entry| entry.subresource.as_deref() != Some("status")).collect();
    writers.sort_by_key(|entry| Reverse(entry.time));
    let touched = writers.first().and_then(|entry| entry.time);
    let updating = writers.iter().filter(|entry| entry.operation.as_deref() != Some("Apply"));
    let updaters = updating.filter_map(|entry| entry.manager.clone()).collect();
    let mut managers: Vec<HelmManager> = entries
        .into_iter()
        .filter(|entry| {
            entry.owns_release_name() && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
        .filter_map(|entry| {
            Some(HelmManager { applies: entry.operation.as_deref() == Some("Apply"), name: entry.manager? })
        })
        .collect();
    managers.sort_by_key(|manager| !manager.applies);
    Sighting {
        id: ObjectId {
            group: resource.group.clone().into(),
            kind: resource.kind.clone().into(),
            namespace: meta.namespace.map(Into::into),
            name: meta.name.into(),
        },
        uid: meta.uid,
        resource_version: meta.resource_version,
        deleting: meta.deletion_timestamp,
        release,
        managers,
        updaters,
        touched,
    }
}

/// The fields of a JSON object, and the field `name` as unparsed text, so that its nesting cannot make the object
/// unreadable.
fn parse_without_field<'t>(
    text: &'t str,
    name: &str,
) -> serde_json::Result<(Map<String, Value>, Option<&'t RawValue>)> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    let peeled = fields.remove(name);
    let read = |(name, text): (String, &RawValue)| Ok((name, serde_json::from_str(text.get())?));
    Ok((fields.into_iter().map(read).collect::<serde_json::Result<_>>()?, peeled))
}

/// The maximum number of pages of one kind that are read.
const MOST_PAGES: usize = 40;

/// The maximum length of a release name: that of an object's name.
const LONGEST: usize = 253;

/// The annotation of hooks, which no release declares.
const HOOK: &str = "helm.sh/hook";

/// Argo CD's annotation, as `APPLICATION:GROUP/KIND:NAMESPACE/NAME`; the application may be `NAMESPACE_NAME`.
const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Argo CD's label, if it tracks by its own label.
const ARGO_INSTANCE: &str = "argocd.argoproj.io/instance";

/// The label by which charts name their release, and Argo CD its application.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The program that wrote an object, as far as its metadata shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelOrigin {
    /// Helm: its annotations name the release.
    Helm,
    /// Argo CD: its label or annotation names the application.
    ArgoCd,
    /// Unknown: a chart's own labels name the release, and Helm's annotations are absent.
    Unknown,
}

/// The releases that objects of a kind name.
#[derive(Debug, Default)]
pub struct NamedReleases {
    /// Each with its most reliable origin.
    pub releases: BTreeMap<ReleaseId, LabelOrigin>,
    /// Whether there are more objects than were read.
    pub cut: bool,
}

/// The releases that the objects of `resource` in `namespace` (`None`: all) with Helm's label name.
pub async fn named_releases(
    client: &kube::Client,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<NamedReleases, ClusterError> {
    let (key, value) = MANAGED_BY;
    let mut pages =
        Pages::metadata(client, resource, namespace)?.selected(Some(&format!("{key}={value}")), None);
    let mut named = NamedReleases::default();
    for _ in 0..MOST_PAGES {
        let Some(page) = pages.next().await? else { break };
        for (release, origin) in
            page.into_items().into_iter().filter_map(|item| named_release(&item.metadata))
        {
            let known = named.releases.entry(release).or_insert(origin);
            *known = origin.min(*known);
        }
    }
    named.cut = !pages.is_over();
    Ok(named)
}

/// The release that an object names; `None` for hooks, and for objects without a release name.
fn named_release(meta: &Meta) -> Option<(ReleaseId, LabelOrigin)> {
    let text = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
    let annotation = |key: &str| text(&meta.annotations, key);
    let label = |key: &str| text(&meta.labels, key);
    if annotation(HOOK).is_some() {
        return None;
    }
    let here = meta.namespace.clone();
    let tracked = annotation(ARGO_TRACKING).as_deref().and_then(application);
    let (namespace, name, origin) = match (annotation(RELEASE_NAME), tracked.or_else(|| label(ARGO_INSTANCE)))
    {
        (Some(name), _) => (annotation(RELEASE_NAMESPACE).or(here)?, name, LabelOrigin::Helm),
        (None, Some(name)) => (here?, name, LabelOrigin::ArgoCd),
        (None, None) => (here?, label(INSTANCE)?, LabelOrigin::Unknown),
    };
    let is_name = name.len() <= LONGEST && name.split('.').all(model::is_dns_label);
    (is_name && model::is_dns_label(&namespace))
        .then_some((ReleaseId { namespace: namespace.into(), name: name.into() }, origin))
}

fn application(text: &str) -> Option<String> {
    let (application, _) = text.split_once(':')?;
    let name = application.rsplit_once('_').map_or(application, |(_, name)| name);
    Some(name.to_owned())
}

#[cfg(test)]
mod tests;
