//! How far a first listing is, for whoever waits for it.
//!
//! Entry point: [`Progress`]. Invariant: what was listed once stays listed: a
//! watch that breaks later leaves the last state in place.

use tokio::sync::watch;

use super::call::CallError;

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

impl Progress {
    /// Notes a failure, unless all was known before.
    pub(super) fn fail(progress: &watch::Sender<Self>, what: &str, error: &CallError) {
        progress.send_if_modified(|progress| {
            let failing = Self::Failing(format!("{what}: {error}"));
            let news = *progress != Self::Listed && *progress != failing;
            if news {
                *progress = failing;
            }
            news
        });
    }
}
