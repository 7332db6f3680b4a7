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

/// The same of one namespace, by its key. Names that share a key share their part of the ledger.
const OLDEST_OF_NAMESPACE: &str = "DELETE FROM entries WHERE cluster = $1 AND namespace_key = $4 AND id < $2 AND id <= \
     (SELECT max(id) FROM (SELECT id FROM entries WHERE cluster = $1 AND namespace_key = $4 AND id < $2 \
     ORDER BY id LIMIT $3) AS oldest)";

const OLDEST_MARKS: &str = "DELETE FROM entry_marks WHERE cluster = $1 AND same IN \
                            (SELECT same FROM entry_marks WHERE cluster = $1 AND id < $2 ORDER BY id LIMIT $3)";

/// Of clusters whose guards are silent.
const MARKS_OF_ALL: &str = "DELETE FROM entry_marks USING (SELECT found.cluster, found.same FROM clusters \
     CROSS JOIN LATERAL (SELECT cluster, same FROM entry_marks WHERE cluster = clusters.id AND id < $1 \
     ORDER BY id LIMIT $2) AS found LIMIT $2) AS old \
     WHERE entry_marks.cluster = old.cluster AND entry_marks.same = old.same";

/// A namespace, as the indexes hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceKey(i32);

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

impl Store {
    /// The id below which rows of `cluster`, or of one namespace of it, are more than the newest `rows`;
    /// none while there are not that many.
    pub(crate) async fn surplus(
        &self,
        cluster: Cluster,
        namespace: Option<NamespaceKey>,
        rows: u64,
    ) -> Result<Option<i64>, StoreError> {
        let select = match namespace {
            None => "SELECT id FROM entries WHERE cluster = $1 ORDER BY id DESC LIMIT 1 OFFSET $2",
            Some(_) => {
                "SELECT id FROM entries WHERE cluster = $1 AND namespace_key = $3 ORDER BY id DESC LIMIT 1 OFFSET $2"
            }
        };
        // The oldest row that stays.
        let last = i64::try_from(rows.saturating_sub(1)).unwrap_or(i64::MAX);
        let found = match &self.pool {
            Pool::Sqlite { reading, .. } => {
                let query = sqlx::query_scalar(select).bind(cluster.0).bind(last);
                let query = namespace.into_iter().fold(query, |query, namespace| query.bind(namespace.0));
                query.fetch_optional(reading).await
            }
            Pool::Postgres(pool) => {
                let query = sqlx::query_scalar(select).bind(cluster.0).bind(last);
                let query = namespace.into_iter().fold(query, |query, namespace| query.bind(namespace.0));
                query.fetch_optional(pool).await
            }
        };
        found.map_err(self.failed("trimmed"))
    }

    /// The id of the oldest row of `cluster`.
    pub(crate) async fn lowest(&self, cluster: Cluster) -> Result<Option<i64>, StoreError> {
        let select = "SELECT id FROM entries WHERE cluster = $1 ORDER BY id LIMIT 1";
        let found = match &self.pool {
            Pool::Sqlite { reading, .. } => {
                sqlx::query_scalar(select).bind(cluster.0).fetch_optional(reading).await
            }
            Pool::Postgres(pool) => sqlx::query_scalar(select).bind(cluster.0).fetch_optional(pool).await,
        };
        found.map_err(self.failed("trimmed"))
    }

    /// How many rows of `cluster` each namespace has, counted in the index.
    pub(crate) async fn namespaces(&self, cluster: Cluster) -> Result<Vec<(NamespaceKey, u64)>, StoreError> {
        let select = "SELECT namespace_key, count(*) FROM entries WHERE cluster = $1 GROUP BY namespace_key";
        let found: Result<Vec<(i32, i64)>, _> = match &self.pool {
            Pool::Sqlite { reading, .. } => sqlx::query_as(select).bind(cluster.0).fetch_all(reading).await,
            Pool::Postgres(pool) => sqlx::query_as(select).bind(cluster.0).fetch_all(pool).await,
        };
        let found = found.map_err(self.failed("trimmed"))?;
        Ok(found.into_iter().map(|(key, count)| (NamespaceKey(key), count.unsigned_abs())).collect())
    }

    /// Deletes a few of the oldest rows of `cluster`, or of one namespace of it, whose id is below `before`.
    /// Says how many; `None` while another replica is at it.
    pub(crate) async fn trim(
        &self,
        cluster: Cluster,
        namespace: Option<NamespaceKey>,
        before: i64,
    ) -> Result<Option<u64>, StoreError> {
        let statement = if namespace.is_some() { OLDEST_OF_NAMESPACE } else { OLDEST };
        self.delete(statement, cluster, before, namespace).await
    }

    /// Deletes a few of the oldest marks of `cluster`, as [`Store::trim`] its rows.
    pub(crate) async fn trim_marks(&self, cluster: Cluster, before: i64) -> Result<Option<u64>, StoreError> {
        match &self.pool {
            // Its rows are their own marks.
            Pool::Sqlite { .. } => Ok(Some(0)),
            Pool::Postgres(_) => self.delete(OLDEST_MARKS, cluster, before, None).await,
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
        namespace: Option<NamespaceKey>,
    ) -> Result<Option<u64>, StoreError> {
        let trimmed = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let query = sqlx::query(statement).bind(cluster.0).bind(before).bind(TRIM);
                    let query = namespace.into_iter().fold(query, |query, namespace| query.bind(namespace.0));
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
                    let query = namespace.into_iter().fold(query, |query, namespace| query.bind(namespace.0));
                    let deleted = query.execute(&mut *transaction).await?.rows_affected();
                    transaction.commit().await?;
                    Ok(Some(deleted))
                }
            }
        };
        trimmed.await.map_err(self.failed("trimmed"))
    }
}
