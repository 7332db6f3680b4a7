//! The file that names the notifiers.
//!
//! Entry point: [`read`]. Invariant: a notifier is whole and usable, or nothing
//! starts. What may be a credential (URL, headers) is never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::SignedDuration;
use serde::Deserialize;

/// How long one attempt may take where the file does not say.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that it may say.
const LONGEST: Duration = Duration::from_secs(60);

/// The most bytes of a file, and of one that holds a header's value.
const SIZE: u64 = 1 << 20;

/// One receiver.
#[derive(Clone)]
pub struct Notifier {
    pub(super) name: String,
    pub(super) url: reqwest::Url,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
}

/// Why notifiers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotifierError {
    /// A file cannot be read.
    #[error("the file {} of notifiers cannot be read: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is not what it should be.
    #[error("the file {} of notifiers is not a list `notifiers` of name, url, headers, headerFiles and timeout: {reason}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong.
        reason: String,
    },
    /// One notifier is wrong.
    #[error("the notifier {name:?} cannot be used: {reason}")]
    Notifier {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// No HTTP client can be made.
    #[error("no HTTP client for the notifier {name:?}: {reason}")]
    Client {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    notifiers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Headers whose value is the content of a file, such as a mounted Secret.
    #[serde(default)]
    header_files: BTreeMap<String, PathBuf>,
    timeout: Option<String>,
}

/// The notifiers of a file.
///
/// # Errors
/// See [`NotifierError`].
pub fn read(path: &Path) -> Result<Vec<Notifier>, NotifierError> {
    let form = |reason: String| NotifierError::Form { path: path.to_owned(), reason };
    let text = content(path).map_err(|reason| NotifierError::Read { path: path.to_owned(), reason })?;
    // The parser's own words quote the file, which may hold credentials.
    let file: File = serde_saphyr::from_str(&text).map_err(|error| {
        let place = error.location().map(|place| format!("line {}, column {}", place.line(), place.column()));
        form(place.unwrap_or_else(|| "at its start".to_owned()))
    })?;
    let mut names = BTreeSet::new();
    file.notifiers
        .into_iter()
        .map(|entry| {
            let name = entry.name.clone();
            if !names.insert(name.clone()) {
                return Err(NotifierError::Notifier { name, reason: "its name is there twice".to_owned() });
            }
            notifier(entry).map_err(|reason| NotifierError::Notifier { name, reason })
        })
        .collect()
}

fn notifier(entry: Entry) -> Result<Notifier, String> {
    let Entry { name, url, headers, header_files, timeout } = entry;
    if name.is_empty() || name.len() > 63 {
        return Err("its name has 1 to 63 letters".to_owned());
    }
    let url: reqwest::Url = url.parse().map_err(|_| "its url is none".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("its url begins with http:// or https:// and names a host".to_owned());
    }
    let mut map = HeaderMap::new();
    let mut add = |name: String, value: String| {
        let header: HeaderName = name.parse().map_err(|_| format!("{name:?} is no header's name"))?;
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| format!("the value of the header {name} is none"))?;
        value.set_sensitive(true);
        map.insert(header, value);
        Ok::<_, String>(())
    };
    for (name, value) in headers {
        add(name, value)?;
    }
    for (name, path) in header_files {
        let value = content(&path)
            .map_err(|reason| format!("the file {} of the header {name}: {reason}", path.display()))?;
        add(name, value)?;
    }
    let timeout = match timeout {
        None => TIMEOUT,
        Some(text) => text
            .parse::<SignedDuration>()
            .ok()
            .and_then(|signed| Duration::try_from(signed).ok())
            .filter(|timeout| !timeout.is_zero() && *timeout <= LONGEST)
            .ok_or_else(|| "its timeout is a time such as 5s, of at most 60s".to_owned())?,
    };
    Ok(Notifier { name, url, headers: map, timeout })
}

fn content(path: &Path) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    if std::fs::metadata(path).map_err(said)?.len() > SIZE {
        return Err(format!("it has more than {SIZE} bytes"));
    }
    std::fs::read_to_string(path).map_err(said)
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
