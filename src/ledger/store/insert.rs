//! Rows into the database, and out of it when they are old.

use sqlx::QueryBuilder;

use super::schema::Cluster;
use super::{Pool, Store, StoreError};
use crate::ledger::entry::Entry;

/// Rows of one INSERT statement. SQLite takes 32,766 values in one, PostgreSQL
/// 65,535.
const CHUNK: usize = 250;

/// Rows that one transaction deletes: few enough that a writer who waits for
/// it hardly notices.
const TRIM: i64 = 1000;

const INSERT: &str = "INSERT INTO entries (id, cluster, kind, namespace, release, revision, object_group, \
                      object_kind, object_namespace, object_name, operation, user_name, user_groups, verdict, \
                      reason, detail, fields, more_fields, uid) ";

const OLDEST: &str = "DELETE FROM entries WHERE cluster = $1 AND id IN \
                      (SELECT id FROM entries WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3)";

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

/// The statement that inserts `entries`, for a database.
macro_rules! insertion {
    ($database:ty, $cluster:expr, $entries:expr) => {{
        let mut query = QueryBuilder::<$database>::new(INSERT);
        query.push_values($entries, |mut row, entry: &Entry| {
            let Entry { object, .. } = entry;
            row.push_bind(entry.id)
                .push_bind($cluster.0)
                .push_bind(entry.kind.as_str())
                .push_bind(entry.namespace.as_str())
                .push_bind(entry.release.as_deref())
                .push_bind(entry.revision)
                .push_bind(object.group.as_str())
                .push_bind(object.kind.as_str())
                .push_bind(object.namespace.as_deref())
                .push_bind(object.name.as_str())
                .push_bind(entry.operation.as_deref())
                .push_bind(entry.user.as_str())
                .push_bind(json(&entry.groups))
                .push_bind(entry.verdict.as_str())
                .push_bind(entry.reason.as_str())
                .push_bind(entry.detail.as_str())
                .push_bind(json(&entry.fields))
                .push_bind(entry.more_fields)
                .push_bind(entry.uid.as_str());
        });
        // A row that an attempt before has written keeps its id.
        query.push(" ON CONFLICT (id) DO NOTHING");
        query
    }};
}

impl Store {
    /// Writes rows, all or none.
    ///
    /// # Errors
    /// When the database fails.
    pub(in crate::ledger) async fn insert(
        &self,
        cluster: Cluster,
        entries: &[Entry],
    ) -> Result<(), StoreError> {
        let written = async {
            match &self.pool {
                Pool::Sqlite(pool) => {
                    let mut transaction = pool.begin().await?;
                    for chunk in entries.chunks(CHUNK) {
                        let mut query = insertion!(sqlx::Sqlite, cluster, chunk);
                        query.build().execute(&mut *transaction).await?;
                    }
                    transaction.commit().await
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    for chunk in entries.chunks(CHUNK) {
                        let mut query = insertion!(sqlx::Postgres, cluster, chunk);
                        query.build().execute(&mut *transaction).await?;
                    }
                    transaction.commit().await
                }
            }
        };
        written.await.map_err(self.failed("written"))
    }

    /// The id below which rows of `cluster` are more than the newest `rows`;
    /// none while there are not that many.
    pub(in crate::ledger) async fn surplus(
        &self,
        cluster: Cluster,
        rows: u64,
    ) -> Result<Option<i64>, StoreError> {
        let select = "SELECT id FROM entries WHERE cluster = $1 ORDER BY id DESC LIMIT 1 OFFSET $2";
        // The oldest row that stays.
        let last = i64::try_from(rows.saturating_sub(1)).unwrap_or(i64::MAX);
        let found = match &self.pool {
            Pool::Sqlite(pool) => {
                sqlx::query_scalar(select).bind(cluster.0).bind(last).fetch_optional(pool).await
            }
            Pool::Postgres(pool) => {
                sqlx::query_scalar(select).bind(cluster.0).bind(last).fetch_optional(pool).await
            }
        };
        found.map_err(self.failed("trimmed"))
    }

    /// Deletes a few of the oldest rows of `cluster` whose id is below `before`.
    /// Says how many; `None` while another replica is at it.
    pub(in crate::ledger) async fn trim(
        &self,
        cluster: Cluster,
        before: i64,
    ) -> Result<Option<u64>, StoreError> {
        let trimmed = async {
            match &self.pool {
                Pool::Sqlite(pool) => {
                    let query = sqlx::query(OLDEST).bind(cluster.0).bind(before).bind(TRIM);
                    Ok(Some(query.execute(pool).await?.rows_affected()))
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2)");
                    let lock = lock.bind(TRIMMING).bind(i32::from(cluster.0));
                    if !lock.fetch_one(&mut *transaction).await? {
                        return Ok(None);
                    }
                    let query = sqlx::query(OLDEST).bind(cluster.0).bind(before).bind(TRIM);
                    let deleted = query.execute(&mut *transaction).await?.rows_affected();
                    transaction.commit().await?;
                    Ok(Some(deleted))
                }
            }
        };
        trimmed.await.map_err(self.failed("trimmed"))
    }
}

/// Lists of texts and fields always have a JSON form.
fn json<T: serde::Serialize>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}
