//! Rows into SQLite.
//!
//! Entry point: [`write()`]. Invariant: writes all rows, or none; a row that exists stays unchanged, but for the
//! count of its repeats.

use std::sync::LazyLock;

use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

use super::super::key;
use super::super::schema::Cluster;
use super::{COLUMNS, REPEAT, json};
use crate::entry::Entry;
use crate::repeats::Repeat;

/// One row of a statement for SQLite.
const VALUES: &str = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

/// Rows of one statement for SQLite: few sizes, so that each is prepared once.
const CHUNKS: [usize; 5] = [256, 64, 16, 4, 1];

/// The statements of [`CHUNKS`]. One that can fail half-way would have SQLite
/// copy each page that it changes: with OR IGNORE none can. A row that an attempt
/// before has written, or another guard, is there already.
static STATEMENTS: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    CHUNKS.map(|rows| {
        format!("INSERT OR IGNORE INTO entries ({COLUMNS}, cluster) VALUES {}", vec![VALUES; rows].join(","))
    })
});

pub(super) async fn write(
    connection: &mut SqliteConnection,
    cluster: Cluster,
    entries: &[Entry],
    repeats: &[Repeat],
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let mut rest = entries;
    for (statement, rows) in STATEMENTS.iter().zip(CHUNKS) {
        let (whole, less) = rest.split_at(rest.len() - rest.len() % rows);
        for chunk in whole.chunks(rows) {
            insert(&mut transaction, statement, cluster, chunk).await?;
        }
        rest = less;
    }
    for repeat in repeats {
        let update = sqlx::query(REPEAT).bind(cluster.0).bind(repeat.of).bind(repeat.count());
        update.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

async fn insert(
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
