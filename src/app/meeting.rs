//! The first answers of an API server.
//!
//! Entry point: [`meet`]. Invariant: while the API server does not answer, the log and readiness say so, and the guard
//! asks again. Must not write.

use std::sync::Arc;
use std::time::Duration;

use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::identity;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_guard::admin::Condition;

/// The pause between attempts to reach an API server at the start.
const RETRY: Duration = Duration::from_secs(2);

/// What the guard learned from the cluster's first answers.
pub(super) struct Met {
    pub(super) connection: Connection,
    pub(super) kinds: Arc<Kinds>,
    pub(super) own_account: Option<String>,
    /// The uid of the namespace kube-system.
    pub(super) uid: Option<String>,
}

/// Asks the API server until it answers.
pub(super) async fn meet(connection: Connection, records: &Condition) -> Met {
    loop {
        let met = async {
            let kinds = Kinds::read(connection.client.clone()).await?;
            let own_account = identity::own_name(&connection.client, connection.claimed.clone()).await?;
            let uid = identity::cluster_uid(&connection.client).await?;
            Ok::<_, kubemoor_cluster::client::call::CallError>((kinds, own_account, uid))
        };
        match met.await {
            Ok((kinds, own_account, uid)) => {
                tracing::info!(server = connection.url, account = own_account, "the API server answers");
                return Met { connection, kinds, own_account, uid };
            }
            Err(error) => {
                records.unmet(format!("the API server does not answer: {error}"));
                tracing::warn!(
                    server = connection.url,
                    "the API server does not answer, trying again: {error}"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
