//! Watches one declared kind, and passes the news to the loop.
//!
//! Entry point: [`run`]. Invariant: sees only objects with Helm's label, and drops each one after
//! passing it on. What is declared of a listed object is read here, since all watches wait for the loop. A broken watch is
//! reported once and tried again. Must not judge.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::work::fault;
use super::{Guard, News};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::objects::{Objects, Sightings};
use kubemoor_cluster::client::{Event, Resource};
use kubemoor_cluster::mirror::kinds::WatchDoubt;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{MANAGED_BY, ObjectId};
use kubemoor_helm::release::Declared;
use kubemoor_reconcile::event::{Failure, Fault, ObjectNews};
use kubemoor_reconcile::scopes::Scope;

/// The objects of `scope`, which are served at `resource`.
pub(super) fn objects(objects: &Objects, scope: &Scope, resource: &Resource) -> Sightings {
    let selector = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
    objects.watch(resource, scope.namespace.as_deref(), Some(&selector))
}

/// Tells of changes of the objects of `scope`, until `stop`.
pub(super) async fn run(
    scope: Scope,
    (mut objects, mut relists): (Sightings, watch::Receiver<u64>),
    guard: Arc<Guard>,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
) {
    // The last reported failure of the watch.
    let mut broken: Option<Fault> = None;
    // Whether the objects were judged by the policies of now.
    let mut is_judged = false;
    // Kept while the kind is not found, as after an upgrade of the API server to one without this version.
    let mut doubt = WatchDoubt::default();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = relists.changed() => {
                objects.relist();
                is_judged = false;
                continue;
            }
            event = objects.next() => event,
        };
        doubt.take(&event, || guard.kinds.doubt());
        let tidings = match event {
            Event::Relisting => ObjectNews::Relisting,
            Event::Listed(live) => {
                if !is_judged {
                    read_declared(&guard.releases, &live.sighting.id);
                }
                ObjectNews::Object { live: Box::new(live), is_listed: true }
            }
            Event::Applied(live) => ObjectNews::Object { live: Box::new(live), is_listed: false },
            Event::Deleted(live) => {
                ObjectNews::Gone { object: live.sighting.id, version: live.sighting.resource_version }
            }
            Event::Synced => {
                is_judged = true;
                ObjectNews::Listed
            }
            Event::Watching => {
                broken = None;
                ObjectNews::Watching
            }
            Event::Broken(error) => {
                let fault = fault(&error);
                if broken.is_none() {
                    complain(&scope, &error);
                }
                if broken.replace(fault.clone()).as_ref() == Some(&fault) {
                    continue;
                }
                ObjectNews::Broken(Failure { fault, message: error.to_string() })
            }
        };
        let told = news.send(News::Watch(scope.clone(), tidings));
        tokio::select! {
            () = stop.cancelled() => return,
            told = told => if told.is_err() { return },
        }
    }
}

/// Reads what the latest manifests declare of an object, which the loop then finds in the cache.
fn read_declared(releases: &Releases, object: &ObjectId) {
    let declared: Vec<Arc<Declared>> = {
        let index = releases.index().read();
        let claims = index.claims(object).into_iter();
        claims.filter_map(|release| release.objects.get(object)?.latest.clone()).collect()
    };
    declared.iter().for_each(|declared| drop(declared.fields()));
}

fn complain(scope: &Scope, error: &CallError) {
    tracing::warn!(
        watch.group = scope.group,
        watch.kind = scope.kind,
        watch.namespace = scope.namespace,
        "objects of the kind {} cannot be watched, so the loop does not see them: {error}",
        scope.kind
    );
}
