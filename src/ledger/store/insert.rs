//! Rows into the database.

use std::sync::LazyLock;

use sqlx::{Connection as _, Postgres, Sqlite, SqliteConnection, Transaction};

use super::schema::Cluster;
use super::{Pool, Store, StoreError, key};
use crate::ledger::entry::Entry;

/// What a row holds, in the order in which it is bound; then its cluster.
const COLUMNS: &str = "id, revision, more_fields, same, namespace_key, release_key, user_key, verdict_key, kind, \
                       namespace, release, object_group, object_kind, object_namespace, object_name, operation, \
                       user_name, user_groups, verdict, reason, detail, fields, uid, facts";

/// One row of a statement for SQLite.
const VALUES: &str = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

/// Rows of one statement for SQLite: few sizes, so that each is prepared once.
const CHUNKS: [usize; 5] = [256, 64, 16, 4, 1];

/// The statements of [`CHUNKS`]. One that can fail half-way would have SQLite
/// copy each page that it changes: with OR IGNORE none can. A row that an attempt
/// before has written, or another guard, is there already.
static SQLITE: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    CHUNKS.map(|rows| {
        format!("INSERT OR IGNORE INTO entries ({COLUMNS}, cluster) VALUES {}", vec![VALUES; rows].join(","))
    })
});

/// The statement for PostgreSQL, which takes any number of rows: an array for
/// each column. Of rows that are the same, in this batch or of another guard,
/// the one that has the mark is written. An attempt before has written its
/// marks and its rows, or neither. Marks in their order: guards that write the
/// same ones wait for each other, and not in a circle.
static POSTGRES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH new ({COLUMNS}) AS (SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], \
         $4::int8[], $5::int4[], $6::int4[], $7::int4[], $8::int4[], $9::text[], $10::text[], $11::text[], \
         $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], \
         $20::text[], $21::text[], $22::text[], $23::text[], $24::text[])), \
         marked AS (INSERT INTO entry_marks (cluster, same, id) SELECT $25::int2, same, id FROM new \
         WHERE same IS NOT NULL ORDER BY same ON CONFLICT DO NOTHING RETURNING same, id) \
         INSERT INTO entries ({COLUMNS}, cluster) SELECT new.*, $25::int2 FROM new \
         WHERE same IS NULL OR (same, id) IN (SELECT same, id FROM marked) ON CONFLICT DO NOTHING"
    )
});

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
                Pool::Sqlite { writing, .. } => {
                    let mut connection = writing.acquire().await?;
                    let written = write_to_sqlite(&mut connection, cluster, entries).await;
                    if written.is_err() {
                        // SQLite has ended the transaction by itself, and the driver does not know: it would take
                        // the next one for a part of it, whose rows nobody ever sees.
                        connection.close_on_drop();
                    }
                    written
                }
                Pool::Postgres(pool) => {
                    let mut transaction = pool.begin().await?;
                    insert_into_postgres(&mut transaction, cluster, entries).await?;
                    transaction.commit().await
                }
            }
        };
        written.await.map_err(self.failed("written"))
    }
}

async fn write_to_sqlite(
    connection: &mut SqliteConnection,
    cluster: Cluster,
    entries: &[Entry],
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let mut rest = entries;
    for (statement, rows) in SQLITE.iter().zip(CHUNKS) {
        let (whole, less) = rest.split_at(rest.len() - rest.len() % rows);
        for chunk in whole.chunks(rows) {
            insert_into_sqlite(&mut transaction, statement, cluster, chunk).await?;
        }
        rest = less;
    }
    transaction.commit().await
}

async fn insert_into_sqlite(
    transaction: &mut Transaction<'_, Sqlite>,
    statement: &'static str,
    cluster: Cluster,
    entries: &[Entry],
) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(statement);
    for entry in entries {
        let Entry { object, .. } = entry;
        query = query
            .bind(entry.id)
            .bind(entry.revision)
            .bind(entry.more_fields)
            .bind(entry.same)
            .bind(key::of(&entry.namespace))
            .bind(entry.release.as_deref().map(key::of))
            .bind(key::of(&entry.user))
            .bind(key::of(&entry.verdict))
            .bind(entry.kind.as_str())
            .bind(entry.namespace.as_str())
            .bind(entry.release.as_deref())
            .bind(object.group.as_str())
            .bind(object.kind.as_str())
            .bind(object.namespace.as_deref())
            .bind(object.name.as_str())
            .bind(entry.operation.as_deref())
            .bind(entry.user.as_str())
            .bind(json(&entry.groups))
            .bind(entry.verdict.as_str())
            .bind(entry.reason.as_str())
            .bind(entry.detail.as_str())
            .bind(json(&entry.fields))
            .bind(entry.uid.as_str())
            .bind(entry.facts.as_deref())
            .bind(cluster.0);
    }
    query.execute(&mut **transaction).await.map(drop)
}

async fn insert_into_postgres(
    transaction: &mut Transaction<'_, Postgres>,
    cluster: Cluster,
    entries: &[Entry],
) -> Result<(), sqlx::Error> {
    fn column<'e, T>(entries: &'e [Entry], of: impl Fn(&'e Entry) -> T) -> Vec<T> {
        entries.iter().map(of).collect()
    }
    sqlx::query(POSTGRES.as_str())
        .bind(column(entries, |entry| entry.id))
        .bind(column(entries, |entry| entry.revision))
        .bind(column(entries, |entry| entry.more_fields))
        .bind(column(entries, |entry| entry.same))
        .bind(column(entries, |entry| key::of(&entry.namespace)))
        .bind(column(entries, |entry| entry.release.as_deref().map(key::of)))
        .bind(column(entries, |entry| key::of(&entry.user)))
        .bind(column(entries, |entry| key::of(&entry.verdict)))
        .bind(column(entries, |entry| entry.kind.as_str()))
        .bind(column(entries, |entry| entry.namespace.as_str()))
        .bind(column(entries, |entry| entry.release.as_deref()))
        .bind(column(entries, |entry| entry.object.group.as_str()))
        .bind(column(entries, |entry| entry.object.kind.as_str()))
        .bind(column(entries, |entry| entry.object.namespace.as_deref()))
        .bind(column(entries, |entry| entry.object.name.as_str()))
        .bind(column(entries, |entry| entry.operation.as_deref()))
        .bind(column(entries, |entry| entry.user.as_str()))
        .bind(column(entries, |entry| json(&entry.groups)))
        .bind(column(entries, |entry| entry.verdict.as_str()))
        .bind(column(entries, |entry| entry.reason.as_str()))
        .bind(column(entries, |entry| entry.detail.as_str()))
        .bind(column(entries, |entry| json(&entry.fields)))
        .bind(column(entries, |entry| entry.uid.as_str()))
        .bind(column(entries, |entry| entry.facts.as_deref()))
        .bind(cluster.0)
        .execute(&mut **transaction)
        .await
        .map(drop)
}

/// Lists of texts and fields always have a JSON form.
fn json<T: serde::Serialize>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}
