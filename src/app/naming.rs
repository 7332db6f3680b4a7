//! The cluster's name on the rows of the ledger.
//!
//! Entry point: [`Naming`]. Invariant: a name that was given counts before the one that the cluster has, and its uid before
//! its URL.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::identity;

/// The pauses, in seconds, between questions for the cluster's uid, while the account may not read it: its rights may be granted a
/// moment after it.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Tells the ledger's writer the cluster's name, once.
pub(super) struct Naming {
    given: Option<String>,
    told: Option<oneshot::Sender<String>>,
}

impl Naming {
    /// The name `given` for the cluster, if any, and the receiver of the name.
    pub(super) fn new(given: Option<String>) -> (Self, oneshot::Receiver<String>) {
        let (told, name) = oneshot::channel();
        (Self { given, told: Some(told) }, name)
    }

    /// Lets the ledger's writer begin, in the given name or in `otherwise`.
    pub(super) fn tell(&mut self, otherwise: impl FnOnce() -> String) {
        if let Some(told) = self.told.take() {
            // A writer that no longer listens is shutting down.
            let _ = told.send(self.given.take().unwrap_or_else(otherwise));
        }
    }

    /// Lets the ledger's writer begin: in the given name, else in the cluster's uid, and in its URL if that may not be read
    /// for a minute. Rows wait meanwhile. Returns at `stop`: a part of the program must not end sooner.
    pub(super) async fn find(mut self, connection: Connection, uid: Option<String>, stop: CancellationToken) {
        let uid = match uid {
            Some(uid) => Some(uid),
            None if self.given.is_some() => None,
            None => tokio::select! {
                () = stop.cancelled() => return,
                uid = ask(&connection.client) => uid,
            },
        };
        self.tell(|| uid.unwrap_or(connection.url));
        stop.cancelled().await;
    }

    /// Takes the name that is still to be told.
    pub(super) fn take(&mut self) -> Self {
        Self { given: self.given.take(), told: self.told.take() }
    }
}

/// Asks for the cluster's uid until it is known or the last pause is over.
async fn ask(client: &kube::Client) -> Option<String> {
    for pause in PAUSES {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        if let Ok(Some(uid)) = identity::cluster_uid(client).await {
            return Some(uid);
        }
    }
    None
}

#[cfg(test)]
mod tests;
