//! Rows out of the database when they are old.

use super::schema::Cluster;
use super::{Pool, Store, StoreError, on_pool};

/// Rows that one transaction deletes: few enough that a writer who waits for
/// it hardly notices.
const TRIM: i64 = 1000;

/// By the last id of the oldest ones: so each partition is read by a range of its
/// index, and those of later rows not at all.
const OLDEST: &str = "DELETE FROM entries WHERE cluster = $1 AND id < $2 AND id <= (SELECT max(id) FROM \
                      (SELECT id FROM entries WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3) AS oldest)";

const OLDEST_OF_NAMESPACE: &str = "DELETE FROM entries WHERE cluster = $1 AND namespace = $4 AND id < $2 AND id <= \
     (SELECT max(id) FROM (SELECT id FROM entries WHERE cluster = $1 AND namespace = $4 AND id < $2 \
     ORDER BY id LIMIT $3) AS oldest)";

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

impl Store {
    /// The id below which rows of `cluster`, or of one namespace of it, are more than the newest `rows`;
    /// none while there are not that many.
    pub(crate) async fn surplus(
        &self,
        cluster: Cluster,
        namespace: Option<&str>,
        rows: u64,
    ) -> Result<Option<i64>, StoreError> {
        let select = match namespace {
            None => "SELECT id FROM entries WHERE cluster = $1 ORDER BY id DESC LIMIT 1 OFFSET $2",
            Some(_) => {
                "SELECT id FROM entries WHERE cluster = $1 AND namespace = $3 ORDER BY id DESC LIMIT 1 OFFSET $2"
            }
        };
        // The oldest row that stays.
        let last = i64::try_from(rows.saturating_sub(1)).unwrap_or(i64::MAX);
        let found = on_pool!(self, reading, |pool| {
            let query = sqlx::query_scalar(select).bind(cluster.0).bind(last);
            namespace.into_iter().fold(query, |query, it| query.bind(it)).fetch_optional(pool).await
        });
        found.map_err(self.failed("trimmed"))
    }

    /// The id of the oldest row of `cluster`.
    pub(crate) async fn lowest(&self, cluster: Cluster) -> Result<Option<i64>, StoreError> {
        let select = "SELECT id FROM entries WHERE cluster = $1 ORDER BY id LIMIT 1";
        let found = on_pool!(self, reading, |pool| {
            sqlx::query_scalar(select).bind(cluster.0).fetch_optional(pool).await
        });
        found.map_err(self.failed("trimmed"))
    }

    /// How many rows of `cluster` each namespace has, counted in the index.
    pub(crate) async fn namespaces(&self, cluster: Cluster) -> Result<Vec<(String, u64)>, StoreError> {
        let select = "SELECT namespace, count(*) FROM entries WHERE cluster = $1 GROUP BY namespace";
        let found: Result<Vec<(String, i64)>, _> =
            on_pool!(self, reading, |pool| sqlx::query_as(select).bind(cluster.0).fetch_all(pool).await);
        let found = found.map_err(self.failed("trimmed"))?;
        Ok(found.into_iter().map(|(namespace, count)| (namespace, count.unsigned_abs())).collect())
    }

    /// Deletes a few of the oldest rows of `cluster`, or of one namespace of it, whose id is below `before`.
    /// Says how many; `None` while another replica is at it.
    pub(crate) async fn trim(
        &self,
        cluster: Cluster,
        namespace: Option<&str>,
        before: i64,
    ) -> Result<Option<u64>, StoreError> {
        let delete = if namespace.is_some() { OLDEST_OF_NAMESPACE } else { OLDEST };
        let trimmed = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let query = sqlx::query(delete).bind(cluster.0).bind(before).bind(TRIM);
                    let query = namespace.into_iter().fold(query, |query, it| query.bind(it));
                    Ok(Some(query.execute(writing).await?.rows_affected()))
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2)");
                    let lock = lock.bind(TRIMMING).bind(i32::from(cluster.0));
                    if !lock.fetch_one(&mut *transaction).await? {
                        return Ok(None);
                    }
                    let query = sqlx::query(delete).bind(cluster.0).bind(before).bind(TRIM);
                    let query = namespace.into_iter().fold(query, |query, it| query.bind(it));
                    let deleted = query.execute(&mut *transaction).await?.rows_affected();
                    transaction.commit().await?;
                    Ok(Some(deleted))
                }
            }
        };
        trimmed.await.map_err(self.failed("trimmed"))
    }

    /// Deletes the marks of `cluster`, or of all clusters, whose id is below `before`. In SQLite rows are their own marks.
    pub(crate) async fn trim_marks(&self, cluster: Option<Cluster>, before: i64) -> Result<(), StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(()) };
        let delete = "DELETE FROM entry_marks WHERE ($1::int2 IS NULL OR cluster = $1) AND id < $2";
        let cluster = cluster.map(|cluster| cluster.0);
        let deleted = sqlx::query(delete).bind(cluster).bind(before).execute(pool).await;
        deleted.map(drop).map_err(self.failed("trimmed"))
    }
}
