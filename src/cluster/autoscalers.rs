//! Which workloads are scaled by HorizontalPodAutoscalers, and how far.
//!
//! Entry point: [`Autoscalers::of`]. KEDA scales through HorizontalPodAutoscalers
//! that it makes itself, so that these are all there is to look at. Invariant:
//! an autoscaler counts while it exists; what it has left behind when it went is
//! remembered, since nobody meant its workload to shrink with it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::kinds::Kinds;
use super::progress::{Listings, Progress, scopes};
use super::queue::{Announcer, Changes};
use super::raw::Raw;
use super::resource::Resource;
use super::watch::{Event, Watch};
use crate::helm::index::Index;
use crate::model::{Autoscaler, Gvk, ObjectId};

/// The API group of autoscalers.
const GROUP: &str = "autoscaling";

/// The kind of autoscalers.
const KIND: &str = "HorizontalPodAutoscaler";

/// The API group of KEDA's ScaledObjects.
const KEDA: &str = "keda.sh";

/// How many workloads whose autoscaler went are remembered.
const REMEMBERED: usize = 10_000;

/// The autoscalers of one cluster.
pub struct Autoscalers {
    client: kube::Client,
    kinds: Arc<Kinds>,
    /// Where they are followed; everywhere, where none is named.
    namespaces: Vec<String>,
    known: RwLock<Known>,
    changed: Announcer<ObjectId>,
    listings: Listings,
}

#[derive(Default)]
struct Known {
    /// By the autoscaler's own place.
    autoscalers: HashMap<ObjectId, Scales>,
    /// Whom each workload is scaled by.
    targets: HashMap<ObjectId, HashSet<ObjectId>>,
    /// When the last autoscaler of a workload went.
    departed: HashMap<ObjectId, Timestamp>,
}

/// What one autoscaler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scales {
    /// The workload that it scales.
    pub target: ObjectId,
    minimum: i32,
    maximum: i32,
    /// The object that made it.
    maker: Option<ObjectId>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(default)]
    owner_references: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    scale_target_ref: Reference,
    min_replicas: Option<i32>,
    max_replicas: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

impl Autoscalers {
    /// The autoscalers of the cluster behind `client`, known once
    /// [`Autoscalers::run`] has listed them.
    pub fn new(client: kube::Client, kinds: Arc<Kinds>, namespaces: Vec<String>) -> Arc<Self> {
        let (listings, known, changed) = (Listings::of(&namespaces), RwLock::default(), Announcer::default());
        Arc::new(Self { client, kinds, namespaces, known, changed, listings })
    }

    /// How far autoscalers may scale a workload: of several that target it, the
    /// widest range. `None` where none does. `index` tells which autoscalers
    /// releases declare.
    pub fn of(&self, workload: &ObjectId, index: &Index) -> Option<Autoscaler> {
        let known = self.known.read();
        let declares = |object: &ObjectId| !index.claims(object).is_empty();
        known
            .targets
            .get(workload)?
            .iter()
            .filter_map(|id| Some((id, known.autoscalers.get(id)?)))
            .map(|(id, scales)| scales.autoscaler(id, declares))
            .reduce(Autoscaler::widest)
    }

    /// When the last autoscaler of a workload went, as far as this process saw
    /// it. `None` while there is one.
    pub fn departed(&self, workload: &ObjectId) -> Option<Timestamp> {
        self.known.read().departed.get(workload).copied()
    }

    /// Forgets that a workload had an autoscaler: what it left behind stays no
    /// longer.
    pub fn forget_departed(&self, workload: &ObjectId) {
        self.known.write().departed.remove(workload);
    }

    /// Tells of every workload whose autoscalers come, change or go.
    pub fn changes(&self) -> Changes<ObjectId> {
        self.changed.subscribe([])
    }

    /// How far the first listing is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Follows the cluster's autoscalers until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(scopes(&self.namespaces).into_iter().map(|it| self.follow(it))) => {}
        }
    }

    async fn follow(&self, namespace: Option<&str>) {
        let newest = Gvk { group: GROUP.to_owned(), version: "v2".to_owned(), kind: KIND.to_owned() };
        // Every version from v1 on has the fields that count.
        let resource = self.kinds.resource(&newest);
        let resource =
            resource.unwrap_or_else(|| Resource::new(GROUP, "v1", KIND, "horizontalpodautoscalers"));
        let mut feed = Watch::<Raw>::new(self.client.clone(), &resource, namespace, None);
        let mut is_whole = false;
        let mut listed: HashSet<ObjectId> = HashSet::new();
        let mut complained = false;
        loop {
            match feed.next().await {
                Event::Relisting => listed.clear(),
                Event::Listed(object) => listed.extend(self.set(&object.0)),
                Event::Applied(object) => drop(self.set(&object.0)),
                Event::Deleted(object) => {
                    if let Some((id, _)) = read(&object.0) {
                        self.remove(&id);
                    }
                }
                Event::Synced => {
                    let is_here =
                        |id: &&ObjectId| namespace.is_none() || id.namespace.as_deref() == namespace;
                    let known: Vec<_> =
                        self.known.read().autoscalers.keys().filter(is_here).cloned().collect();
                    known.iter().filter(|id| !listed.contains(*id)).for_each(|id| self.remove(id));
                    if !std::mem::replace(&mut is_whole, true) {
                        self.listings.whole();
                    }
                }
                Event::Watching => complained = false,
                Event::Broken(error) => {
                    self.listings.fail("autoscalers cannot be listed", &error);
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, "autoscalers cannot be watched; the last known ones count");
                    }
                }
            }
        }
    }

    /// Takes an autoscaler in; its place.
    fn set(&self, object: &Value) -> Option<ObjectId> {
        let (id, scales) = read(object)?;
        let target = scales.target.clone();
        let before = {
            let mut known = self.known.write();
            if known.autoscalers.get(&id) == Some(&scales) {
                return Some(id);
            }
            let before = known.take(&id);
            known.departed.remove(&target);
            known.targets.entry(target.clone()).or_default().insert(id.clone());
            known.autoscalers.insert(id.clone(), scales);
            before
        };
        for workload in before.iter().filter(|before| **before != target).chain([&target]) {
            self.changed.announce(workload);
        }
        Some(id)
    }

    fn remove(&self, id: &ObjectId) {
        let target = self.known.write().take(id);
        if let Some(target) = target {
            self.changed.announce(&target);
        }
    }
}

impl Scales {
    /// How far the autoscaler at `id` may scale, where `declares` tells which
    /// objects releases declare.
    pub fn autoscaler(&self, id: &ObjectId, declares: impl Fn(&ObjectId) -> bool) -> Autoscaler {
        Autoscaler {
            minimum: self.minimum,
            maximum: self.maximum,
            by_keda: self.maker.as_ref().is_some_and(|maker| maker.group == KEDA),
            declared: declares(id) || self.maker.as_ref().is_some_and(declares),
        }
    }
}

impl Known {
    /// Takes an autoscaler out; the workload that it scaled.
    fn take(&mut self, id: &ObjectId) -> Option<ObjectId> {
        let scales = self.autoscalers.remove(id)?;
        if let Some(by) = self.targets.get_mut(&scales.target) {
            by.remove(id);
            if by.is_empty() {
                self.targets.remove(&scales.target);
                self.depart(scales.target.clone());
            }
        }
        Some(scales.target)
    }

    fn depart(&mut self, workload: ObjectId) {
        if self.departed.len() >= REMEMBERED
            && let Some(oldest) = self.departed.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone())
        {
            self.departed.remove(&oldest);
        }
        self.departed.insert(workload, Timestamp::now());
    }
}

/// An autoscaler's place and what it says; none if it is not well-formed.
pub(super) fn read(object: &Value) -> Option<(ObjectId, Scales)> {
    let Object { metadata, spec } = Object::deserialize(object).ok()?;
    let place = |reference: Reference| ObjectId {
        group: Gvk::from_api_version(&reference.api_version, &reference.kind).group,
        kind: reference.kind,
        namespace: Some(metadata.namespace.clone()),
        name: reference.name,
    };
    let maker = metadata.owner_references.into_iter().find(|owner| owner.controller == Some(true)).map(place);
    let scales = Scales {
        target: place(spec.scale_target_ref),
        minimum: spec.min_replicas.unwrap_or(1),
        maximum: spec.max_replicas,
        maker,
    };
    let id = ObjectId {
        group: GROUP.to_owned(),
        kind: KIND.to_owned(),
        namespace: Some(metadata.namespace.clone()),
        name: metadata.name,
    };
    Some((id, scales))
}

#[cfg(test)]
mod tests;
