//! The workloads that HorizontalPodAutoscalers scale, and their ranges.
//!
//! Entry point: [`Autoscalers::of`]. KEDA scales through HorizontalPodAutoscalers that it makes itself, so
//! that no other kind matters. Invariant: an autoscaler counts while it exists. When one is deleted, the
//! number of replicas that it left behind is remembered, since its deletion is not meant to shrink the
//! workload.
//!
//! Every user who can create an autoscaler can write any owner into it, including the uid. So an owner that a
//! release declares is trusted only under the name that KEDA gives the autoscaler, where no other one can
//! exist, and only for the workload in the owner's declaration.

mod departed;
mod history;
mod scales;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::departed::Departed;
use self::history::Life;
pub use self::history::Scaling;
pub use self::scales::{Scales, read};
use super::kinds::{Kinds, WatchDoubt};
use super::progress::{Listings, Progress, scopes};
use super::queue::{Announcer, Changes};
use super::reflect::{Mirror, Reflector};
use crate::client::call::CallError;
use crate::client::resource::Resource;
use crate::client::watch::Watch;
use kubemoor_declare::model::{Autoscaler, Gvk, ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_reconcile::departure::Departure;

/// The API group of autoscalers.
const GROUP: &str = "autoscaling";

/// The kind of autoscalers.
const KIND: &str = "HorizontalPodAutoscaler";

/// The API group of KEDA's ScaledObjects.
const KEDA: &str = "keda.sh";

/// The autoscalers of one cluster.
pub struct Autoscalers {
    client: kube::Client,
    kinds: Arc<Kinds>,
    /// The namespaces to follow; all of them if empty.
    namespaces: Vec<String>,
    known: RwLock<Known>,
    changed: Announcer<ObjectId>,
    listings: Listings,
}

#[derive(Default)]
struct Known {
    /// By the autoscaler's own place.
    autoscalers: HashMap<ObjectId, Taken>,
    /// The autoscalers of each workload.
    targets: HashMap<ObjectId, BTreeSet<ObjectId>>,
    departed: Departed,
}

/// An autoscaler as it was taken in.
struct Taken {
    scales: Scales,
    life: Life,
    /// The releases that were known to declare it at some time.
    declared_by: Vec<ReleaseId>,
}

/// Those of one namespace, or of all.
struct Scope<'a> {
    autoscalers: &'a Autoscalers,
    namespace: Option<&'a str>,
    index: &'a RwLock<Index>,
}

impl Autoscalers {
    /// The autoscalers of the cluster behind `client`, known once
    /// [`Autoscalers::run`] has listed them.
    pub fn new(client: kube::Client, kinds: Arc<Kinds>, namespaces: Vec<String>) -> Arc<Self> {
        let (listings, known, changed) = (Listings::of(&namespaces), RwLock::default(), Announcer::default());
        Arc::new(Self { client, kinds, namespaces, known, changed, listings })
    }

    /// The ranges of all autoscalers that target a workload, in the order of their names. `index` shows which
    /// of them releases declare.
    pub fn of(&self, workload: &ObjectId, index: &Index) -> Vec<Autoscaler> {
        let known = self.known.read();
        let by = known.targets.get(workload).into_iter().flatten();
        by.filter_map(|id| Some((id, known.autoscalers.get(id)?)))
            .map(|(id, taken)| taken.scales.autoscaler(id, |object| claims(index, object)))
            .collect()
    }

    /// The same for a history of them.
    pub fn scalings(&self, workload: &ObjectId, index: &Index) -> Vec<Scaling> {
        let known = self.known.read();
        let by = known.targets.get(workload).into_iter().flatten();
        by.filter_map(|id| Some((id, known.autoscalers.get(id)?)))
            .map(|(id, taken)| {
                let autoscaler = taken.scales.autoscaler(id, |object| claims(index, object));
                Scaling::of(id, taken, autoscaler)
            })
            .collect()
    }

    /// The workloads that are scaled, or were.
    pub fn workloads(&self) -> Vec<ObjectId> {
        self.known.read().workloads().cloned().collect()
    }

    /// When the workload's autoscalers were deleted without a successor, as far as this process saw it.
    /// `None` if none was.
    pub fn departed(&self, workload: &ObjectId) -> Option<Departure> {
        self.known.read().departed.of(workload).cloned()
    }

    /// Notes that a workload had an autoscaler before this process started. If it still has one, nothing was
    /// left behind.
    pub fn inherit_departed(&self, workload: &ObjectId) {
        let forgotten = {
            let mut known = self.known.write();
            let is_known = known.targets.contains_key(workload) || known.departed.of(workload).is_some();
            match is_known {
                true => None,
                false => known.departed.note(workload, Vec::new(), Timestamp::now()),
            }
        };
        forgotten.iter().for_each(|workload| self.changed.announce(workload));
    }

    /// Forgets that a workload had an autoscaler: its replicas are no longer left as they are.
    pub fn forget_departed(&self, workload: &ObjectId) {
        self.known.write().departed.forget(workload);
    }

    /// Every workload that is scaled, or was, then each one whose autoscalers come,
    /// change or go.
    pub fn changes(&self) -> Changes<ObjectId> {
        let changes = self.changed.subscribe([]);
        // Subscribed first: an autoscaler that appears meanwhile is reported twice instead of never.
        self.known.read().workloads().for_each(|workload| changes.add(workload.clone()));
        changes
    }

    /// How far the first listing is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Follows the cluster's autoscalers until `stop`. `index` tells which of
    /// them releases declare.
    pub async fn run(&self, index: &RwLock<Index>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(scopes(&self.namespaces).into_iter().map(|it| self.follow(it, index))) => {}
        }
    }

    /// Updates which releases declare the known autoscalers: the releases may have become known later.
    pub fn claim(&self, index: &RwLock<Index>) {
        // A caller that locks both locks the index first.
        let index = index.read();
        self.known.write().autoscalers.iter_mut().for_each(|(id, taken)| taken.claim(id, &index));
    }

    async fn follow(&self, namespace: Option<&str>, index: &RwLock<Index>) {
        let watch = |resource: &Resource| {
            Watch::<Value>::new(self.client.clone(), resource, namespace, None).into_events()
        };
        let mut resource = self.resource();
        let mut reflector = Reflector::new(watch(&resource));
        let mut doubt = WatchDoubt::default();
        loop {
            let event = reflector.next().await;
            if doubt.take(&event, || self.kinds.doubt()) {
                let now = self.resource();
                if now != resource {
                    resource = now;
                    reflector.switch(watch(&resource));
                }
            }
            reflector.take(event, &mut Scope { autoscalers: self, namespace, index });
        }
    }

    /// Where autoscalers are served. Every version from v1 on has the fields that count.
    fn resource(&self) -> Resource {
        let newest = Gvk { group: GROUP.to_owned(), version: "v2".to_owned(), kind: KIND.to_owned() };
        let resource = self.kinds.resource(&newest);
        resource.unwrap_or_else(|| Resource::new(GROUP, "v1", KIND, "horizontalpodautoscalers"))
    }

    /// Takes an autoscaler in; its place.
    fn set(&self, object: &Value, index: &RwLock<Index>) -> Option<ObjectId> {
        let (id, scales) = read(object)?;
        let target = scales.target.clone();
        let before = {
            // A caller that locks both locks the index first.
            let index = index.read();
            let mut known = self.known.write();
            if let Some(taken) = known.autoscalers.get_mut(&id).filter(|taken| taken.scales == scales) {
                taken.claim(&id, &index);
                return Some(id);
            }
            known.put(&id, (scales, Life::of(object)), &index)
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

impl Mirror for Scope<'_> {
    type Object = Value;
    type Key = ObjectId;
    const OBJECTS: &'static str = "autoscalers";

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

    fn warn(&self, error: &CallError) {
        tracing::warn!(%error, "autoscalers cannot be watched; the last known ones count");
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.autoscalers.listings)
    }
}

impl Taken {
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

/// Whether an object, if a release declares it, may decide how something is scaled.
pub fn is_autoscaler(object: &ObjectId) -> bool {
    [GROUP, KEDA].contains(&object.group.as_str())
}

fn claims<'i>(index: &'i Index, object: &ObjectId) -> Vec<&'i Release> {
    index.claims(object).into_iter().map(Arc::as_ref).collect()
}

impl Known {
    fn workloads(&self) -> impl Iterator<Item = &ObjectId> {
        self.targets.keys().chain(self.departed.workloads())
    }

    /// Puts an autoscaler in, in place of its earlier self; the workloads of which something changes by the end of that
    /// one.
    fn put(&mut self, id: &ObjectId, (scales, life): (Scales, Life), index: &Index) -> Vec<ObjectId> {
        let before = self.take(id, index);
        let mut taken = Taken { scales, life, declared_by: Vec::new() };
        taken.claim(id, index);
        let target = &taken.scales.target;
        // Releases of other namespaces have no say here.
        let is_declared = taken.declared_by.iter().any(|by| target.namespace.as_ref() == Some(&by.namespace));
        self.departed.succeed(target, is_declared);
        self.targets.entry(target.clone()).or_default().insert(id.clone());
        self.autoscalers.insert(id.clone(), taken);
        before
    }

    /// Takes an autoscaler out; the workload that it scaled, and one that is forgotten for it.
    fn take(&mut self, id: &ObjectId, index: &Index) -> Vec<ObjectId> {
        let Some(mut taken) = self.autoscalers.remove(id) else { return Vec::new() };
        // The declaring release may be removed first, or appear later.
        taken.claim(id, index);
        let Taken { scales, declared_by, life: _ } = taken;
        if let Some(by) = self.targets.get_mut(&scales.target) {
            by.remove(id);
            if by.is_empty() {
                self.targets.remove(&scales.target);
            }
        }
        let forgotten = self.departed.note(&scales.target, declared_by, Timestamp::now());
        [Some(scales.target), forgotten].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
