//! Rows into the database, as each kind of database takes them (`sqlite`, `postgres`).
//!
//! Entry point: [`Store::insert`]. Invariant: all rows of a batch are written, or none.

mod postgres;
mod sqlite;

use super::schema::Cluster;
use super::{Pool, Store, StoreError};
use crate::entry::Entry;

/// What a row holds, in the order in which it is bound; then its cluster.
const COLUMNS: &str = "id, revision, more_fields, same, namespace_key, release_key, user_key, verdict_key, kind, \
                       namespace, release, object_group, object_kind, object_namespace, object_name, operation, \
                       user_name, user_groups, verdict, reason, detail, fields, uid, facts";

impl Store {
    /// Writes rows, all or none.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn insert(&self, cluster: Cluster, entries: &[Entry]) -> Result<(), StoreError> {
        let written = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let mut connection = writing.acquire().await?;
                    let written = sqlite::write(&mut connection, cluster, entries).await;
                    if written.is_err() {
                        // SQLite has ended the transaction by itself, and the driver does not know: it would take
                        // the next one for a part of it, whose rows nobody ever sees.
                        connection.close_on_drop();
                    }
                    written
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    postgres::insert(&mut transaction, cluster, entries).await?;
                    transaction.commit().await
                }
            }
        };
        written.await.map_err(self.failed("written"))
    }
}

/// Lists of texts and fields always have a JSON form.
fn json<T: serde::Serialize>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}
