//! Which kinds are watched: those that releases declare, each in the versions
//! in which they are declared.
//!
//! Entry points: `Shared::follow` opens and closes watches, [`Watches`] knows
//! them. Invariant: one watch per kind, served version and namespace that is
//! guarded; a kind that no release declares any more is not watched.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio_util::sync::CancellationToken;

use super::{Shared, watch};
use crate::cluster::Resource;
use crate::helm::index::DeclaredResource;
use crate::helm::record::Status;
use crate::helm::release::{Declarations, Declared, Release};
use crate::model::{Gvk, ObjectId};
use crate::verdict::health::Unwatched;

/// A kind in a version, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
}

/// The watches that are open.
#[derive(Default)]
pub(super) struct Watches {
    open: Mutex<HashMap<Scope, CancellationToken>>,
    /// Those that have listed all there is.
    whole: Mutex<HashSet<Scope>>,
    /// Those that the guard has no right to, with what the API server says.
    forbidden: Mutex<HashMap<Scope, String>>,
    /// First listings that are still to come; none before there is any watch.
    unlisted: Mutex<Option<usize>>,
    /// Counts how often everything was to be listed anew.
    relists: channel::Sender<u64>,
}

impl Scope {
    /// Whether an object is one of these.
    pub(super) fn holds(&self, object: &ObjectId) -> bool {
        object.group == self.group
            && object.kind == self.kind
            && (self.namespace.is_none() || self.namespace == object.namespace)
    }
}

impl Watches {
    /// Whether whatever happens to an object is seen: no listing is to come.
    pub(super) fn shows(&self, object: &ObjectId) -> bool {
        self.whole.lock().iter().any(|scope| scope.holds(object))
    }

    /// Has everything listed, and so judged, anew.
    pub(super) fn relist(&self) {
        self.relists.send_modify(|count| *count += 1);
    }

    /// Told whenever everything is to be listed anew.
    pub(super) fn relists(&self) -> channel::Receiver<u64> {
        self.relists.subscribe()
    }

    /// A watch has listed all there is.
    pub(super) fn is_whole(&self, scope: &Scope) {
        self.whole.lock().insert(scope.clone());
    }

    /// A watch has ended for good.
    fn is_over(&self, scope: &Scope) {
        self.whole.lock().remove(scope);
        self.forbidden.lock().remove(scope);
    }

    /// A watch stands; says whether the guard had no right to it before.
    pub(super) fn is_open(&self, scope: &Scope) -> bool {
        self.forbidden.lock().remove(scope).is_some()
    }

    /// The guard has no right to a watch; says whether that is new.
    pub(super) fn is_forbidden(&self, scope: &Scope, why: String) -> bool {
        self.forbidden.lock().insert(scope.clone(), why).is_none()
    }

    /// What a release declares of kinds that the guard has no right to watch, in
    /// the order of kinds; less what is `known` otherwise.
    pub(super) fn unwatched(&self, release: &Release, known: &HashSet<&ObjectId>) -> Vec<Unwatched> {
        let forbidden = self.forbidden.lock();
        let of_scope = |(scope, why): (&Scope, &String)| {
            let is_one = |object: &ObjectId, it: &Declarations| {
                it.latest.is_some() && scope.holds(object) && !known.contains(object)
            };
            let objects = release.objects.iter().filter(|(object, it)| is_one(object, it)).count();
            (objects > 0).then(|| Unwatched { kind: scope.kind.clone(), objects, why: why.clone() })
        };
        let mut unwatched: Vec<_> = forbidden.iter().filter_map(of_scope).collect();
        unwatched.sort_by(|a, b| (&a.kind, &a.why).cmp(&(&b.kind, &b.why)));
        unwatched
    }
}

impl Shared {
    /// Opens watches of kinds that releases declare, and closes the others.
    pub(super) fn follow(self: &Arc<Self>) {
        let declared = self.guard.releases.index().read().resources();
        let unserved: HashSet<(String, String)> = declared
            .iter()
            .filter(|it| self.guard.kinds.resource(&gvk(it)).is_none())
            .map(|it| (it.group.clone(), it.kind.clone()))
            .collect();
        let scopes = self.scopes(declared);
        let mut open = self.watches.open.lock();
        open.retain(|scope, stop| {
            let keep = scopes.contains_key(scope);
            if !keep {
                stop.cancel();
                self.watches.is_over(scope);
            }
            keep
        });
        self.await_listings(scopes.len());
        self.suspect_unserved(&unserved);
        for (scope, resource) in scopes {
            if let Entry::Vacant(vacant) = open.entry(scope) {
                let (scope, stop) = (vacant.key().clone(), self.stop.child_token());
                vacant.insert(stop.clone());
                let shared = Arc::clone(self);
                self.tasks.spawn(async move { watch::run(shared, scope, resource, stop).await });
            }
        }
    }

    /// What releases in force declare of kinds that nobody serves, and no watch
    /// shows, has to be looked at.
    fn suspect_unserved(self: &Arc<Self>, unserved: &HashSet<(String, String)>) {
        let index = self.guard.releases.index().read();
        let is_known = |object: &ObjectId, declared: &Declared| {
            declared.plural.is_some()
                && (unserved.is_empty() || !unserved.contains(&(object.group.clone(), object.kind.clone())))
        };
        let mut concerned = HashSet::new();
        let mut drifts = self.drifts.lock();
        for release in index.releases().filter(|release| release.state.status == Status::Deployed) {
            for (object, declarations) in release.objects.iter() {
                let unknown = declarations.latest.iter().find(|declared| !is_known(object, declared));
                let Some(declared) = unknown else { continue };
                if self.guard.kinds.target(object, &declared.version).is_none()
                    && drifts.get_mut(&release.id, object).is_none()
                {
                    drifts.suspect(&release.id, object.clone(), Timestamp::now());
                    concerned.insert(release.id.clone());
                }
            }
        }
        drop(drifts);
        drop(index);
        concerned.into_iter().for_each(|release| self.attend(release));
    }

    /// A watch has its first listing, or cannot have one.
    pub(super) fn first_listing(self: &Arc<Self>) {
        let mut unlisted = self.watches.unlisted.lock();
        let last = match unlisted.as_mut() {
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            None => false,
        };
        drop(unlisted);
        if last {
            self.all_listed();
        }
    }

    /// The first time: that many listings are to come.
    fn await_listings(self: &Arc<Self>, listings: usize) {
        let mut unlisted = self.watches.unlisted.lock();
        let none = unlisted.is_none() && listings == 0;
        unlisted.get_or_insert(listings);
        drop(unlisted);
        if none {
            self.all_listed();
        }
    }

    fn all_listed(self: &Arc<Self>) {
        if !self.guard.listed.send_replace(true) {
            let all: Vec<_> =
                self.guard.releases.index().read().releases().map(|release| release.id.clone()).collect();
            // Each has a report from now on.
            all.into_iter().for_each(|release| self.attend(release));
        }
    }

    /// What is to be watched: each declared kind in the versions that spell it,
    /// in all namespaces or in each of those that are guarded.
    fn scopes(&self, declared: BTreeSet<DeclaredResource>) -> HashMap<Scope, Resource> {
        let mut scopes = HashMap::new();
        for resource in &declared {
            let gvk = gvk(resource);
            let facts = self.guard.kinds.catalog();
            let namespaced = facts.facts(&gvk.group, &gvk.kind).is_some_and(|facts| facts.namespaced);
            let Some(served) = self.guard.kinds.resource(&gvk) else { continue };
            let namespaces = self.guard.namespaces.iter().cloned().map(Some);
            let everywhere = namespaces.len() == 0 || !namespaced;
            for namespace in namespaces.filter(|_| !everywhere).chain(everywhere.then_some(None)) {
                let scope = Scope {
                    group: gvk.group.clone(),
                    version: served.version.clone(),
                    kind: gvk.kind.clone(),
                    namespace,
                };
                scopes.entry(scope).or_insert_with(|| served.clone());
            }
        }
        scopes
    }
}

fn gvk(resource: &DeclaredResource) -> Gvk {
    let DeclaredResource { group, version, kind, .. } = resource;
    Gvk { group: group.clone(), version: version.clone(), kind: kind.clone() }
}
