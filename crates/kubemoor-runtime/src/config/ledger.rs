//! The location of the ledger, and its retention.
//!
//! Invariant: a [`LedgerUrl`] shows no password, neither in messages nor in Debug output.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::SettingError;

/// The ledger of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Where it is.
    pub url: LedgerUrl,
    /// The name of the cluster on every row; `None` for the uid of the
    /// namespace kube-system.
    pub cluster_name: Option<String>,
    /// What is kept.
    pub retention: Retention,
}

/// What is kept of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Rows older than this go.
    pub age: Duration,
    /// Of more rows than this the oldest go.
    pub rows: u64,
}

/// A database.
#[derive(Clone, PartialEq, Eq)]
pub enum LedgerUrl {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database; the URL may hold a password.
    Postgres(String),
}

impl FromStr for LedgerUrl {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.trim_start_matches("//").is_empty() => {
                Ok(Self::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))
            }
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                Ok(Self::Postgres(text.to_owned()))
            }
            _ => Err(SettingError::ReadLedger),
        }
    }
}

impl fmt::Display for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url,
        };
        // The query may hold a password too.
        let url = url.split_once('?').map_or(url.as_str(), |(url, _)| url);
        match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, place))) => write!(f, "{scheme}://{place}"),
            _ => f.write_str(url),
        }
    }
}

impl fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_a_file_or_a_postgresql_database() {
        let read = |text: &str| text.parse::<LedgerUrl>();
        assert_eq!(read("sqlite:ledger.db"), Ok(LedgerUrl::Sqlite("ledger.db".into())));
        assert_eq!(read("sqlite:/var/ledger.db"), Ok(LedgerUrl::Sqlite("/var/ledger.db".into())));
        assert_eq!(read("sqlite:///var/ledger.db"), Ok(LedgerUrl::Sqlite("/var/ledger.db".into())));
        let postgres = "postgres://moor@db/ledger";
        assert_eq!(read(postgres), Ok(LedgerUrl::Postgres(postgres.to_owned())));
        for text in ["", "ledger.db", "sqlite:", "sqlite://", "postgres:", "postgres://", "mysql://db/x"] {
            assert_eq!(read(text), Err(SettingError::ReadLedger), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "postgres://moor:hunter2@db:5432/ledger",
            "postgresql://moor:hun@ter2@db/ledger?password=hunter2",
            "postgres://db/ledger?user=moor&password=hunter2",
        ] {
            let url: LedgerUrl = text.parse().unwrap();
            let shown = format!("{url} {url:?}");
            assert!(shown.contains("db") && !shown.contains("ter2"), "{shown}");
        }
    }
}
