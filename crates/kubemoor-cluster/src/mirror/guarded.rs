//! The GuardedReleases of a cluster: reports when they are created, changed and deleted.
//!
//! Entry point: [`Watching::next`]. Invariant: without the CustomResourceDefinition there are none. One that
//! cannot be read does not affect the others. Stores nothing.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};

use super::custom::CustomWatch;
use super::kinds::Kinds;
use super::progress::scopes;
use crate::client::Event;
use crate::client::guarded::{GuardedReleases, KIND, PLURAL, typed};
use kubemoor_policy::guarded::GuardedRelease;

/// GuardedReleases as they come, change and go.
pub struct Watching(Vec<Scope>);

/// Those of one namespace, or of all.
struct Scope {
    namespace: Option<Arc<str>>,
    watch: CustomWatch,
}

impl Watching {
    /// All of those that `guarded` reads and writes.
    pub fn new(guarded: &GuardedReleases, kinds: &Kinds) -> Self {
        let watch = |namespace: Option<&str>| Scope {
            namespace: namespace.map(Arc::from),
            watch: CustomWatch::new(guarded.client(), kinds, (KIND, PLURAL), namespace),
        };
        Self(scopes(guarded.namespaces()).into_iter().map(watch).collect())
    }

    /// The next event, and the namespace of the watch that tells it (`None`: of all). Never ends; without the
    /// CustomResourceDefinition each watch reports an empty listing. Skips objects that cannot be read. Safe to cancel.
    pub async fn next(&mut self) -> (Option<Arc<str>>, Event<Box<GuardedRelease>>) {
        let mut scopes: FuturesUnordered<_> = self.0.iter_mut().map(Scope::next).collect();
        match scopes.next().await {
            Some(event) => event,
            // There is always a scope.
            None => std::future::pending().await,
        }
    }
}

impl Scope {
    async fn next(&mut self) -> (Option<Arc<str>>, Event<Box<GuardedRelease>>) {
        let event = loop {
            break match self.watch.next().await {
                Event::Relisting => Event::Relisting,
                Event::Synced => Event::Synced,
                Event::Watching => Event::Watching,
                Event::Broken(error) => Event::Broken(error),
                Event::Listed(object) => match typed(object) {
                    Some(object) => Event::Listed(object),
                    None => continue,
                },
                Event::Applied(object) => match typed(object) {
                    Some(object) => Event::Applied(object),
                    None => continue,
                },
                Event::Deleted(object) => match typed(object) {
                    Some(object) => Event::Deleted(object),
                    None => continue,
                },
            };
        };
        (self.namespace.clone(), event)
    }
}
