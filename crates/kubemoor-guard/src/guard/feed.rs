//! Feeds the loop with changes around objects: releases, policies, allowances and autoscalers, the
//! kinds to watch, and the orders of people.
//!
//! Entry points: `Shell::notice`, `surround`, `rule`, `follow`, `obey`. Invariant: passes on the
//! present state, never the state at the time of the notification. Must not decide what follows
//! from it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;
use tokio::time::Instant;

use super::Shell;
use super::orders::Command;
use kubemoor_cluster::client::Resource;
use kubemoor_cluster::mirror::autoscalers::is_autoscaler;
use kubemoor_declare::model::{Gvk, ObjectId, ReleaseId};
use kubemoor_helm::index::DeclaredResource;
use kubemoor_helm::release::Declarations;
use kubemoor_reconcile::drifts::First;
use kubemoor_reconcile::event::{Event, GovernedRelease, Order, Surroundings};
use kubemoor_reconcile::scopes::Scope;
use kubemoor_verdict::circumstances::Circumstances;

/// The time in which changes of the declared kinds are collected before the watches change.
const SETTLING: Duration = Duration::from_millis(200);

/// The last state that the loop has received.
#[derive(Default)]
pub(super) struct Fed {
    /// The surroundings of objects, where there are any.
    surroundings: HashMap<ObjectId, Surroundings>,
    /// The scopes to watch, and the resources that serve them.
    wanted: HashMap<Scope, Resource>,
    /// What each release declares.
    declared: HashMap<ReleaseId, Arc<HashMap<Arc<ObjectId>, Declarations>>>,
}

impl Fed {
    /// Where the objects of a scope are served.
    pub(super) fn resource(&self, scope: &Scope) -> Option<&Resource> {
        self.wanted.get(scope)
    }

    /// Records the surroundings of an object. Returns whether they are new.
    fn note(&mut self, object: &ObjectId, now: &Surroundings) -> bool {
        if *now == Surroundings::default() {
            return self.surroundings.remove(object).is_some();
        }
        self.surroundings.insert(object.clone(), now.clone()).as_ref() != Some(now)
    }
}

impl Shell {
    /// A release has changed, came or went.
    pub(super) fn notice(&mut self, id: ReleaseId) {
        let declares = self.guard.releases.index().read().release(&id).map(|it| Arc::clone(&it.objects));
        let before = match &declares {
            Some(now) => self.fed.declared.insert(id.clone(), Arc::clone(now)),
            None => self.fed.declared.remove(&id),
        };
        let is_same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
        let is_new = !before.as_ref().zip(declares.as_ref()).is_some_and(is_same);
        // An autoscaler that a release declares may have other rights than one that no release
        // declares.
        let scalers = [&before, &declares].into_iter().flatten().filter(|_| is_new).flat_map(|it| it.keys());
        let scaled: BTreeSet<Option<SmolStr>> =
            scalers.filter(|it| is_autoscaler(it)).map(|it| it.namespace.clone()).collect();
        let surrounded = self.fed.surroundings.keys().filter(|object| scaled.contains(&object.namespace));
        let surrounded: Vec<ObjectId> = surrounded.cloned().collect();
        for object in surrounded {
            let now = self.surroundings(&object);
            if self.fed.note(&object, &now) {
                self.handle(Event::Circumstances(object, now));
            }
        }
        let is_declared =
            |object: &ObjectId| declares.as_ref().is_some_and(|declares| declares.contains_key(object));
        let dropped: Vec<&ObjectId> = before
            .iter()
            .flat_map(|before| before.keys())
            .map(|object| &**object)
            .filter(|object| is_new && !is_declared(object))
            .collect();
        if !dropped.is_empty() {
            self.guard.settled.forget(&id, dropped);
        }
        let ruled = self.ruled(&id);
        self.handle(Event::Release(id, ruled));
        if is_new {
            self.follow_at.get_or_insert_with(|| Instant::now() + SETTLING);
        }
    }

    /// A release by its records, with its policy.
    pub(super) fn ruled(&self, id: &ReleaseId) -> Option<GovernedRelease> {
        let release = self.guard.releases.index().read().release(id).cloned()?;
        Some(GovernedRelease { release, policy: self.guard.resolver.of(id) })
    }

    /// Allowances or autoscalers of an object have come, changed or gone.
    pub(super) fn surround(&mut self, object: &ObjectId) {
        let now = self.surroundings(object);
        self.fed.note(object, &now);
        self.handle(Event::Circumstances(object.clone(), now));
    }

    /// Records surroundings that the loop has changed itself, and so knows.
    pub(super) fn remember_surroundings(&mut self, object: &ObjectId) {
        let now = self.surroundings(object);
        self.fed.note(object, &now);
    }

    /// Policies have changed, or the emergency switch.
    pub(super) fn rule(&mut self) {
        let releases: Vec<ReleaseId> = {
            let index = self.guard.releases.index().read();
            index.releases().map(|release| release.id.clone()).collect()
        };
        let resolver = &self.guard.resolver;
        let policies = releases.into_iter().map(|id| (id.clone(), resolver.of(&id))).collect();
        let open = resolver.is_open();
        self.handle(Event::Policies { policies, open });
    }

    /// Updates the watches, because the declared kinds may have changed.
    pub(super) fn follow(&mut self) {
        let declared = self.guard.releases.index().read().resources();
        let unserved = declared
            .iter()
            .filter(|it| self.guard.kinds.resource(&gvk(it)).is_none())
            .map(|it| (it.group.clone(), it.kind.clone()))
            .collect();
        let scopes = self.scopes(&declared);
        let before = std::mem::replace(&mut self.fed.wanted, scopes);
        let wanted = self.fed.wanted.keys().cloned().collect();
        self.handle(Event::Scopes { wanted, unserved });
        // A definition may have come again under another plural.
        let has_moved = |scope: &&Scope| {
            before.get(scope).is_some_and(|resource| self.fed.resource(scope) != Some(resource))
        };
        let moved: Vec<Scope> = self.watches.keys().filter(has_moved).cloned().collect();
        moved.into_iter().for_each(|scope| self.watch(scope));
    }

    /// Passes on a command for a release in its present state: news of the release may still be
    /// under way.
    pub(super) fn obey(&mut self, command: Command) {
        match &command {
            Command::Remember { release, .. } | Command::Reconcile { release, .. } => {
                self.notice(release.clone());
            }
            // The loop keeps only values of what a release declares.
            Command::Settled(_, settled) if !self.fed.declared.contains_key(settled.release()) => {
                self.notice(settled.release().clone());
            }
            Command::Settled(..) | Command::Suspend(..) => {}
        }
        let order = match command {
            Command::Suspend(release, suspension) => Order::Suspend(release, suspension),
            Command::Reconcile { release, at, ticket } => Order::Reconcile { release, at, ticket },
            Command::Settled(object, settled) => Order::Settled(object, settled),
            Command::Remember { release, revision, record, digest, seen_alive, contested, manager } => {
                let first = First { uid: record, revision, digest };
                let manager = manager.map(SmolStr::from);
                Order::Remember { release, first, seen: seen_alive, contested, manager }
            }
        };
        self.handle(Event::Order(order));
    }

    /// The surroundings of an object.
    fn surroundings(&self, object: &ObjectId) -> Surroundings {
        let autoscalers = {
            let index = self.guard.releases.index().read();
            self.guard.autoscalers.of(object, &index)
        };
        let allowances = self.guard.allowances.named(object);
        let departed = self.guard.autoscalers.departed(object);
        Surroundings { now: Circumstances { allowances, autoscalers, ..Circumstances::default() }, departed }
    }

    /// The scopes to watch: each declared kind in the versions of the manifests, in all namespaces
    /// or in each guarded one.
    fn scopes(&self, declared: &BTreeSet<DeclaredResource>) -> HashMap<Scope, Resource> {
        let mut scopes = HashMap::new();
        for resource in declared {
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
