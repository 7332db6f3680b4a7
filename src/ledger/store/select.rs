//! Rows out of the database, newest first.

use sqlx::{ColumnIndex, Decode, QueryBuilder, Row, Type};

use super::{Pool, Store, StoreError};
use crate::ledger::entry::{Entry, Object};
use crate::ledger::id;
use crate::ledger::query::{Filter, Page};

const SELECT: &str = "SELECT id, kind, namespace, release, revision, object_group, object_kind, \
                      object_namespace, object_name, operation, user_name, user_groups, verdict, reason, \
                      detail, fields, more_fields, uid FROM entries WHERE cluster = ";

/// The statement for one cluster's rows, for a database.
macro_rules! selection {
    ($database:ty, $cluster:expr, $filter:expr, $limit:expr) => {{
        let filter: &Filter = $filter;
        let mut query = QueryBuilder::<$database>::new(SELECT);
        query.push_bind($cluster);
        let texts = [
            (" AND namespace = ", &filter.namespace),
            (" AND release = ", &filter.release),
            (" AND user_name = ", &filter.user),
            (" AND verdict = ", &filter.verdict),
        ];
        for (column, text) in texts {
            if let Some(text) = text {
                query.push(column).push_bind(text.as_str());
            }
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
                    Pool::Sqlite(pool) => {
                        let mut query = selection!(sqlx::Sqlite, number, filter, limit);
                        query.build().fetch_all(pool).await?.iter().map(|row| entry(row, &name)).collect()
                    }
                    Pool::Postgres(pool) => {
                        let mut query = selection!(sqlx::Postgres, number, filter, limit);
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
    })
}
