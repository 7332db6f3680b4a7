//! Keeps what a process knows of the objects of one resource as a list and a watch of them tell it.
//!
//! Entry points: [`Reflector::run`], or [`Reflector::next`] and [`Reflector::take`] for callers that wait for something
//! else too. An object that a whole listing does not name is gone, and is not gone before; a failure takes nothing away
//! and is logged once until the watch works again. What is kept of an object, a [`Mirror`] knows.

use std::collections::HashSet;
use std::hash::Hash;

use futures::StreamExt;
use futures::stream::BoxStream;

use super::progress::Listings;
use crate::client::call::CallError;
use crate::client::watch::Event;
use kubemoor_runtime::telemetry::FailureLog;

/// The stored form of a resource's objects.
pub(super) trait Mirror {
    /// An object as it comes.
    type Object;
    /// The identity of an object.
    type Key: Eq + Hash;
    /// The plural name of the objects.
    const OBJECTS: &'static str;

    /// Takes in an object that is there; its key, if it can be read.
    fn set(&mut self, object: Self::Object) -> Option<Self::Key>;

    /// Forgets an object that is gone.
    fn remove(&mut self, object: Self::Object);

    /// Forgets all objects but those of these keys.
    fn retain(&mut self, listed: &HashSet<Self::Key>);

    /// Logs that the objects cannot be watched, and what serves meanwhile.
    fn warn(&self, error: &CallError);

    /// Where it is kept how far the first listing is.
    fn listings(&self) -> Option<&Listings>;
}

/// Feeds a [`Mirror`].
pub(super) struct Reflector<T, K> {
    events: BoxStream<'static, Event<T>>,
    /// The keys of a listing under way.
    listed: Option<HashSet<K>>,
    /// Whether a listing was whole already.
    is_whole: bool,
    failures: FailureLog,
}

impl<T, K: Eq + Hash> Reflector<T, K> {
    pub(super) fn new(events: BoxStream<'static, Event<T>>) -> Self {
        Self { events, listed: None, is_whole: false, failures: FailureLog::default() }
    }

    /// Feeds `mirror`. Never ends.
    pub(super) async fn run<M: Mirror<Object = T, Key = K>>(mut self, mirror: &mut M) {
        loop {
            let event = self.next().await;
            self.take(event, mirror);
        }
    }

    /// What happens next, to be handed to [`Reflector::take`]. Safe to cancel.
    pub(super) async fn next(&mut self) -> Event<T> {
        match self.events.next().await {
            Some(event) => event,
            // A watch never ends.
            None => std::future::pending().await,
        }
    }

    /// Takes an event in.
    pub(super) fn take<M: Mirror<Object = T, Key = K>>(&mut self, event: Event<T>, mirror: &mut M) {
        match event {
            Event::Relisting => self.listed = Some(HashSet::new()),
            Event::Listed(object) => self.listed.get_or_insert_default().extend(mirror.set(object)),
            Event::Applied(object) => drop(mirror.set(object)),
            Event::Deleted(object) => mirror.remove(object),
            Event::Synced => {
                mirror.retain(&self.listed.take().unwrap_or_default());
                if !std::mem::replace(&mut self.is_whole, true) {
                    mirror.listings().into_iter().for_each(Listings::whole);
                }
            }
            Event::Watching => self.failures.note_success(),
            Event::Broken(error) => {
                mirror.listings().into_iter().for_each(|listings| listings.fail(M::OBJECTS, &error));
                if self.failures.note_failure() {
                    mirror.warn(&error);
                }
            }
        }
    }

    /// Goes on with another watch of the same objects, which lists them anew.
    pub(super) fn switch(&mut self, events: BoxStream<'static, Event<T>>) {
        self.events = events;
    }

    /// Whether a listing is under way, so that what is known is not whole.
    pub(super) fn is_listing(&self) -> bool {
        self.listed.is_some()
    }
}

#[cfg(test)]
mod tests;
