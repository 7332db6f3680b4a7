//! How far a first listing is, for those who wait for it.
//!
//! Entry points: [`Progress`] for those who wait, `Listings` for those who list.
//! Invariant: what was listed once stays listed: a watch that breaks later leaves
//! the last state in place.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::client::call::CallError;

/// How far a first listing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Under way.
    Listing,
    /// It failed, for this reason, and is tried again.
    Failing(String),
    /// All is known.
    Listed,
}

/// A first listing, or several, one for each namespace.
pub(super) struct Listings {
    progress: watch::Sender<Progress>,
    /// How many are not whole yet.
    left: AtomicUsize,
}

impl Listings {
    /// Listings of these namespaces; of all at once where none is named.
    pub(super) fn of(namespaces: &[String]) -> Self {
        let left = AtomicUsize::new(namespaces.len().max(1));
        Self { progress: watch::Sender::new(Progress::Listing), left }
    }

    /// How far they are.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// One of them is whole for the first time.
    pub(super) fn whole(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.progress.send_replace(Progress::Listed);
        }
    }

    /// One of them failed.
    pub(super) fn fail(&self, objects: &str, error: &CallError) {
        let failing = Progress::Failing(format!("{objects} cannot be listed: {error}"));
        self.progress.send_if_modified(|progress| {
            // A completed listing stays completed.
            let news = *progress != Progress::Listed && *progress != failing;
            if news {
                progress.clone_from(&failing);
            }
            news
        });
    }
}

/// The namespaces to be listed one by one; `None` for all at once.
pub(super) fn scopes(namespaces: &[String]) -> Vec<Option<&str>> {
    if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(|it| Some(it.as_str())).collect() }
}
