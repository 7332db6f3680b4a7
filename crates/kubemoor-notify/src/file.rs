//! The file that names the notifiers.
//!
//! Entry point: [`read`]. Invariant: a notifier is whole and usable, or nothing
//! starts. What may be a credential (URL, headers, keys, templates) is never shown.

mod entry;
mod notifier;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde::Deserialize;

use self::entry::Entry;
pub use self::notifier::Notifier;

/// The most bytes of a file, and of one that holds a value.
const SIZE: u64 = 1 << 20;

/// The time for which denied changes are counted: the default, and the limits.
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
const WINDOWS: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_hours(1));

/// The content of a file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The receivers.
    pub notifiers: Vec<Notifier>,
    /// How long denied changes are counted before they are reported.
    pub(super) denial_window: SignedDuration,
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
    #[error("the file {} of notifiers is not a list `notifiers` with fields that docs/notifications.md names: {reason}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    denial_window: Option<String>,
    notifiers: Vec<Entry>,
}

impl Default for Settings {
    /// Without receivers.
    fn default() -> Self {
        Self { notifiers: Vec::new(), denial_window: WINDOW }
    }
}

/// The notifiers of a file.
///
/// # Errors
/// See [`NotifierError`].
pub fn read(path: &Path) -> Result<Settings, NotifierError> {
    let form = |reason: String| NotifierError::Form { path: path.to_owned(), reason };
    let text = content(path).map_err(|reason| NotifierError::Read { path: path.to_owned(), reason })?;
    // The parser's own words quote the file, which may hold credentials.
    let file: File = serde_saphyr::from_str(&text).map_err(|error| {
        let place = error.location().map(|place| format!("line {}, column {}", place.line(), place.column()));
        form(place.unwrap_or_else(|| "at its start".to_owned()))
    })?;
    let window = match file.denial_window.as_deref().map(str::parse::<SignedDuration>) {
        None => Some(WINDOW),
        Some(parsed) => parsed.ok().filter(|window| (WINDOWS.0..=WINDOWS.1).contains(window)),
    };
    let denial_window =
        window.ok_or_else(|| form("denialWindow must be a time such as 5m, from 1s to 1h".to_owned()))?;
    let mut names = BTreeSet::new();
    let notifiers = file
        .notifiers
        .into_iter()
        .map(|entry| {
            let name = entry.name.clone();
            if !names.insert(name.clone()) {
                return Err(NotifierError::Notifier { name, reason: "its name is there twice".to_owned() });
            }
            entry.notifier().map_err(|reason| NotifierError::Notifier { name, reason })
        })
        .collect::<Result<_, _>>()?;
    Ok(Settings { notifiers, denial_window })
}

/// A file's content.
fn content(path: &Path) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    if std::fs::metadata(path).map_err(said)?.len() > SIZE {
        return Err(format!("it has more than {SIZE} bytes"));
    }
    std::fs::read_to_string(path).map_err(said)
}

#[cfg(test)]
mod tests;
