//! Watches one declared kind.
//!
//! Entry point: [`run`]. Invariant: only objects with Helm's label; each is
//! judged as it comes and dropped. That an object went is a suspicion: a watch
//! by label says the same of one that lost the label. A broken watch is said
//! once and goes on.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::follow::Scope;
use super::observe::{Source, observe, version_of};
use crate::cluster::call::CallError;
use crate::cluster::{Event, Resource};
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::model::{MANAGED_BY, ObjectId, ReleaseId};
use crate::reconcile::drifts::Version;
use crate::reconcile::live::Live;

/// Watches `scope`, whose objects are at `resource`, until `stop`.
pub(super) async fn run(shared: Arc<Shared>, scope: Scope, resource: Resource, stop: CancellationToken) {
    let selector = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
    let mut objects = shared.guard.objects.watch(&resource, scope.namespace.as_deref(), Some(&selector));
    let mut relists = shared.watches.relists();
    let mut listed: HashSet<ObjectId> = HashSet::new();
    let mut broken = false;
    let mut first = true;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => {
                if first {
                    shared.first_listing();
                }
                return;
            }
            Ok(()) = relists.changed() => {
                objects.relist();
                continue;
            }
            event = objects.next() => event,
        };
        let ends_first_listing = first && matches!(event, Event::Synced | Event::Broken(_));
        match event {
            Event::Relisting => listed.clear(),
            Event::Listed(live) => {
                listed.insert(live.sighting.id.clone());
                judge(&shared, &live, &resource);
            }
            Event::Synced => {
                shared.watches.is_whole(&scope);
                let listed = std::mem::take(&mut listed);
                let went = went_but(&shared, &scope, &listed);
                let never = never_seen(&shared, &scope);
                went.into_iter().chain(never).for_each(|release| shared.attend(release));
            }
            Event::Watching => {
                broken = false;
                if shared.watches.is_open(&scope) {
                    attend_declaring(&shared, &scope);
                }
            }
            Event::Applied(live) => judge(&shared, &live, &resource),
            Event::Deleted(live) => {
                if let Some(release) = went(&shared, &live.sighting.id, version_of(&live)) {
                    shared.attend(release);
                }
            }
            Event::Broken(error) => {
                let forbidden = matches!(error, CallError::Refused { code: 403, .. });
                if forbidden && shared.watches.is_forbidden(&scope, error.to_string()) {
                    attend_declaring(&shared, &scope);
                }
                if !std::mem::replace(&mut broken, true) {
                    if matches!(error, CallError::Unserved) {
                        unserved(&shared, &scope).into_iter().for_each(|release| shared.attend(release));
                    }
                    tracing::warn!(
                        watch.group = scope.group,
                        watch.kind = scope.kind,
                        watch.namespace = scope.namespace,
                        "objects of the kind {} cannot be watched, so the loop does not see them: {error}",
                        scope.kind
                    );
                }
            }
        }
        if ends_first_listing {
            first = false;
            shared.first_listing();
        }
    }
}

fn judge(shared: &Arc<Shared>, live: &Live, resource: &Resource) {
    let concerned = observe(shared, live, &resource.version, Source::Watch);
    concerned.into_iter().flatten().for_each(|release| shared.attend(release));
}

/// Notes that a watch shows an object no more, which had this version last;
/// gives the release that misses it.
fn went(shared: &Shared, object: &ObjectId, version: Version) -> Option<ReleaseId> {
    let index = shared.guard.releases.index().read();
    let mut drifts = shared.drifts.lock();
    let release = drifts.life(object)?.release.clone();
    if index.release(&release).is_some_and(|release| release.objects.contains_key(object)) {
        drifts.went(object, version, Timestamp::now())
    } else {
        drifts.forget(object);
        None
    }
}

/// After a full listing: what was alive and is not in it went.
fn went_but(shared: &Shared, scope: &Scope, listed: &HashSet<ObjectId>) -> HashSet<ReleaseId> {
    let alive = shared.drifts.lock().alive(|object| scope.holds(object) && !listed.contains(object));
    alive.iter().filter_map(|object| went(shared, object, Version::default())).collect()
}

/// Nobody serves the kind any more: what was alive has to be looked at. It need
/// not be gone.
fn unserved(shared: &Shared, scope: &Scope) -> HashSet<ReleaseId> {
    let mut drifts = shared.drifts.lock();
    let alive = drifts.alive(|object| scope.holds(object));
    let held = alive.into_iter().filter_map(|object| Some((drifts.life(&object)?.release.clone(), object)));
    let held: Vec<_> = held.collect();
    for (release, object) in &held {
        drifts.suspect(release, object.clone(), Timestamp::now());
    }
    held.into_iter().map(|(release, _)| release).collect()
}

/// Has the releases looked at that declare an object of a kind.
fn attend_declaring(shared: &Arc<Shared>, scope: &Scope) {
    let index = shared.guard.releases.index().read();
    let declares = |release: &Release| release.objects.keys().any(|object| scope.holds(object));
    let declaring = index.releases().filter(|release| declares(release));
    let declaring: Vec<_> = declaring.map(|release| release.id.clone()).collect();
    drop(index);
    declaring.into_iter().for_each(|release| shared.attend(release));
}

/// Notes what releases in force declare of a kind and was not there when the
/// kind was listed.
fn never_seen(shared: &Shared, scope: &Scope) -> HashSet<ReleaseId> {
    let index = shared.guard.releases.index().read();
    let mut drifts = shared.drifts.lock();
    let mut releases = HashSet::new();
    let counts = |status: Status| matches!(status, Status::Deployed | Status::Failed);
    for release in index.releases().filter(|release| counts(release.state.status)) {
        for (object, declarations) in release.objects.iter() {
            let alive = drifts.life(object).is_some_and(|life| life.alive);
            if scope.holds(object) && declarations.latest.is_some() && !alive {
                drifts.suspect(&release.id, object.clone(), Timestamp::now());
                releases.insert(release.id.clone());
            }
        }
    }
    releases
}
