//! Rows out of the database, newest first.

use sqlx::{ColumnIndex, Decode, QueryBuilder, Row, Sqlite, SqlitePool, Type};

use super::key::{self, Name};
use super::{Pool, Store, StoreError};
use crate::ledger::entry::{Entry, Object};
use crate::ledger::id;
use crate::ledger::query::{Filter, Page};

const SELECT: &str = "SELECT id, kind, namespace, release, revision, object_group, object_kind, \
                      object_namespace, object_name, operation, user_name, user_groups, verdict, reason, \
                      detail, fields, more_fields, uid FROM entries";

/// How many rows back it is looked how far they go.
const DEPTH: i64 = 1000;

/// The statement for one cluster's rows, for a database.
macro_rules! selection {
    ($database:ty, $select:expr, $cluster:expr, $filter:expr, $limit:expr) => {{
        let filter: &Filter = $filter;
        let mut query = QueryBuilder::<$database>::new($select);
        query.push(" WHERE cluster = ").push_bind($cluster);
        for (name, text) in filter.names() {
            query.push(format_args!(" AND {} = ", name.key)).push_bind(key::of(text));
            query.push(format_args!(" AND {} = ", name.column)).push_bind(text);
        }
        if let Some(since) = filter.since {
            query.push(" AND id >= ").push_bind(id::first(since));
        }
        if let Some(before) = filter.before {
            query.push(" AND id < ").push_bind(before);
        }
        query.push(" ORDER BY id DESC LIMIT ").push_bind($limit);
        query
    }};
}

impl Store {
    /// The rows that `filter` asks for, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn page(&self, filter: &Filter) -> Result<Page, StoreError> {
        let failed = self.failed("read");
        let size = filter.size();
        // One more tells whether there is another page.
        let limit = i64::from(size) + 1;
        let mut items = Vec::new();
        // Cluster by cluster, so that each one's index gives the newest first.
        for (number, name) in self.clusters(filter.cluster.as_deref()).await.map_err(&failed)? {
            let found: Result<Vec<Entry>, sqlx::Error> = async {
                match &self.pool {
                    Pool::Sqlite { reading: pool, .. } => {
                        let select = match rarest(pool, number, filter).await? {
                            Some(name) => format!("{SELECT} INDEXED BY {}", name.index),
                            None => SELECT.to_owned(),
                        };
                        let mut query = selection!(sqlx::Sqlite, select, number, filter, limit);
                        query.build().fetch_all(pool).await?.iter().map(|row| entry(row, &name)).collect()
                    }
                    Pool::Postgres(pool) => {
                        let mut query = selection!(sqlx::Postgres, SELECT, number, filter, limit);
                        query.build().fetch_all(pool).await?.iter().map(|row| entry(row, &name)).collect()
                    }
                }
            }
            .await;
            items.extend(found.map_err(&failed)?);
        }
        items.sort_by_key(|entry: &Entry| std::cmp::Reverse(entry.id));
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let more = items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Ok(Page { items, next })
    }
}

impl Filter {
    /// The names that are asked for.
    fn names(&self) -> impl Iterator<Item = (Name, &str)> {
        let texts = [&self.release, &self.user, &self.namespace, &self.verdict];
        key::NAMES.into_iter().zip(texts).filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

/// The name by whose index the fewest rows are looked through: that of which a
/// thousand rows go back furthest. SQLite does not know which one is rare, and
/// PostgreSQL does.
async fn rarest(pool: &SqlitePool, cluster: i16, filter: &Filter) -> Result<Option<Name>, sqlx::Error> {
    let mut found: Option<(Option<i64>, Name)> = None;
    let single = filter.names().count() < 2;
    for (name, text) in filter.names() {
        let reach = if single {
            None
        } else {
            let Name { index, key, .. } = name;
            let mut query = QueryBuilder::<Sqlite>::new(format!("SELECT id FROM entries INDEXED BY {index}"));
            query.push(" WHERE cluster = ").push_bind(cluster);
            query.push(format_args!(" AND {key} = ")).push_bind(key::of(text));
            query.push(" AND id >= ").push_bind(filter.since.map_or(0, id::first));
            query.push(" AND id < ").push_bind(filter.before.unwrap_or(i64::MAX));
            query.push(" ORDER BY id DESC LIMIT 1 OFFSET ").push_bind(DEPTH);
            query.build_query_scalar().fetch_optional(pool).await?
        };
        if found.as_ref().is_none_or(|(furthest, _)| reach < *furthest) {
            found = Some((reach, name));
        }
    }
    Ok(found.map(|(_, name)| name))
}

/// A row of the table, of whichever database.
fn entry<R>(row: &R, cluster: &str) -> Result<Entry, sqlx::Error>
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
        cluster: cluster.to_owned(),
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
        uid: text("uid")?,
        same: None,
    })
}
