//! The reasons why the database cannot be used.
//!
//! Entry point: [`StoreError`]. Invariant: no error quotes a password of the URL.

use std::io::{self, ErrorKind};

use percent_encoding::percent_decode_str;
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

/// The parameters of a URL that name files, in all their spellings.
const PARAMETERS: [&str; 7] =
    ["sslrootcert", "ssl-root-cert", "ssl-ca", "sslcert", "ssl-cert", "sslkey", "ssl-key"];

/// The file because of which the connection failed with this error, and what to do. The driver does not name it.
pub(super) async fn fault_of_file(url: &str, error: &sqlx::Error) -> Option<String> {
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
    // Behind a mistyped `?` may be any other parameter.
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
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_is_named_only_if_it_has_the_fault_of_the_connection() {
        let check = async |query: &str, kind: ErrorKind, expected: Option<&str>| {
            let error = sqlx::Error::Io(io::Error::from(kind));
            let found = fault_of_file(&format!("postgres://moor@db/ledger?{query}"), &error).await;
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.starts_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{query}, {kind}: {found:?}");
        };
        let missing = Some("`sslrootcert` names the file `/no where/ca.crt`, which does not exist");
        check("sslrootcert=%2Fno%20where/ca.crt", ErrorKind::NotFound, missing).await;
        check("sslmode=verify-full&sslrootcert=/no+where/ca.crt#a", ErrorKind::NotFound, missing).await;
        check("sslrootcert=/no+where/ca.crt", ErrorKind::ConnectionRefused, None).await;
        check("sslrootcert=/no+where/ca.crt", ErrorKind::PermissionDenied, None).await;
        check("sslrootcert=/", ErrorKind::IsADirectory, Some("`sslrootcert` names the directory `/`")).await;
        check("ssl-key=/nowhere", ErrorKind::NotFound, Some("`ssl-key` names the file `/nowhere`")).await;
        check("sslrootcert=/dev/null&host=/nowhere", ErrorKind::NotFound, None).await;
        check("application_name=/nowhere", ErrorKind::NotFound, None).await;
        assert_eq!(
            fault_of_file("postgres://db/x", &sqlx::Error::Io(ErrorKind::NotFound.into())).await,
            None
        );
        assert_eq!(fault_of_file("postgres://db/x?sslkey=/nowhere", &sqlx::Error::PoolTimedOut).await, None);
    }
}
