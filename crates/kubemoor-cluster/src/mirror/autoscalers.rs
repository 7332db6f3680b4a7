//! The workloads that HorizontalPodAutoscalers scale, and their ranges. KEDA creates HorizontalPodAutoscalers itself,
//! so no other kind matters. When an autoscaler is deleted, its workload is remembered: the deletion is not meant to
//! change the number of replicas.
//!
//! Every user who can create an autoscaler can set any owner reference in it, including the uid. So an owner that a
//! release declares is trusted only if the autoscaler has the name that KEDA gives it, where no other one can exist,
//! and only for the workload that the declared owner targets.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::resource::ApiResource;
use crate::client::watch::Watch;
use crate::mirror::reflect::{
    ChangeAnnouncer, ChangeQueue, Listings, Mirror, Progress, Reflector, last_spec_writer, scopes,
};
use kubemoor_declare::model::{Autoscaler, Gvk, ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_reconcile::event::AutoscalerRemoval;

const GROUP: &str = "autoscaling";

const KIND: &str = "HorizontalPodAutoscaler";

/// The API group of KEDA's ScaledObjects.
const KEDA: &str = "keda.sh";

/// The autoscalers of one cluster.
pub struct AutoscalerMirror {
    client: kube::Client,
    /// The namespaces to follow; all of them if empty.
    namespaces: Vec<String>,
    known: RwLock<AutoscalerIndex>,
    changed: ChangeAnnouncer<ObjectId>,
    listings: Listings,
}

#[derive(Default)]
struct AutoscalerIndex {
    autoscalers: HashMap<ObjectId, KnownAutoscaler>,
    targets: HashMap<ObjectId, BTreeSet<ObjectId>>,
    departed: DeletedAutoscalers,
}

struct KnownAutoscaler {
    scales: AutoscalerRange,
    life: AutoscalerState,
    /// The releases that were known to declare it at some time.
    declared_by: Vec<ReleaseId>,
}

/// The autoscalers of one namespace, or of all.
struct AutoscalerScope<'a> {
    autoscalers: &'a AutoscalerMirror,
    namespace: Option<&'a str>,
    index: &'a RwLock<Index>,
}

impl AutoscalerMirror {
    /// The autoscalers of the cluster behind `client`, known once [`AutoscalerMirror::run`] has listed them.
    pub fn new(client: kube::Client, namespaces: Vec<String>) -> Arc<Self> {
        let (listings, known, changed) =
            (Listings::new(&namespaces), RwLock::default(), ChangeAnnouncer::default());
        Arc::new(Self { client, namespaces, known, changed, listings })
    }

    /// The ranges of all autoscalers that target a workload, in the order of their names. `index` shows which
    /// of them releases declare.
    pub fn of_workload(&self, workload: &ObjectId, index: &Index) -> Vec<Autoscaler> {
        self.known.read().of_workload(workload, index).map(|(_, _, autoscaler)| autoscaler).collect()
    }

    /// The same for the history: every guard returns an equal value for the same state of an autoscaler, also after a
    /// restart, so that it can be stored once.
    pub fn scalings(&self, workload: &ObjectId, index: &Index) -> Vec<Scaling> {
        let known = self.known.read();
        let all = known.of_workload(workload, index);
        all.map(|(id, taken, now)| Scaling::new(id, taken.life.clone(), now)).collect()
    }

    pub fn workloads(&self) -> Vec<ObjectId> {
        self.known.read().workloads().cloned().collect()
    }

    /// When the workload's autoscalers were deleted without a successor, as far as this process saw it.
    /// `None` if none was.
    pub fn departed(&self, workload: &ObjectId) -> Option<AutoscalerRemoval> {
        self.known.read().departed.0.get(workload).cloned()
    }

    /// Records that a workload had an autoscaler before this process started, unless it still has one.
    pub fn record_earlier_autoscaler(&self, workload: &ObjectId) {
        let forgotten = {
            let mut known = self.known.write();
            let is_known = known.targets.contains_key(workload) || known.departed.0.contains_key(workload);
            match is_known {
                true => None,
                false => known.departed.note(workload, Vec::new(), None, Timestamp::now()),
            }
        };
        forgotten.iter().for_each(|workload| self.changed.announce(workload));
    }

    /// Forgets that a workload had an autoscaler: its replicas are no longer left as they are.
    pub fn forget_departed(&self, workload: &ObjectId) {
        self.known.write().departed.0.remove(workload);
    }

    /// Every workload that has or had an autoscaler, then each one whose autoscalers are added, changed or deleted.
    pub fn changes(&self) -> ChangeQueue<ObjectId> {
        let changes = self.changed.subscribe([]);
        // Subscribed first: an autoscaler that appears meanwhile is reported twice instead of never.
        self.known.read().workloads().for_each(|workload| changes.add(workload.clone()));
        changes
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Follows the cluster's autoscalers until `stop`. `index` shows which of them releases declare.
    pub async fn run(&self, index: &RwLock<Index>, stop: CancellationToken) {
        let follow = scopes(&self.namespaces).into_iter().map(|it| self.follow(it, index));
        stop.run_until_cancelled(join_all(follow)).await;
    }

    /// Updates which releases declare the known autoscalers: the releases may have become known later.
    pub fn claim(&self, index: &RwLock<Index>) {
        // Lock order: the index first.
        let index = index.read();
        self.known.write().autoscalers.iter_mut().for_each(|(id, taken)| taken.claim(id, &index));
    }

    async fn follow(&self, namespace: Option<&str>, index: &RwLock<Index>) {
        let watch = Watch::<Value>::new(self.client.clone(), &resource(), namespace, None);
        let mut scope = AutoscalerScope { autoscalers: self, namespace, index };
        Reflector::new(watch.into_events()).run(&mut scope).await;
    }

    /// Adds or updates an autoscaler; returns its ID.
    fn set(&self, object: &Value, index: &RwLock<Index>) -> Option<ObjectId> {
        let (id, scales) = read(object)?;
        let target = scales.target.clone();
        let before = {
            // Lock order: the index first.
            let index = index.read();
            let mut known = self.known.write();
            if let Some(taken) = known.autoscalers.get_mut(&id).filter(|taken| taken.scales == scales) {
                taken.claim(&id, &index);
                return Some(id);
            }
            known.put(&id, (scales, AutoscalerState::from_object(object)), &index)
        };
        for workload in before.iter().filter(|before| **before != target).chain([&target]) {
            self.changed.announce(workload);
        }
        Some(id)
    }

    fn remove(&self, id: &ObjectId, index: &RwLock<Index>) {
        let touched = {
            let index = index.read();
            self.known.write().take(id, &index)
        };
        touched.iter().for_each(|workload| self.changed.announce(workload));
    }
}

impl Mirror for AutoscalerScope<'_> {
    type Object = Value;
    type Key = ObjectId;
    const OBJECTS: &'static str = "autoscalers";
    const UNWATCHED: &'static str = "failed to watch autoscalers; using the last known ones";

    fn set(&mut self, object: Value) -> Option<ObjectId> {
        self.autoscalers.set(&object, self.index)
    }

    fn remove(&mut self, object: Value) {
        read(&object).iter().for_each(|(id, _)| self.autoscalers.remove(id, self.index));
    }

    fn retain(&mut self, listed: &HashSet<ObjectId>) {
        let namespace = self.namespace;
        let is_here = |id: &&ObjectId| namespace.is_none() || id.namespace.as_deref() == namespace;
        let known: Vec<_> =
            self.autoscalers.known.read().autoscalers.keys().filter(is_here).cloned().collect();
        known
            .iter()
            .filter(|id| !listed.contains(*id))
            .for_each(|id| self.autoscalers.remove(id, self.index));
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.autoscalers.listings)
    }
}

impl KnownAutoscaler {
    /// Adds the releases that declare the autoscaler now.
    fn claim(&mut self, id: &ObjectId, index: &Index) {
        let now = self.scales.autoscaler(id, |object| claims(index, object)).declared_by;
        for release in now {
            if !self.declared_by.contains(&release) {
                self.declared_by.push(release);
            }
        }
    }
}

/// Every API server serves this version, which has all fields that are needed.
pub(super) fn resource() -> ApiResource {
    ApiResource::new(GROUP, "v1", KIND, "horizontalpodautoscalers")
}

/// Whether an object has an API group whose objects scale workloads.
pub fn is_autoscaler(object: &ObjectId) -> bool {
    [GROUP, KEDA].contains(&object.group.as_str())
}

fn claims<'i>(index: &'i Index, object: &ObjectId) -> Vec<&'i Release> {
    index.claims(object).into_iter().map(Arc::as_ref).collect()
}

impl AutoscalerIndex {
    fn workloads(&self) -> impl Iterator<Item = &ObjectId> {
        self.targets.keys().chain(self.departed.0.keys())
    }

    /// The autoscalers of a workload, each with its range and the releases that declare it.
    fn of_workload<'k>(
        &'k self,
        workload: &ObjectId,
        index: &'k Index,
    ) -> impl Iterator<Item = (&'k ObjectId, &'k KnownAutoscaler, Autoscaler)> + use<'k> {
        let by = self.targets.get(workload).into_iter().flatten();
        by.filter_map(|id| Some((id, self.autoscalers.get(id)?)))
            .map(|(id, taken)| (id, taken, taken.scales.autoscaler(id, |object| claims(index, object))))
    }

    /// Adds an autoscaler or replaces its earlier state; returns the workloads that the earlier state affected.
    fn put(
        &mut self,
        id: &ObjectId,
        (scales, life): (AutoscalerRange, AutoscalerState),
        index: &Index,
    ) -> Vec<ObjectId> {
        let before = self.take(id, index);
        let mut taken = KnownAutoscaler { scales, life, declared_by: Vec::new() };
        taken.claim(id, index);
        let target = &taken.scales.target;
        // Only releases in the workload's namespace count.
        let is_declared = taken.declared_by.iter().any(|by| target.namespace.as_ref() == Some(&by.namespace));
        self.departed.succeed(target, is_declared);
        self.targets.entry(target.clone()).or_default().insert(id.clone());
        self.autoscalers.insert(id.clone(), taken);
        before
    }

    /// Removes an autoscaler; returns the workload that it scaled, and one that is forgotten to make room.
    fn take(&mut self, id: &ObjectId, index: &Index) -> Vec<ObjectId> {
        let Some(mut taken) = self.autoscalers.remove(id) else { return Vec::new() };
        // The declaring release may be removed first, or appear later.
        taken.claim(id, index);
        let KnownAutoscaler { scales, declared_by, life: _ } = taken;
        if let Some(by) = self.targets.get_mut(&scales.target) {
            by.remove(id);
            if by.is_empty() {
                self.targets.remove(&scales.target);
            }
        }
        let range = Some((scales.minimum, scales.maximum));
        let forgotten = self.departed.note(&scales.target, declared_by, range, Timestamp::now());
        [Some(scales.target), forgotten].into_iter().flatten().collect()
    }
}

/// The field in which a ScaledObject names KEDA's autoscaler.
const NAMED: [&str; 4] = ["spec", "advanced", "horizontalPodAutoscalerConfig", "name"];

/// The workload and the range of one autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoscalerRange {
    pub target: ObjectId,
    minimum: i32,
    maximum: i32,
    /// The controller in its owner references.
    maker: Option<ObjectId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AutoscalerObject {
    /// Absent in a list.
    #[serde(default)]
    api_version: String,
    metadata: AutoscalerMeta,
    spec: AutoscalerSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AutoscalerMeta {
    name: String,
    namespace: String,
    #[serde(default)]
    owner_references: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AutoscalerSpec {
    scale_target_ref: Reference,
    #[serde(alias = "minReplicaCount")]
    min_replicas: Option<i32>,
    #[serde(alias = "maxReplicaCount")]
    max_replicas: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

impl AutoscalerRange {
    /// The range of the autoscaler at `id`, where `declaring` returns the releases that declare an object.
    pub fn autoscaler<'r>(
        &self,
        id: &ObjectId,
        declaring: impl Fn(&ObjectId) -> Vec<&'r Release>,
    ) -> Autoscaler {
        let maker = self.maker.as_ref().filter(|maker| maker.group == KEDA);
        let names = |release: &&Release| {
            maker.is_some_and(|maker| {
                named_by(release, maker) == id.name && scales(release, maker, &self.target)
            })
        };
        let made = maker.map(&declaring).unwrap_or_default().into_iter().filter(names);
        Autoscaler {
            minimum: self.minimum,
            maximum: self.maximum,
            by_keda: maker.is_some(),
            declared_by: declaring(id).into_iter().chain(made).map(|release| release.id.clone()).collect(),
        }
    }
}

/// The ID of an autoscaler or a ScaledObject, the workload that it targets, and its range; `None` if it is malformed.
pub fn scaling(object: &Value, index: &Index) -> Option<(ObjectId, ObjectId, Scaling)> {
    let (id, scales) = read(object)?;
    let now = scales.autoscaler(&id, |object| claims(index, object));
    let scaling = Scaling::new(&id, AutoscalerState::from_object(object), now);
    Some((id, scales.target, scaling))
}

/// The ID and content of an autoscaler or a ScaledObject; `None` if it is malformed.
pub fn read(object: &Value) -> Option<(ObjectId, AutoscalerRange)> {
    let AutoscalerObject { api_version, metadata, mut spec } = AutoscalerObject::deserialize(object).ok()?;
    let is_keda = Gvk::from_api_version(&api_version, "").group == KEDA;
    if is_keda && spec.scale_target_ref.kind.is_empty() {
        spec.scale_target_ref.kind = "Deployment".to_owned();
    }
    if is_keda && spec.scale_target_ref.api_version.is_empty() {
        spec.scale_target_ref.api_version = "apps/v1".to_owned();
    }
    let place = |reference: Reference| {
        let gvk = Gvk::from_api_version(&reference.api_version, &reference.kind);
        ObjectId::namespaced(&gvk.group, &gvk.kind, &metadata.namespace, &reference.name)
    };
    let maker = metadata.owner_references.into_iter().find(|owner| owner.controller == Some(true)).map(place);
    let scales = AutoscalerRange {
        target: place(spec.scale_target_ref),
        minimum: spec.min_replicas.unwrap_or(if is_keda { 0 } else { 1 }),
        maximum: spec.max_replicas.or(is_keda.then_some(100))?,
        maker,
    };
    let (group, kind) = if is_keda { (KEDA, "ScaledObject") } else { (GROUP, KIND) };
    Some((ObjectId::namespaced(group, kind, &metadata.namespace, &metadata.name), scales))
}

/// Whether `release` declares a ScaledObject for this workload.
fn scales(release: &Release, scaled: &ObjectId, workload: &ObjectId) -> bool {
    let Some(declared) = release.declared(scaled) else { return false };
    let is = |path: &[&str], wanted: &str, default: &str| match declared.fields().get(path) {
        Some(Value::String(text)) => text == wanted,
        _ => default == wanted,
    };
    is(&["spec", "scaleTargetRef", "name"], &workload.name, "")
        && is(&["spec", "scaleTargetRef", "kind"], &workload.kind, "Deployment")
}

/// The name of the autoscaler that KEDA creates for a ScaledObject that `release` declares.
fn named_by(release: &Release, scaled: &ObjectId) -> String {
    let name = release.declared(scaled).and_then(|declared| declared.fields().get(&NAMED));
    match name {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => format!("keda-hpa-{}", scaled.name),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// `HorizontalPodAutoscaler` or `ScaledObject`.
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub range: (i32, i32),
    /// The releases that declare the autoscaler or its controller.
    pub declared_by: Vec<ReleaseId>,
    /// The field manager that last wrote its `spec`, and when; empty if unknown.
    pub written: (String, String),
}

/// Identifies one state of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AutoscalerState {
    uid: String,
    written: (String, String),
}

impl Scaling {
    fn new(id: &ObjectId, life: AutoscalerState, now: Autoscaler) -> Self {
        let AutoscalerState { uid, written } = life;
        let Autoscaler { minimum, maximum, declared_by, .. } = now;
        let (kind, name) = (id.kind.to_string(), id.name.to_string());
        Self { kind, name, uid, range: (minimum, maximum), declared_by, written }
    }
}

impl AutoscalerState {
    fn from_object(object: &Value) -> Self {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (manager, time) = last_spec_writer(object).unwrap_or_default();
        Self { uid, written: (manager, time.map(|time| time.to_string()).unwrap_or_default()) }
    }
}

/// How many workloads with a deleted autoscaler are remembered.
const REMEMBERED: usize = 10_000;

#[derive(Default)]
struct DeletedAutoscalers(HashMap<ObjectId, AutoscalerRemoval>);

impl DeletedAutoscalers {
    /// Records that an autoscaler with this range, which these releases declared, was deleted. Returns the workload
    /// that is forgotten to make room.
    fn note(
        &mut self,
        workload: &ObjectId,
        declared_by: Vec<ReleaseId>,
        range: Option<(i32, i32)>,
        now: Timestamp,
    ) -> Option<ObjectId> {
        let declared = (!declared_by.is_empty()).then_some((now, declared_by));
        if let Some(known) = self.0.get_mut(workload) {
            (known.last, known.range) = (now, range);
            known.declared = declared.or_else(|| known.declared.take());
            return None;
        }
        let is_full = self.0.len() >= REMEMBERED;
        let oldest = self.0.iter().filter(|_| is_full).min_by_key(|(_, it)| it.last);
        let oldest = oldest.map(|(id, _)| id.clone());
        oldest.iter().for_each(|oldest| drop(self.0.remove(oldest)));
        self.0.insert(workload.clone(), AutoscalerRemoval { last: now, range, declared });
        oldest
    }

    /// Records that a workload is scaled again. An undeclared autoscaler does not replace a declared one.
    fn succeed(&mut self, workload: &ObjectId, is_declared: bool) {
        if is_declared || self.0.get(workload).is_some_and(|known| known.declared.is_none()) {
            self.0.remove(workload);
        }
    }
}

#[cfg(test)]
mod tests;
