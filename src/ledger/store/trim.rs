//! Rows out of the database when they are old.

use super::schema::Cluster;
use super::{Pool, Store, StoreError};

/// Rows that one transaction deletes: few enough that a writer who waits for
/// it hardly notices.
const TRIM: i64 = 1000;

const OLDEST: &str = "DELETE FROM entries WHERE cluster = $1 AND id IN \
                      (SELECT id FROM entries WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3)";

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

impl Store {
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
            Pool::Sqlite { reading, .. } => {
                sqlx::query_scalar(select).bind(cluster.0).bind(last).fetch_optional(reading).await
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
                Pool::Sqlite { writing, .. } => {
                    let query = sqlx::query(OLDEST).bind(cluster.0).bind(before).bind(TRIM);
                    Ok(Some(query.execute(writing).await?.rows_affected()))
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
