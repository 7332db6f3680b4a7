//! An endless list and watch of one resource. kube's own watcher is not used: it accepts pages of any size, logs a page
//! that it cannot decode, which may contain Secrets, and does not report when a watch works again.
//!
//! Between [`ObjectEvent::Relisting`] and [`ObjectEvent::Synced`] every existing object is listed; after that every
//! change is reported. Everything is listed again every few minutes, which corrects whatever a watch missed: after a
//! restore of etcd, a watch from a version in the future never reports anything.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Resource as Kind;
use kube::core::params::WatchParams;
use kube::core::{Request as Requests, WatchEvent};
use kube::runtime::watcher::DefaultBackoff;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::client::call::{ClusterError, PATIENCE};
use crate::client::pages::{PAGE, Pages};
use crate::client::resource::{ApiResource, Meta, Partial};

/// How long the API server keeps one watch open. Every server accepts it.
const LIFE: Duration = Duration::from_secs(290);

/// The longest time between two lists, and the maximum jitter by which each may come earlier, in seconds: guards that
/// started together do not list at the same moment.
const RELIST: (u64, u64) = (290, 50);

/// How long a watch may be silent before it is reopened: a lost connection looks the same as one without
/// changes. Longer than the minute after which most API servers send a bookmark.
const QUIET: Duration = Duration::from_secs(75);

/// The end of a watch that lasted this long is not a failure.
const STEADY: Duration = Duration::from_secs(10);

/// The longest pause while a server is down or busy (429, 5xx), and for a while after that, so that the watch resumes
/// as soon as the server returns.
const SOON: Duration = Duration::from_secs(2);

/// The longest pause that a server may ask for.
const ASKED: Duration = Duration::from_secs(30);

/// How long after an outage a server may refuse everything, because it has not loaded its RBAC rules yet.
const RETURNING: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub enum ObjectEvent<T> {
    /// A full list begins: an object that is not listed before [`ObjectEvent::Synced`] no longer exists.
    Relisting,
    Listed(T),
    Synced,
    Watching,
    Applied(T),
    Deleted(T),
    /// The list or the watch failed; it is tried again after a pause.
    Broken(ClusterError),
}

/// The form in which objects are requested, and their parsed type.
pub trait ObjectForm: Sized + Send + 'static {
    /// An object on the wire.
    type Wire: DeserializeOwned + Clone + Send + 'static;
    /// Objects on the first page of a list.
    const PAGE: u32;
    const METADATA: bool;

    /// Reads the object; never fails, whatever it contains.
    fn read(wire: Self::Wire) -> Self;

    /// Its resourceVersion; empty if it has none.
    fn version(&self) -> &str;
}

/// A whole object of a type that k8s-openapi knows.
pub struct Typed<K>(pub K);

/// A watch of metadata alone.
pub(crate) type MetadataWatch = Watch<Meta>;

/// An endless watch of all objects of a resource, in one namespace or in all, that match a selector.
pub struct Watch<F: ObjectForm> {
    source: WatchSource,
    events: BoxStream<'static, ObjectEvent<F>>,
}

#[derive(Clone)]
struct WatchSource {
    client: kube::Client,
    path: Result<String, ClusterError>,
    labels: Option<String>,
    fields: Option<String>,
    /// Kept when everything is listed again, so that a relist during an outage also waits.
    pace: Arc<Mutex<RetryPace>>,
}

type WatchChanges<F> = BoxStream<'static, kube::Result<WatchEvent<<F as ObjectForm>::Wire>>>;

/// How long to wait before a failed API server is asked again. The pauses grow, but after an outage, however long, the
/// watch resumes within five seconds, unless the server asks for a longer pause.
#[derive(Default)]
struct RetryPace {
    outage: Option<Instant>,
    pauses: DefaultBackoff,
    /// The end of the last pause.
    until: Option<Instant>,
}

impl<T> ObjectEvent<T> {
    /// Whether the kind is not found.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Broken(error) if error.is_not_found())
    }

    /// The same event, with its object converted by `f`.
    pub(crate) fn try_map<U, E>(self, f: impl FnOnce(T) -> Result<U, E>) -> Result<ObjectEvent<U>, E> {
        Ok(match self {
            Self::Relisting => ObjectEvent::Relisting,
            Self::Listed(object) => ObjectEvent::Listed(f(object)?),
            Self::Synced => ObjectEvent::Synced,
            Self::Watching => ObjectEvent::Watching,
            Self::Applied(object) => ObjectEvent::Applied(f(object)?),
            Self::Deleted(object) => ObjectEvent::Deleted(f(object)?),
            Self::Broken(error) => ObjectEvent::Broken(error),
        })
    }
}

impl ObjectForm for Meta {
    type Wire = Partial;
    const PAGE: u32 = PAGE;
    const METADATA: bool = true;

    fn read(wire: Partial) -> Self {
        wire.metadata
    }

    fn version(&self) -> &str {
        &self.resource_version
    }
}

/// Unparsed objects: one that its reader cannot interpret never ends the watch.
impl ObjectForm for Value {
    type Wire = Self;
    const PAGE: u32 = PAGE;
    const METADATA: bool = false;

    fn read(wire: Self) -> Self {
        wire
    }

    fn version(&self) -> &str {
        self.pointer("/metadata/resourceVersion").and_then(Self::as_str).unwrap_or_default()
    }
}

impl<K> ObjectForm for Typed<K>
where
    K: Kind<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    type Wire = K;
    const PAGE: u32 = 10;
    const METADATA: bool = false;

    fn read(wire: K) -> Self {
        Self(wire)
    }

    fn version(&self) -> &str {
        self.0.meta().resource_version.as_deref().unwrap_or_default()
    }
}

impl<F: ObjectForm> Watch<F> {
    /// A watch of `resource` in `namespace` (`None`: all) with the label selector `selector`.
    pub fn new(
        client: kube::Client,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Self {
        Self::at(client, resource.path(namespace), selector.map(str::to_owned), None)
    }

    fn at(
        client: kube::Client,
        path: Result<String, ClusterError>,
        labels: Option<String>,
        fields: Option<String>,
    ) -> Self {
        let source = WatchSource { client, path, labels, fields, pace: Arc::default() };
        Self { events: source.clone().follow(), source }
    }

    /// The next event. Safe to cancel, as often as the caller likes: a pending request continues with the next call.
    pub async fn next(&mut self) -> ObjectEvent<F> {
        match self.events.next().await {
            Some(event) => event,
            // It never ends.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn into_events(self) -> BoxStream<'static, ObjectEvent<F>> {
        self.events
    }

    /// Makes the next call list everything again, after a pause in progress.
    pub(crate) fn relist(&mut self) {
        self.events = self.source.clone().follow();
    }
}

impl<K> Watch<Typed<K>>
where
    K: Kind<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    /// A watch of the object `name` in `namespace` (`None` for a cluster-scoped one). It requests this name alone, so
    /// permission for that name is sufficient.
    pub(crate) fn of_one(client: kube::Client, namespace: Option<&str>, name: &str) -> Self {
        let resource = ApiResource::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()));
        let fields = Some(format!("metadata.name={name}"));
        Self::at(client, resource.path(namespace), None, fields)
    }
}

impl WatchSource {
    fn follow<F: ObjectForm>(self) -> BoxStream<'static, ObjectEvent<F>> {
        let events = stream! {
            let until = self.pace.lock().until;
            if let Some(until) = until {
                sleep_until(until).await;
            }
            loop {
                yield ObjectEvent::Relisting;
                let (mut pages, mut version) = (self.pages::<F>(), String::new());
                let listed = loop {
                    let page = match &mut pages {
                        Ok(pages) => pages.next().await,
                        Err(error) => Err(error.clone()),
                    };
                    match page {
                        Ok(Some(page)) => {
                            version.clone_from(&page.metadata.resource_version);
                            for wire in page.into_items() {
                                yield ObjectEvent::Listed(F::read(wire));
                            }
                        }
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                if let Err(error) = listed {
                    let pause = self.pace.lock().after(&error);
                    yield ObjectEvent::Broken(error);
                    sleep(pause).await;
                    continue;
                }
                yield ObjectEvent::Synced;

                let relist_at = Instant::now() + relist_after();
                // Whether the watch can continue from the version.
                let mut goes_on = true;
                while goes_on && Instant::now() < relist_at {
                    let mut changes = match self.open::<F>(&version).await {
                        Ok(changes) => changes,
                        Err(error) => {
                            goes_on = error.is_outage();
                            let pause = self.pace.lock().after(&error);
                            yield ObjectEvent::Broken(error);
                            sleep(pause).await;
                            continue;
                        }
                    };
                    yield ObjectEvent::Watching;
                    let since = Instant::now();
                    let pause = loop {
                        let until = relist_at.min(Instant::now() + QUIET);
                        let Ok(change) = timeout_at(until, changes.next()).await else { break Duration::ZERO };
                        match change {
                            Some(Ok(WatchEvent::Added(wire) | WatchEvent::Modified(wire))) => {
                                let object = F::read(wire);
                                advance(&mut version, object.version());
                                yield ObjectEvent::Applied(object);
                            }
                            Some(Ok(WatchEvent::Deleted(wire))) => {
                                let object = F::read(wire);
                                advance(&mut version, object.version());
                                yield ObjectEvent::Deleted(object);
                            }
                            Some(Ok(WatchEvent::Bookmark(mark))) => {
                                advance(&mut version, &mark.metadata.resource_version);
                            }
                            Some(Ok(WatchEvent::Error(status))) => {
                                goes_on = false;
                                let error = ClusterError::from(*status);
                                // An expired version is a normal end, unless it happens again and again.
                                if error.is_gone() {
                                    break self.pace.lock().after_end(since.elapsed());
                                }
                                let pause = self.pace.lock().after(&error);
                                yield ObjectEvent::Broken(error);
                                break pause;
                            }
                            Some(Err(error)) => {
                                let error = ClusterError::from(error);
                                let pause = self.pace.lock().after(&error);
                                yield ObjectEvent::Broken(error);
                                break pause;
                            }
                            None => break self.pace.lock().after_end(since.elapsed()),
                        }
                    };
                    drop(changes);
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                }
            }
        };
        events.boxed()
    }

    fn pages<F: ObjectForm>(&self) -> Result<Pages<'_, F::Wire>, ClusterError> {
        let pages = Pages::at(&self.client, self.path.clone()?).starting_with(F::PAGE);
        Ok(pages.selected(self.labels.as_deref(), self.fields.as_deref()).metadata_alone(F::METADATA))
    }

    async fn open<F: ObjectForm>(&self, version: &str) -> Result<WatchChanges<F>, ClusterError> {
        let parameters = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(LIFE.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let requests = Requests::new(self.path.clone()?);
        let request = if F::METADATA {
            requests.watch_metadata(&parameters, version)?
        } else {
            requests.watch(&parameters, version)?
        };
        match timeout(PATIENCE, self.client.request_events::<F::Wire>(request)).await {
            Ok(changes) => Ok(changes?.boxed()),
            Err(_) => Err(ClusterError::Late { within: PATIENCE }),
        }
    }
}

impl RetryPace {
    /// The pause after a failure.
    fn after(&mut self, error: &ClusterError) -> Duration {
        if error.is_outage() {
            self.outage = Some(Instant::now());
        }
        let pause = self.next();
        let pause = error.retry_after().map_or(pause, |asked| asked.min(ASKED) + pause / 2);
        self.until = Some(Instant::now() + pause);
        pause
    }

    /// The pause after a watch that ended early and had `lasted` this long.
    fn after_end(&mut self, lasted: Duration) -> Duration {
        if lasted >= STEADY {
            self.pauses = DefaultBackoff::default();
        }
        self.next()
    }

    fn next(&mut self) -> Duration {
        let pause = self.pauses.next().unwrap_or(SOON);
        if self.outage.is_none_or(|last| last.elapsed() >= RETURNING) {
            return pause;
        }
        // Random, so that the watches of all guards do not retry at the same moment.
        pause.min(SOON) + Duration::from_millis(RandomState::new().hash_one(()) % 1000)
    }
}

/// A random time until the next list.
fn relist_after() -> Duration {
    let (longest, part) = RELIST;
    Duration::from_secs(longest - RandomState::new().hash_one(()) % part)
}

/// Advances to the version `seen`, if the object has one.
fn advance(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
