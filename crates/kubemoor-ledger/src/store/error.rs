//! The reasons why the database cannot be used.
//!
//! Entry point: [`StoreError`]. Invariant: no error quotes a password of the URL.

use std::io;

use rustls::{CertificateError, Error as TlsError};

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
        sqlx::Error::Database(fault) => fault.message().lines().collect::<Vec<_>>().join(" "),
        sqlx::Error::PoolTimedOut => format!("no connection within {} s", PATIENCE.as_secs()),
        sqlx::Error::Io(fault) => distrust(fault).map_or_else(|| on_one_line(error), str::to_owned),
        other => on_one_line(other),
    }
}

fn on_one_line(error: &sqlx::Error) -> String {
    error.to_string().lines().collect::<Vec<_>>().join(" ")
}

/// Why the certificate of the database is not trusted, if that is the fault.
fn distrust(fault: &io::Error) -> Option<&'static str> {
    let Some(TlsError::InvalidCertificate(fault)) = fault.get_ref()?.downcast_ref() else { return None };
    Some(match fault {
        // The latter if a trusted CA has the name of the one that signed it.
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
