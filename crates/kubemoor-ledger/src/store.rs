//! The ledger's database: SQLite or PostgreSQL, with the same columns. A row that is written twice is stored once. A
//! reader changes nothing, not even an old schema. No error quotes the URL's password.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rustls::{CertificateError, Error as TlsError};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    ColumnIndex, Connection as _, Decode, PgConnection, PgPool, Postgres, QueryBuilder, Row, SqlSafeStr,
    Sqlite, SqliteConnection, SqlitePool, Type,
};

use crate::entry::{EntryObject, LedgerEntry};
pub use crate::fleet::ClusterFleet;
use crate::id;
use crate::query::{EntryPage, Filter, PAGE, possible_kinds};
use crate::writer::Batch;
use kubemoor_runtime::callers::{RandomError, random};
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::shown::SealingKey;

/// The maximum wait for a connection, or for another program's lock on an SQLite file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections: to PostgreSQL one writes, one trims, the rest read; to an SQLite
/// file all of them read.
const CONNECTIONS: u32 = 6;

/// Connections that write to an SQLite file: SQLite allows one writer at a time anyway, and its writes invalidate the
/// page caches of all other connections.
const WRITING: u32 = 1;

/// The database of a ledger. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: DatabasePool,
    /// Its name in messages.
    pub(crate) place: String,
}

#[derive(Clone, Debug)]
pub(crate) enum DatabasePool {
    Sqlite {
        /// If the store is read-only, the same as `reading`.
        writing: SqlitePool,
        reading: SqlitePool,
    },
    Postgres(PgPool),
}

/// Runs an expression on the pool of either database; `$access` selects the reading or writing pool of SQLite.
macro_rules! on_pool {
    ($store:expr, $access:ident, |$pool:ident| $asked:expr) => {
        match &$store.pool {
            $crate::store::DatabasePool::Sqlite { $access: $pool, .. } => $asked,
            $crate::store::DatabasePool::Postgres($pool) => $asked,
        }
    };
}
pub(crate) use on_pool;

/// Builds the statement that inserts rows. An existing row, from an earlier attempt or from another guard, stays
/// unchanged.
macro_rules! insertion {
    ($database:ty, $insert:literal, $cluster:expr, $entries:expr) => {{
        let mut query = QueryBuilder::<$database>::new(concat!(
            $insert,
            " INTO entries (id, cluster, same, kind, namespace, release, revision, object_group, object_kind, \
             object_namespace, object_name, operation, user_name, user_groups, verdict, reason, detail, fields, \
             more_fields, uid, facts) "
        ));
        let (cluster, entries): (ClusterNumber, &[&LedgerEntry]) = ($cluster, $entries);
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

/// Builds the query of a page: from the indexes, the newest ids of each cluster, and of these the newest overall; then
/// their rows.
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
    /// Opens the database for reading.
    pub async fn read(url: &LedgerUrl) -> Result<Self, StoreError> {
        let store = Self::connect(url, true).await?;
        store.check_version().await?;
        Ok(store)
    }

    pub async fn close(&self) {
        match &self.pool {
            DatabasePool::Sqlite { writing, reading } => {
                reading.close().await;
                writing.close().await;
            }
            DatabasePool::Postgres(pool) => pool.close().await,
        }
    }

    /// The key of this ledger, created on first use.
    pub async fn key(&self) -> Result<SealingKey, StoreError> {
        let fresh: [u8; 32] = random()?;
        let insert = "INSERT INTO sealing_key (id, bytes) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
        let select = "SELECT bytes FROM sealing_key WHERE id = 1";
        let read = async {
            on_pool!(self, writing, |pool| {
                sqlx::query(insert).bind(fresh.as_slice()).execute(pool).await?;
                sqlx::query_scalar(select).fetch_one(pool).await
            })
        };
        let bytes: Vec<u8> = read.await.map_err(self.failed("read"))?;
        let key: [u8; 32] = bytes.as_slice().try_into().map_err(|_| StoreError::Statement {
            place: self.place.clone(),
            action: "read",
            reason: "its key does not have 32 bytes".to_owned(),
        })?;
        Ok(SealingKey::new(key))
    }

    pub(crate) fn failed(&self, action: &'static str) -> impl Fn(sqlx::Error) -> StoreError + '_ {
        move |error| StoreError::Statement {
            place: self.place.clone(),
            action,
            reason: driver_message(&error),
        }
    }

    /// Connects to the database. A writer creates a missing file. The tables may be older, or missing.
    pub(crate) async fn connect(url: &LedgerUrl, reads: bool) -> Result<Self, StoreError> {
        let place = url.to_string();
        let failed =
            |error: sqlx::Error| StoreError::Connect { place: place.clone(), reason: driver_message(&error) };
        let pool = match url {
            LedgerUrl::Sqlite(path) => {
                if reads && !tokio::fs::try_exists(path).await.unwrap_or(false) {
                    return Err(StoreError::Absent { place });
                }
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(PATIENCE);
                let pool = SqlitePoolOptions::new().acquire_timeout(PATIENCE);
                let reading = pool.clone().max_connections(CONNECTIONS);
                // The thread that reads the file returns a whole page without waiting in between.
                let page = usize::try_from(PAGE).unwrap_or(usize::MAX).saturating_add(1);
                let reader = options.clone().read_only(true).row_buffer_size(page);
                let reading = reading.connect_lazy_with(reader);
                if reads {
                    reading.acquire().await.map_err(&failed)?;
                    DatabasePool::Sqlite { writing: reading.clone(), reading }
                } else {
                    make(path).map_err(sqlx::Error::Io).map_err(&failed)?;
                    // A commit does not wait for the disk: the file survives a crash of the program; a power loss may
                    // lose the last rows.
                    let options = options
                        .create_if_missing(true)
                        .journal_mode(SqliteJournalMode::Wal)
                        .synchronous(SqliteSynchronous::Normal)
                        // Rows go into the middle of the indexes: the more of them share a checkpoint and
                        // the cache, the fewer pages are written twice.
                        .pragma("wal_autocheckpoint", "10000")
                        .pragma("cache_size", "-16000");
                    let writing = pool.max_connections(WRITING).connect_with(options);
                    DatabasePool::Sqlite { writing: writing.await.map_err(&failed)?, reading }
                }
            }
            LedgerUrl::Postgres(text) => {
                let options = postgres(text, url)?;
                let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
                match pool.connect_with(options).await {
                    Ok(pool) => DatabasePool::Postgres(pool),
                    Err(error) => {
                        let reason =
                            fault_of_file(text, &error).await.unwrap_or_else(|| driver_message(&error));
                        return Err(StoreError::Connect { place, reason });
                    }
                }
            }
        };
        Ok(Self { pool, place })
    }

    /// Creates or upgrades the tables. One guard does so at a time.
    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        self.found_version().await?;
        let migrator = migrator(self.scripts());
        let done = match &self.pool {
            DatabasePool::Sqlite { writing, .. } => migrator.run(writing).await,
            DatabasePool::Postgres(pool) => migrator.run(pool).await,
        };
        done.map_err(|error| match error {
            MigrateError::VersionMissing(found) => {
                StoreError::Newer { place: self.place.clone(), found, wanted: self.version() }
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                StoreError::Migrate { place: self.place.clone(), reason: driver_message(&error) }
            }
            other => StoreError::Migrate { place: self.place.clone(), reason: other.to_string() },
        })
    }

    pub(crate) async fn check_version(&self) -> Result<(), StoreError> {
        let (place, found, wanted) = (self.place.clone(), self.found_version().await?, self.version());
        match found.cmp(&wanted) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(StoreError::Older { place, found, wanted }),
            Ordering::Greater => Err(StoreError::Newer { place, found, wanted }),
        }
    }

    /// The version of the tables; 0 without tables. Tables that another script of the same version created are an
    /// error.
    async fn found_version(&self) -> Result<i64, StoreError> {
        let select = "SELECT version, checksum FROM kubemoor_migrations ORDER BY version";
        let applied: Result<Vec<(i64, Vec<u8>)>, _> =
            on_pool!(self, writing, |pool| sqlx::query_as(select).fetch_all(pool).await);
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) if is_absent_table(&error) => return Ok(0),
            Err(error) => return Err(self.failed("read")(error)),
        };
        let known = migrator(self.scripts());
        let is_other = |(version, checksum): &(i64, Vec<u8>)| {
            known.iter().any(|migration| migration.version == *version && *migration.checksum != **checksum)
        };
        match applied.iter().any(is_other) {
            true => Err(StoreError::Unreleased { place: self.place.clone() }),
            false => Ok(applied.last().map_or(0, |(version, _)| *version)),
        }
    }

    /// The number of a cluster in the rows; a new name gets a new number.
    pub(crate) async fn cluster(&self, name: &str) -> Result<ClusterNumber, StoreError> {
        // An INSERT that conflicts uses up a number, and replicas start often.
        let insert = "INSERT INTO clusters (name) SELECT $1 WHERE NOT EXISTS \
                      (SELECT 1 FROM clusters WHERE name = $1) ON CONFLICT (name) DO NOTHING";
        let select = "SELECT id FROM clusters WHERE name = $1";
        let number = async {
            on_pool!(self, writing, |pool| {
                sqlx::query(insert).bind(name).execute(pool).await?;
                sqlx::query_scalar(select).bind(name).fetch_one(pool).await
            })
        };
        number.await.map(ClusterNumber).map_err(self.failed("written"))
    }

    /// Checks that the database accepts writes, by writing the cluster's row unchanged. Returns `false` if the tables,
    /// or a row with this number and name, do not exist.
    pub(crate) async fn probe(&self, cluster: ClusterNumber, name: &str) -> Result<bool, StoreError> {
        let update = "UPDATE clusters SET name = name WHERE id = $1 AND name = $2";
        let updated = on_pool!(self, writing, |pool| {
            let update = sqlx::query(update).bind(cluster.0).bind(name).execute(pool);
            update.await.map(|done| done.rows_affected())
        });
        match updated {
            Ok(rows) => Ok(rows > 0),
            Err(error) if is_absent_table(&error) => Ok(false),
            Err(error) => Err(self.failed("written")(error)),
        }
    }

    fn version(&self) -> i64 {
        i64::try_from(self.scripts().len()).unwrap_or(i64::MAX)
    }

    fn scripts(&self) -> &'static [&'static str] {
        match &self.pool {
            DatabasePool::Sqlite { .. } => SQLITE,
            DatabasePool::Postgres(_) => POSTGRES,
        }
    }

    /// Writes rows and repeat counts in one transaction.
    pub(crate) async fn insert(&self, cluster: ClusterNumber, batch: &Batch<'_>) -> Result<(), StoreError> {
        let written = async {
            match &self.pool {
                DatabasePool::Sqlite { writing, .. } => {
                    let mut connection = writing.acquire().await?;
                    let written = write_to_sqlite(&mut connection, cluster, batch).await;
                    if written.is_err() {
                        // SQLite has rolled back the transaction, and the driver does not know: it would nest the next
                        // transaction in it, and its rows would never be committed.
                        connection.close_on_drop();
                    }
                    written
                }
                DatabasePool::Postgres(pool) => {
                    write_to_postgres(&mut *pool.acquire().await?, cluster, batch).await
                }
            }
        };
        written.await.map_err(self.failed("written"))
    }

    /// The rows that match `filter`, newest first.
    pub async fn page(&self, filter: &Filter) -> Result<EntryPage, StoreError> {
        let read = async {
            match &self.pool {
                DatabasePool::Sqlite { reading, .. } => {
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
                DatabasePool::Postgres(pool) => {
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
        // One row more than the page holds shows that there is another page.
        let more = items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Ok(EntryPage { items, next, missing: Vec::new() })
    }
}

/// Checks the form of the URL, without connecting.
pub(crate) fn check(url: &LedgerUrl) -> Result<(), StoreError> {
    match url {
        LedgerUrl::Sqlite(_) => Ok(()),
        LedgerUrl::Postgres(text) => postgres(text, url).map(drop),
    }
}

fn postgres(text: &str, url: &LedgerUrl) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(text);
    let options = options
        .map_err(|error| StoreError::Url { place: url.to_string(), reason: driver_message(&error) })?;
    Ok(options.application_name("kubemoor"))
}

/// Creates an SQLite file that only its owner may read: it names users and holds the key. SQLite gives the files beside
/// it the same mode.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

/// One script per version of the tables. A released script never changes. All missing scripts together must finish
/// within the writer's `PATIENCE`: none may read all rows.
const SQLITE: &[&str] = &[include_str!("migrations/sqlite.1.sql")];
const POSTGRES: &[&str] = &[include_str!("migrations/postgres.1.sql")];

/// The name shows the owner in a database that other programs share.
const TABLE: &str = "kubemoor_migrations";

/// The number of a cluster in the rows of one ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterNumber(pub(crate) i16);

/// The longest age that is passed to PostgreSQL, whose range of times is limited.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86400);

fn migrator(scripts: &[&'static str]) -> Migrator {
    let migrations = (1..).zip(scripts.iter().copied()).map(|(version, script)| {
        Migration::new(version, "ledger".into(), MigrationType::Simple, script.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

fn is_absent_table(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    // PostgreSQL's undefined_table; SQLite has no code of its own for it.
    error.code().as_deref() == Some("42P01") || error.message().starts_with("no such table")
}

/// Rows of one statement: fewer than SQLite's limit of 32,766 values; PostgreSQL allows more.
const ROWS: usize = 1000;

/// Sets the repeat count of a row, if it still exists. Running it again changes nothing.
const REPEAT: &str = "UPDATE entries SET repeats = $3 WHERE cluster = $1 AND id = $2 AND repeats < $3";

/// Returns the events seen by every guard that have no row yet. They are sorted, so that guards that write the same
/// ones cannot deadlock.
const MARK: &str = "INSERT INTO entry_marks (cluster, same, id) SELECT $1, same, id \
                    FROM unnest($2::int8[], $3::int8[]) AS new (same, id) ORDER BY same \
                    ON CONFLICT DO NOTHING RETURNING same, id";

/// The columns of a row, without the facts, which are long and read only on request.
const COLUMNS: &str = "entries.id, kind, namespace, release, revision, object_group, object_kind, object_namespace, \
                       object_name, operation, user_name, user_groups, verdict, reason, detail, fields, more_fields, \
                       repeats, uid";

async fn write_to_sqlite(
    connection: &mut SqliteConnection,
    cluster: ClusterNumber,
    batch: &Batch<'_>,
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    for rows in batch.rows.chunks(ROWS) {
        // SQLite copies each page that a statement changes if it can fail half-way: with OR IGNORE, it cannot.
        let mut query = insertion!(Sqlite, "INSERT OR IGNORE", cluster, rows);
        query.build().persistent(false).execute(&mut *transaction).await?;
    }
    for (id, count) in &batch.repeats {
        sqlx::query(REPEAT).bind(cluster.0).bind(id).bind(count).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Writes one row per mark across all guards: with partitions by id, `entries` allows no unique index on marks.
async fn write_to_postgres(
    connection: &mut PgConnection,
    cluster: ClusterNumber,
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

/// Serializing lists of texts and fields cannot fail.
fn json<T: serde::Serialize>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// Reads a row of either database.
fn entry<R>(row: &R) -> Result<LedgerEntry, sqlx::Error>
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
    Ok(LedgerEntry {
        id: number,
        time: id::time(number),
        kind: text("kind")?,
        cluster: text("cluster")?,
        namespace: text("namespace")?,
        release: row.try_get("release")?,
        revision: row.try_get("revision")?,
        object: EntryObject {
            group: text("object_group")?,
            kind: text("object_kind")?,
            namespace: row.try_get("object_namespace")?,
            name: text("object_name")?,
        },
        operation: row.try_get("operation")?,
        user: text("user_name")?,
        // Invalid JSON in these columns must not hide the row.
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

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the ledger {place} cannot be used: {reason}")]
    Url { place: String, reason: String },
    #[error("there is no ledger at {place}: use the same file as the guard's --ledger")]
    Absent { place: String },
    #[error("the ledger {place} cannot be opened: {reason}")]
    Connect { place: String, reason: String },
    #[error("the tables of the ledger {place} cannot be created or migrated: {reason}")]
    Migrate { place: String, reason: String },
    #[error(
        "the ledger {place} has schema version {found}, but this program reads version {wanted}: run a guard \
         of this version on it once"
    )]
    Older {
        place: String,
        /// The version found; 0 without tables.
        found: i64,
        wanted: i64,
    },
    #[error(
        "the ledger {place} has schema version {found}, but this program knows only version {wanted}: use a \
         program as new as the guard that writes to it"
    )]
    Newer { place: String, found: i64, wanted: i64 },
    #[error(
        "the ledger {place} has the tables of a development build, which this program does not know: use an \
         empty database or a new file; the program that wrote it exports its rows with `kubemoor audit -A -o \
         json`"
    )]
    Unreleased { place: String },
    /// SQLite, which clusters cannot share.
    #[error(
        "the ledger {place} is the file of a single guard and has no states of other clusters: use the \
         PostgreSQL that the guards share"
    )]
    Unshared { place: String },
    #[error("the ledger {place} cannot be {action}: {reason}")]
    Statement {
        place: String,
        /// What was tried, such as `read` or `written`.
        action: &'static str,
        reason: String,
    },
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The driver's error on one line, without the database's detail, which alone may quote the row at fault.
pub(crate) fn driver_message(error: &sqlx::Error) -> String {
    let text = match error {
        sqlx::Error::Database(fault) => fault.message().to_owned(),
        sqlx::Error::PoolTimedOut => format!("no connection within {} s", PATIENCE.as_secs()),
        sqlx::Error::Io(fault) => distrust(fault).map_or_else(|| error.to_string(), str::to_owned),
        other => other.to_string(),
    };
    text.lines().collect::<Vec<_>>().join(" ")
}

/// Why the certificate of the database is not trusted, if that is the cause.
fn distrust(fault: &io::Error) -> Option<&'static str> {
    let Some(TlsError::InvalidCertificate(fault)) = fault.get_ref()?.downcast_ref() else { return None };
    Some(match fault {
        // `BadSignature` if a trusted CA has the same name as the one that signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate of the database is not signed by a trusted CA: name the file of its CA as `sslrootcert` in \
             the URL"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate of the database is for another host name than the one in the URL"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate of the database has expired"
        }
        _ => return None,
    })
}

/// The parameters of a URL that name files, in all their spellings.
const PARAMETERS: [&str; 7] =
    ["sslrootcert", "ssl-root-cert", "ssl-ca", "sslcert", "ssl-cert", "sslkey", "ssl-key"];

/// Names the file that made the connection fail with this error, and what to do. The driver does not name it.
pub(crate) async fn fault_of_file(url: &str, error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Io(error) = error else { return None };
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    for (parameter, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if !PARAMETERS.contains(&parameter) {
            continue;
        }
        let value = value.replace('+', " ");
        let file = percent_decode_str(&value).decode_utf8_lossy();
        let read = tokio::fs::read(file.as_ref()).await;
        if read.is_err_and(|fault| fault.kind() == error.kind()) {
            return sentence(parameter, &file, error.kind());
        }
    }
    None
}

fn sentence(parameter: &str, file: &str, kind: ErrorKind) -> Option<String> {
    // A mistyped `?` may be followed by any other parameter.
    let file = file.split_once('?').map_or_else(|| file.to_owned(), |(file, _)| format!("{file}?..."));
    Some(match kind {
        ErrorKind::NotFound => format!(
            "`{parameter}` names the file `{file}`, which does not exist: mount the file there, or correct the path in the \
             URL"
        ),
        ErrorKind::PermissionDenied => format!(
            "`{parameter}` names the file `{file}`, which this process may not read: change the mode or the owner of the \
             file"
        ),
        ErrorKind::IsADirectory => {
            format!("`{parameter}` names the directory `{file}`: correct the path in the URL")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
