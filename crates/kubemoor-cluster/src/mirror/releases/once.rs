//! Reads releases once, for a command: no watch, no task.
//!
//! Entry points: [`Releases::once`], then [`Releases::list`] for the existing releases and
//! [`Releases::read_once`] for one whole release, with the types of its declared kinds.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::super::kinds::Kinds;
use super::super::records;
use super::settle::Care;
use super::{LookError, RecordSource, Releases};
use crate::client::call::{CallError, PATIENCE};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::RecordMetrics;

/// What could be read.
pub struct Once<T> {
    /// What there is.
    pub found: T,
    /// Other namespaces that are trusted to hold records of it and may not be read.
    pub closed: Vec<Closed>,
}

/// A namespace whose records may not be read.
pub struct Closed {
    /// The namespace.
    pub records: String,
    /// What the API server said.
    pub reason: CallError,
}

impl Releases {
    /// The releases whose records are kept by `driver`, in an index of their own.
    pub fn once(client: kube::Client, driver: RecordDriver, kinds: Arc<Kinds>) -> Arc<Self> {
        let index = Arc::new(RwLock::new(Index::default()));
        let source = RecordSource { driver, namespaces: Vec::new() };
        Self::new(client, source, kinds, index, RecordMetrics::default())
    }

    /// The releases in `namespace` (`None`: in all), sorted, from all places that their records are trusted
    /// in. Reads only metadata, except for records in namespaces that may hold those of other namespaces.
    ///
    /// # Errors
    /// When the API server gives no usable answer. Records in another namespace that may not be read are
    /// skipped, and reported in the result.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Once<Vec<ReleaseId>>, CallError> {
        let storage = self.storage();
        let mut closed = Vec::new();
        let mut stored = self.list_stored(namespace).await?;
        if let Some(namespace) = namespace {
            for other in storage.namespaces_for(namespace) {
                match self.list_stored(Some(other)).await {
                    Ok(listed) => stored.extend(listed),
                    Err(reason) if reason.is_forbidden() => {
                        closed.push(Closed { records: other.to_owned(), reason });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let mut releases = Vec::with_capacity(stored.len());
        for stored in stored {
            // A record that cannot be read is listed under its own place.
            if storage.is_shared(&stored.namespace) && self.settle(&stored, Care::First).await.is_ok() {
                let index = self.index.read();
                releases.push(index.stored(&stored).map_or(stored, |release| release.id.clone()));
            } else {
                releases.push(stored);
            }
        }
        releases.retain(|release| namespace.is_none_or(|namespace| release.namespace == namespace));
        releases.sort();
        releases.dedup();
        Ok(Once { found: releases, closed })
    }

    /// Of the releases that [`Self::list`] has named in `namespace`, those whose newest record has
    /// labels that match, as `helm list --selector` has it.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn labelled(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<BTreeSet<ReleaseId>, CallError> {
        let mut places = vec![namespace.map(str::to_owned)];
        let storage = self.storage();
        places.extend(
            namespace.into_iter().flat_map(|it| storage.namespaces_for(it)).map(|it| Some(it.to_owned())),
        );
        let mut found = BTreeSet::new();
        for place in places {
            let metas = match self.payloads.list_labelled(place.as_deref(), labels).await {
                Ok(metas) => metas,
                // As the list has passed over it.
                Err(error) if error.is_forbidden() && place.as_deref() != namespace => continue,
                Err(error) => return Err(error),
            };
            for (stored, known) in metas.into_iter().filter_map(|meta| records::read(meta).ok()) {
                let records = self.records.lock().of(&stored);
                // An older record may have other labels.
                if records.last().is_some_and(|newest| newest.head.uid == known.head.uid) {
                    let index = self.index.read();
                    found.insert(index.stored(&stored).map_or(stored, |release| release.id.clone()));
                }
            }
        }
        Ok(found)
    }

    /// The release from its records; learns the types of its kinds first. `None` when it has no records. A
    /// release from [`Self::list`] is not listed again. The place of its records also works as its name.
    ///
    /// # Errors
    /// When its records cannot be read. Those in another namespace that may not be read are skipped, and
    /// reported in the result.
    pub async fn read_once(&self, release: &ReleaseId) -> Result<Once<Option<Arc<Release>>>, LookError> {
        let mut closed = Vec::new();
        for stored in self.storage().places(release) {
            match self.read_stored(&stored).await {
                Err(LookError::Call { reason, .. }) if reason.is_forbidden() && stored != *release => {
                    closed.push(Closed { records: stored.namespace.to_string(), reason: *reason });
                }
                read => read?,
            }
        }
        let index = self.index.read();
        Ok(Once { found: index.release(release).or_else(|| index.stored(release)).cloned(), closed })
    }

    async fn list_stored(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, CallError> {
        let mut listing = records::Listing::new(Instant::now());
        for meta in self.payloads.list(namespace).await? {
            if let Ok((release, known)) = records::read(meta) {
                listing.add(release, known);
            }
        }
        Ok(self.records.lock().replace(namespace, listing))
    }

    async fn read_stored(&self, stored: &ReleaseId) -> Result<(), LookError> {
        if self.records.lock().of(stored).is_empty() {
            let began = Instant::now();
            let looked = self.payloads.look(stored, PATIENCE).await;
            let looked = looked.map_err(|reason| LookError::called(stored, reason))?;
            self.records.lock().look(stored, looked.records, &looked.version, began);
        }
        self.settle(stored, Care::First).await.map(drop)
    }
}
