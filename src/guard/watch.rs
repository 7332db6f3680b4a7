//! Watches one declared kind.
//!
//! Entry point: [`run`]. Invariant: only objects with Helm's label, metadata
//! alone; each event is told to [`super::missing::Missing`] and dropped. A
//! broken watch is said once and goes on.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Scope, Shared};
use crate::cluster::objects::Sighting;
use crate::cluster::{Event, Resource};

use crate::helm::record::Status;
use crate::model::{MANAGED_BY, ObjectId, ReleaseId};

/// Watches `scope`, whose objects are at `resource`, until `stop`.
pub(super) async fn run(shared: Arc<Shared>, scope: Scope, resource: Resource, stop: CancellationToken) {
    let selector = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
    let mut sightings = shared.guard.objects.watch(&resource, scope.namespace.as_deref(), Some(&selector));
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
            event = sightings.next() => event,
        };
        let ends_first_listing = first && matches!(event, Event::Synced | Event::Broken(_));
        match event {
            Event::Relisting => listed.clear(),
            Event::Listed(sighting) => {
                listed.insert(sighting.id.clone());
                shared.missing.lock().lives(sighting);
            }
            Event::Synced => {
                let went = shared.missing.lock().went_but(|id| scope.holds(id), &listed, Instant::now());
                listed = HashSet::new();
                let never = never_seen(&shared, &scope);
                went.into_iter().chain(never).for_each(|release| shared.attend(release));
            }
            Event::Watching => broken = false,
            Event::Applied(sighting) => shared.missing.lock().lives(sighting),
            Event::Deleted(sighting) => went(&shared, &sighting),
            Event::Broken(error) => {
                if !std::mem::replace(&mut broken, true) {
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

fn went(shared: &Arc<Shared>, sighting: &Sighting) {
    let release = shared.missing.lock().went(sighting, Instant::now());
    if let Some(release) = release {
        shared.attend(release);
    }
}

/// Notes what releases in force declare of a kind and was not there when the
/// kind was listed.
fn never_seen(shared: &Shared, scope: &Scope) -> HashSet<ReleaseId> {
    let index = shared.guard.releases.index().read();
    let mut missing = shared.missing.lock();
    let mut releases = HashSet::new();
    for release in index.releases().filter(|release| release.state.status == Status::Deployed) {
        for (object, declarations) in release.objects.iter() {
            if scope.holds(object) && declarations.latest.is_some() && !missing.is_alive(object) {
                missing.never_seen(&release.id, object.clone(), Instant::now());
                releases.insert(release.id.clone());
            }
        }
    }
    releases
}
