//! Deletes old rows in small batches with pauses, so that writers never wait long; one replica at a time per cluster.
//! Nothing is deleted by age within an hour after the clock was set. If there are too many rows, the namespaces with
//! the most rows lose theirs first, so that a tenant who fills the ledger cannot push out the rows of others.
//!
//! PostgreSQL has one partition per month, one for all earlier rows and one for all later rows, without gaps, so that
//! every row has a partition and rows are read in order of time. A month is dropped only when no cluster keeps a row of
//! it. One guard at a time changes partitions, by the clock of the database.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, raw_sql};
use tokio::time::Instant;

use crate::id;
use crate::store::{ClusterNumber, DatabasePool, LONGEST, Store, StoreError, on_pool};
use kubemoor_runtime::config::Retention;
use kubemoor_runtime::metrics::LedgerMetrics;

/// The time between two passes.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// The pause between two deletions, for writers.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the clock must run steadily after it was set before rows are deleted by age.
const STEADY: Duration = Duration::from_secs(3600);

/// How far a steady clock may deviate between two checks.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// Rows that one transaction deletes: so few that a waiting writer is hardly delayed.
const TRIM: i64 = 1000;

/// The statement that deletes the oldest rows of a table, up to the last of their ids, so that PostgreSQL reads an
/// index range of each partition and skips partitions with later rows.
macro_rules! delete_oldest {
    ($table:literal, $which:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE ",
            $which,
            " AND id < $2 AND id <= (SELECT max(id) FROM (SELECT id FROM ",
            $table,
            " WHERE ",
            $which,
            " AND id < $2 ORDER BY id LIMIT $3) AS oldest)"
        )
    };
}

const OLDEST: &str = delete_oldest!("entries", "cluster = $1");
const OLDEST_OF_NAMESPACE: &str = delete_oldest!("entries", "cluster = $1 AND namespace = $4");
const OLDEST_MARKS: &str = delete_oldest!("entry_marks", "cluster = $1");

/// The advisory lock under which one replica trims a cluster's rows; its second half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

/// The advisory lock under which one guard changes partitions.
const CHANGING: i32 = 0x6b6d_6d6f;

/// How many months in advance partitions are created.
const AHEAD: i32 = 2;

const PARTITIONS: &str = "SELECT child.oid::regclass::text, substring(range FROM 'FROM \\(''?([0-9]+)')::int8 AS first, \
     substring(range FROM 'TO \\(''?([0-9]+)')::int8 AS beyond FROM pg_inherits JOIN pg_class AS child \
     ON child.oid = inhrelid CROSS JOIN LATERAL pg_get_expr(child.relpartbound, child.oid) AS range \
     WHERE inhparent = 'entries'::regclass ORDER BY first NULLS FIRST";

/// What each cluster keeps, without clusters whose guard has not trimmed its rows yet.
const KEPT: &str = "SELECT keeps, age FROM clusters WHERE keeps IS NOT NULL AND age IS NOT NULL";

/// While this waits behind a long query of another client, all writers wait too.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '3s'";

/// Trims the rows of `cluster` until it is dropped.
pub(super) async fn run(store: Store, cluster: ClusterNumber, retention: Retention, metrics: LedgerMetrics) {
    let mut trimmer = Trimmer { store, cluster, retention, clock: None };
    loop {
        match trimmer.pass().await {
            Ok(0) => {}
            Ok(deleted) => {
                metrics.deleted(deleted);
                tracing::info!(deleted, "deleted old rows from the ledger");
            }
            Err(error) => tracing::warn!(%error, "failed to delete old rows from the ledger"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

struct Trimmer {
    store: Store,
    cluster: ClusterNumber,
    retention: Retention,
    /// `None` before the first pass.
    clock: Option<ClockCheck>,
}

impl Trimmer {
    /// Deletes rows that are too old, if the clock is trusted, and surplus rows. Returns their number.
    async fn pass(&mut self) -> Result<u64, StoreError> {
        let (now, age) = ((Instant::now(), Timestamp::now()), self.retention.age);
        if self.clock.is_none() {
            let newest = self.surplus(None, 1).await?.map(id::time);
            self.clock = Some(ClockCheck::start(now, newest, age));
        }
        let is_believed = self.clock.as_mut().is_some_and(|clock| clock.look(now));
        let before = if is_believed { id::cutoff(now.1, age) } else { 0 };
        let mut deleted = self.trim_surplus().await?;
        if let DatabasePool::Postgres(pool) = &self.store.pool {
            if let Err(error) = self.change_months(pool, before).await {
                tracing::warn!(%error, "failed to update the monthly partitions of the ledger");
            }
            deleted += self.trim(OLDEST, self.cluster, None, before).await?;
            self.trim(OLDEST_MARKS, self.cluster, None, before).await?;
        } else {
            // SQLite has no table of marks: a unique index on the rows replaces it.
            deleted += self.trim(OLDEST, self.cluster, None, before).await?;
        }
        Ok(deleted)
    }

    /// Deletes surplus rows: the oldest rows of the namespaces with the most. Returns their number.
    async fn trim_surplus(&self) -> Result<u64, StoreError> {
        let rows = self.retention.rows;
        let mut deleted = 0;
        if self.surplus(None, rows).await?.is_none() {
            return Ok(deleted);
        }
        // The index alone answers this.
        let select = "SELECT namespace, count(*) FROM entries WHERE cluster = $1 GROUP BY namespace";
        let found: Result<Vec<(String, i64)>, _> = on_pool!(self.store, reading, |pool| {
            sqlx::query_as(select).bind(self.cluster.0).fetch_all(pool).await
        });
        let namespaces = found.map_err(self.store.failed("trimmed"))?;
        let counts = namespaces.iter().map(|(_, count)| count.unsigned_abs()).collect();
        let Some(share) = share(counts, rows) else { return Ok(deleted) };
        for (namespace, _) in namespaces.into_iter().filter(|(_, count)| count.unsigned_abs() > share) {
            let Some(before) = self.surplus(Some(&namespace), share).await? else { continue };
            deleted += self.trim(OLDEST_OF_NAMESPACE, self.cluster, Some(&namespace), before).await?;
        }
        Ok(deleted)
    }

    /// The id below which rows of the cluster, or of one of its namespaces, are surplus: that of the oldest of the
    /// newest `rows` rows. `None` if there are fewer rows.
    async fn surplus(&self, namespace: Option<&str>, rows: u64) -> Result<Option<i64>, StoreError> {
        let select = match namespace {
            None => "SELECT id FROM entries WHERE cluster = $1 ORDER BY id DESC LIMIT 1 OFFSET $2",
            Some(_) => {
                "SELECT id FROM entries WHERE cluster = $1 AND namespace = $3 ORDER BY id DESC LIMIT 1 OFFSET $2"
            }
        };
        // The oldest row that stays.
        let last = i64::try_from(rows.saturating_sub(1)).unwrap_or(i64::MAX);
        let found = on_pool!(self.store, reading, |pool| {
            let query = sqlx::query_scalar(select).bind(self.cluster.0).bind(last);
            namespace.into_iter().fold(query, |query, it| query.bind(it)).fetch_optional(pool).await
        });
        found.map_err(self.store.failed("trimmed"))
    }

    /// Runs `delete`, one of the statements above, for rows with an id below `before`, unless another replica is
    /// trimming. Returns how many rows it deleted.
    async fn trim(
        &self,
        delete: &'static str,
        cluster: ClusterNumber,
        namespace: Option<&str>,
        before: i64,
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let few = self.trim_few(delete, cluster, namespace, before).await;
            match few.map_err(self.store.failed("trimmed"))? {
                0 => return Ok(deleted),
                few => deleted += few,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn trim_few(
        &self,
        delete: &'static str,
        cluster: ClusterNumber,
        namespace: Option<&str>,
        before: i64,
    ) -> Result<u64, sqlx::Error> {
        match &self.store.pool {
            DatabasePool::Sqlite { writing, .. } => {
                let query = sqlx::query(delete).bind(cluster.0).bind(before).bind(TRIM);
                let query = namespace.into_iter().fold(query, |query, it| query.bind(it));
                Ok(query.execute(writing).await?.rows_affected())
            }
            DatabasePool::Postgres(pool) => {
                let mut transaction = pool.begin().await?;
                if !try_lock(&mut transaction, TRIMMING, cluster.0.into()).await? {
                    return Ok(0);
                }
                let query = sqlx::query(delete).bind(cluster.0).bind(before).bind(TRIM);
                let query = namespace.into_iter().fold(query, |query, it| query.bind(it));
                let deleted = query.execute(&mut *transaction).await?.rows_affected();
                transaction.commit().await?;
                Ok(deleted)
            }
        }
    }

    /// Creates partitions for the next months, and drops those that no cluster keeps. `before` is the lowest id that
    /// this cluster keeps.
    async fn change_months(&self, pool: &PgPool, before: i64) -> Result<(), StoreError> {
        let made = async {
            // Each transaction is committed at once: a transaction that is only dropped ends later, and holds its lock
            // until then.
            loop {
                let mut transaction = pool.begin().await?;
                let is_made = make_month(&mut transaction).await?;
                transaction.commit().await?;
                if !is_made {
                    return Ok(());
                }
            }
        };
        made.await.map_err(self.store.failed("divided into months"))?;
        let age = i64::try_from(self.retention.age.min(LONGEST).as_secs()).unwrap_or(i64::MAX);
        let keep = sqlx::query("UPDATE clusters SET keeps = $2, age = $3 WHERE id = $1");
        let kept = keep.bind(self.cluster.0).bind(before).bind(age).execute(pool).await;
        kept.map_err(self.store.failed("written"))?;
        let dropped = async {
            let mut transaction = pool.begin().await?;
            let until = drop_months(&mut transaction).await?;
            transaction.commit().await?;
            let marked = "SELECT DISTINCT cluster FROM entry_marks WHERE id < $1";
            let until = until.unwrap_or_default();
            let clusters: Vec<i16> = sqlx::query_scalar(marked).bind(until).fetch_all(pool).await?;
            Ok((until, clusters))
        };
        let (until, clusters) = dropped.await.map_err(self.store.failed("trimmed"))?;
        for cluster in clusters {
            self.trim(OLDEST_MARKS, ClusterNumber(cluster), None, until).await?;
        }
        Ok(())
    }
}

/// How many rows each namespace may keep, at least one, so that namespaces with `counts` rows keep at most `rows`
/// together. `None` if they have no more than that.
fn share(mut counts: Vec<u64>, rows: u64) -> Option<u64> {
    counts.sort_unstable();
    let (mut left, mut namespaces) = (rows, u64::try_from(counts.len()).unwrap_or(u64::MAX));
    for count in counts {
        let share = left.checked_div(namespaces).unwrap_or(left);
        if count > share {
            return Some(share.max(1));
        }
        left = left.saturating_sub(count);
        namespaces = namespaces.saturating_sub(1);
    }
    None
}

/// Compares the wall clock with the monotonic clock, to detect that it was set.
struct ClockCheck {
    last: (Instant, Timestamp),
    /// When the clock was last found to have been set, or not to match the rows.
    doubted: Option<Instant>,
}

impl ClockCheck {
    /// Starts at `now`; `newest` is the time of the newest row, `age` the age at which rows are deleted.
    fn start(now: (Instant, Timestamp), newest: Option<Timestamp>, age: Duration) -> Self {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let fits = newest.is_none_or(|newest| now.1.duration_since(newest) <= age);
        Self { last: now, doubted: (!fits).then_some(now.0) }
    }

    /// Checks the clock again. Returns whether rows may be deleted by age.
    fn look(&mut self, now: (Instant, Timestamp)) -> bool {
        let passed = SignedDuration::try_from(now.0.saturating_duration_since(self.last.0));
        let shown = now.1.duration_since(self.last.1);
        let off = (shown - passed.unwrap_or(SignedDuration::MAX)).abs();
        if off > TOLERANCE {
            self.doubted = Some(now.0);
        }
        self.last = now;
        self.doubted.is_none_or(|doubted| now.0.saturating_duration_since(doubted) >= STEADY)
    }
}

/// A partition: its first id, and the first id after it; `None` for an open end.
struct Partition {
    name: String,
    first: Option<i64>,
    beyond: Option<i64>,
}

/// Creates the partition of the first month without one, if it is due and no other guard changes partitions.
async fn make_month(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    if !try_lock(connection, CHANGING, 0).await? {
        return Ok(false);
    }
    let (now, owner) = now(connection).await?;
    let partitions = partitions(connection).await?;
    let Some(Partition { name: ahead, first: Some(first), beyond: None }) = partitions.last() else {
        return Ok(false);
    };
    if *first > id::month(now, AHEAD) {
        return Ok(false);
    }
    let (begin, next) = (id::time(*first), id::month(id::time(*first), 1));
    let month = format!("entries_{}", begin.strftime("%Y_%m"));
    // Rows from clocks that run ahead move into the new partition.
    let statements = format!(
        "{BRIEFLY}; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE; ALTER TABLE entries DETACH PARTITION {ahead}; \
         CREATE TABLE {month} PARTITION OF entries FOR VALUES FROM ({first}) TO ({next}); \
         ALTER TABLE {month} ENABLE ROW LEVEL SECURITY; ALTER TABLE {month} OWNER TO {owner}; \
         WITH moved AS (DELETE FROM {ahead} WHERE id < {next} RETURNING *) INSERT INTO {month} SELECT * FROM moved; \
         ALTER TABLE entries ATTACH PARTITION {ahead} FOR VALUES FROM ({next}) TO (MAXVALUE)"
    );
    raw_sql(AssertSqlSafe(statements)).execute(connection).await?;
    Ok(true)
}

/// Drops the partitions whose rows no cluster keeps, unless another guard changes partitions. Returns the id below
/// which there are no rows now.
async fn drop_months(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    if !try_lock(connection, CHANGING, 0).await? {
        return Ok(None);
    }
    let (now, _) = now(connection).await?;
    let kept: Vec<(i64, i64)> = sqlx::query_as(KEPT).fetch_all(&mut *connection).await?;
    let Some(kept) = kept.into_iter().map(|cluster| lowest(now, cluster)).min() else { return Ok(None) };
    let partitions = partitions(connection).await?;
    let Some((Partition { name: before, first: None, beyond: Some(beyond) }, months)) =
        partitions.split_first()
    else {
        return Ok(None);
    };
    if *beyond > kept {
        return Ok(None);
    }
    let is_old = |it: &&Partition| it.beyond.is_some_and(|beyond| beyond <= kept);
    let old: Vec<_> = months.iter().take_while(is_old).collect();
    let until = old.last().and_then(|it| it.beyond).unwrap_or(*beyond);
    if old.is_empty() {
        let any = AssertSqlSafe(format!("SELECT EXISTS (SELECT FROM {before})"));
        if sqlx::query_scalar(any).fetch_one(&mut *connection).await? {
            raw_sql(AssertSqlSafe(format!("{BRIEFLY}; TRUNCATE {before}"))).execute(&mut *connection).await?;
        }
    } else {
        let names = old.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
        // Late rows that are older than the remaining months go to the partition of earlier rows.
        let statements = format!(
            "{BRIEFLY}; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE; \
             ALTER TABLE entries DETACH PARTITION {before}; TRUNCATE {before}; DROP TABLE {names}; \
             ALTER TABLE entries ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({until})"
        );
        raw_sql(AssertSqlSafe(statements)).execute(&mut *connection).await?;
        tracing::info!(partitions = names, "dropped expired monthly partitions from the ledger");
    }
    Ok(Some(until))
}

/// The lowest id that a cluster keeps, from the values that its guard stored last. The age applies even if that guard
/// is silent since.
fn lowest(now: Timestamp, (keeps, age): (i64, i64)) -> i64 {
    keeps.max(id::cutoff(now, Duration::from_secs(age.try_into().unwrap_or_default())))
}

/// Takes an advisory lock until the transaction ends, unless another session holds it.
async fn try_lock(connection: &mut PgConnection, lock: i32, of: i32) -> Result<bool, sqlx::Error> {
    let select = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2)");
    select.bind(lock).bind(of).fetch_one(connection).await
}

/// The database's time, and the owner of the table `entries`.
async fn now(connection: &mut PgConnection) -> Result<(Timestamp, String), sqlx::Error> {
    let select = "SELECT floor(extract(epoch FROM now()))::int8, quote_ident(pg_get_userbyid(relowner)) \
                  FROM pg_class WHERE oid = 'entries'::regclass";
    let (seconds, owner): (i64, String) = sqlx::query_as(select).fetch_one(connection).await?;
    Ok((Timestamp::from_second(seconds).unwrap_or_default(), owner))
}

/// The partitions, the oldest first.
async fn partitions(connection: &mut PgConnection) -> Result<Vec<Partition>, sqlx::Error> {
    let rows: Vec<(String, Option<i64>, Option<i64>)> =
        sqlx::query_as(PARTITIONS).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(name, first, beyond)| Partition { name, first, beyond }).collect())
}

#[cfg(test)]
mod tests;
