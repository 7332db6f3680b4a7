//! A list and a watch of one resource that never end.
//!
//! Entry point: [`Watch::next`], for metadata alone ([`MetadataWatch`]) or for any other [`Form`] of objects.
//! Unlike kube's own watcher it reports when the connection works again, starts over when the API server
//! rejects the resource version, and lists everything again every few minutes, which puts right all that a watch can
//! miss: after a restore of etcd one from a version in the future stays silent for ever.
//!
//! Invariant: between [`Event::Relisting`] and [`Event::Synced`] every existing object is listed; after that
//! every change is reported. At most one page of a list is held. Safe to cancel, and as quick for a caller that cancels
//! it often: a request goes on with the next call.

mod pace;
mod source;
mod typed;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use self::pace::Pace;
use self::source::{Asked, Changes, Source, answer};
pub use self::typed::Typed;
use super::call::CallError;
use super::pages::{PAGE, Page, PageSize};
use super::resource::{Meta, Partial, Resource};

/// How long the API server keeps one watch open. Every server accepts it.
const LIFE: Duration = Duration::from_secs(290);

/// How long after [`LIFE`] a silent connection counts as dead.
const GRACE: Duration = Duration::from_secs(10);

/// How long a watch may be silent before it is reopened: a lost connection looks the same as one without
/// changes. Longer than the minute after which most API servers send a bookmark.
const QUIET: Duration = Duration::from_secs(75);

/// The longest time between two listings, and the part of it by which each may come earlier: guards that started
/// together do not list at the same moment.
const RELIST: (u64, u64) = (300, 60);

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

/// A watch of metadata alone.
pub(crate) type MetadataWatch = Watch<Meta>;

/// All objects of a resource, in one namespace or in all, that carry the labels
/// of a selector.
pub struct Watch<F: Form> {
    source: Arc<Source>,
    state: State<F>,
    size: PageSize,
    pace: Pace,
    /// When everything is listed again.
    relist_at: Instant,
}

enum State<F: Form> {
    /// Nothing is known.
    Fresh,
    /// Pages are being read.
    Listing(Listing<F>),
    /// Everything up to a version is known.
    Listed(Known<F>),
    /// Changes are being read, `heard` the last one.
    Open { version: String, since: Instant, heard: Instant, changes: Changes<F> },
}

struct Listing<F: Form> {
    page: VecDeque<F::Wire>,
    next: Option<String>,
    version: Option<String>,
    /// The request for the next page.
    asked: Option<Asked<Page<F::Wire>>>,
}

struct Known<F: Form> {
    version: String,
    /// The request for a watch.
    asked: Option<Asked<Changes<F>>>,
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
    pub fn new(
        client: kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Self {
        Self {
            source: Arc::new(Source {
                client,
                path: resource.path(namespace),
                selector: selector.map(str::to_owned),
                fields: None,
            }),
            state: State::Fresh,
            size: PageSize::of(F::PAGE),
            pace: Pace::default(),
            relist_at: Instant::now(),
        }
    }

    /// What happens next.
    pub async fn next(&mut self) -> Event<F> {
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
        let (source, size) = (&self.source, self.size);
        match &mut self.state {
            State::Fresh => {
                self.state = State::Listing(Listing::after(VecDeque::new(), None, None));
                Ok(Some(Event::Relisting))
            }
            State::Listing(listing) => {
                if let Some(wire) = listing.page.pop_front() {
                    return Ok(Some(Event::Listed(F::read(wire))));
                }
                if let (None, Some(version)) = (&listing.next, &listing.version) {
                    self.state = State::Listed(Known::of(version.clone()));
                    self.relist_at = Instant::now() + relist_after();
                    return Ok(Some(Event::Synced));
                }
                let after = listing.next.clone();
                let page = answer(&mut listing.asked, || Arc::clone(source).page::<F>(size, after)).await;
                self.take_page(page)
            }
            State::Listed(_) | State::Open { .. } if Instant::now() >= self.relist_at => {
                self.state = State::Fresh;
                Ok(None)
            }
            State::Listed(Known { version, asked }) => {
                let from = version.clone();
                let opening = answer(asked, || Arc::clone(source).watch::<F>(from)).await;
                self.take_opening(opening)
            }
            State::Open { since, heard, changes, .. } => {
                let until = (*since + LIFE + GRACE).min(*heard + QUIET).min(self.relist_at);
                match timeout_at(until, changes.next()).await {
                    Ok(change) => {
                        *heard = Instant::now();
                        self.changed(change)
                    }
                    Err(_) => Ok(self.ask_anew()),
                }
            }
        }
    }

    /// Takes the next page of a list.
    fn take_page(&mut self, page: Result<Page<F::Wire>, CallError>) -> Result<Option<Event<F>>, CallError> {
        let page = match page {
            // The same page again: one that begins anew might never get beyond it.
            Err(CallError::TooLarge { .. }) if self.size.halve() => return Ok(None),
            page => page.inspect_err(|_| self.state = State::Fresh)?,
        };
        page.adapt(&mut self.size);
        let (next, version) = (page.next(), page.metadata.resource_version.clone());
        self.state = State::Listing(Listing::after(page.into_items().into(), next, Some(version)));
        Ok(None)
    }

    /// Takes what came of the request for a watch.
    fn take_opening(
        &mut self,
        opening: Result<Changes<F>, CallError>,
    ) -> Result<Option<Event<F>>, CallError> {
        match (opening, &mut self.state) {
            (Ok(changes), State::Listed(Known { version, .. })) => {
                let (version, since) = (std::mem::take(version), Instant::now());
                self.state = State::Open { version, since, heard: since, changes };
                Ok(Some(Event::Watching))
            }
            (Err(error), _) => {
                // The server does not go on from there; only a listing helps.
                if !error.is_outage() {
                    self.state = State::Fresh;
                }
                Err(error)
            }
            (Ok(_), _) => {
                self.state = State::Fresh;
                Ok(None)
            }
        }
    }

    /// Reopens a watch that has been silent for long, from the last known version.
    fn ask_anew(&mut self) -> Option<Event<F>> {
        if let State::Open { version, .. } = &self.state {
            self.state = State::Listed(Known::of(version.clone()));
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
                self.state = State::Listed(Known::of(version.clone()));
                Err(error.into())
            }
            None => {
                let lasted = since.elapsed();
                self.state = State::Listed(Known::of(version.clone()));
                if lasted < EARLY {
                    self.pace.pause_after_end(lasted);
                }
                Ok(None)
            }
        }
    }
}

impl<F: Form> Listing<F> {
    fn after(page: VecDeque<F::Wire>, next: Option<String>, version: Option<String>) -> Self {
        Self { page, next, version, asked: None }
    }
}

impl<F: Form> Known<F> {
    fn of(version: String) -> Self {
        Self { version, asked: None }
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
fn follow(version: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(version);
    }
}

#[cfg(test)]
mod tests;
