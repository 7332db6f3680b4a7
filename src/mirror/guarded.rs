//! The GuardedReleases of a cluster, as they come, change and go.
//!
//! Entry point: [`Watching::next`]. Invariant: where the definition is absent
//! there are none; one that cannot be read costs itself alone. Keeps nothing.

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

    /// What happens next. Never ends; where the definition is absent an empty
    /// listing is told. Objects that cannot be read are left out. Safe to cancel.
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
