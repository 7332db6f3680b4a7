//! One notifier as the file writes it.
//!
//! Entry point: [`Entry::notifier`]. Invariant: no reason quotes what may be a
//! credential.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::SignedDuration;
use serde::Deserialize;

use super::{Notifier, content};
use crate::desk::quiet::{QuietHours, QuietSpec};
use crate::desk::route::{RouteSpec, Routes};
use crate::format::template::Template;
use crate::format::{Format, pagerduty};

/// The default time limit for one attempt.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that it may say.
const LONGEST: Duration = Duration::from_secs(60);

/// Alertmanager's path for alerts.
const ALERTS: &str = "/api/v2/alerts";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    #[serde(default)]
    format: Form,
    url: Option<String>,
    /// A file that holds the URL, which is a credential where a chat made it.
    url_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Headers whose value is the content of a file, such as a mounted Secret.
    #[serde(default)]
    header_files: BTreeMap<String, PathBuf>,
    timeout: Option<String>,
    /// A file that holds PagerDuty's key.
    routing_key_file: Option<PathBuf>,
    template: Option<String>,
    template_file: Option<PathBuf>,
    #[serde(default)]
    routes: Vec<RouteSpec>,
    #[serde(default)]
    quiet_hours: Vec<QuietSpec>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    CloudEvents,
    Slack,
    Teams,
    Alertmanager,
    PagerDuty,
    Template,
}

impl Entry {
    /// The notifier, or what is wrong with it.
    pub(super) fn notifier(self) -> Result<Notifier, String> {
        let Self { name, format: form, url, url_file, headers, header_files, timeout, .. } = self;
        let Self { routing_key_file, template, template_file, routes, quiet_hours, .. } = self;
        if name.is_empty() || name.len() > 63 {
            return Err("its name has 1 to 63 letters".to_owned());
        }
        let format = format(form, routing_key_file, one("template", template, template_file)?)?;
        Ok(Notifier {
            url: address(form, one("url", url, url_file)?)?,
            headers: header_map(headers, header_files)?,
            timeout: patience(timeout)?,
            routes: Routes::compile(&routes, &format)?,
            quiet: QuietHours::compile(&quiet_hours)?,
            format,
            name,
        })
    }
}

/// A value that is written in the file, or in a file of its own.
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

fn address(form: Form, url: Option<String>) -> Result<reqwest::Url, String> {
    let url = match (url, form) {
        (Some(url), _) => url,
        (None, Form::PagerDuty) => pagerduty::URL.to_owned(),
        (None, _) => return Err("it has neither url nor urlFile".to_owned()),
    };
    let mut url: reqwest::Url = url.trim().parse().map_err(|_| "its url is not a URL".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("its url must begin with http:// or https:// and name a host".to_owned());
    }
    if form == Form::Alertmanager && !url.path().ends_with(ALERTS) {
        let path = format!("{}{ALERTS}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

fn header_map(
    headers: BTreeMap<String, String>,
    header_files: BTreeMap<String, PathBuf>,
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    let mut add = |name: String, value: String| {
        let header: HeaderName = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| format!("the value of the header {name} is not valid"))?;
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
    Ok(map)
}

fn patience(timeout: Option<String>) -> Result<Duration, String> {
    let Some(text) = timeout else { return Ok(TIMEOUT) };
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|timeout| !timeout.is_zero() && *timeout <= LONGEST)
        .ok_or_else(|| "its timeout must be a time such as 5s, of at most 60s".to_owned())
}

fn format(form: Form, routing_key_file: Option<PathBuf>, template: Option<String>) -> Result<Format, String> {
    for (is_there, wanted, fields) in [
        (routing_key_file.is_some(), Form::PagerDuty, "routingKeyFile belongs to the format pagerduty"),
        (template.is_some(), Form::Template, "template and templateFile belong to the format template"),
    ] {
        if is_there && form != wanted {
            return Err(fields.to_owned());
        }
    }
    Ok(match form {
        Form::CloudEvents => Format::CloudEvents,
        Form::Slack => Format::Slack,
        Form::Teams => Format::Teams,
        Form::Alertmanager => Format::Alertmanager,
        Form::PagerDuty => {
            let path = routing_key_file.ok_or_else(|| "it has no routingKeyFile".to_owned())?;
            let key = content(&path)
                .map_err(|reason| format!("its routingKeyFile {}: {reason}", path.display()))?;
            let key = key.trim();
            if key.len() != 32 || !key.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err("the key in its routingKeyFile must have 32 letters and digits".to_owned());
            }
            Format::PagerDuty(key.to_owned().into())
        }
        Form::Template => {
            let source = template.ok_or_else(|| "it has neither template nor templateFile".to_owned())?;
            Format::Template(Box::new(Template::parse(source)?))
        }
    })
}
