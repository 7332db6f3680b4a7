//! The chart, values and templates of a revision, read from its record on demand.
//!
//! Entry points: [`Releases::source`], [`Releases::source_at_hand`]. Invariant: for messages, records are
//! read one after the other and only for a small part of the time, and the last [`KEPT`] bytes are cached. So
//! frequent denials cannot keep the guard busy.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::payloads::Unpacked;
use super::Releases;
use crate::client::call::CallError;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::{ChartSource, RecordError};
use kubemoor_helm::release::Head;

/// The most that is kept of records, in bytes.
const KEPT: u64 = 4 << 20;

/// After a record was read, no other is read for this many times as long.
const PAUSE: u32 = 4;

/// How long a caller waits for its turn to read a record.
const TURN: Duration = Duration::from_millis(20);

/// The records that were read last.
pub(super) struct Sources {
    /// When the next one may be read.
    next: tokio::sync::Mutex<Option<Instant>>,
    /// By their uid and version.
    kept: Cache<(String, String), Arc<ChartSource>>,
}

/// Why it is not known what a revision was rendered from.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such record any more.
    #[error("there is no record of revision {0}")]
    NoRecord(u64),
    /// The record cannot be read.
    #[error("the record of revision {revision} cannot be read: {reason}")]
    Record {
        /// The revision.
        revision: u64,
        /// Why.
        reason: RecordError,
    },
    /// The API server gave no usable answer.
    #[error("the record of revision {revision} cannot be read: {reason}")]
    Call {
        /// The revision.
        revision: u64,
        /// What the API server said.
        reason: Box<CallError>,
    },
}

impl Releases {
    /// The revisions of a release with a record, newest first.
    pub fn revisions(&self, release: &ReleaseId) -> Vec<u64> {
        let records = self.records.lock().of(&self.stored(release));
        records.iter().rev().map(|known| known.head.revision).collect()
    }

    /// The chart, values and templates of a revision of a release.
    ///
    /// # Errors
    /// When its record cannot be read, or is too large to be read whole.
    pub async fn source(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Result<ChartSource, SourceError> {
        let stored = self.stored(release);
        let head = self.head(&stored, revision).ok_or(SourceError::NoRecord(revision))?;
        self.read_source(&stored.namespace, &head, within).await
    }

    /// The same if it is cached, or can be read within this time. `None` otherwise: a caller waits at most 20
    /// ms while another record is read, and during the pause after that.
    pub async fn source_at_hand(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Option<Arc<ChartSource>> {
        let stored = self.stored(release);
        let head = self.head(&stored, revision)?;
        if let Some(known) = self.sources.kept.get(&key(&head)) {
            return Some(known);
        }
        let turn = async {
            let next = self.sources.next.lock().await;
            if let Some(next) = *next {
                sleep_until(next).await;
            }
            next
        };
        let mut next = timeout(TURN, turn).await.ok()?;
        // The first caller may have read it.
        if let Some(known) = self.sources.kept.get(&key(&head)) {
            return Some(known);
        }
        let began = Instant::now();
        // A caller that gives up while it is read leaves this behind.
        *next = Some(began + within * PAUSE);
        let read = timeout(within, self.read_source(&stored.namespace, &head, within)).await;
        *next = Some(Instant::now() + began.elapsed() * PAUSE);
        match read.ok()? {
            Ok(source) => {
                let source = Arc::new(source);
                self.sources.kept.insert(key(&head), Arc::clone(&source));
                Some(source)
            }
            Err(error) => {
                tracing::debug!("the chart of release {release} is not known: {error}");
                None
            }
        }
    }

    async fn read_source(
        &self,
        namespace: &str,
        head: &Head,
        within: Duration,
    ) -> Result<ChartSource, SourceError> {
        let revision = head.revision;
        let unread = |reason| SourceError::Record { revision, reason };
        let called = |reason| SourceError::Call { revision, reason: Box::new(reason) };
        match self.payloads.packed(namespace, head, within).await.map_err(called)? {
            Unpacked::Gone | Unpacked::Moved(_) => Err(SourceError::NoRecord(revision)),
            Unpacked::Faulty(reason) => Err(unread(reason)),
            Unpacked::Packed(packed) => {
                let read = self.payloads.read(false, move || packed.source()).await;
                read.map_err(called)?.map_err(unread)
            }
        }
    }
}

impl Default for Sources {
    fn default() -> Self {
        let weigh = |_: &(String, String), source: &Arc<ChartSource>| {
            u32::try_from(source.weight()).unwrap_or(u32::MAX)
        };
        Self {
            next: tokio::sync::Mutex::default(),
            kept: Cache::builder().max_capacity(KEPT).weigher(weigh).build(),
        }
    }
}

fn key(head: &Head) -> (String, String) {
    (head.uid.clone(), head.resource_version.clone())
}
