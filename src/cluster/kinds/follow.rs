//! Follows the cluster's CustomResourceDefinitions, and tries again what could
//! not be learned.
//!
//! Entry point: `Kinds::follow`. Invariant: a definition is read only if a
//! release declares its kind; of any other it is only noted that discovery may
//! know more than before. Must not decide what is watched.

use std::collections::{HashMap, HashSet};

use tokio::time::{Instant, sleep_until};

use super::super::resource::Resource;
use super::super::schemas;
use super::super::watch::{Event, MetadataWatch};
use super::attempts::{Attempts, SETTLING};
use super::{Draft, Kinds};
use crate::model::Gvk;

impl Kinds {
    pub(super) async fn follow(&self) {
        let definitions = Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let mut watch = MetadataWatch::new(self.client.clone(), &definitions, None, None);
        let mut seen: HashMap<String, String> = HashMap::new();
        let mut changed: HashSet<String> = HashSet::new();
        let mut settled_at: Option<Instant> = None;
        let mut attempts = Attempts::none();
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Event::Listed(meta) | Event::Applied(meta) => {
                        let known = seen.insert(meta.name.clone(), meta.resource_version.clone());
                        if known.as_ref() != Some(&meta.resource_version) {
                            changed.insert(meta.name);
                            settled_at.get_or_insert_with(|| Instant::now() + SETTLING);
                        }
                    }
                    Event::Deleted(meta) => drop(seen.remove(&meta.name)),
                    Event::Broken(error) => {
                        tracing::warn!(%error, "CustomResourceDefinitions cannot be watched");
                    }
                    Event::Relisting | Event::Synced | Event::Watching => {}
                },
                () = until(settled_at), if settled_at.is_some() => {
                    settled_at = None;
                    changed.iter().for_each(|name| self.defined.announce(name));
                    self.refresh(std::mem::take(&mut changed)).await;
                }
                () = self.owing.notified() => attempts.owe(Instant::now()),
                () = until(attempts.due()), if attempts.due().is_some() => {
                    let is_owed = self.retry().await;
                    attempts.tried(is_owed, Instant::now());
                }
            }
        }
    }

    /// Takes in changes of CustomResourceDefinitions, as far as releases
    /// declare their kinds.
    async fn refresh(&self, names: HashSet<String>) {
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let owed = self.owed.lock().clone();
        let mut draft = Draft::of(&snapshot);
        for name in names {
            let Some((plural, group)) = name.split_once('.') else { continue };
            if !reading.customs.contains_key(&name) {
                // Whoever declares its kind, now or in a moment, finds it at once.
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
                    // What nobody declares is published by nobody, and so not known.
                    if !declared.is_empty() {
                        draft.add_custom(custom);
                        draft.learned.extend(declared);
                        reading.customs.insert(name, edition);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(definition = %name, %error, "a CustomResourceDefinition cannot be read");
                }
            }
        }
        if !draft.learned.is_empty() {
            self.publish(draft);
        }
    }

    /// Tries again to learn what is owed. Whether anything still is.
    async fn retry(&self) -> bool {
        let owed = self.owed.lock().clone();
        if owed.is_empty() {
            return false;
        }
        self.learn(owed).await;
        !self.owed.lock().is_empty()
    }
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}
