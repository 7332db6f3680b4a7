//! Rows out of the database when they are old.

use super::schema::Cluster;
use super::{Pool, Store, StoreError};

/// Rows that one transaction deletes: few enough that a writer who waits for
/// it hardly notices.
const TRIM: i64 = 1000;

/// By the last id of the oldest ones: so each partition is read by a range of its
/// index, and those of later rows not at all.
const OLDEST: &str = "DELETE FROM entries WHERE cluster = $1 AND id < $2 AND id <= (SELECT max(id) FROM \
                      (SELECT id FROM entries WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3) AS oldest)";

const OLDEST_MARKS: &str = "DELETE FROM entry_marks WHERE cluster = $1 AND same IN \
                            (SELECT same FROM entry_marks WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3)";

/// Of clusters whose guards are silent.
const MARKS_OF_ALL: &str = "DELETE FROM entry_marks USING (SELECT found.cluster, found.same FROM clusters \
     CROSS JOIN LATERAL (SELECT cluster, same FROM entry_marks WHERE cluster = clusters.id AND id < $1 \
     ORDER BY id LIMIT $2) AS found LIMIT $2) AS old \
     WHERE entry_marks.cluster = old.cluster AND entry_marks.same = old.same";

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

impl Store {
    /// The id below which rows of `cluster` are more than the newest `rows`;
    /// none while there are not that many.
    pub(crate) async fn surplus(&self, cluster: Cluster, rows: u64) -> Result<Option<i64>, StoreError> {
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
    pub(crate) async fn trim(&self, cluster: Cluster, before: i64) -> Result<Option<u64>, StoreError> {
        self.delete(OLDEST, cluster, before).await
    }

    /// Deletes a few of the oldest marks of `cluster`, as [`Store::trim`] its rows.
    pub(crate) async fn trim_marks(&self, cluster: Cluster, before: i64) -> Result<Option<u64>, StoreError> {
        match &self.pool {
            // Its rows are their own marks.
            Pool::Sqlite { .. } => Ok(Some(0)),
            Pool::Postgres(_) => self.delete(OLDEST_MARKS, cluster, before).await,
        }
    }

    /// Deletes a few marks of all clusters whose id is below `before`. Says how many.
    pub(crate) async fn trim_all_marks(&self, before: i64) -> Result<u64, StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(0) };
        let deleted = sqlx::query(MARKS_OF_ALL).bind(before).bind(TRIM).execute(pool).await;
        deleted.map(|deleted| deleted.rows_affected()).map_err(self.failed("trimmed"))
    }

    async fn delete(
        &self,
        statement: &'static str,
        cluster: Cluster,
        before: i64,
    ) -> Result<Option<u64>, StoreError> {
        let trimmed = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let query = sqlx::query(statement).bind(cluster.0).bind(before).bind(TRIM);
                    Ok(Some(query.execute(writing).await?.rows_affected()))
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2)");
                    let lock = lock.bind(TRIMMING).bind(i32::from(cluster.0));
                    if !lock.fetch_one(&mut *transaction).await? {
                        return Ok(None);
                    }
                    let query = sqlx::query(statement).bind(cluster.0).bind(before).bind(TRIM);
                    let deleted = query.execute(&mut *transaction).await?.rows_affected();
                    transaction.commit().await?;
                    Ok(Some(deleted))
                }
            }
        };
        trimmed.await.map_err(self.failed("trimmed"))
    }
}
