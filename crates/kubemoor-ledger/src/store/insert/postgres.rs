//! Rows into PostgreSQL.
//!
//! Entry point: [`insert`]. Invariant: of rows with the same mark one is written, whoever writes them.

use std::sync::LazyLock;

use sqlx::{Postgres, Transaction};

use super::super::key;
use super::super::schema::Cluster;
use super::{COLUMNS, json};
use crate::entry::Entry;

/// The statement for PostgreSQL, which takes any number of rows: an array for
/// each column. Of rows that are the same, in this batch or of another guard,
/// the one that has the mark is written. An attempt before has written its
/// marks and its rows, or neither. Marks in their order: guards that write the
/// same ones wait for each other, and not in a circle.
static STATEMENT: LazyLock<String> = LazyLock::new(|| {
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

pub(super) async fn insert(
    transaction: &mut Transaction<'_, Postgres>,
    cluster: Cluster,
    entries: &[Entry],
) -> Result<(), sqlx::Error> {
    fn column<'e, T>(entries: &'e [Entry], of: impl Fn(&'e Entry) -> T) -> Vec<T> {
        entries.iter().map(of).collect()
    }
    sqlx::query(STATEMENT.as_str())
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
