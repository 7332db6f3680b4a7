//! The reasons why the database cannot be used.
//!
//! Entry point: [`StoreError`]. Invariant: no error quotes a password of the URL.

use super::super::id::NoRandomness;
use super::PATIENCE;

/// Why the database did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL cannot be parsed or used.
    #[error("the ledger {place} cannot be used: {reason}")]
    Url {
        /// The database.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such file.
    #[error("there is no ledger at {place}: name the file that the guard's --ledger names")]
    Absent {
        /// The file.
        place: String,
    },
    /// It cannot be opened or reached.
    #[error("the ledger {place} cannot be opened: {reason}")]
    Connect {
        /// The database.
        place: String,
        /// What the driver says.
        reason: String,
    },
    /// The tables could not be made or brought up to date.
    #[error("the tables of the ledger {place} cannot be made or brought up to date: {reason}")]
    Migrate {
        /// The database.
        place: String,
        /// What the driver says.
        reason: String,
    },
    /// A database without tables, or with older ones.
    #[error(
        "the ledger {place} has version {found} of the tables and this program reads version {wanted}: \
         let a guard of this version write to it once"
    )]
    Older {
        /// The database.
        place: String,
        /// The version found; 0 without tables.
        found: i64,
        /// The version needed.
        wanted: i64,
    },
    /// A database of a later program.
    #[error(
        "the ledger {place} has version {found} of the tables and this program knows version {wanted}: \
         use a program as new as the guard that writes to it"
    )]
    Newer {
        /// The database.
        place: String,
        /// The version found.
        found: i64,
        /// The version known.
        wanted: i64,
    },
    /// A file, which no cluster shares with others.
    #[error(
        "the ledger {place} is a file of one guard, which keeps no states of many clusters: name the PostgreSQL that \
         the guards share"
    )]
    Unshared {
        /// The file.
        place: String,
    },
    /// A statement failed.
    #[error("the ledger {place} cannot be {action}: {reason}")]
    Statement {
        /// The database.
        place: String,
        /// What was tried: `read`, `written`, `trimmed`.
        action: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The operating system gives no random bytes.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// What the driver says, on one line. A database's own message may quote the
/// row at fault only in its detail, which is left out.
pub(super) fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().lines().collect::<Vec<_>>().join(" "),
        sqlx::Error::PoolTimedOut => format!("no connection within {} s", PATIENCE.as_secs()),
        other => other.to_string().lines().collect::<Vec<_>>().join(" "),
    }
}
