//! The file that names the notifiers.
//!
//! Entry point: [`read`]. Invariant: a notifier is whole and usable, or nothing
//! starts. What may be a credential (URL, headers, keys, templates) is never shown.

mod entry;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderMap;
use jiff::SignedDuration;
use secrecy::ExposeSecret;
use serde::Deserialize;

use self::entry::Entry;
use super::desk::Rules;
use super::desk::quiet::QuietHours;
use super::desk::route::Routes;
use super::format::Format;

/// The most bytes of a file, and of one that holds a value.
const SIZE: u64 = 1 << 20;

/// One receiver.
#[derive(Clone)]
pub struct Notifier {
    /// Its name.
    pub name: String,
    pub(super) url: reqwest::Url,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) format: Format,
    pub(super) routes: Routes,
    pub(super) quiet: QuietHours,
}

/// The content of a file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The receivers.
    pub notifiers: Vec<Notifier>,
    /// How long denied changes are counted before they are reported.
    pub(super) denial_window: SignedDuration,
}

impl Default for Settings {
    /// Without receivers.
    fn default() -> Self {
        Self { notifiers: Vec::new(), denial_window: WINDOW }
    }
}

/// The time for which denied changes are counted: the default, and the limits.
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
const WINDOWS: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_hours(1));

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

impl Notifier {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host, without anything that may be a credential.
    pub fn host(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }

    /// By what it is chosen.
    pub(super) fn rules(&self) -> Rules {
        let Self { name, routes, quiet, format, .. } = self;
        let reminders = format.wants_reminders();
        Rules { name: name.clone(), routes: routes.clone(), quiet: quiet.clone(), reminders }
    }

    /// `text` without anything in it that is a credential of this notifier.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let headers =
            self.headers.values().filter_map(|value| value.to_str().ok()).flat_map(str::split_whitespace);
        let query = self.url.query().unwrap_or_default().split(['&', '=']);
        let parts = self.url.path().split('/').chain(query).chain(headers);
        let user = [self.url.username(), self.url.password().unwrap_or_default()];
        let key = match &self.format {
            Format::PagerDuty(key) => key.expose_secret(),
            _ => "",
        };
        let secrets = parts.chain(user).chain([key]).filter(|part| part.len() >= SECRET);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "(redacted)"))
    }
}

/// The minimum length of a possible credential.
const SECRET: usize = 6;

/// A file's content.
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
