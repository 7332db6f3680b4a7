//! Deletes old rows: few at a time with a pause between, so that writers never wait long; by one replica at a time per
//! cluster. Nothing is deleted by age within an hour after the clock was set. Where there are too many rows, the
//! namespaces with the most rows lose some first, so that a tenant who fills the ledger pushes out no rows of others.
//!
//! PostgreSQL has a partition for each month, one for everything before them and one for everything after: without a
//! gap, so that every row has a place and rows are read in the order of time. A month is dropped only when no cluster
//! keeps a row of it. One guard at a time changes partitions, by the clock of the database.

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

/// How long a clock must go evenly after it was set.
const STEADY: Duration = Duration::from_secs(3600);

/// How far a clock that goes evenly may move between two looks.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// Rows that one transaction deletes: few enough that a writer who waits for
/// it hardly notices.
const TRIM: i64 = 1000;

/// The statement that deletes the oldest rows of a table: by the last id of them, so that each partition is read by a
/// range of its index, and those of later rows not at all.
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

/// The advisory lock under which one replica trims a cluster's rows; the second
/// half is the cluster's number.
const TRIMMING: i32 = 0x6b6d_7472;

/// The advisory lock under which one guard changes partitions.
const CHANGING: i32 = 0x6b6d_6d6f;

/// Months that are there before they begin.
const AHEAD: i32 = 2;

const PARTITIONS: &str = "SELECT child.oid::regclass::text, substring(range FROM 'FROM \\(''?([0-9]+)')::int8 AS first, \
     substring(range FROM 'TO \\(''?([0-9]+)')::int8 AS beyond FROM pg_inherits JOIN pg_class AS child \
     ON child.oid = inhrelid CROSS JOIN LATERAL pg_get_expr(child.relpartbound, child.oid) AS range \
     WHERE inhparent = 'entries'::regclass ORDER BY first NULLS FIRST";

/// What each cluster keeps. One whose guard has not looked for old rows yet has none.
const KEPT: &str = "SELECT keeps, age FROM clusters WHERE keeps IS NOT NULL AND age IS NOT NULL";

/// A long query of somebody else must not keep all writers waiting behind this.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '3s'";

/// Trims the rows of `cluster` for as long as it is polled.
pub(super) async fn run(store: Store, cluster: ClusterNumber, retention: Retention, metrics: LedgerMetrics) {
    let mut trimmer = Trimmer { store, cluster, retention, clock: None };
    loop {
        match trimmer.pass().await {
            Ok(0) => {}
            Ok(deleted) => {
                metrics.deleted(deleted);
                tracing::info!(deleted, "old rows are deleted from the ledger");
            }
            Err(error) => tracing::warn!(%error, "old rows cannot be deleted from the ledger"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

struct Trimmer {
    store: Store,
    cluster: ClusterNumber,
    retention: Retention,
    /// None before the first look.
    clock: Option<Clock>,
}

impl Trimmer {
    /// Deletes the rows that are too old by the clock, if that is believed, or too many. Returns their number.
    async fn pass(&mut self) -> Result<u64, StoreError> {
        let (now, age) = ((Instant::now(), Timestamp::now()), self.retention.age);
        if self.clock.is_none() {
            let newest = self.surplus(None, 1).await?.map(id::time);
            self.clock = Some(Clock::start(now, newest, age));
        }
        let is_believed = self.clock.as_mut().is_some_and(|clock| clock.look(now));
        let before = if is_believed { id::cutoff(now.1, age) } else { 0 };
        let mut deleted = self.trim_surplus().await?;
        if let DatabasePool::Postgres(pool) = &self.store.pool {
            if let Err(error) = self.change_months(pool, before).await {
                tracing::warn!(%error, "the months of the ledger cannot be brought up to date");
            }
            deleted += self.trim(OLDEST, self.cluster, None, before).await?;
            self.trim(OLDEST_MARKS, self.cluster, None, before).await?;
        } else {
            // There rows are their own marks.
            deleted += self.trim(OLDEST, self.cluster, None, before).await?;
        }
        Ok(deleted)
    }

    /// Deletes the rows that are too many, the oldest of the namespaces with the most. Returns their number.
    async fn trim_surplus(&self) -> Result<u64, StoreError> {
        let rows = self.retention.rows;
        let mut deleted = 0;
        if self.surplus(None, rows).await?.is_none() {
            return Ok(deleted);
        }
        // Counted in the index.
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

    /// The id below which rows of the cluster, or of one namespace of it, are more than the newest `rows`;
    /// none while there are not that many.
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

    /// Deletes rows whose id is below `before` by one of the statements above, unless another replica is at it. Says how
    /// many.
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

    /// Makes the months that come, and drops those that no cluster keeps. `before` is the lowest id that this cluster
    /// keeps.
    async fn change_months(&self, pool: &PgPool, before: i64) -> Result<(), StoreError> {
        let made = async {
            // Each transaction is committed, and at once: one that is only dropped ends at some time later, and keeps its
            // lock until then.
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

/// The most rows that each namespace may keep so that all together keep no more than `rows`, where they have `counts`; at
/// least one. `None` if they keep no more anyway.
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

/// The clock as it was seen.
struct Clock {
    last: (Instant, Timestamp),
    /// When it was last found to be set, or not to fit the rows.
    doubted: Option<Instant>,
}

impl Clock {
    /// The clock at a start; `newest` is the time of the newest row, and `age` that at which rows are deleted.
    fn start(now: (Instant, Timestamp), newest: Option<Timestamp>, age: Duration) -> Self {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let fits = newest.is_none_or(|newest| now.1.duration_since(newest) <= age);
        Self { last: now, doubted: (!fits).then_some(now.0) }
    }

    /// Looks at the clock again. Returns whether rows may be deleted by it.
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

/// Makes the partition of the first month without one, if it is time for it, unless another guard is at it.
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
    // Rows of clocks that are ahead move into the month.
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

/// Drops the partitions whose rows no cluster keeps, unless another guard is at it. Returns the id below which there are
/// no rows now.
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
        // What comes late and is older than that has its place in the partition of everything before.
        let statements = format!(
            "{BRIEFLY}; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE; \
             ALTER TABLE entries DETACH PARTITION {before}; TRUNCATE {before}; DROP TABLE {names}; \
             ALTER TABLE entries ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({until})"
        );
        raw_sql(AssertSqlSafe(statements)).execute(&mut *connection).await?;
        tracing::info!(partitions = names, "months that no cluster keeps are dropped from the ledger");
    }
    Ok(Some(until))
}

/// The lowest id that a cluster keeps, by what its guard said last. A guard that is silent since then would keep
/// rows no longer than before.
fn lowest(now: Timestamp, (keeps, age): (i64, i64)) -> i64 {
    keeps.max(id::cutoff(now, Duration::from_secs(age.try_into().unwrap_or_default())))
}

/// Takes an advisory lock until the transaction ends, unless another one has it.
async fn try_lock(connection: &mut PgConnection, lock: i32, of: i32) -> Result<bool, sqlx::Error> {
    let select = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, $2)");
    select.bind(lock).bind(of).fetch_one(connection).await
}

/// The database's time, and the owner of the rows.
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
