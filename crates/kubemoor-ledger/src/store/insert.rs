//! Rows into the database, as each kind of database takes them (`sqlite`, `postgres`).
//!
//! Entry point: [`Store::insert`]. Invariant: all rows of a batch are written and all its repeats counted, or none.

mod postgres;
mod sqlite;

use super::schema::Cluster;
use super::{Pool, Store, StoreError};
use crate::repeats::Batch;

/// What a row holds, in the order in which it is bound; then its cluster.
const COLUMNS: &str = "id, revision, more_fields, same, namespace_key, release_key, user_key, verdict_key, kind, \
                       namespace, release, object_group, object_kind, object_namespace, object_name, operation, \
                       user_name, user_groups, verdict, reason, detail, fields, uid, facts";

/// Counts repeats on the row that they repeat, if it is still there.
const REPEAT: &str = "UPDATE entries SET repeats = repeats + $3 WHERE cluster = $1 AND id = $2";

impl Store {
    /// Writes rows and counts repeats of rows, all or none.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn insert(
        &self,
        cluster: Cluster,
        Batch { rows, repeats }: &Batch,
    ) -> Result<(), StoreError> {
        let written = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let mut connection = writing.acquire().await?;
                    let written = sqlite::write(&mut connection, cluster, rows, repeats).await;
                    if written.is_err() {
                        // SQLite has ended the transaction by itself, and the driver does not know: it would take
                        // the next one for a part of it, whose rows nobody ever sees.
                        connection.close_on_drop();
                    }
                    written
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    postgres::insert(&mut transaction, cluster, rows).await?;
                    for repeat in repeats {
                        let update = sqlx::query(REPEAT).bind(cluster.0).bind(repeat.of).bind(repeat.count());
                        update.execute(&mut *transaction).await?;
                    }
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
