//! The changes of what is followed, as an open page hears of them.
//!
//! Entry point: [`Changes::next`]. Invariant: says that something changed, and not what.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;

use super::known::{Followed, Known, Mark};

/// The changes of all that is followed, or of one release.
pub(crate) struct Changes {
    changes: watch::Receiver<u64>,
    one: Option<One>,
}

/// One release.
struct One {
    known: Arc<RwLock<Known>>,
    followed: Followed,
    /// Its state when it was told of last.
    told: Mark,
}

impl Changes {
    /// The changes of all, from now on.
    pub(crate) fn of_all(mut changes: watch::Receiver<u64>) -> Self {
        changes.mark_unchanged();
        Self { changes, one: None }
    }

    /// The changes of one release, from now on.
    pub(super) fn of_release(
        changes: watch::Receiver<u64>,
        known: Arc<RwLock<Known>>,
        followed: Followed,
    ) -> Self {
        let told = known.read().mark(&followed);
        Self { one: Some(One { known, followed, told }), ..Self::of_all(changes) }
    }

    /// Waits for the next change; an error once nobody follows any more. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<(), RecvError> {
        loop {
            self.changes.changed().await?;
            if self.one.as_mut().is_none_or(One::note_state) {
                return Ok(());
            }
        }
    }

    /// What has changed so far is told.
    pub(crate) fn settle(&mut self) {
        self.changes.mark_unchanged();
        if let Some(one) = &mut self.one {
            one.note_state();
        }
    }
}

impl One {
    /// Notes its state. Returns whether it had another one the last time.
    fn note_state(&mut self) -> bool {
        let now = self.known.read().mark(&self.followed);
        let has_changed = now != self.told;
        self.told = now;
        has_changed
    }
}
