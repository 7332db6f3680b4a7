//! CustomResourceDefinitions in the versions in which they were seen.
//!
//! Entry points: [`Definitions::take_changed`], [`Definitions::put_back`], `settled_at`. Invariant: a definition counts as
//! changed once per version, and again where it could not be read.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::super::progress::Listings;
use super::super::super::reflect::Mirror;
use super::super::attempts::SETTLING;
use crate::client::call::CallError;
use crate::client::resource::Meta;

/// The longest pause before definitions that could not be read are read again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// CustomResourceDefinitions in the versions in which they came by.
#[derive(Default)]
pub(super) struct Definitions {
    pub(super) seen: HashMap<String, String>,
    pub(super) changed: HashSet<String>,
    /// When the changes of now have settled.
    pub(super) settled_at: Option<Instant>,
    /// How often in a row some could not be read.
    failures: u32,
}

impl Definitions {
    /// The names of those that changed since this was asked.
    pub(super) fn take_changed(&mut self) -> HashSet<String> {
        self.settled_at = None;
        std::mem::take(&mut self.changed)
    }

    /// Takes back the names of those that could not be read: they are read again after a pause, which grows. Returns
    /// whether that is the first failure in a row.
    pub(super) fn put_back(&mut self, unread: HashSet<String>) -> bool {
        if unread.is_empty() {
            self.failures = 0;
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.changed.extend(unread);
        let pause = SETTLING.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.settled_at.get_or_insert_with(|| Instant::now() + pause);
        self.failures == 1
    }
}

impl Mirror for Definitions {
    type Object = Meta;
    type Key = String;
    const OBJECTS: &'static str = "CustomResourceDefinitions";

    fn set(&mut self, meta: Meta) -> Option<String> {
        let Meta { name, resource_version, .. } = meta;
        let known = self.seen.insert(name.clone(), resource_version.clone());
        if known != Some(resource_version) {
            self.changed.insert(name.clone());
            self.settled_at.get_or_insert_with(|| Instant::now() + SETTLING);
        }
        Some(name)
    }

    fn remove(&mut self, meta: Meta) {
        self.seen.remove(&meta.name);
    }

    fn retain(&mut self, listed: &HashSet<String>) {
        self.seen.retain(|name, _| listed.contains(name));
    }

    fn warn(&self, error: &CallError) {
        tracing::warn!(%error, "CustomResourceDefinitions cannot be watched");
    }

    fn listings(&self) -> Option<&Listings> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn definition_that_could_not_be_read_is_read_again() {
        let mut definitions = Definitions::default();
        let meta =
            Meta { name: "a.example.com".to_owned(), resource_version: "1".to_owned(), ..Meta::default() };
        definitions.set(meta);
        let names = HashSet::from(["a.example.com".to_owned()]);
        let mut pauses = Vec::new();
        for attempt in 0..8 {
            assert_eq!(definitions.take_changed(), names);
            assert_eq!(definitions.put_back(names.clone()), attempt == 0);
            let at = definitions.settled_at.expect("it is tried again");
            pauses.push(at.duration_since(Instant::now()).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        definitions.take_changed();
        assert!(!definitions.put_back(HashSet::new()) && definitions.settled_at.is_none());
        assert!(definitions.put_back(names), "the next failure is a new one");
    }
}
