//! A list and a watch of one resource that never end.
//!
//! Entry point: [`Watch::next`], for metadata alone ([`MetadataWatch`]) or for any other [`Form`] of objects.
//! Unlike kube's own watcher it reports when the connection works again, starts over when the API server
//! rejects the resource version, and notices when etcd was restored to an older state: a watch from a version
//! in the future would stay silent for ever.
//!
//! Invariant: between [`Event::Relisting`] and [`Event::Synced`] every existing object is listed; after that
//! every change is reported. At most one page of a list is held. Safe to cancel.

mod pace;
mod typed;

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::Request;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{Request as Requests, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use self::pace::Pace;
pub(crate) use self::typed::Typed;
use super::call::{self, CallError, PATIENCE};
use super::pages::{PAGE, Page};
use super::resource::{Meta, Partial, Resource};

/// How long the API server keeps one watch open. Every server accepts it.
const LIFE: Duration = Duration::from_secs(290);

/// How long after [`LIFE`] a silent connection counts as dead.
const GRACE: Duration = Duration::from_secs(10);

/// How long a watch may be silent before it is reopened: a lost connection looks the same as one without
/// changes. Longer than the minute after which most API servers send a bookmark.
const QUIET: Duration = Duration::from_secs(75);

/// A watch that ended before this share of its life was cut off.
const EARLY: Duration = Duration::from_secs(240);

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
pub(crate) trait Form: Sized + Send {
    /// An object on the wire.
    type Wire: DeserializeOwned + Clone + Send + 'static;
    /// Objects per page of a list.
    const PAGE: u32;
    /// Whether metadata alone is asked for.
    const METADATA: bool;

    /// The object, whatever is odd about it.
    fn read(wire: Self::Wire) -> Self;

    /// Its resourceVersion; empty if it shows none.
    fn version(&self) -> &str;
}

/// A watch of metadata alone.
pub(crate) type MetadataWatch = Watch<Meta>;

/// All objects of a resource, in one namespace or in all, that carry the labels
/// of a selector.
pub(crate) struct Watch<F: Form> {
    source: Source,
    state: State<F>,
    /// Objects per page, less after a page that was too large.
    limit: u32,
    pace: Pace,
}

/// What is asked for.
struct Source {
    client: kube::Client,
    path: Result<String, CallError>,
    selector: Option<String>,
    /// A field selector.
    fields: Option<String>,
}

enum State<F: Form> {
    /// Nothing is known.
    Fresh,
    /// Pages are being read.
    Listing(Listing<F>),
    /// Everything up to `version` is known. It is trusted if it was listed just now.
    Listed { version: String, trusted: bool },
    /// Changes are being read.
    Open { version: String, since: Instant, changes: Changes<F> },
}

type Changes<F> = BoxStream<'static, kube::Result<WatchEvent<<F as Form>::Wire>>>;

struct Listing<F: Form> {
    page: VecDeque<F::Wire>,
    next: Option<String>,
    version: Option<String>,
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

impl<F: Form> Watch<F> {
    /// A watch of `resource` in `namespace` (`None`: all) under the label selector `selector`.
    pub(crate) fn new(
        client: kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Self {
        Self {
            source: Source {
                client,
                path: resource.path(namespace),
                selector: selector.map(str::to_owned),
                fields: None,
            },
            state: State::Fresh,
            limit: F::PAGE,
            pace: Pace::default(),
        }
    }

    /// What happens next.
    pub(crate) async fn next(&mut self) -> Event<F> {
        loop {
            self.pace.wait().await;
            match self.step().await {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(error) => {
                    self.pace.pause_after(&error);
                    return Event::Broken(error);
                }
            }
        }
    }

    /// Makes the next call list everything again.
    pub(crate) fn relist(&mut self) {
        self.state = State::Fresh;
    }

    async fn step(&mut self) -> Result<Option<Event<F>>, CallError> {
        match &mut self.state {
            State::Fresh => {
                self.state = State::Listing(Listing { page: VecDeque::new(), next: None, version: None });
                Ok(Some(Event::Relisting))
            }
            State::Listing(listing) => {
                if let Some(wire) = listing.page.pop_front() {
                    return Ok(Some(Event::Listed(F::read(wire))));
                }
                if let (None, Some(version)) = (&listing.next, &listing.version) {
                    self.state = State::Listed { version: version.clone(), trusted: true };
                    return Ok(Some(Event::Synced));
                }
                let after = listing.next.clone();
                self.list(after.as_deref()).await
            }
            State::Listed { version, trusted } => {
                let (version, trusted) = (version.clone(), *trusted);
                self.open(version, trusted).await
            }
            State::Open { since, changes, .. } => {
                let left = (*since + LIFE + GRACE).saturating_duration_since(Instant::now());
                match timeout(left.min(QUIET), changes.next()).await {
                    Ok(change) => self.changed(change),
                    Err(_) => Ok(self.ask_anew()),
                }
            }
        }
    }

    /// Lists the next page.
    async fn list(&mut self, after: Option<&str>) -> Result<Option<Event<F>>, CallError> {
        let page = match self.source.list::<F>(self.limit, after).await {
            Ok(page) => page,
            Err(error) => {
                if matches!(error, CallError::TooLarge { .. }) {
                    self.limit = (self.limit / 2).max(1);
                }
                self.state = State::Fresh;
                return Err(error);
            }
        };
        self.state = State::Listing(Listing {
            next: page.next(),
            version: Some(page.metadata.resource_version.clone()),
            page: page.into_items().into(),
        });
        Ok(None)
    }

    /// Watches from `version` on. One that is not `trusted` is compared with the server's first.
    async fn open(&mut self, version: String, trusted: bool) -> Result<Option<Event<F>>, CallError> {
        if !trusted && self.source.is_behind::<F>(&version).await? {
            self.state = State::Fresh;
            return Ok(None);
        }
        match self.source.open::<F>(&version).await {
            Ok(changes) => {
                self.state = State::Open { version, since: Instant::now(), changes };
                Ok(Some(Event::Watching))
            }
            Err(error) => {
                // The server does not go on from there; only a listing helps.
                if !error.is_outage() {
                    self.state = State::Fresh;
                }
                Err(error)
            }
        }
    }

    /// Reopens a watch that has been silent for long, from the last known version.
    fn ask_anew(&mut self) -> Option<Event<F>> {
        if let State::Open { version, .. } = &self.state {
            self.state = State::Listed { version: version.clone(), trusted: false };
        }
        None
    }

    /// Processes a change; `None` where the watch has ended.
    fn changed(
        &mut self,
        change: Option<kube::Result<WatchEvent<F::Wire>>>,
    ) -> Result<Option<Event<F>>, CallError> {
        let State::Open { version, since, .. } = &mut self.state else { return Ok(None) };
        match change {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let object = F::read(object);
                follow(version, object.version());
                Ok(Some(Event::Applied(object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                let object = F::read(object);
                follow(version, object.version());
                Ok(Some(Event::Deleted(object)))
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                *version = mark.metadata.resource_version;
                Ok(None)
            }
            Some(Ok(WatchEvent::Error(status))) => {
                let lasted = since.elapsed();
                self.state = State::Fresh;
                let error = CallError::from(*status);
                if !error.is_gone() {
                    return Err(error);
                }
                // Expired is an ordinary end, unless it comes again and again.
                if lasted < EARLY {
                    self.pace.pause_after_end(lasted);
                }
                Ok(None)
            }
            Some(Err(error)) => {
                self.state = State::Listed { version: version.clone(), trusted: false };
                Err(error.into())
            }
            None => {
                let lasted = since.elapsed();
                // A server that ends its watches in order may be one that is stopped for a restoration.
                self.state = State::Listed { version: version.clone(), trusted: false };
                if lasted < EARLY {
                    self.pace.pause_after_end(lasted);
                }
                Ok(None)
            }
        }
    }
}

impl Source {
    /// Whether the server's state is older than `version`: etcd was restored.
    /// Versions that are no numbers are not compared.
    async fn is_behind<F: Form>(&self, version: &str) -> Result<bool, CallError> {
        let page = self.list::<F>(1, None).await?;
        let server = parse_version(&page.metadata.resource_version);
        Ok(matches!((server, parse_version(version)), (Some(server), Some(known)) if server < known))
    }

    async fn list<F: Form>(&self, limit: u32, after: Option<&str>) -> Result<Page<F::Wire>, CallError> {
        let parameters = ListParams {
            label_selector: self.selector.clone(),
            field_selector: self.fields.clone(),
            limit: Some(limit),
            continue_token: after.map(str::to_owned),
            ..ListParams::default()
        };
        let requests = Requests::new(self.path.clone()?);
        let request =
            if F::METADATA { requests.list_metadata(&parameters)? } else { requests.list(&parameters)? };
        call::fetch(&self.client, request, PATIENCE).await
    }

    async fn open<F: Form>(&self, version: &str) -> Result<Changes<F>, CallError> {
        let parameters = WatchParams {
            label_selector: self.selector.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(LIFE.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let requests = Requests::new(self.path.clone()?);
        let request: Request<Vec<u8>> = if F::METADATA {
            requests.watch_metadata(&parameters, version)?
        } else {
            requests.watch(&parameters, version)?
        };
        let opening = self.client.request_events::<F::Wire>(request);
        match timeout(PATIENCE, opening).await {
            Ok(changes) => Ok(changes?.boxed()),
            Err(_) => Err(CallError::Late { within: PATIENCE }),
        }
    }
}

/// A resource version as the number that etcd made it from.
pub(crate) fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Goes on from `seen`, if the object showed it.
fn follow(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
