//! The database: SQLite or PostgreSQL, with the same tables and the same words.
//!
//! Entry points: `Store::connect_to_write` and `Store::migrate` for writers, [`Store::read`] for
//! readers. Invariants: a row that is written twice is there once; a reader
//! changes nothing, not even an old schema; no connection is held longer than
//! a statement or a transaction takes.

mod error;
mod fleet;
mod months;
mod rows;
mod schema;
mod trim;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};

pub use self::error::StoreError;
use self::error::said;
pub use self::fleet::ClusterFleet;
pub(super) use self::months::DroppedMonths;
pub(super) use self::schema::Cluster;
use crate::query::PAGE;
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::shown::SealingKey;

/// How long a connection may take, or another program's lock on an SQLite file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections: to PostgreSQL one writes, one trims, the rest read; to an SQLite
/// file all of them read.
const CONNECTIONS: u32 = 6;

/// Connections that write to an SQLite file: there is no more than one at a time
/// anyway, and what one writes empties the page caches of all others.
const WRITING: u32 = 1;

/// The database of a ledger. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) pool: Pool,
    /// What it is called in messages.
    place: String,
}

#[derive(Clone, Debug)]
pub(super) enum Pool {
    Sqlite {
        /// Where nothing is written, the same as `reading`.
        writing: SqlitePool,
        reading: SqlitePool,
    },
    Postgres(PgPool),
}

/// The same on the connections of whichever database; of a file on those that read or those that write.
macro_rules! on_pool {
    ($store:expr, $access:ident, |$pool:ident| $asked:expr) => {
        match &$store.pool {
            $crate::store::Pool::Sqlite { $access: $pool, .. } => $asked,
            $crate::store::Pool::Postgres($pool) => $asked,
        }
    };
}
use on_pool;

impl Store {
    /// Connects to the database to write to it: makes the file where it is
    /// absent. The tables may be older, or absent, until they are brought up to date.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(super) async fn connect_to_write(url: &LedgerUrl) -> Result<Self, StoreError> {
        Self::connect(url, false).await
    }

    /// Opens the database to read from it.
    ///
    /// # Errors
    /// See [`StoreError`]; also when a guard of this version has not written to
    /// it yet.
    pub async fn read(url: &LedgerUrl) -> Result<Self, StoreError> {
        let store = Self::connect(url, true).await?;
        store.check_version().await?;
        Ok(store)
    }

    /// Gives up its connections.
    pub async fn close(&self) {
        match &self.pool {
            Pool::Sqlite { writing, reading } => {
                reading.close().await;
                writing.close().await;
            }
            Pool::Postgres(pool) => pool.close().await,
        }
    }

    /// The key of this ledger, made when it is asked for the first time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn key(&self) -> Result<SealingKey, StoreError> {
        let fresh: [u8; 32] = super::id::random()?;
        let bytes = self.key_or(&fresh).await.map_err(self.failed("read"))?;
        let key: [u8; 32] = bytes.as_slice().try_into().map_err(|_| StoreError::Statement {
            place: self.place.clone(),
            action: "read",
            reason: "its key has not 32 bytes".to_owned(),
        })?;
        Ok(SealingKey::new(key))
    }

    /// What a failed statement becomes.
    pub(super) fn failed(&self, action: &'static str) -> impl Fn(sqlx::Error) -> StoreError + '_ {
        move |error| StoreError::Statement { place: self.place.clone(), action, reason: said(&error) }
    }

    async fn connect(url: &LedgerUrl, reads: bool) -> Result<Self, StoreError> {
        let place = url.to_string();
        let failed = |error: sqlx::Error| StoreError::Connect { place: place.clone(), reason: said(&error) };
        let pool = match url {
            LedgerUrl::Sqlite(path) => {
                if reads && !exists(path).await {
                    return Err(StoreError::Absent { place });
                }
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(PATIENCE);
                let pool = SqlitePoolOptions::new().acquire_timeout(PATIENCE);
                let reading = pool.clone().max_connections(CONNECTIONS);
                // The thread that reads the file hands a page over without waiting in between.
                let page = usize::try_from(PAGE).unwrap_or(usize::MAX).saturating_add(1);
                let reader = options.clone().read_only(true).row_buffer_size(page);
                let reading = reading.connect_lazy_with(reader);
                if reads {
                    reading.acquire().await.map_err(&failed)?;
                    Pool::Sqlite { writing: reading.clone(), reading }
                } else {
                    make(path).map_err(sqlx::Error::Io).map_err(&failed)?;
                    // A commit does not wait for the disk; the file survives a crash of the program,
                    // and a loss of power may cost its last rows.
                    let options = options
                        .create_if_missing(true)
                        .journal_mode(SqliteJournalMode::Wal)
                        .synchronous(SqliteSynchronous::Normal)
                        // Rows go into the middle of the indexes: the more of them share a checkpoint and
                        // the cache, the fewer pages are written twice.
                        .pragma("wal_autocheckpoint", "10000")
                        .pragma("cache_size", "-16000");
                    let writing = pool.max_connections(WRITING).connect_with(options);
                    Pool::Sqlite { writing: writing.await.map_err(&failed)?, reading }
                }
            }
            LedgerUrl::Postgres(text) => {
                let options = postgres(text, url)?;
                let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
                match pool.connect_with(options).await {
                    Ok(pool) => Pool::Postgres(pool),
                    Err(error) => {
                        let reason = error::fault_of_file(text, &error).await.unwrap_or_else(|| said(&error));
                        return Err(StoreError::Connect { place, reason });
                    }
                }
            }
        };
        Ok(Self { pool, place })
    }
}

/// A key of no ledger: what it seals can be compared within one answer alone.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn fresh_key() -> Result<SealingKey, StoreError> {
    Ok(SealingKey::new(super::id::random()?))
}

/// Whether that can be the URL of a database. Nobody is asked.
///
/// # Errors
/// [`StoreError::Url`].
pub(super) fn check(url: &LedgerUrl) -> Result<(), StoreError> {
    match url {
        LedgerUrl::Sqlite(_) => Ok(()),
        LedgerUrl::Postgres(text) => postgres(text, url).map(drop),
    }
}

fn postgres(text: &str, url: &LedgerUrl) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(text);
    let options =
        options.map_err(|error| StoreError::Url { place: url.to_string(), reason: said(&error) })?;
    Ok(options.application_name("kubemoor"))
}

/// Makes an SQLite file that nobody else may read: it names people, and holds
/// the key. SQLite gives the files beside it the same mode.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).map(drop)
}

async fn exists(path: &Path) -> bool {
    tokio::fs::try_exists(path).await.unwrap_or(false)
}
