//! CustomResourceDefinitions in the versions in which they were seen.
//!
//! Entry points: [`Definitions::take_changed`], `settled_at`. Invariant: a definition counts as changed once per version.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::super::super::progress::Listings;
use super::super::super::reflect::Mirror;
use super::super::attempts::SETTLING;
use crate::client::call::CallError;
use crate::client::resource::Meta;

/// CustomResourceDefinitions in the versions in which they came by.
#[derive(Default)]
pub(super) struct Definitions {
    pub(super) seen: HashMap<String, String>,
    pub(super) changed: HashSet<String>,
    /// When the changes of now have settled.
    pub(super) settled_at: Option<Instant>,
}

impl Definitions {
    /// The names of those that changed since this was asked.
    pub(super) fn take_changed(&mut self) -> HashSet<String> {
        self.settled_at = None;
        std::mem::take(&mut self.changed)
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
