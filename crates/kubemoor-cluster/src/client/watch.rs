//! A list and a watch of one resource that never end.
//!
//! Entry point: [`Watch::next`], for metadata alone ([`MetadataWatch`]) or for any other [`Form`] of objects. kube's own
//! watcher does not serve here: it holds pages of any length, logs the text of a page that it cannot decode, which may
//! be of Secrets, and does not tell when a watch works again.
//!
//! Between [`Event::Relisting`] and [`Event::Synced`] every existing object is listed; after that every change is told.
//! Everything is listed again every few minutes, which puts right whatever a watch missed: after a restore of etcd, one
//! from a version in the future stays silent for ever.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use async_stream::stream;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Resource as Kind;
use kube::core::params::WatchParams;
use kube::core::{Request as Requests, WatchEvent};
use kube::runtime::watcher::DefaultBackoff;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::call::{CallError, PATIENCE};
use super::pages::{PAGE, Pages};
use super::resource::{Meta, Partial, Resource};

/// How long the API server keeps one watch open. Every server accepts it.
const LIFE: Duration = Duration::from_secs(290);

/// The longest time between two listings, and the part of it by which each may come earlier: guards that started
/// together do not list at the same moment.
const RELIST: (u64, u64) = (290, 50);

/// How long a watch may be silent before it is reopened: a lost connection looks the same as one without
/// changes. Longer than the minute after which most API servers send a bookmark.
const QUIET: Duration = Duration::from_secs(75);

/// After a watch that lasted so long, its end is no failure.
const STEADY: Duration = Duration::from_secs(10);

/// The pause after an attempt that got no answer at all: asking costs a server that is down nothing, and it
/// should be followed as soon as it returns.
const AWAY: Duration = Duration::from_secs(1);

/// After an answer that a server is busy or broken (429, 5xx): the first pause, and the one to which pauses grow. Each is
/// prolonged by up to its own length, by chance, so that guards do not ask at the same moment.
const BUSY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// The longest pause that a server may ask for.
const ASKED: Duration = Duration::from_secs(30);

/// After an outage a server may refuse everything for a while, because it does not know any rights yet: the
/// length of that while, and the pause between attempts.
const RETURNING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_millis(500));

/// What happened to the objects under watch.
#[derive(Debug)]
pub enum Event<T> {
    /// A full listing begins: an object that it has not named by [`Event::Synced`] no longer exists.
    Relisting,
    /// An object of the listing.
    Listed(T),
    /// The listing is whole.
    Synced,
    /// The watch is open.
    Watching,
    /// An object came or changed.
    Applied(T),
    /// An object went.
    Deleted(T),
    /// The list or the watch failed; it is tried again after a pause.
    Broken(CallError),
}

/// The form in which objects are requested, and their parsed type.
pub trait Form: Sized + Send + 'static {
    /// An object on the wire.
    type Wire: DeserializeOwned + Clone + Send + 'static;
    /// Objects on the first page of a list.
    const PAGE: u32;
    /// Whether metadata alone is asked for.
    const METADATA: bool;

    /// The object, whatever is odd about it.
    fn read(wire: Self::Wire) -> Self;

    /// Its resourceVersion; empty if it shows none.
    fn version(&self) -> &str;
}

/// A whole object of a type that k8s-openapi knows.
pub struct Typed<K>(pub K);

/// A watch of metadata alone.
pub(crate) type MetadataWatch = Watch<Meta>;

/// All objects of a resource, in one namespace or in all, that carry the labels
/// of a selector.
pub struct Watch<F: Form> {
    source: Source,
    events: BoxStream<'static, Event<F>>,
}

/// What is asked for.
#[derive(Clone)]
struct Source {
    client: kube::Client,
    path: Result<String, CallError>,
    labels: Option<String>,
    fields: Option<String>,
}

/// The changes of a watch.
type Changes<F> = BoxStream<'static, kube::Result<WatchEvent<<F as Form>::Wire>>>;

/// How long to wait before an API server that failed is asked again: one that was down or busy is followed within five
/// seconds after it returns, however long it was away, unless it asks for a longer pause. After other refusals the
/// pauses grow.
#[derive(Default)]
struct Pace {
    /// The time of the last outage, and the pauses after it.
    outage: Option<(Instant, ExponentialBackoff)>,
    refused: DefaultBackoff,
}

impl<T> Event<T> {
    /// The same event, with its object converted by `f`.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Event<U> {
        match self {
            Self::Relisting => Event::Relisting,
            Self::Listed(object) => Event::Listed(f(object)),
            Self::Synced => Event::Synced,
            Self::Watching => Event::Watching,
            Self::Applied(object) => Event::Applied(f(object)),
            Self::Deleted(object) => Event::Deleted(f(object)),
            Self::Broken(error) => Event::Broken(error),
        }
    }
}

impl<T> Event<Option<T>> {
    /// The event, unless its object could not be read.
    pub(crate) fn transpose(self) -> Option<Event<T>> {
        Some(match self {
            Self::Relisting => Event::Relisting,
            Self::Listed(object) => Event::Listed(object?),
            Self::Synced => Event::Synced,
            Self::Watching => Event::Watching,
            Self::Applied(object) => Event::Applied(object?),
            Self::Deleted(object) => Event::Deleted(object?),
            Self::Broken(error) => Event::Broken(error),
        })
    }
}

impl Form for Meta {
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

/// Objects as they come: one that its reader cannot make sense of costs itself alone, and never the watch.
impl Form for Value {
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

impl<K> Form for Typed<K>
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

impl<F: Form> Watch<F> {
    /// A watch of `resource` in `namespace` (`None`: all) under the label selector `selector`.
    pub fn new(
        client: kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Self {
        let (path, labels) = (resource.path(namespace), selector.map(str::to_owned));
        let source = Source { client, path, labels, fields: None };
        Self { events: source.clone().follow(), source }
    }

    /// What happens next. Safe to cancel, and as quick for a caller that cancels it often: a request goes on with the
    /// next call.
    pub async fn next(&mut self) -> Event<F> {
        match self.events.next().await {
            Some(event) => event,
            // It never ends.
            None => std::future::pending().await,
        }
    }

    /// The events alone.
    pub(crate) fn into_events(self) -> BoxStream<'static, Event<F>> {
        self.events
    }

    /// Makes the next call list everything again.
    pub(crate) fn relist(&mut self) {
        self.events = self.source.clone().follow();
    }
}

impl<K> Watch<Typed<K>>
where
    K: Kind<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    /// A watch of the object `name` in `namespace` (`None` for a cluster-scoped one). It asks for this name alone, so
    /// that a right for it is enough.
    pub(crate) fn of_one(client: kube::Client, namespace: Option<&str>, name: &str) -> Self {
        let resource = Resource::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()));
        let fields = Some(format!("metadata.name={name}"));
        let source = Source { client, path: resource.path(namespace), labels: None, fields };
        Self { events: source.clone().follow(), source }
    }
}

impl Source {
    fn follow<F: Form>(self) -> BoxStream<'static, Event<F>> {
        let events = stream! {
            let mut pace = Pace::default();
            loop {
                yield Event::Relisting;
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
                                yield Event::Listed(F::read(wire));
                            }
                        }
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                if let Err(error) = listed {
                    let pause = pace.after(&error);
                    yield Event::Broken(error);
                    sleep(pause).await;
                    continue;
                }
                yield Event::Synced;

                let relist_at = Instant::now() + relist_after();
                // Whether the server goes on from the version.
                let mut goes_on = true;
                while goes_on && Instant::now() < relist_at {
                    let mut changes = match self.open::<F>(&version).await {
                        Ok(changes) => changes,
                        Err(error) => {
                            goes_on = error.is_outage();
                            let pause = pace.after(&error);
                            yield Event::Broken(error);
                            sleep(pause).await;
                            continue;
                        }
                    };
                    yield Event::Watching;
                    let since = Instant::now();
                    let pause = loop {
                        let until = relist_at.min(Instant::now() + QUIET);
                        let Ok(change) = timeout_at(until, changes.next()).await else { break Duration::ZERO };
                        match change {
                            Some(Ok(WatchEvent::Added(wire) | WatchEvent::Modified(wire))) => {
                                let object = F::read(wire);
                                advance(&mut version, object.version());
                                yield Event::Applied(object);
                            }
                            Some(Ok(WatchEvent::Deleted(wire))) => {
                                let object = F::read(wire);
                                advance(&mut version, object.version());
                                yield Event::Deleted(object);
                            }
                            Some(Ok(WatchEvent::Bookmark(mark))) => {
                                advance(&mut version, &mark.metadata.resource_version);
                            }
                            Some(Ok(WatchEvent::Error(status))) => {
                                goes_on = false;
                                let error = CallError::from(*status);
                                // Expired is an ordinary end, unless it comes again and again.
                                if error.is_gone() {
                                    break pace.after_end(since.elapsed());
                                }
                                let pause = pace.after(&error);
                                yield Event::Broken(error);
                                break pause;
                            }
                            Some(Err(error)) => {
                                let error = CallError::from(error);
                                let pause = pace.after(&error);
                                yield Event::Broken(error);
                                break pause;
                            }
                            None => break pace.after_end(since.elapsed()),
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

    fn pages<F: Form>(&self) -> Result<Pages<'_, F::Wire>, CallError> {
        let pages = Pages::at(&self.client, self.path.clone()?).of(F::PAGE);
        Ok(pages.selected(self.labels.clone(), self.fields.clone()).metadata_alone(F::METADATA))
    }

    async fn open<F: Form>(&self, version: &str) -> Result<Changes<F>, CallError> {
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
            Err(_) => Err(CallError::Late { within: PATIENCE }),
        }
    }
}

impl Pace {
    /// The pause after a failure.
    fn after(&mut self, error: &CallError) -> Duration {
        let now = Instant::now();
        let recent = self.outage.take().filter(|(last, _)| *last + RETURNING.0 > now);
        if !error.is_outage() {
            let is_back = recent.is_some();
            self.outage = recent;
            return if is_back { RETURNING.1 } else { self.refused.next().unwrap_or_default() };
        }
        let (first, longest) = BUSY;
        let mut pauses = recent.map_or_else(
            || {
                let growing = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest);
                growing.without_max_times().with_jitter().build()
            },
            |(_, pauses)| pauses,
        );
        let pause = match error {
            CallError::Unreachable { .. } => AWAY,
            _ => pauses.next().unwrap_or(longest),
        };
        self.outage = Some((now, pauses));
        error.retry_after().map_or(pause, |asked| asked.min(ASKED) + pause / 2)
    }

    /// The pause after a watch that ended before its time, after it had `lasted` so long.
    fn after_end(&mut self, lasted: Duration) -> Duration {
        if lasted >= STEADY {
            self.refused = DefaultBackoff::default();
        }
        if self.outage.as_ref().is_some_and(|(last, _)| last.elapsed() < RETURNING.0) {
            return RETURNING.1;
        }
        self.refused.next().unwrap_or_default()
    }
}

/// A resource version as the number that etcd made it from.
pub(crate) fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// When to list again, by chance.
fn relist_after() -> Duration {
    let (longest, part) = RELIST;
    Duration::from_secs(longest - RandomState::new().hash_one(()) % part)
}

/// Goes on from `seen`, if the object showed it.
fn advance(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
