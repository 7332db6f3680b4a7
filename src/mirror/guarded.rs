//! The GuardedReleases of a cluster: reports when they are created, changed and deleted.
//!
//! Entry point: [`Watching::next`]. Invariant: without the CustomResourceDefinition there are none. One that
//! cannot be read does not affect the others. Stores nothing.

use super::custom::CustomWatch;
use super::kinds::Kinds;
use crate::client::Event;
use crate::client::guarded::{GuardedReleases, KIND, PLURAL, typed};
use crate::policy::guarded::GuardedRelease;

/// GuardedReleases as they come, change and go.
pub struct Watching(CustomWatch);

impl Watching {
    /// All of those that `guarded` reads and writes.
    pub fn new(guarded: &GuardedReleases, kinds: &Kinds) -> Self {
        Self(CustomWatch::new(guarded.client(), kinds, (KIND, PLURAL), None))
    }

    /// The next event. Never ends; without the CustomResourceDefinition it reports an empty listing. Skips
    /// objects that cannot be read. Safe to cancel.
    pub async fn next(&mut self) -> Event<Box<GuardedRelease>> {
        loop {
            return match self.0.next().await {
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
        }
    }
}
