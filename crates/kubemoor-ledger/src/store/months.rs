//! The partitions of a ledger in PostgreSQL: one for each month, one for everything before them, one for everything
//! after.
//!
//! The partitions have no gap, so that every row has a place and PostgreSQL reads them in the order of time, the newest
//! first. A month is dropped only when no cluster keeps a row of it. One guard at a time changes partitions, by the clock
//! of the database.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction, raw_sql};

use super::schema::Cluster;
use super::{Pool, Store, StoreError};
use crate::id;

/// Months that are there before they begin.
const AHEAD: i32 = 2;

/// The advisory lock under which one guard changes partitions.
const CHANGING: i32 = 0x6b6d_6d6f;

/// The longest time that rows are kept: more than that PostgreSQL cannot count back.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86400);

const PARTS: &str = "SELECT child.oid::regclass::text, substring(range FROM 'FROM \\(''?([0-9]+)')::int8 AS first, \
     substring(range FROM 'TO \\(''?([0-9]+)')::int8 AS beyond FROM pg_inherits JOIN pg_class AS child \
     ON child.oid = inhrelid CROSS JOIN LATERAL pg_get_expr(child.relpartbound, child.oid) AS range \
     WHERE inhparent = 'entries'::regclass ORDER BY first NULLS FIRST";

/// The indexes that partitions lack: the partition, the index of the whole table, the name of the partition's, and the
/// columns.
const LACKING: &str = "SELECT part.oid::regclass::text, wanted.indexrelid::regclass::text, \
     quote_ident(part.relname || substr(name.relname, length('entries') + 1)), \
     substring(pg_get_indexdef(wanted.indexrelid) FROM 'USING .*') \
     FROM pg_index AS wanted JOIN pg_class AS name ON name.oid = wanted.indexrelid \
     JOIN pg_inherits ON inhparent = wanted.indrelid JOIN pg_class AS part ON part.oid = inhrelid \
     WHERE wanted.indrelid = 'entries'::regclass AND NOT EXISTS (SELECT FROM pg_inherits AS attached \
     JOIN pg_index AS own ON own.indexrelid = attached.inhrelid \
     WHERE attached.inhparent = wanted.indexrelid AND own.indrelid = part.oid) ORDER BY 1, 2";

/// What a cluster keeps. One that never said so counts while its guard is heard of.
const KEPT: &str = "SELECT keeps, age FROM clusters WHERE keeps IS NOT NULL \
     OR EXISTS (SELECT FROM guards WHERE guards.cluster = clusters.id)";

/// A long query of somebody else must not keep all writers waiting behind this.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '3s'";

/// What was dropped: everything of before some time.
pub(crate) struct DroppedMonths {
    /// Rows with a lower id.
    pub(crate) until: i64,
    /// The partitions that are gone.
    pub(crate) names: Vec<String>,
}

/// A partition: its first id, and the first id after it; `None` for an open end.
struct Part {
    name: String,
    first: Option<i64>,
    beyond: Option<i64>,
}

impl Store {
    /// Says which rows `cluster` keeps: from the id `before` on, and none older than `age`.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn keep(&self, cluster: Cluster, before: i64, age: Duration) -> Result<(), StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(()) };
        let age = i64::try_from(age.min(LONGEST).as_secs()).unwrap_or(i64::MAX);
        let update = sqlx::query("UPDATE clusters SET keeps = $2, age = $3 WHERE id = $1");
        let updated = update.bind(cluster.0).bind(before).bind(age).execute(pool).await;
        updated.map(drop).map_err(self.failed("written"))
    }

    /// Makes the partitions of this month and the next ones, unless another guard is at it.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn make_months(&self) -> Result<(), StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(()) };
        loop {
            match make_month(pool).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(self.failed("divided into months")(error)),
            }
        }
    }

    /// Builds the indexes that partitions of before lack, while everybody writes, unless another guard changes partitions.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn make_indexes(&self) -> Result<(), StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(()) };
        make_indexes(pool).await.map_err(self.failed("indexed"))
    }

    /// Drops the partitions whose rows no cluster keeps; says until when nothing is kept.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn drop_months(&self) -> Result<Option<DroppedMonths>, StoreError> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(None) };
        drop_months(pool).await.map_err(self.failed("trimmed"))
    }
}

/// Makes the partition of the first month without one, if it is time for it.
async fn make_month(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let is_made = make_month_within(&mut transaction).await?;
    // In any case, and at once: one that is only dropped ends at some time later, and keeps its lock until then.
    transaction.commit().await?;
    Ok(is_made)
}

async fn make_month_within(transaction: &mut Transaction<'_, Postgres>) -> Result<bool, sqlx::Error> {
    if !is_alone(transaction).await? {
        return Ok(false);
    }
    let (now, owner) = now(transaction).await?;
    let parts = parts(transaction).await?;
    let Some(Part { name: ahead, first: Some(first), beyond: None }) = parts.last() else { return Ok(false) };
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
    raw_sql(AssertSqlSafe(statements)).execute(&mut **transaction).await?;
    Ok(true)
}

async fn make_indexes(pool: &PgPool) -> Result<(), sqlx::Error> {
    let lacking: Vec<(String, String, String, String)> = sqlx::query_as(LACKING).fetch_all(pool).await?;
    if lacking.is_empty() {
        return Ok(());
    }
    // No transaction can build an index while others write: the lock is that of a connection, and ends with it.
    let mut connection = pool.acquire().await?;
    connection.close_on_drop();
    let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock($1, 0)").bind(CHANGING);
    if !lock.fetch_one(&mut *connection).await? {
        return Ok(());
    }
    for (part, index, own, columns) in lacking {
        for statement in [
            "SET statement_timeout = 0".to_owned(),
            // One that was not finished.
            format!("BEGIN; {BRIEFLY}; DROP INDEX IF EXISTS {own}; COMMIT"),
            format!("CREATE INDEX CONCURRENTLY {own} ON {part} {columns}"),
            format!("BEGIN; {BRIEFLY}; ALTER INDEX {index} ATTACH PARTITION {own}; COMMIT"),
        ] {
            raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
        }
        tracing::info!(partition = part, index, "an index of the ledger is built");
    }
    connection.close().await
}

async fn drop_months(pool: &PgPool) -> Result<Option<DroppedMonths>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let dropped = drop_months_within(&mut transaction).await?;
    transaction.commit().await?;
    Ok(dropped)
}

async fn drop_months_within(
    transaction: &mut Transaction<'_, Postgres>,
) -> Result<Option<DroppedMonths>, sqlx::Error> {
    if !is_alone(transaction).await? {
        return Ok(None);
    }
    let (now, _) = now(transaction).await?;
    let kept: Vec<(Option<i64>, Option<i64>)> = sqlx::query_as(KEPT).fetch_all(&mut **transaction).await?;
    let Some(kept) = kept.into_iter().map(|cluster| lowest(now, cluster)).min() else { return Ok(None) };
    let parts = parts(transaction).await?;
    let Some((Part { name: before, first: None, beyond: Some(beyond) }, months)) = parts.split_first() else {
        return Ok(None);
    };
    if *beyond > kept {
        return Ok(None);
    }
    let is_old = |part: &&Part| part.beyond.is_some_and(|beyond| beyond <= kept);
    let old: Vec<_> = months.iter().take_while(is_old).collect();
    let until = old.last().and_then(|part| part.beyond).unwrap_or(*beyond);
    let names: Vec<_> = old.iter().map(|part| part.name.clone()).collect();
    if names.is_empty() {
        let any = AssertSqlSafe(format!("SELECT EXISTS (SELECT FROM {before})"));
        if sqlx::query_scalar(any).fetch_one(&mut **transaction).await? {
            let empty = AssertSqlSafe(format!("{BRIEFLY}; TRUNCATE {before}"));
            raw_sql(empty).execute(&mut **transaction).await?;
        }
    } else {
        // What comes late and is older than that has its place in the partition of everything before.
        let statements = format!(
            "{BRIEFLY}; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE; \
             ALTER TABLE entries DETACH PARTITION {before}; TRUNCATE {before}; DROP TABLE {}; \
             ALTER TABLE entries ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({until})",
            names.join(", ")
        );
        raw_sql(AssertSqlSafe(statements)).execute(&mut **transaction).await?;
    }
    Ok(Some(DroppedMonths { until, names }))
}

/// The lowest id that a cluster keeps, by what its guard said last. A guard that is silent since then would keep
/// rows no longer than before.
fn lowest(now: Timestamp, said: (Option<i64>, Option<i64>)) -> i64 {
    let (Some(keeps), Some(age)) = said else { return 0 };
    keeps.max(id::cutoff(now, Duration::from_secs(age.try_into().unwrap_or_default())))
}

async fn is_alone(transaction: &mut Transaction<'_, Postgres>) -> Result<bool, sqlx::Error> {
    let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1, 0)").bind(CHANGING);
    lock.fetch_one(&mut **transaction).await
}

/// The database's time, and the owner of the rows.
async fn now(transaction: &mut Transaction<'_, Postgres>) -> Result<(Timestamp, String), sqlx::Error> {
    let select = "SELECT floor(extract(epoch FROM now()))::int8, quote_ident(pg_get_userbyid(relowner)) \
                  FROM pg_class WHERE oid = 'entries'::regclass";
    let (seconds, owner): (i64, String) = sqlx::query_as(select).fetch_one(&mut **transaction).await?;
    Ok((Timestamp::from_second(seconds).unwrap_or_default(), owner))
}

/// The partitions, the oldest first.
async fn parts(transaction: &mut Transaction<'_, Postgres>) -> Result<Vec<Part>, sqlx::Error> {
    let rows: Vec<(String, Option<i64>, Option<i64>)> =
        sqlx::query_as(PARTS).fetch_all(&mut **transaction).await?;
    Ok(rows.into_iter().map(|(name, first, beyond)| Part { name, first, beyond }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_keeps_its_rows_while_its_guard_is_silent() {
        let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
        let day = |text: &str| id::first(text.parse().unwrap());
        let (said, by_age) = (day("2026-11-01T00:00:00Z"), day("2026-11-11T05:00:00Z"));
        for (what, keeps, age, lowest_kept) in [
            ("silent for long", Some(said), Some(10 * 86400), by_age),
            ("few rows", Some(said), Some(90 * 86400), said),
            ("never said", None, None, 0),
        ] {
            assert_eq!(lowest(now, (keeps, age)), lowest_kept, "{what}");
        }
    }
}
