//! Keeps the known objects of one resource up to date by a list and a watch, and notifies subscribers of changes. An
//! object is removed when a full list does not contain it, and not before the list ends; a failure removes nothing and
//! is logged once until the watch works again.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_stream::stream;
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::client::call::ClusterError;
use crate::client::discovery::is_defined;
use crate::client::guarded::{self, GuardedReleases};
use crate::client::resource::{ApiResource, GROUP};
use crate::client::watch::{ObjectEvent, Watch};
use crate::mirror::kinds::ServedKinds;
use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_runtime::telemetry::FailureLog;

/// A store of a resource's objects that a [`Reflector`] updates.
pub(super) trait Mirror {
    type Object;
    type Key: Eq + Hash;
    const OBJECTS: &'static str;
    /// The log message when the objects cannot be watched, with what is used meanwhile.
    const UNWATCHED: &'static str;

    /// Adds or updates an object; returns its key, if it can be read.
    fn set(&mut self, object: Self::Object) -> Option<Self::Key>;

    /// Removes a deleted object.
    fn remove(&mut self, object: Self::Object);

    /// Removes all objects except those with these keys.
    fn retain(&mut self, listed: &HashSet<Self::Key>);

    fn warn(&self, error: &ClusterError) {
        tracing::warn!(%error, "{}", Self::UNWATCHED);
    }

    /// Where the progress of the first list is recorded.
    fn listings(&self) -> Option<&Listings> {
        None
    }
}

pub(super) struct Reflector<T, K> {
    events: BoxStream<'static, ObjectEvent<T>>,
    listed: Option<HashSet<K>>,
    is_whole: bool,
    failures: FailureLog,
}

impl<T, K: Eq + Hash> Reflector<T, K> {
    pub(super) fn new(events: BoxStream<'static, ObjectEvent<T>>) -> Self {
        Self { events, listed: None, is_whole: false, failures: FailureLog::default() }
    }

    pub(super) async fn run<M: Mirror<Object = T, Key = K>>(mut self, mirror: &mut M) {
        loop {
            let event = self.next().await;
            self.take(event, mirror);
        }
    }

    /// The next event, to be passed to [`Reflector::take`]. Safe to cancel.
    pub(super) async fn next(&mut self) -> ObjectEvent<T> {
        match self.events.next().await {
            Some(event) => event,
            // A watch never ends.
            None => std::future::pending().await,
        }
    }

    pub(super) fn take<M: Mirror<Object = T, Key = K>>(&mut self, event: ObjectEvent<T>, mirror: &mut M) {
        match event {
            ObjectEvent::Relisting => self.listed = Some(HashSet::new()),
            ObjectEvent::Listed(object) => self.listed.get_or_insert_default().extend(mirror.set(object)),
            ObjectEvent::Applied(object) => drop(mirror.set(object)),
            ObjectEvent::Deleted(object) => mirror.remove(object),
            ObjectEvent::Synced => {
                mirror.retain(&self.listed.take().unwrap_or_default());
                if !std::mem::replace(&mut self.is_whole, true) {
                    mirror.listings().into_iter().for_each(Listings::whole);
                }
            }
            ObjectEvent::Watching => self.failures.note_success(),
            ObjectEvent::Broken(error) => {
                mirror.listings().into_iter().for_each(|listings| listings.fail(M::OBJECTS, &error));
                if self.failures.note_failure() {
                    mirror.warn(&error);
                }
            }
        }
    }

    /// Whether a list is in progress, so that the known objects are incomplete.
    pub(super) fn is_listing(&self) -> bool {
        self.listed.is_some()
    }
}

/// The progress of a first list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Listing,
    /// It failed, for this reason, and is retried.
    Failing(String),
    Listed,
}

/// A first listing, or several, one for each namespace.
pub(super) struct Listings {
    progress: watch::Sender<Progress>,
    left: AtomicUsize,
}

impl Listings {
    /// One list for each of these namespaces, or one list of all if there are none.
    pub(super) fn new(namespaces: &[String]) -> Self {
        let left = AtomicUsize::new(namespaces.len().max(1));
        Self { progress: watch::Sender::new(Progress::Listing), left }
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// One of them is complete for the first time.
    pub(super) fn whole(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.progress.send_replace(Progress::Listed);
        }
    }

    pub(super) fn fail(&self, objects: &str, error: &ClusterError) {
        let failing = Progress::Failing(format!("{objects} cannot be listed: {error}"));
        self.progress.send_if_modified(|progress| {
            // A completed listing stays completed.
            let news = *progress != Progress::Listed && *progress != failing;
            if news {
                progress.clone_from(&failing);
            }
            news
        });
    }
}

/// The namespaces to be listed one by one; `None` for all at once.
pub(super) fn scopes(namespaces: &[String]) -> Vec<Option<&str>> {
    if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(|it| Some(it.as_str())).collect() }
}

/// The capacity for as many items as usually wait.
const USUAL: usize = 64;

/// The receiving end of a queue without duplicates: the items that have changed since they were last taken. Never
/// longer than the number of different items, never blocks a sender. An item that is added while it is being processed
/// is returned once more.
#[derive(Debug)]
pub struct ChangeQueue<T>(Arc<QueuedItems<T>>);

/// The sending end for any number of [`ChangeQueue`].
#[derive(Debug)]
pub struct ChangeAnnouncer<T>(Mutex<Vec<Weak<QueuedItems<T>>>>);

#[derive(Debug)]
struct QueuedItems<T> {
    items: Mutex<(VecDeque<T>, HashSet<T>)>,
    arrived: Notify,
}

impl<T: Clone + Eq + Hash> ChangeQueue<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(QueuedItems { items: Mutex::default(), arrived: Notify::new() }))
    }

    pub(super) fn add(&self, item: T) {
        self.0.add(item);
    }

    /// The item that has waited longest; waits for one. Safe to cancel: an item is taken only when it is returned.
    pub async fn next(&self) -> T {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(item) = self.0.take() {
                return item;
            }
            arrived.await;
        }
    }

    pub fn take(&self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Clone + Eq + Hash> ChangeAnnouncer<T> {
    pub fn subscribe(&self, items: impl IntoIterator<Item = T>) -> ChangeQueue<T> {
        let changes = ChangeQueue::new();
        items.into_iter().for_each(|item| changes.add(item));
        self.0.lock().push(Arc::downgrade(&changes.0));
        changes
    }

    pub fn announce(&self, item: &T) {
        self.0.lock().retain(|receiver| match receiver.upgrade() {
            Some(receiver) => {
                receiver.add(item.clone());
                true
            }
            None => false,
        });
    }
}

impl<T> Default for ChangeAnnouncer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Eq + Hash> QueuedItems<T> {
    fn add(&self, item: T) {
        let mut items = self.items.lock();
        let (order, known) = &mut *items;
        if known.insert(item.clone()) {
            order.push_back(item);
            drop(items);
            self.arrived.notify_one();
        }
    }

    fn take(&self) -> Option<T> {
        let mut items = self.items.lock();
        let (order, known) = &mut *items;
        let item = order.pop_front()?;
        known.remove(&item);
        if order.is_empty() {
            // At the start all items are in the queue.
            order.shrink_to(USUAL);
            known.shrink_to(USUAL);
        }
        Some(item)
    }
}

/// How long a missed definition stays unknown at most: without permission to watch definitions none is reported.
const RECHECK: Duration = Duration::from_secs(600);

/// The events of one of Kubemoor's own kinds in `namespace` (`None`: in all). Without the definition an empty list is
/// reported, and no request is sent until a definition of that name appears or [`RECHECK`] has passed. A 404 alone does
/// not prove that the kind is not defined: an API server that has just started may not know it yet.
pub(super) fn own_kind_events(
    client: kube::Client,
    kinds: &ServedKinds,
    resource: ApiResource,
    namespace: Option<&str>,
) -> BoxStream<'static, ObjectEvent<Value>> {
    let (definitions, definition) = (kinds.definitions(), format!("{}.{GROUP}", resource.plural));
    let mut watch = Watch::<Value>::new(client.clone(), &resource, namespace, None);
    let events = stream! {
        loop {
            match watch.next().await {
                ObjectEvent::Broken(error) if error.is_not_found() => {
                    match is_defined(&client, &resource.plural).await {
                        Ok(true) => yield ObjectEvent::Broken(error),
                        Err(unread) => yield ObjectEvent::Broken(unread),
                        Ok(false) => {
                            yield ObjectEvent::Relisting;
                            yield ObjectEvent::Synced;
                            let until = Instant::now() + RECHECK;
                            while timeout_at(until, definitions.next()).await.is_ok_and(|name| name != definition) {}
                            watch.relist();
                        }
                    }
                }
                event => yield event,
            }
        }
    };
    events.boxed()
}

/// An event, and the namespace of its watch (`None`: of all).
type GuardedEvent = (Option<Arc<str>>, ObjectEvent<Box<GuardedRelease>>);

/// A watch of GuardedReleases.
pub struct GuardedWatch(SelectAll<BoxStream<'static, GuardedEvent>>);

impl GuardedWatch {
    /// Watches the namespaces of `releases`.
    pub fn new(releases: &GuardedReleases, kinds: &ServedKinds) -> Self {
        let watch = |namespace: Option<&str>| {
            let events = own_kind_events(releases.client(), kinds, guarded::resource(), namespace);
            let namespace: Option<Arc<str>> = namespace.map(Arc::from);
            // An object that cannot be read is skipped.
            let readable = move |event: ObjectEvent<_>| {
                let event = event.try_map(|object| guarded::typed(object).ok_or(()));
                std::future::ready(event.ok().map(|event| (namespace.clone(), event)))
            };
            events.filter_map(readable).boxed()
        };
        Self(select_all(scopes(releases.namespaces()).into_iter().map(watch)))
    }

    /// The next event. Never ends; without the CustomResourceDefinition each watch reports an empty listing. Safe to
    /// cancel.
    pub async fn next(&mut self) -> (Option<Arc<str>>, ObjectEvent<Box<GuardedRelease>>) {
        match self.0.next().await {
            Some(told) => told,
            // There is always a watch.
            None => std::future::pending().await,
        }
    }
}

/// Waits until an instant, or forever without one.
pub async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The last writer of the object's `spec`, and the time. Times are whole seconds, so all writers of the last second are
/// named.
pub(super) fn last_spec_writer(object: &Value) -> Option<(String, Option<Timestamp>)> {
    let managers = object.pointer("/metadata/managedFields")?.as_array()?;
    let writers = managers.iter().filter(|entry| entry.pointer("/fieldsV1/f:spec").is_some());
    let writers = writers.filter_map(|entry| {
        let time = entry.get("time").and_then(Value::as_str);
        Some((entry.get("manager")?.as_str()?, time.and_then(|time| time.parse::<Timestamp>().ok())))
    });
    let writers: Vec<_> = writers.collect();
    let last = writers.iter().map(|(_, time)| *time).max()?;
    let names: Vec<&str> = writers.iter().filter(|(_, time)| *time == last).map(|(name, _)| *name).collect();
    Some((names.join(" or "), last))
}

#[cfg(test)]
mod tests;
