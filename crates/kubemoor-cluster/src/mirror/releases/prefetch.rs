//! Reads the records that are in force many at once, for the first listing.
//!
//! Entry point: [`Releases::queue_first`]. Invariant: only saves requests: what a page does not bring is read by itself,
//! and every release is queued in time. Must not settle a release.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::payloads::RecordObject;
use super::super::records;
use super::Releases;
use crate::client::call::CallError;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::{self, Head};

/// For so many releases at most, their records are read one by one.
const FEW: usize = 25;

/// After this time the releases that are left are queued: a namespace with many long records must not delay others.
const WITHIN: Duration = Duration::from_secs(30);

/// Records on the first page: some are long.
const PAGE: u32 = 50;

impl Releases {
    /// Queues the releases that were listed in `namespace` (`None`: in all). If they are many, the payloads of most come
    /// with them.
    pub(super) async fn queue_first(&self, namespace: Option<&str>, listed: Vec<ReleaseId>) {
        let mut left: HashSet<ReleaseId> = listed.into_iter().collect();
        if left.len() > FEW {
            // One after the other, as each holds a page.
            let turn = self.payloads.prefetched.turn().await;
            match timeout(WITHIN, self.prefetch(namespace, &mut left)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "records cannot be read in pages, so they are read one by one");
                }
                Err(_) => tracing::debug!("the records that are left are read one by one"),
            }
            drop(turn);
        }
        left.into_iter().for_each(|release| self.dirty.add(release));
    }

    /// Reads pages while their payloads are asked for, and takes their releases out of `left`.
    async fn prefetch(
        &self,
        namespace: Option<&str>,
        left: &mut HashSet<ReleaseId>,
    ) -> Result<(), CallError> {
        let mut pages = self.payloads.whole(namespace, "status=deployed")?.of(PAGE);
        loop {
            self.payloads.prefetched.room().await;
            let Some(page) = pages.next().await? else { return Ok(()) };
            page.into_items().into_iter().for_each(|record| self.hand_over(record, left));
        }
    }

    /// Queues the release of a record with its payload, if it is a record that the release needs.
    fn hand_over(&self, record: RecordObject, left: &mut HashSet<ReleaseId>) {
        let (meta, payload) = self.payloads.split(record);
        let (Ok((id, listed)), Some(payload)) = (records::read(meta), payload) else { return };
        if !left.contains(&id) {
            return;
        }
        let heads: Vec<Arc<Head>> = self.records.lock().of(&id).into_iter().map(|known| known.head).collect();
        // A payload that nobody asks for would take the room of others.
        let mut needed = release::latest(&heads).into_iter().chain(release::baseline(&heads));
        if let Some(head) = needed.find(|head| head.is_same_version(&listed.head)) {
            self.payloads.prefetched.put(&id, Arc::clone(head), payload);
            left.remove(&id);
            self.dirty.add(id);
        }
    }
}
