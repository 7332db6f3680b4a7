//! Reads releases of the first listing ahead of their turn, for reviews that cannot wait until the index is whole.
//!
//! Entry point: [`Releases::read_ahead`]. Invariant: a release is unread from the end of the listing that named it until
//! its records are in the index, whoever read them. Must not choose which claims count.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use tokio::time::{Instant, timeout, timeout_at};

use super::settle::Care;
use super::{LookError, Releases};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::storage::Storage;

/// Releases that are read at once for one review.
const AT_ONCE: usize = 4;

/// Releases that the index must hold.
#[derive(Clone, Copy, Debug)]
pub enum Needed<'a> {
    /// All.
    All,
    /// Those of a namespace.
    Namespace(&'a str),
    /// One.
    Release(&'a ReleaseId),
}

impl Needed<'_> {
    /// Whether the records at `stored` may be of such a release.
    fn includes(&self, stored: &ReleaseId, storage: &Storage) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => storage.holds(&stored.namespace, namespace),
            Self::Release(release) => {
                release.name == stored.name && storage.holds(&stored.namespace, &release.namespace)
            }
        }
    }
}

impl Releases {
    /// Whether releases of the first listing may be missing from the index.
    pub fn is_incomplete(&self) -> bool {
        !self.health.borrow().indexed
    }

    /// Puts the needed releases of the first listing into the index, unless they are there.
    ///
    /// # Errors
    /// When some could not be read within the time `within`; the others are in the index.
    pub async fn read_ahead(&self, needed: Needed<'_>, within: Duration) -> Result<(), LookError> {
        let until = Instant::now() + within;
        if let Needed::All = needed {
            let mut health = self.health();
            let indexed = timeout(within, health.wait_for(|health| health.indexed)).await;
            return indexed.map(drop).map_err(|_| LookError::Unindexed { within });
        }
        let storage = self.storage();
        let unread: Vec<ReleaseId> = {
            let unread = self.unread.lock();
            unread.iter().filter(|stored| needed.includes(stored, &storage)).cloned().collect()
        };
        let reads = stream::iter(unread).map(|release| async move {
            let read = timeout_at(until, self.settle_in_turn(&release)).await;
            read.map_or(Err(LookError::Late { release, within }), |outcome| outcome.map(drop))
        });
        let outcomes: Vec<_> = reads.buffer_unordered(AT_ONCE).collect().await;
        outcomes.into_iter().collect()
    }

    /// Settles a release when it is its turn. Nobody may delay the start by writing one record again and again, so a
    /// release that keeps moving counts as read.
    pub(super) async fn settle_in_turn(&self, stored: &ReleaseId) -> Result<bool, LookError> {
        let pass = self.pass(stored);
        let _turn = pass.gate.last.lock().await;
        let outcome = self.settle(stored, Care::First).await;
        if matches!(outcome, Ok(_) | Err(LookError::Moving { .. })) {
            self.unread.lock().remove(stored);
        }
        outcome
    }

    /// Says that the first listing is whole; also that the index is, once it holds all that the listing named.
    pub(super) fn note_progress(&self) {
        let is_whole = self.unread.lock().is_empty();
        let is_news = self.health.send_if_modified(|health| {
            let before = (health.listed, health.indexed);
            health.listed = true;
            health.indexed |= is_whole;
            (health.listed, health.indexed) != before
        });
        if is_news && is_whole {
            *self.unread.lock() = HashSet::default();
            let (records, releases) = self.count();
            tracing::info!(
                releases,
                records,
                objects = self.index.read().objects(),
                "the releases are indexed"
            );
        }
    }
}

#[cfg(test)]
mod tests;
