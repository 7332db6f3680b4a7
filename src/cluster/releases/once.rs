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

    /// The releases that have records in `namespace` (`None`: in all), sorted.
    /// Only metadata is read.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, CallError> {
        let mut listing = records::Listing::new(Instant::now());
        for meta in self.payloads.list(namespace).await? {
            if let Ok((release, known)) = records::read(meta) {
                listing.add(release, known);
            }
        }
        let mut releases = self.records.lock().replace(namespace, listing);
        releases.sort();
        Ok(releases)
    }

    /// The release as its records say, the types of its kinds learned first;
    /// `None` when it has no records. One that [`Self::list`] named is not
    /// listed again.
    ///
    /// # Errors
    /// When its records cannot be read.
    pub async fn read_once(&self, release: &ReleaseId) -> Result<Option<Arc<Release>>, LookError> {
        if self.records.lock().of(release).is_empty() {
            let began = Instant::now();
            let looked = self.payloads.look(release, PATIENCE).await;
            let looked = looked.map_err(|reason| LookError::called(release, reason))?;
            self.records.lock().look(release, looked.records, &looked.version, began);
        }
        self.settle(release, Care::First).await?;
        Ok(self.index.read().release(release).cloned())
    }
}
