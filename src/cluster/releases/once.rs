//! Reading releases once, for a command that answers and ends: no watch, no
//! task.
//!
//! Entry points: [`Releases::once`], then [`Releases::list`] for what there is
//! and [`Releases::read_once`] for one release whole, with the types of the
//! kinds that it declares.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::super::call::{CallError, PATIENCE};
use super::super::kinds::Kinds;
use super::super::records;
use super::settle::Care;
use super::{LookError, Releases};
use crate::config::RecordDriver;
use crate::helm::index::Index;
use crate::helm::release::Release;
use crate::metrics::RecordMetrics;
use crate::model::ReleaseId;

impl Releases {
    /// The releases whose records are kept by `driver`, in an index of their own.
    pub fn once(client: kube::Client, driver: RecordDriver, kinds: Arc<Kinds>) -> Arc<Self> {
        let index = Arc::new(RwLock::new(Index::default()));
        Self::new(client, driver, Vec::new(), kinds, index, RecordMetrics::default())
    }

    /// The releases in `namespace` (`None`: in all), sorted, wherever their
    /// records are trusted to lie. Only metadata is read, but of records in
    /// namespaces that may hold those of others.
    ///
    /// # Errors
    /// When the API server gives no usable answer. Records that lie in another
    /// namespace and may not be read are passed over.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, CallError> {
        let storage = self.storage();
        let mut stored = self.list_stored(namespace).await?;
        if let Some(namespace) = namespace {
            for other in storage.namespaces_for(namespace) {
                match self.list_stored(Some(other)).await {
                    Err(error) if !error.is_forbidden() => return Err(error),
                    listed => stored.extend(listed.unwrap_or_default()),
                }
            }
        }
        let mut releases = Vec::with_capacity(stored.len());
        for stored in stored {
            // What cannot be read goes by where its records lie.
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
        Ok(releases)
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

    /// The release as its records say, the types of its kinds learned first;
    /// `None` when it has no records. One that [`Self::list`] named is not
    /// listed again. It may also be named by where its records lie.
    ///
    /// # Errors
    /// When its records cannot be read.
    pub async fn read_once(&self, release: &ReleaseId) -> Result<Option<Arc<Release>>, LookError> {
        for stored in self.storage().places(release) {
            match self.read_stored(&stored).await {
                // Who may not read there has what he may read.
                Err(LookError::Call { reason, .. }) if reason.is_forbidden() && stored != *release => {}
                read => read?,
            }
        }
        let index = self.index.read();
        Ok(index.release(release).or_else(|| index.stored(release)).cloned())
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
