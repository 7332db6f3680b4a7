//! The tables and their versions.

use std::cmp::Ordering;

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::{Pool, Store, StoreError, on_pool, said};

const SQLITE: [&str; 5] = [
    include_str!("../migrations/sqlite.1.sql"),
    include_str!("../migrations/sqlite.2.sql"),
    include_str!("../migrations/sqlite.3.sql"),
    include_str!("../migrations/sqlite.4.sql"),
    include_str!("../migrations/sqlite.5.sql"),
];
const POSTGRES: [&str; 9] = [
    include_str!("../migrations/postgres.1.sql"),
    include_str!("../migrations/postgres.2.sql"),
    include_str!("../migrations/postgres.3.sql"),
    include_str!("../migrations/postgres.4.sql"),
    include_str!("../migrations/postgres.5.sql"),
    include_str!("../migrations/postgres.6.sql"),
    include_str!("../migrations/postgres.7.sql"),
    include_str!("../migrations/postgres.8.sql"),
    include_str!("../migrations/postgres.9.sql"),
];

/// In a database of others the name says whose it is.
const TABLE: &str = "kubemoor_migrations";

/// A cluster, as the rows of one ledger name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cluster(pub(super) i16);

impl Store {
    /// Makes the tables, or brings them up to date. One guard does so at a time.
    ///
    /// # Errors
    /// When the database fails, or is that of a later program.
    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let done = match &self.pool {
            Pool::Sqlite { writing, .. } => migrator(SQLITE).run(writing).await,
            Pool::Postgres(pool) => migrator(POSTGRES).run(pool).await,
        };
        done.map_err(|error| match error {
            MigrateError::VersionMissing(found) => {
                StoreError::Newer { place: self.place.clone(), found, wanted: self.version() }
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                StoreError::Migrate { place: self.place.clone(), reason: said(&error) }
            }
            other => StoreError::Migrate { place: self.place.clone(), reason: other.to_string() },
        })
    }

    pub(super) async fn check_version(&self) -> Result<(), StoreError> {
        let version = "SELECT max(version) FROM kubemoor_migrations";
        let found: Result<Option<i64>, _> =
            on_pool!(self, reading, |pool| sqlx::query_scalar(version).fetch_one(pool).await);
        let found = match found {
            Ok(found) => found.unwrap_or(0),
            Err(error) if is_absent_table(&error) => 0,
            Err(error) => return Err(self.failed("read")(error)),
        };
        let (place, wanted) = (self.place.clone(), self.version());
        match found.cmp(&wanted) {
            Ordering::Equal => Ok(()),
            Ordering::Less => Err(StoreError::Older { place, found, wanted }),
            Ordering::Greater => Err(StoreError::Newer { place, found, wanted }),
        }
    }

    /// The ledger's key; `fresh` where it has none yet.
    pub(super) async fn key_or(&self, fresh: &[u8]) -> Result<Vec<u8>, sqlx::Error> {
        let insert = "INSERT INTO sealing_key (id, bytes) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
        let select = "SELECT bytes FROM sealing_key WHERE id = 1";
        on_pool!(self, writing, |pool| {
            sqlx::query(insert).bind(fresh).execute(pool).await?;
            sqlx::query_scalar(select).fetch_one(pool).await
        })
    }

    /// The number that stands for a cluster's name in the rows; a new one for a new name.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn cluster(&self, name: &str) -> Result<Cluster, StoreError> {
        // An attempt that conflicts uses a number up, and replicas start often.
        let insert = "INSERT INTO clusters (name) SELECT $1 WHERE NOT EXISTS \
                      (SELECT 1 FROM clusters WHERE name = $1) ON CONFLICT (name) DO NOTHING";
        let select = "SELECT id FROM clusters WHERE name = $1";
        let number = async {
            on_pool!(self, writing, |pool| {
                sqlx::query(insert).bind(name).execute(pool).await?;
                sqlx::query_scalar(select).bind(name).fetch_one(pool).await
            })
        };
        number.await.map(Cluster).map_err(self.failed("written"))
    }

    /// Asks the database for nothing: whether it answers. A file is there, or it is not.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn answers(&self) -> Result<(), StoreError> {
        let answered = match &self.pool {
            Pool::Sqlite { .. } => return Ok(()),
            Pool::Postgres(pool) => sqlx::query("SELECT 1").execute(pool).await,
        };
        answered.map(drop).map_err(self.failed("read"))
    }

    /// Whether the database accepts writes: writes the cluster's row unchanged. False if the tables, or the row of the
    /// cluster of that number and name, are not there.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn probe(&self, cluster: Cluster, name: &str) -> Result<bool, StoreError> {
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

    /// The version of the tables that this program writes and reads.
    fn version(&self) -> i64 {
        let scripts = match &self.pool {
            Pool::Sqlite { .. } => SQLITE.len(),
            Pool::Postgres(_) => POSTGRES.len(),
        };
        i64::try_from(scripts).unwrap_or(i64::MAX)
    }
}

fn migrator<const COUNT: usize>(scripts: [&'static str; COUNT]) -> Migrator {
    let migrations = (1..).zip(scripts).map(|(version, script)| {
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
