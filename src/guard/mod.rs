//! The loop: watches what releases declare and re-creates what goes missing.
//!
//! Entry point: [`Guard::run`]. Data flows one way: `watch` reports what lives
//! and what went, `missing` remembers what is gone and what was seen alive,
//! `plan` says whether it may come back, `repair` brings it back.
//!
//! Invariant: of objects only identities are kept. Nothing is created that was
//! not seen alive with its release's annotations, so that a forged record lends
//! nobody the guard's rights. One object of a release at a time.

pub mod announce;
mod backoff;
mod missing;
pub mod orders;
mod plan;
mod repair;
pub mod state;
pub mod status;
mod watch;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch as channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::missing::Missing;
use self::orders::Orders;
use self::repair::Repairer;
use crate::cluster::Resource;
use crate::cluster::kinds::Kinds;
use crate::cluster::objects::Objects;
use crate::cluster::releases::Releases;
use crate::helm::index::DeclaredResource;
use crate::metrics::GuardMetrics;
use crate::model::{Gvk, ObjectId, ReleaseId};
use crate::policy::book::Book;

/// Releases that are repaired at one time.
const RELEASES_AT_ONCE: usize = 8;

/// How long changes of the declared kinds are gathered before watches follow.
const SETTLING: Duration = Duration::from_millis(200);

/// What the loop works with.
pub struct Guard {
    /// The releases.
    pub releases: Arc<Releases>,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// Single objects.
    pub objects: Objects,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    /// The policies in force.
    pub book: Arc<Book>,
    /// Where the loop counts.
    pub metrics: GuardMetrics,
    /// Told once everything that was declared at the start has been listed, or
    /// could not be: what goes missing from then on was seen alive.
    pub listed: channel::Sender<bool>,
    /// Whether to act, and what people want.
    pub orders: Orders,
}

/// What the tasks of the loop share.
struct Shared {
    guard: Guard,
    /// Never locked before the index is, only after or without it.
    missing: Mutex<Missing>,
    repairer: Repairer,
    /// Releases at which somebody works, and whether to look again after.
    busy: Mutex<HashMap<ReleaseId, bool>>,
    room: Semaphore,
    /// First listings that are still to come; none before there is any watch.
    unlisted: Mutex<Option<usize>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A kind, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scope {
    group: String,
    kind: String,
    namespace: Option<String>,
}

impl Guard {
    /// Runs until `stop`; then finishes the writes under way.
    pub async fn run(self, stop: CancellationToken) {
        let changes = self.releases.changes();
        let mut leading = self.orders.leading.clone();
        let shared = Arc::new(Shared {
            repairer: Repairer::default(),
            missing: Mutex::default(),
            busy: Mutex::default(),
            room: Semaphore::new(RELEASES_AT_ONCE),
            unlisted: Mutex::new(None),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            guard: self,
        });
        let mut watches: HashMap<Scope, CancellationToken> = HashMap::new();
        let mut follow_at: Option<Instant> = Some(Instant::now());
        loop {
            let follow = async {
                match follow_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = leading.changed() => {
                    let releases: Vec<_> =
                        shared.guard.releases.index().read().releases().map(|release| release.id.clone()).collect();
                    releases.into_iter().for_each(|release| shared.attend(release));
                }
                release = changes.next() => {
                    let current = shared.guard.releases.index().read().release(&release).cloned();
                    shared.missing.lock().notice(&release, current.as_ref());
                    shared.attend(release);
                    follow_at.get_or_insert_with(|| Instant::now() + SETTLING);
                }
                () = follow => {
                    follow_at = None;
                    shared.follow(&mut watches);
                }
            }
        }
        shared.tasks.close();
        shared.tasks.wait().await;
    }
}

impl Scope {
    /// Whether an object is one of these.
    fn holds(&self, object: &ObjectId) -> bool {
        object.group == self.group
            && object.kind == self.kind
            && (self.namespace.is_none() || self.namespace == object.namespace)
    }
}

impl Shared {
    /// Opens watches of kinds that releases declare, and closes the others.
    fn follow(self: &Arc<Self>, watches: &mut HashMap<Scope, CancellationToken>) {
        let scopes = self.scopes();
        watches.retain(|scope, stop| {
            let keep = scopes.contains_key(scope);
            if !keep {
                stop.cancel();
            }
            keep
        });
        self.await_listings(scopes.len());
        for (scope, resource) in scopes {
            if let Entry::Vacant(vacant) = watches.entry(scope) {
                let (scope, stop) = (vacant.key().clone(), self.stop.child_token());
                vacant.insert(stop.clone());
                let shared = Arc::clone(self);
                self.tasks.spawn(async move { watch::run(shared, scope, resource, stop).await });
            }
        }
    }

    /// The first time: that many listings are to come.
    fn await_listings(&self, listings: usize) {
        let mut unlisted = self.unlisted.lock();
        if unlisted.is_none() {
            *unlisted = Some(listings);
            if listings == 0 {
                self.guard.listed.send_replace(true);
            }
        }
    }

    /// A watch has its first listing, or cannot have one.
    fn first_listing(&self) {
        if let Some(unlisted) = self.unlisted.lock().as_mut() {
            *unlisted = unlisted.saturating_sub(1);
            if *unlisted == 0 {
                self.guard.listed.send_replace(true);
            }
        }
    }

    /// What is to be watched: each declared kind once, whatever versions spell
    /// it, in all namespaces or in each of those that are guarded.
    fn scopes(&self) -> HashMap<Scope, Resource> {
        let declared = self.guard.releases.index().read().resources();
        let mut scopes = HashMap::new();
        for resource in declared {
            let DeclaredResource { group, version, kind, .. } = resource;
            let namespaced =
                self.guard.kinds.catalog().facts(&group, &kind).is_some_and(|facts| facts.namespaced);
            let gvk = Gvk { group, version, kind };
            let Some(served) = self.guard.kinds.resource(&gvk) else { continue };
            let namespaces = self.guard.namespaces.iter().cloned().map(Some);
            let everywhere = namespaces.len() == 0 || !namespaced;
            for namespace in namespaces.filter(|_| !everywhere).chain(everywhere.then_some(None)) {
                let scope = Scope { group: gvk.group.clone(), kind: gvk.kind.clone(), namespace };
                scopes.entry(scope).or_insert_with(|| served.clone());
            }
        }
        scopes
    }

    /// Has somebody look at what a release misses, once at a time.
    fn attend(self: &Arc<Self>, release: ReleaseId) {
        if !*self.guard.orders.leading.borrow() || !self.missing.lock().misses(&release) {
            return;
        }
        // Under one lock, or two tasks would work on one release.
        match self.busy.lock().entry(release.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                return;
            }
            Entry::Vacant(vacant) => vacant.insert(false),
        };
        let shared = Arc::clone(self);
        self.tasks.spawn(async move { shared.attend_until_done(release).await });
    }

    async fn attend_until_done(self: Arc<Self>, release: ReleaseId) {
        loop {
            let later = {
                let Ok(_room) = self.room.acquire().await else { return };
                repair::pass(&self, &release).await
            };
            let mut busy = self.busy.lock();
            let again = busy.insert(release.clone(), false).unwrap_or_default();
            if again {
                continue;
            }
            busy.remove(&release);
            drop(busy);
            if let Some(delay) = later {
                let shared = Arc::clone(&self);
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = shared.stop.cancelled() => {}
                        () = tokio::time::sleep(delay) => shared.attend(release),
                    }
                });
            }
            return;
        }
    }
}
