//! The cluster's name on the rows of the ledger.
//!
//! Entry point: [`Naming`]. Invariant: a name that was given counts before the one that the cluster has.

use tokio::sync::oneshot;

/// Tells the ledger's writer the cluster's name, once.
pub(super) struct Naming {
    given: Option<String>,
    told: Option<oneshot::Sender<String>>,
}

impl Naming {
    /// The name `given` for the cluster, if any, for the listener of `told`.
    pub(super) fn new(given: Option<String>, told: oneshot::Sender<String>) -> Self {
        Self { given, told: Some(told) }
    }

    /// Lets the ledger's writer begin, in the given name or in `otherwise`.
    pub(super) fn tell(&mut self, otherwise: impl FnOnce() -> String) {
        if let Some(told) = self.told.take() {
            // A writer that no longer listens is shutting down.
            let _ = told.send(self.given.take().unwrap_or_else(otherwise));
        }
    }

    /// Takes the name that is still to be told.
    pub(super) fn take(&mut self) -> Self {
        Self { given: self.given.take(), told: self.told.take() }
    }
}
