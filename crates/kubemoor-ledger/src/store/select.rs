//! Rows out of the database, newest first.

use std::collections::{BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Decode, PgPool, Postgres, QueryBuilder, Row, Sqlite, SqlitePool, Type};

use super::key::{self, Name};
use super::merge::{Merge, Question};
use super::{Pool, Store, StoreError};
use crate::entry::{Entry, Object};
use crate::id;
use crate::query::{Filter, Page};
use crate::row::Kind;

const SELECT: &str = "SELECT id, kind, namespace, release, revision, object_group, object_kind, \
                      object_namespace, object_name, operation, user_name, user_groups, verdict, reason, \
                      detail, fields, more_fields, repeats, uid, cluster";

/// How many rows back it is looked how far they go.
const DEPTH: i64 = 1000;

/// Adds what rows have to meet, behind a first condition.
macro_rules! add_conditions {
    ($query:expr, $wanted:expr) => {{
        let wanted: Wanted<'_> = $wanted;
        let (query, filter) = (&mut $query, wanted.filter);
        for (name, text) in wanted.names().filter(|(name, _)| wanted.is_looked_up_by(*name)) {
            query.push(format_args!(" AND {} = ", name.key)).push_bind(key::of(text));
        }
        if let Some(since) = filter.since {
            query.push(" AND id >= ").push_bind(id::first(since));
        }
        if !filter.operations.is_empty() {
            // Words of the program, not of a user. PostgreSQL uses an index over some operations only where the
            // statement itself names them.
            let named = filter.operations.iter().map(|operation| format!("'{}'", operation.as_str()));
            let named: Vec<_> = named.collect();
            query.push(format_args!(" AND operation IN ({})", named.join(", ")));
        }
        if let Some(object) = &filter.object {
            query.push(format_args!(" AND {} = ", key::OBJECT)).push_bind(object.name.as_str());
        }
        // PostgreSQL takes a plain comparison for one more rare condition, beside that of the index: it would expect
        // no full page, and read all rows instead of the newest.
        query.push(" AND CASE WHEN true");
        for (name, text) in wanted.names() {
            if !wanted.is_looked_up_by(name) {
                query.push(format_args!(" AND {} = ", name.key)).push_bind(key::of(text));
            }
            if !wanted.is_by_keys {
                query.push(format_args!(" AND {} = ", name.column)).push_bind(text);
            }
        }
        if let Some(object) = &filter.object {
            if let Some(group) = &object.group {
                query.push(" AND object_group = ").push_bind(group.as_str());
            }
            query.push(" AND lower(object_kind) IN (");
            let mut list = query.separated(", ");
            for kind in crate::query::object::possible_kinds(object) {
                list.push_bind(kind);
            }
            query.push(")");
        }
        query.push(" THEN true ELSE false END");
        if filter.facts {
            query.push(" AND kind = ").push_bind(Kind::Verdict.as_str());
        }
    }};
}

/// The statement for one cluster's rows, for a database.
macro_rules! selection {
    ($database:ty, $select:expr, $cluster:expr, $wanted:expr, $limit:expr) => {{
        let wanted: Wanted<'_> = $wanted;
        let mut query = QueryBuilder::<$database>::new($select);
        query.push(" WHERE cluster = ").push_bind($cluster);
        if let Some(end) = wanted.end() {
            query.push(" AND id < ").push_bind(end);
        }
        add_conditions!(query, wanted);
        query.push(" ORDER BY id DESC LIMIT ").push_bind($limit);
        query
    }};
}

/// What one statement asks for.
#[derive(Clone, Copy)]
struct Wanted<'f> {
    filter: &'f Filter,
    /// One of the filter's verdicts; none for any.
    verdict: Option<&'f str>,
    /// Whether names with the same keys are taken for the same.
    is_by_keys: bool,
    /// Whether there are indexes of two names, as PostgreSQL's are.
    has_pairs: bool,
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
        let clusters = self.clusters(filter.cluster.as_deref()).await.map_err(&failed)?;
        // Cluster by cluster and verdict by verdict, so that each one's index gives the newest first.
        let has_pairs = matches!(self.pool, Pool::Postgres(_));
        for wanted in Wanted::each(filter, has_pairs) {
            let found = match (&self.pool, clusters.as_slice()) {
                (_, [(number, name)]) => self.some(*number, name, wanted, limit).await,
                (Pool::Postgres(pool), many) => merged(pool, many, wanted, limit).await,
                (Pool::Sqlite { .. }, many) => self.of_each(many, wanted, limit).await,
            };
            items.extend(found.map_err(&failed)?);
        }
        items.sort_by_key(|entry: &Entry| std::cmp::Reverse(entry.id));
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let more = items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Ok(Page { items, next, missing: Vec::new() })
    }

    /// The newest rows of each cluster.
    async fn of_each(
        &self,
        clusters: &[(i16, String)],
        wanted: Wanted<'_>,
        limit: i64,
    ) -> Result<Vec<Entry>, sqlx::Error> {
        let mut items = Vec::new();
        for (number, name) in clusters {
            items.extend(self.some(*number, name, wanted, limit).await?);
        }
        Ok(items)
    }

    /// The newest rows of one cluster, newest first.
    async fn some(
        &self,
        cluster: i16,
        name: &str,
        wanted: Wanted<'_>,
        limit: i64,
    ) -> Result<Vec<Entry>, sqlx::Error> {
        match &self.pool {
            Pool::Sqlite { reading: pool, .. } => {
                let mut select = wanted.select();
                if let Some(name) = rarest(pool, cluster, wanted).await? {
                    select = format!("{select} INDEXED BY {}", name.index);
                }
                let mut query = selection!(sqlx::Sqlite, select, cluster, wanted, limit);
                query.build().fetch_all(pool).await?.iter().map(|row| entry(row, name)).collect()
            }
            Pool::Postgres(pool) => {
                let mut query = selection!(sqlx::Postgres, wanted.select(), cluster, wanted, limit);
                query.build().fetch_all(pool).await?.iter().map(|row| entry(row, name)).collect()
            }
        }
    }
}

/// The newest rows of many clusters: first their places, then the rows themselves.
async fn merged(
    pool: &PgPool,
    clusters: &[(i16, String)],
    wanted: Wanted<'_>,
    limit: i64,
) -> Result<Vec<Entry>, sqlx::Error> {
    let numbers = with_each_name(pool, clusters, wanted).await?;
    // The indexes hold the keys: no row has to be read that is not on the page.
    let places = places(pool, &numbers, Wanted { is_by_keys: true, ..wanted }, limit).await?;
    let rows = at(pool, clusters, wanted, &places).await?;
    if rows.len() == places.len() {
        return Ok(rows);
    }
    // Rows of other names have the same keys, or rows were deleted.
    let places = self::places(pool, &numbers, wanted, limit).await?;
    at(pool, clusters, wanted, &places).await
}

/// The clusters that have some row of each name. For a name that a cluster does not have, all its rows of a frequent one
/// would be looked through in vain.
async fn with_each_name(
    pool: &PgPool,
    clusters: &[(i16, String)],
    wanted: Wanted<'_>,
) -> Result<Vec<i16>, sqlx::Error> {
    let numbers: Vec<i16> = clusters.iter().map(|(number, _)| *number).collect();
    if wanted.columns().len() < 2 {
        return Ok(numbers);
    }
    let mut query = QueryBuilder::<Postgres>::new("SELECT number FROM unnest(");
    query.push_bind(numbers).push("::int2[]) AS part (number) WHERE true");
    let newest = " ORDER BY id DESC LIMIT 1)";
    for (name, text) in wanted.names() {
        push_rows_with(&mut query, wanted, name.key).push_bind(key::of(text)).push(newest);
    }
    if let Some(object) = &wanted.filter.object {
        push_rows_with(&mut query, wanted, key::OBJECT).push_bind(object.name.as_str()).push(newest);
    }
    query.build_query_scalar().fetch_all(pool).await
}

/// Adds the condition that the cluster has a row with the value that follows in `column`.
fn push_rows_with<'q>(
    query: &'q mut QueryBuilder<Postgres>,
    wanted: Wanted<'_>,
    column: &str,
) -> &'q mut QueryBuilder<Postgres> {
    query.push(" AND (SELECT true FROM entries WHERE cluster = number AND id < ");
    query.push_bind(wanted.end().unwrap_or(i64::MAX)).push(" AND id >= ");
    query.push_bind(wanted.filter.since.map_or(i64::MIN, id::first)).push(format_args!(" AND {column} = "))
}

/// The places of the newest rows, a few of each cluster at a time. So many rows of each cluster would be a hundred
/// times those of the page.
async fn places(
    pool: &PgPool,
    clusters: &[i16],
    wanted: Wanted<'_>,
    limit: i64,
) -> Result<Vec<(i16, i64)>, sqlx::Error> {
    let end = wanted.end().unwrap_or(i64::MAX);
    let mut merge = Merge::new(clusters.iter().copied(), end, limit);
    while let Some(Question { clusters, ends, most }) = merge.question() {
        let mut query = QueryBuilder::<Postgres>::new("SELECT part.number, found.id FROM unnest(");
        query
            .push_bind(clusters)
            .push("::int2[], ")
            .push_bind(ends)
            .push("::int8[]) AS part (number, before) ");
        query.push(
            "CROSS JOIN LATERAL (SELECT id FROM entries WHERE cluster = part.number AND id < part.before",
        );
        add_conditions!(query, wanted);
        query.push(" ORDER BY id DESC LIMIT ").push_bind(most).push(") AS found");
        merge.answer(query.build_query_as().fetch_all(pool).await?);
    }
    Ok(merge.newest())
}

/// The rows at these places that have the names.
async fn at(
    pool: &PgPool,
    clusters: &[(i16, String)],
    wanted: Wanted<'_>,
    places: &[(i16, i64)],
) -> Result<Vec<Entry>, sqlx::Error> {
    let (numbers, ids): (Vec<i16>, Vec<i64>) = places.iter().copied().unzip();
    let mut query = QueryBuilder::<Postgres>::new(wanted.select());
    query.push(" JOIN unnest(").push_bind(numbers).push("::int2[], ").push_bind(ids);
    query.push(
        "::int8[]) AS place (number, row_id) ON entries.cluster = place.number AND entries.id = place.row_id \
         WHERE true",
    );
    for (name, text) in wanted.names() {
        query.push(format_args!(" AND CASE WHEN {} = ", name.column)).push_bind(text);
        query.push(" THEN true ELSE false END");
    }
    let names: HashMap<i16, &str> = clusters.iter().map(|(number, name)| (*number, name.as_str())).collect();
    let rows = query.build().fetch_all(pool).await?;
    let named = |row: &PgRow| {
        let number: i16 = row.try_get("cluster")?;
        entry(row, names.get(&number).copied().unwrap_or_default())
    };
    rows.iter().map(named).collect()
}

impl<'f> Wanted<'f> {
    /// One for each verdict of the filter.
    fn each(filter: &'f Filter, has_pairs: bool) -> impl Iterator<Item = Self> {
        let any = filter.verdicts.is_empty().then_some(None);
        let verdicts: BTreeSet<_> = filter.verdicts.iter().map(String::as_str).collect();
        any.into_iter().chain(verdicts.into_iter().map(Some)).map(move |verdict| Self {
            filter,
            verdict,
            is_by_keys: false,
            has_pairs,
        })
    }

    /// The names that are asked for.
    fn names(self) -> impl Iterator<Item = (Name, &'f str)> {
        let Filter { release, user, namespace, .. } = self.filter;
        let texts = [release.as_deref(), user.as_deref(), namespace.as_deref(), self.verdict];
        key::NAMES.into_iter().zip(texts).filter_map(|(name, text)| Some((name, text?)))
    }

    /// The columns that are compared with a name.
    fn columns(self) -> Vec<&'static str> {
        let object = self.filter.object.as_ref().map(|_| key::OBJECT);
        self.names().map(|(name, _)| name.key).chain(object).collect()
    }

    /// Whether PostgreSQL may choose an index by this name. With three or more names it expects almost no rows and takes
    /// any index, so then only the two names of a pair that has its own index count.
    fn is_looked_up_by(self, name: Name) -> bool {
        let columns = self.columns();
        if !self.has_pairs || columns.len() < 3 {
            return true;
        }
        let has = |pair: &&[&str; 2]| pair.iter().all(|column| columns.contains(column));
        key::PAIRS.iter().find(has).is_none_or(|pair| pair.contains(&name.key))
    }

    /// The columns; what a replay judges by is long, and is read only where it is asked for.
    fn select(self) -> String {
        let facts = if self.filter.facts { "facts" } else { "NULL AS facts" };
        format!("{SELECT}, {facts} FROM entries")
    }

    /// Only rows with lower ids are wanted.
    fn end(self) -> Option<i64> {
        let until = self.filter.until.map(id::first);
        self.filter.before.into_iter().chain(until).min()
    }
}

/// The name by whose index the fewest rows are looked through: that of which a
/// thousand rows go back furthest. SQLite does not know which one is rare, and
/// PostgreSQL does.
async fn rarest(pool: &SqlitePool, cluster: i16, wanted: Wanted<'_>) -> Result<Option<Name>, sqlx::Error> {
    let mut found: Option<(Option<i64>, Name)> = None;
    let single = wanted.names().count() < 2;
    for (name, text) in wanted.names() {
        let reach = if single {
            None
        } else {
            let Name { index, key, .. } = name;
            let mut query = QueryBuilder::<Sqlite>::new(format!("SELECT id FROM entries INDEXED BY {index}"));
            query.push(" WHERE cluster = ").push_bind(cluster);
            query.push(format_args!(" AND {key} = ")).push_bind(key::of(text));
            query.push(" AND id >= ").push_bind(wanted.filter.since.map_or(0, id::first));
            query.push(" AND id < ").push_bind(wanted.end().unwrap_or(i64::MAX));
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
        repeats: row.try_get("repeats")?,
        facts: row.try_get("facts")?,
        uid: text("uid")?,
        same: None,
    })
}
