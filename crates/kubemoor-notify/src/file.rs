//! Reads the file that configures the notifiers. One invalid notifier rejects the whole file. Text that may be a
//! credential (URL, headers, keys, templates) is never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::SignedDuration;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::format::{Format, FormatName};

/// The maximum size of this file, and of a file that holds a value, in bytes.
const SIZE: u64 = 1 << 20;

/// The default and the maximum time limit of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(60);

const ALERTS: &str = "/api/v2/alerts";

/// PagerDuty's address for events, unless the file sets another one.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

/// The minimum length of text that is redacted as a possible credential.
const SECRET: usize = 6;

#[derive(Clone)]
pub struct Notifier {
    pub name: String,
    pub(crate) url: reqwest::Url,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) format: Format,
}

#[derive(Debug, thiserror::Error)]
pub enum NotifierError {
    #[error("the notifiers file {} cannot be read: {reason}", .path.display())]
    Read { path: PathBuf, reason: String },
    /// The content is invalid.
    #[error(
        "the notifiers file {} is not a valid list of `notifiers` (docs/notifications.md): {reason}",
        .path.display()
    )]
    Form {
        path: PathBuf,
        /// The place and the reason.
        reason: String,
    },
    #[error("the notifier {name:?} cannot be used: {reason}")]
    Notifier { name: String, reason: String },
    #[error("no HTTP client for the notifier {name:?}: {reason}")]
    Client { name: String, reason: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NotifiersFile {
    notifiers: Vec<NotifierEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NotifierEntry {
    name: String,
    #[serde(default)]
    format: FormatName,
    url: Option<String>,
    /// A file that holds the URL. The webhook URL of a chat is a credential.
    url_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Headers whose value is the content of a file, such as a mounted Secret.
    #[serde(default)]
    header_files: BTreeMap<String, PathBuf>,
    timeout: Option<String>,
    routing_key_file: Option<PathBuf>,
    template: Option<String>,
    template_file: Option<PathBuf>,
}

pub fn read(path: &Path) -> Result<Vec<Notifier>, NotifierError> {
    let form = |reason: String| NotifierError::Form { path: path.to_owned(), reason };
    let text = content(path).map_err(|reason| NotifierError::Read { path: path.to_owned(), reason })?;
    // The parser's message quotes the file, which may hold credentials.
    let file: NotifiersFile = serde_saphyr::from_str(&text).map_err(|error| {
        let place = error.location().map(|place| format!("line {}, column {}", place.line(), place.column()));
        form(place.unwrap_or_else(|| "at its start".to_owned()))
    })?;
    let mut names = BTreeSet::new();
    let notifiers = file.notifiers.into_iter().map(|entry| {
        let name = entry.name.clone();
        if !names.insert(name.clone()) {
            return Err(NotifierError::Notifier { name, reason: "its name is used twice".to_owned() });
        }
        entry.notifier().map_err(|reason| NotifierError::Notifier { name, reason })
    });
    notifiers.collect()
}

impl Notifier {
    /// The host, without anything that may be a credential.
    pub fn host(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }

    /// `text` without anything in it that is a credential of this notifier.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        let headers =
            self.headers.values().filter_map(|value| value.to_str().ok()).flat_map(str::split_whitespace);
        let query = self.url.query().unwrap_or_default().split(['&', '=']);
        let parts = self.url.path().split('/').chain(query).chain(headers);
        let user = [self.url.username(), self.url.password().unwrap_or_default()];
        let key = self.format.routing_key().map(|key| key.expose_secret());
        let secrets = parts.chain(user).chain(key).filter(|part| part.len() >= SECRET);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "(redacted)"))
    }
}

impl NotifierEntry {
    fn notifier(self) -> Result<Notifier, String> {
        if self.name.is_empty() || self.name.len() > 63 {
            return Err("its name must have 1 to 63 characters".to_owned());
        }
        let template = one("template", self.template, self.template_file)?;
        Ok(Notifier {
            format: format(self.format, self.routing_key_file, template)?,
            url: address(self.format, one("url", self.url, self.url_file)?)?,
            headers: header_map(self.headers, self.header_files)?,
            timeout: timeout(self.timeout)?,
            name: self.name,
        })
    }
}

fn content(path: &Path) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    if std::fs::metadata(path).map_err(said)?.len() > SIZE {
        return Err(format!("it has more than {SIZE} bytes"));
    }
    std::fs::read_to_string(path).map_err(said)
}

/// A value that is given inline or in a file.
fn one(field: &str, value: Option<String>, file: Option<PathBuf>) -> Result<Option<String>, String> {
    match (value, file) {
        (Some(_), Some(_)) => Err(format!("it has both {field} and {field}File")),
        (value, None) => Ok(value),
        (None, Some(path)) => match content(&path) {
            Ok(text) => Ok(Some(text)),
            Err(reason) => Err(format!("the file {} of its {field}: {reason}", path.display())),
        },
    }
}

fn address(form: FormatName, url: Option<String>) -> Result<reqwest::Url, String> {
    let url = match (url, form) {
        (Some(url), _) => url,
        (None, FormatName::PagerDuty) => PAGERDUTY.to_owned(),
        (None, _) => return Err("it has neither url nor urlFile".to_owned()),
    };
    let mut url: reqwest::Url = url.trim().parse().map_err(|_| "its url is not a URL".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("its url must begin with http:// or https:// and name a host".to_owned());
    }
    if form == FormatName::Alertmanager && !url.path().ends_with(ALERTS) {
        let path = format!("{}{ALERTS}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

fn header_map(
    headers: BTreeMap<String, String>,
    header_files: BTreeMap<String, PathBuf>,
) -> Result<HeaderMap, String> {
    let files = header_files.into_iter().map(|(name, path)| match content(&path) {
        Ok(value) => Ok((name, value)),
        Err(reason) => Err(format!("the file {} of the header {name}: {reason}", path.display())),
    });
    let mut map = HeaderMap::new();
    for header in headers.into_iter().map(Ok).chain(files) {
        let (name, value) = header?;
        let header: HeaderName = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| format!("the value of the header {name} is not valid"))?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}

fn timeout(timeout: Option<String>) -> Result<Duration, String> {
    let Some(text) = timeout else { return Ok(TIMEOUT) };
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|timeout| !timeout.is_zero() && *timeout <= LONGEST)
        .ok_or_else(|| "its timeout must be a time such as 5s, of at most 60s".to_owned())
}

fn format(
    form: FormatName,
    routing_key_file: Option<PathBuf>,
    template: Option<String>,
) -> Result<Format, String> {
    if routing_key_file.is_some() && form != FormatName::PagerDuty {
        return Err("routingKeyFile is only for the format pagerduty".to_owned());
    }
    if template.is_some() && form != FormatName::Template {
        return Err("template and templateFile are only for the format template".to_owned());
    }
    match form {
        FormatName::PagerDuty => {
            let path = routing_key_file.ok_or_else(|| "it has no routingKeyFile".to_owned())?;
            let key = content(&path)
                .map_err(|reason| format!("its routingKeyFile {}: {reason}", path.display()))?;
            let key = key.trim();
            if key.len() != 32 || !key.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err("the key in its routingKeyFile must have 32 letters and digits".to_owned());
            }
            Format::shipped(form, Some(SecretString::from(key)))
        }
        FormatName::Template => {
            Format::template(template.ok_or_else(|| "it has neither template nor templateFile".to_owned())?)
        }
        _ => Format::shipped(form, None),
    }
}

#[cfg(test)]
mod tests;
