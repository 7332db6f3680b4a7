//! The GuardedReleases of a cluster: reports when they are created, changed and deleted.
//!
//! Entry point: [`Watching::next`]. Without the CustomResourceDefinition there are none. Stores nothing.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};

use super::custom;
use super::kinds::Kinds;
use super::progress::scopes;
use crate::client::Event;
use crate::client::guarded::{GuardedReleases, KIND, PLURAL, typed};
use kubemoor_policy::guarded::GuardedRelease;

/// An event, and the namespace of the watch that tells it (`None`: of all).
type Told = (Option<Arc<str>>, Event<Box<GuardedRelease>>);

/// GuardedReleases as they come, change and go.
pub struct Watching(SelectAll<BoxStream<'static, Told>>);

impl Watching {
    /// All of those that `guarded` reads and writes.
    pub fn new(guarded: &GuardedReleases, kinds: &Kinds) -> Self {
        let watch = |namespace: Option<&str>| {
            let events = custom::events(guarded.client(), kinds, (KIND, PLURAL), namespace);
            let namespace: Option<Arc<str>> = namespace.map(Arc::from);
            // One that cannot be read does not affect the others.
            let readable = move |event: Event<_>| {
                std::future::ready(event.map(typed).transpose().map(|event| (namespace.clone(), event)))
            };
            events.filter_map(readable).boxed()
        };
        Self(select_all(scopes(guarded.namespaces()).into_iter().map(watch)))
    }

    /// The next event. Never ends; without the CustomResourceDefinition each watch reports an empty listing. Safe to
    /// cancel.
    pub async fn next(&mut self) -> (Option<Arc<str>>, Event<Box<GuardedRelease>>) {
        match self.0.next().await {
            Some(told) => told,
            // There is always a watch.
            None => std::future::pending().await,
        }
    }
}
