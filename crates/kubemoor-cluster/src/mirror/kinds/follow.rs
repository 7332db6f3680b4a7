//! Follows the cluster's CustomResourceDefinitions, retries failed reads, and finds kinds that moved.
//!
//! Entry point: `Kinds::follow`. Invariant: a definition is read only if a release declares its kind. Any
//! other only marks discovery as outdated. Must not decide what is watched.

mod definitions;

use std::collections::HashSet;

use tokio::time::{Instant, sleep_until};

use self::definitions::Definitions;
use super::super::reflect::Reflector;
use super::attempts::{Attempts, Discovery, Left};
use super::{Draft, Kinds, add};
use crate::client::discovery::discover;
use crate::client::resource::Resource;
use crate::client::schemas;
use crate::client::watch::MetadataWatch;
use kubemoor_declare::model::Gvk;

impl Kinds {
    pub(super) async fn follow(&self) {
        let definitions = Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let watch = MetadataWatch::new(self.client.clone(), &definitions, None, None);
        let mut reflector = Reflector::new(watch.into_events());
        let mut definitions = Definitions::default();
        let mut attempts = Attempts::none();
        loop {
            tokio::select! {
                event = reflector.next() => reflector.take(event, &mut definitions),
                () = until(definitions.settled_at), if definitions.settled_at.is_some() => {
                    let changed = definitions.take_changed();
                    changed.iter().for_each(|name| self.defined.announce(name));
                    let (unread, error) = self.refresh(changed).await;
                    if definitions.put_back(unread) {
                        tracing::warn!(error, "some CustomResourceDefinitions cannot be read, trying again");
                    }
                }
                () = self.owing.notified() => attempts.owe(Instant::now()),
                () = until(attempts.due()), if attempts.due().is_some() => {
                    let left = self.retry().await;
                    attempts.tried(left, Instant::now());
                }
            }
        }
    }

    /// Takes in changes of CustomResourceDefinitions, as far as releases declare their kinds. Returns the names of those
    /// that could not be read, with the last reason.
    async fn refresh(&self, names: HashSet<String>) -> (HashSet<String>, Option<String>) {
        let mut unread = (HashSet::new(), None);
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let owed = self.owed.lock().kinds().clone();
        let mut draft = Draft::of(&snapshot);
        for name in names {
            let Some((plural, group)) = name.split_once('.') else { continue };
            if !reading.customs.contains_key(&name) {
                // A release that declares its kind, now or in a moment, finds it at once.
                reading.discovery.outdate();
                if !owed.iter().any(|gvk| gvk.group == group) {
                    continue;
                }
            }
            match schemas::crd(&self.client, plural, group).await {
                Ok(Some(custom)) if reading.customs.get(&name) != Some(&custom.edition) => {
                    let (kind, edition) = (custom.facts.kind.clone(), custom.edition.clone());
                    let of_kind = |gvk: &&Gvk| gvk.group == group && gvk.kind == kind;
                    let declared: Vec<Gvk> =
                        snapshot.settled.keys().chain(&owed).filter(of_kind).cloned().collect();
                    // If no release declares its kinds, the result is not published, and so not known.
                    if !declared.is_empty() {
                        draft.add_custom(custom);
                        draft.learned.extend(declared);
                        reading.customs.insert(name, edition);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    unread.1 = Some(error.to_string());
                    unread.0.insert(name);
                }
            }
        }
        if !draft.learned.is_empty() {
            self.publish(draft);
        }
        unread
    }

    /// Tries again to find what is doubted and to learn what is owed. Returns what is left.
    async fn retry(&self) -> Left {
        let is_doubted = self.doubts.sweep();
        if is_doubted {
            self.find_again().await;
        }
        let owed = self.owed.lock().kinds().clone();
        if !owed.is_empty() {
            self.learn(owed).await;
        }
        match self.owed.lock().kinds().is_empty() {
            _ if is_doubted => Left::Doubts,
            false => Left::Owed,
            true => Left::Nothing,
        }
    }

    /// Lists all kinds again: some may be served elsewhere by now.
    async fn find_again(&self) {
        let mut reading = self.reading.lock().await;
        let mut draft = Draft::of(&self.snapshot());
        match discover(&self.client).await {
            Ok(kinds) => {
                reading.discovery = Discovery::made(Instant::now());
                reading.documents = None;
                add(&mut draft.catalog, kinds);
                self.publish(draft);
            }
            Err(error) => tracing::debug!(%error, "the kinds of the API server cannot be listed again"),
        }
    }
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}
