//! Reads the records that are in force many at once, for the first listing.
//!
//! Entry point: [`Releases::queue_first`]. Invariant: only saves requests: what a page does not bring is read by itself,
//! and every release is queued. Must not settle a release, nor run later: a namespace with long records delays others.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::timeout;

use super::super::payloads::RecordObject;
use super::super::records;
use super::Releases;
use crate::client::call::{CallError, PATIENCE};
use crate::helm::release::{self, Head};
use crate::model::ReleaseId;

/// For so many releases at most, their records are read one by one.
const FEW: usize = 25;

/// Records on the first page: some are long.
const PAGE: u32 = 50;

impl Releases {
    /// Queues the releases that were listed in `namespace` (`None`: in all). If they are many, the payloads of most come
    /// with them.
    pub(super) async fn queue_first(&self, namespace: Option<&str>, listed: Vec<ReleaseId>) {
        let mut left: HashSet<ReleaseId> = listed.into_iter().collect();
        let is_many = left.len() > FEW;
        if is_many && let Err(error) = self.prefetch(namespace, &mut left).await {
            tracing::debug!(%error, "the records that are left are read one by one");
        }
        left.into_iter().for_each(|release| self.dirty.add(release));
        if is_many {
            // Nobody asks for the payload of a record that has changed since.
            let _ = timeout(PATIENCE, self.payloads.prefetched.end()).await;
            self.payloads.prefetched.clear();
        }
    }

    /// Reads pages while their payloads are asked for, and takes their releases out of `left`.
    async fn prefetch(
        &self,
        namespace: Option<&str>,
        left: &mut HashSet<ReleaseId>,
    ) -> Result<(), CallError> {
        let mut pages = self.payloads.whole(namespace, "status=deployed")?.of(PAGE);
        while let Some(page) = pages.next().await? {
            let room = timeout(PATIENCE, self.payloads.prefetched.room()).await;
            room.map_err(|_| CallError::Late { within: PATIENCE })?;
            page.into_items().into_iter().for_each(|record| self.hand_over(record, left));
        }
        Ok(())
    }

    /// Queues the release of a record with its payload, if it is a record that the release needs.
    fn hand_over(&self, record: RecordObject, left: &mut HashSet<ReleaseId>) {
        let (meta, payload) = self.payloads.split(record);
        let (Ok((id, listed)), Some(payload)) = (records::read(meta), payload) else { return };
        if !left.contains(&id) {
            return;
        }
        let heads: Vec<Arc<Head>> = self.records.lock().of(&id).into_iter().map(|known| known.head).collect();
        let is_listed = |head: &&Arc<Head>| {
            head.uid == listed.head.uid && head.resource_version == listed.head.resource_version
        };
        // A payload that nobody asks for would take the room of others.
        let mut needed = release::latest(&heads).into_iter().chain(release::baseline(&heads));
        if let Some(head) = needed.find(is_listed) {
            self.payloads.prefetched.put(head, payload);
            left.remove(&id);
            self.dirty.add(id);
        }
    }
}
