//! One receiver, ready to be used.
//!
//! Entry points: [`Notifier`], [`Notifier::without_secrets`]. Invariant: what may be a credential (URL, headers, keys)
//! is never shown.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use secrecy::ExposeSecret;

use super::super::desk::Rules;
use super::super::desk::quiet::QuietHours;
use super::super::desk::route::Routes;
use super::super::format::Format;

/// The minimum length of a possible credential.
const SECRET: usize = 6;

/// One receiver.
#[derive(Clone)]
pub struct Notifier {
    /// Its name.
    pub name: String,
    pub(crate) url: reqwest::Url,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) format: Format,
    pub(crate) routes: Routes,
    pub(crate) quiet: QuietHours,
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
    pub(crate) fn rules(&self) -> Rules {
        let Self { name, routes, quiet, format, .. } = self;
        let reminders = format.wants_reminders();
        Rules { name: name.clone(), routes: routes.clone(), quiet: quiet.clone(), reminders }
    }

    /// `text` without anything in it that is a credential of this notifier.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
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

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
