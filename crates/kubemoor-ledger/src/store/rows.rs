//! Rows into the database, and out of it, newest first.

use std::collections::HashSet;

use sqlx::{
    ColumnIndex, Connection as _, Decode, PgConnection, Postgres, QueryBuilder, Row, Sqlite,
    SqliteConnection, Type,
};

use super::schema::Cluster;
use super::{Pool, Store, StoreError};
use crate::entry::{Entry, Object};
use crate::id;
use crate::query::{Filter, Page, possible_kinds};
use crate::repeats::Batch;
use crate::row::Kind;

/// Rows of one statement: less than 32,766 values, which SQLite takes, and PostgreSQL takes more.
const ROWS: usize = 1000;

/// Counts repeats on the row that they repeat, if it is still there.
const REPEAT: &str = "UPDATE entries SET repeats = repeats + $3 WHERE cluster = $1 AND id = $2";

/// Which events that every guard sees have no row yet. In their order: guards that write the same ones wait for each
/// other, and not in a circle.
const MARK: &str = "INSERT INTO entry_marks (cluster, same, id) SELECT $1, same, id \
                    FROM unnest($2::int8[], $3::int8[]) AS new (same, id) ORDER BY same \
                    ON CONFLICT DO NOTHING RETURNING same, id";

/// What is read of a row; the facts are long, and are read only where they are asked for.
const COLUMNS: &str = "entries.id, kind, namespace, release, revision, object_group, object_kind, object_namespace, \
                       object_name, operation, user_name, user_groups, verdict, reason, detail, fields, more_fields, \
                       repeats, uid";

/// The statement that writes rows, for a database. A row that is there already, from an attempt before or from another
/// guard, stays as it is.
macro_rules! insertion {
    ($database:ty, $insert:literal, $cluster:expr, $entries:expr) => {{
        let mut query = QueryBuilder::<$database>::new(concat!(
            $insert,
            " INTO entries (id, cluster, same, kind, namespace, release, revision, object_group, object_kind, \
             object_namespace, object_name, operation, user_name, user_groups, verdict, reason, detail, fields, \
             more_fields, uid, facts) "
        ));
        let (cluster, entries): (Cluster, &[&Entry]) = ($cluster, $entries);
        query.push_values(entries, |mut values, entry| {
            values
                .push_bind(entry.id)
                .push_bind(cluster.0)
                .push_bind(entry.same)
                .push_bind(entry.kind.as_str())
                .push_bind(entry.namespace.as_str())
                .push_bind(entry.release.as_deref())
                .push_bind(entry.revision)
                .push_bind(entry.object.group.as_str())
                .push_bind(entry.object.kind.as_str())
                .push_bind(entry.object.namespace.as_deref())
                .push_bind(entry.object.name.as_str())
                .push_bind(entry.operation.as_deref())
                .push_bind(entry.user.as_str())
                .push_bind(json(&entry.groups))
                .push_bind(entry.verdict.as_str())
                .push_bind(entry.reason.as_str())
                .push_bind(entry.detail.as_str())
                .push_bind(json(&entry.fields))
                .push_bind(entry.more_fields)
                .push_bind(entry.uid.as_str())
                .push_bind(entry.facts.as_deref());
        });
        query
    }};
}

/// The statement for a page, for a database: by the indexes the newest ids of each cluster and of these the newest of all,
/// then the rows of these ids.
macro_rules! selection {
    ($database:ty, $filter:expr, [$each:literal, $clusters:literal, $end:literal]) => {{
        let filter: &Filter = $filter;
        let limit = i64::from(filter.size()) + 1;
        let facts = if filter.facts { "facts" } else { "NULL AS facts" };
        let mut query =
            QueryBuilder::<$database>::new(format!("SELECT {COLUMNS}, {facts}, name AS cluster "));
        query.push($each).push(" (SELECT id FROM entries WHERE cluster = clusters.id");
        let object = filter.object.as_ref();
        for (column, name) in [
            ("namespace", filter.namespace.as_deref()),
            ("release", filter.release.as_deref()),
            ("user_name", filter.user.as_deref()),
            ("object_name", object.map(|object| object.name.as_str())),
            ("object_group", object.and_then(|object| object.group.as_deref())),
            ("kind", filter.facts.then(|| Kind::Verdict.as_str())),
        ] {
            if let Some(name) = name {
                query.push(format_args!(" AND {column} = ")).push_bind(name);
            }
        }
        let operations = filter.operations.iter().map(|operation| operation.as_str().to_owned()).collect();
        let kinds = object.map(possible_kinds).unwrap_or_default();
        for (column, names) in
            [("verdict", &filter.verdicts), ("operation", &operations), ("lower(object_kind)", &kinds)]
        {
            if !names.is_empty() {
                query.push(format_args!(" AND {column} IN ("));
                let mut list = query.separated(", ");
                for name in names {
                    list.push_bind(name.as_str());
                }
                query.push(")");
            }
        }
        if let Some(since) = filter.since {
            query.push(" AND id >= ").push_bind(id::first(since));
        }
        if let Some(end) = filter.before.into_iter().chain(filter.until.map(id::first)).min() {
            query.push(" AND id < ").push_bind(end);
        }
        query.push(" ORDER BY id DESC LIMIT ").push_bind(limit).push($clusters);
        if let Some(cluster) = &filter.cluster {
            query.push(" AND clusters.name = ").push_bind(cluster.as_str());
        }
        query.push(" ORDER BY entries.id DESC LIMIT ").push_bind(limit).push($end);
        query
    }};
}

impl Store {
    /// Writes rows and counts repeats of rows, all or none.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn insert(&self, cluster: Cluster, batch: &Batch<'_>) -> Result<(), StoreError> {
        let written = async {
            match &self.pool {
                Pool::Sqlite { writing, .. } => {
                    let mut connection = writing.acquire().await?;
                    let written = write_to_sqlite(&mut connection, cluster, batch).await;
                    if written.is_err() {
                        // SQLite has ended the transaction by itself, and the driver does not know: it would take
                        // the next one for a part of it, whose rows nobody ever sees.
                        connection.close_on_drop();
                    }
                    written
                }
                Pool::Postgres(pool) => write_to_postgres(&mut *pool.acquire().await?, cluster, batch).await,
            }
        };
        written.await.map_err(self.failed("written"))
    }

    /// The rows that `filter` asks for, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn page(&self, filter: &Filter) -> Result<Page, StoreError> {
        let read = async {
            match &self.pool {
                Pool::Sqlite { reading, .. } => {
                    let mut query = selection!(
                        Sqlite,
                        filter,
                        ["FROM clusters CROSS JOIN entries WHERE entries.id IN", ")", ""]
                    );
                    query
                        .build()
                        .persistent(false)
                        .fetch_all(reading)
                        .await?
                        .iter()
                        .map(entry)
                        .collect::<Result<Vec<_>, _>>()
                }
                Pool::Postgres(pool) => {
                    let mut query = selection!(
                        Postgres,
                        filter,
                        [
                            "FROM (SELECT clusters.id AS number, name, entries.id FROM clusters CROSS JOIN LATERAL",
                            ") AS entries WHERE true",
                            ") AS page JOIN entries ON cluster = page.number AND entries.id = page.id \
                         ORDER BY entries.id DESC"
                        ]
                    );
                    query.build().persistent(false).fetch_all(pool).await?.iter().map(entry).collect()
                }
            }
        };
        let mut items = read.await.map_err(self.failed("read"))?;
        let size = usize::try_from(filter.size()).unwrap_or(usize::MAX);
        // One more than the page tells whether there is another one.
        let more = items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Ok(Page { items, next, missing: Vec::new() })
    }
}

async fn write_to_sqlite(
    connection: &mut SqliteConnection,
    cluster: Cluster,
    batch: &Batch<'_>,
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    for rows in batch.rows.chunks(ROWS) {
        // A statement that can fail half-way would have SQLite copy each page that it changes: with OR IGNORE none can.
        let mut query = insertion!(Sqlite, "INSERT OR IGNORE", cluster, rows);
        query.build().persistent(false).execute(&mut *transaction).await?;
    }
    for (id, count) in &batch.repeats {
        sqlx::query(REPEAT).bind(cluster.0).bind(id).bind(count).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Of rows with the same mark one is written, whoever writes them: no index over partitions by id can say that.
async fn write_to_postgres(
    connection: &mut PgConnection,
    cluster: Cluster,
    batch: &Batch<'_>,
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let marks = batch.rows.iter().filter_map(|entry| Some((entry.same?, entry.id)));
    let (same, ids): (Vec<i64>, Vec<i64>) = marks.unzip();
    let mut rows = batch.rows.clone();
    if !same.is_empty() {
        let mark = sqlx::query_as(MARK).bind(cluster.0).bind(same).bind(ids);
        let marked: Vec<(i64, i64)> = mark.fetch_all(&mut *transaction).await?;
        let marked: HashSet<_> = marked.into_iter().collect();
        rows.retain(|entry| entry.same.is_none_or(|same| marked.contains(&(same, entry.id))));
    }
    for rows in rows.chunks(ROWS) {
        let mut query = insertion!(Postgres, "INSERT", cluster, rows);
        query.push(" ON CONFLICT DO NOTHING");
        query.build().persistent(false).execute(&mut *transaction).await?;
    }
    for (id, count) in &batch.repeats {
        sqlx::query(REPEAT).bind(cluster.0).bind(id).bind(count).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Lists of texts and fields always have a JSON form.
fn json<T: serde::Serialize>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// A row of the table, of whichever database.
fn entry<R>(row: &R) -> Result<Entry, sqlx::Error>
where
    R: Row,
    for<'n> &'n str: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    Option<i64>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    String: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    Option<String>: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    let text = |column: &str| row.try_get::<String, _>(column);
    let number: i64 = row.try_get("id")?;
    Ok(Entry {
        id: number,
        time: id::time(number),
        kind: text("kind")?,
        cluster: text("cluster")?,
        namespace: text("namespace")?,
        release: row.try_get("release")?,
        revision: row.try_get("revision")?,
        object: Object {
            group: text("object_group")?,
            kind: text("object_kind")?,
            namespace: row.try_get("object_namespace")?,
            name: text("object_name")?,
        },
        operation: row.try_get("operation")?,
        user: text("user_name")?,
        // What somebody else wrote into these columns is no reason to show nothing of the row.
        groups: serde_json::from_str(&text("user_groups")?).unwrap_or_default(),
        verdict: text("verdict")?,
        reason: text("reason")?,
        detail: text("detail")?,
        fields: serde_json::from_str(&text("fields")?).unwrap_or_default(),
        more_fields: row.try_get("more_fields")?,
        repeats: row.try_get("repeats")?,
        facts: row.try_get("facts")?,
        uid: text("uid")?,
        same: None,
    })
}
