//! Watches one declared kind.
//!
//! Entry point: [`run`]. Invariant: only objects with Helm's label, metadata
//! alone; each event is told to [`super::missing::Missing`] and dropped. A
//! broken watch is said once and goes on.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::cluster::Event;
use crate::cluster::objects::Sighting;

use crate::helm::index::DeclaredResource;
use crate::helm::record::Status;
use crate::model::{Gvk, MANAGED_BY, ObjectId, ReleaseId};

/// Watches `declared` until `stop`.
pub(super) async fn run(shared: Arc<Shared>, declared: DeclaredResource, stop: CancellationToken) {
    let gvk =
        Gvk { group: declared.group.clone(), version: declared.version.clone(), kind: declared.kind.clone() };
    let Some(resource) = shared.guard.kinds.resource(&gvk) else { return };
    let selector = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
    let mut sightings = shared.guard.objects.watch(&resource, None, Some(&selector));
    let is_of_kind = |id: &ObjectId| id.group == declared.group && id.kind == declared.kind;
    let mut listed: HashSet<ObjectId> = HashSet::new();
    let mut broken = false;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = sightings.next() => event,
        };
        match event {
            Event::Relisting => listed.clear(),
            Event::Listed(sighting) => {
                listed.insert(sighting.id.clone());
                shared.missing.lock().lives(sighting);
            }
            Event::Synced => {
                let went = shared.missing.lock().went_but(is_of_kind, &listed, Instant::now());
                listed = HashSet::new();
                let never = never_seen(&shared, is_of_kind);
                went.into_iter().chain(never).for_each(|release| shared.attend(release));
            }
            Event::Watching => broken = false,
            Event::Applied(sighting) => shared.missing.lock().lives(sighting),
            Event::Deleted(sighting) => went(&shared, &sighting),
            Event::Broken(error) => {
                if !std::mem::replace(&mut broken, true) {
                    tracing::warn!(
                        resource.group = declared.group,
                        resource.plural = declared.plural,
                        "{} cannot be watched, so the loop does not see them: {error}",
                        declared.plural
                    );
                }
            }
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
fn never_seen(shared: &Shared, is_of_kind: impl Fn(&ObjectId) -> bool) -> HashSet<ReleaseId> {
    let index = shared.guard.releases.index().read();
    let mut missing = shared.missing.lock();
    let mut releases = HashSet::new();
    for release in index.releases().filter(|release| release.state.status == Status::Deployed) {
        for (object, declarations) in release.objects.iter() {
            if is_of_kind(object) && declarations.latest.is_some() && !missing.is_alive(object) {
                missing.never_seen(&release.id, object.clone(), Instant::now());
                releases.insert(release.id.clone());
            }
        }
    }
    releases
}
