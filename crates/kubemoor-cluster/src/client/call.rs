//! A single request to the API server: bytes in, bytes or a [`ClusterError`] out. Every body has a size limit, every
//! request has a time limit, and no body reaches a log or an error. kube's own decoding is not used because it logs
//! what it cannot decode, and bodies may contain Secrets.

use std::error::Error;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::Status;
use kube::core::response::reason;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use kubemoor_declare::model::{Cause, ObjectId, ReleaseId};
pub(crate) use kubemoor_runtime::telemetry::causes_of;

/// The maximum size of a response unless the caller sets a smaller one: an object (etcd accepts 1.5 MiB), or an OpenAPI
/// document.
pub(crate) const BODY_CAP: usize = 64 << 20;

const REFUSAL_CAP: usize = 1 << 20;

/// Time limit for one request, unless the caller sets a shorter one.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Replaces a message that could quote a Secret's values.
const WITHHELD: &str = "(withheld, since it may quote the Secret)";

/// The cause of a refusal in a namespace that is being deleted.
const TERMINATING: &str = "NamespaceTerminating";

/// The API server's message when it cannot call a webhook. Only this text identifies the failure: the status has the
/// code of any internal error, and no specific reason or cause.
const WEBHOOK_FAILED: &str = "failed calling webhook";

/// Why a request to the cluster failed. Contains no body, and for a Secret no text from the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// No connection, or it broke.
    #[error("the API server did not answer: {reason}")]
    Unreachable { reason: String },
    /// The server's certificate is not trusted.
    #[error("the API server did not answer: {reason}")]
    Untrusted { reason: String },
    #[error("the API server did not answer within {} ms", .within.as_millis())]
    Late { within: Duration },
    #[error("the API server refused ({code} {reason}): {message}")]
    Refused {
        code: u16,
        /// The `reason` of the status, such as `NotFound`; may be empty.
        reason: String,
        /// The API server's message. Withheld where it could quote a Secret.
        message: String,
        /// The invalid fields, if the API server names any.
        causes: Vec<Cause>,
        retry_after: Option<Duration>,
        /// Whether the status names an object that does not exist. A 404 from a proxy, or from an API server that is
        /// still starting, names none.
        names_absent: bool,
    },
    /// The API server does not know the path: it does not serve the kind, or not in this version.
    #[error("the API server does not serve this")]
    Unserved,
    #[error("the API server's answer exceeds {cap} bytes")]
    TooLarge { cap: usize },
    /// The response cannot be decoded. Contains the position, from 1, and no content.
    #[error("the API server's answer cannot be read at line {line}, column {column}")]
    Unreadable { line: usize, column: usize },
    #[error("cannot build the request: {reason}")]
    InvalidRequest { reason: String },
    /// This process does not lead, or no longer leads.
    #[error("this replica is not the leader or is read-only, so it writes nothing")]
    NotLeading,
    #[error("the API server's OpenAPI document cannot be reduced: {reason}")]
    Schema { reason: String },
    /// A failed call with its purpose: `what` is a sentence to which the cause is appended.
    #[error("{what}: {source}")]
    During { what: String, source: Box<Self> },
    #[error("the records of release {release} could not be read: {source}")]
    Records { release: ReleaseId, source: Box<Self> },
    /// The work takes longer than the time limit, even if the API server has responded.
    #[error("{what} within {} ms", .within.as_millis())]
    Slow { what: String, within: Duration },
    #[error("the records of release {release} change faster than they can be read")]
    RecordsChanging { release: ReleaseId },
    #[error("release {release} has no record of revision {revision}")]
    NoRecord { release: ReleaseId, revision: u64 },
    /// The record in this Secret or ConfigMap is invalid or not trusted.
    #[error("the record {record} of release {release} is not accepted: {reason}")]
    InvalidRecord { release: ReleaseId, record: String, reason: String },
    /// The chart and values of a revision cannot be read from its record.
    #[error("the record of revision {revision} cannot be read: {reason}")]
    BadRecord { revision: u64, reason: String },
    #[error("revision {revision} of release {release} does not declare {object}")]
    NotDeclared { object: Box<ObjectId>, release: ReleaseId, revision: u64 },
    #[error("revision {revision} of release {release} has changed in the meantime")]
    Changed { release: ReleaseId, revision: u64 },
    #[error("the dry run of {object} failed: {source}")]
    DryRun { object: ObjectId, source: Box<Self> },
    /// The dry run failed, but the API server would accept the manifest as a new object.
    #[error("the API server rejects the manifest of {object} because of the live object's fields: {source}")]
    BlockedByLiveObject { object: ObjectId, source: Box<Self> },
}

/// The kinds of refused writes that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The object or its namespace does not exist.
    NotFound,
    AlreadyExists,
    /// The object's version, uid or field manager is not the one that the write expects.
    Conflict,
    /// A missing permission, a quota, or a refusal by an admission plugin or webhook.
    Forbidden,
    /// The namespace is being deleted and accepts no new objects.
    Terminating,
    /// The object is invalid, or changes a field that must not change.
    Invalid,
}

impl ClusterError {
    pub fn refusal(&self) -> Option<RefusalKind> {
        let Self::Refused { code, reason, .. } = self else { return None };
        match (code, reason.as_str()) {
            (404, _) => Some(RefusalKind::NotFound),
            (409, "AlreadyExists") => Some(RefusalKind::AlreadyExists),
            (409, _) => Some(RefusalKind::Conflict),
            (403, _) if self.is_terminating() => Some(RefusalKind::Terminating),
            (403, _) => Some(RefusalKind::Forbidden),
            (422, _) => Some(RefusalKind::Invalid),
            _ => None,
        }
    }

    /// The error of the call itself, without its context.
    fn call(&self) -> &Self {
        match self {
            Self::During { source, .. } | Self::Records { source, .. } => source.call(),
            other => other,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self.call(), Self::Refused { code: 404, .. } | Self::Unserved)
    }

    /// Whether the API server confirms that the requested object, or for a create its namespace, does not exist.
    pub fn proves_absence(&self) -> bool {
        matches!(self.call(), Self::Refused { names_absent: true, .. })
    }

    /// Whether a write was refused because another writer was faster, or because the object already exists.
    pub fn is_conflict(&self) -> bool {
        matches!(self.call(), Self::Refused { code: 409, .. })
    }

    /// Whether a write to an existing object was refused because another writer was faster: the object was changed or
    /// deleted, or its definition was deleted.
    pub fn is_overtaken(&self) -> bool {
        self.is_conflict() || self.is_not_found()
    }

    pub fn is_terminating(&self) -> bool {
        let Self::Refused { causes, .. } = self.call() else { return false };
        causes.iter().any(|cause| cause.reason == TERMINATING)
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self.call(), Self::Refused { code: 403, .. })
    }

    /// Whether the API server does not accept the credentials, or no longer does.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.call(), Self::Refused { code: 401, .. })
    }

    /// Whether the `resourceVersion` or `continue` token of the request has expired.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.call(), Self::Refused { code: 410, .. })
    }

    /// Whether the API server is unavailable or overloaded, so that a retry may help.
    pub fn is_outage(&self) -> bool {
        match self.call() {
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Late { .. } => true,
            Self::Refused { code, .. } => *code >= 500 || *code == 429,
            // A dry run passes through other webhooks, and the API server reports some of their errors, and errors
            // caused by the object, as its own.
            Self::DryRun { source, .. } => {
                !matches!(**source, Self::Refused { code: 500, .. }) && source.is_outage()
            }
            _ => false,
        }
    }

    /// Whether a dry run shows that the object itself makes the requested state invalid, which a change to the object
    /// could fix. A missing permission, an unavailable webhook or a broken connection does not show that.
    pub fn is_refusal(&self) -> bool {
        let source = match self {
            Self::BlockedByLiveObject { .. } => return true,
            Self::DryRun { source, .. } => source.as_ref(),
            _ => return false,
        };
        match source.refusal() {
            Some(refusal) => refusal == RefusalKind::Invalid,
            None => matches!(source, Self::Refused { .. }) && source.failed_webhook().is_none(),
        }
    }

    /// The API server's message, if it refused the request because it could not call a webhook.
    pub fn failed_webhook(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } if message.contains(WEBHOOK_FAILED) => Some(message),
            _ => None,
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        matches!(self.call(), Self::Late { .. })
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Refused { retry_after, .. } = self else { return None };
        *retry_after
    }

    /// Sets the pause that the server asks for in a header, if any.
    fn with_pause(mut self, pause: Option<Duration>) -> Self {
        if let Self::Refused { retry_after, .. } = &mut self {
            *retry_after = pause.or(*retry_after);
        }
        self
    }

    /// Removes all text that could quote a field's value.
    pub(crate) fn without_values(mut self) -> Self {
        if let Self::Refused { message, causes, .. } = &mut self {
            WITHHELD.clone_into(message);
            causes.iter_mut().for_each(|cause| WITHHELD.clone_into(&mut cause.message));
        }
        self
    }

    pub(crate) fn during(self, what: impl Into<String>) -> Self {
        Self::During { what: what.into(), source: Box::new(self) }
    }

    pub(crate) fn of_records(self, release: &ReleaseId) -> Self {
        Self::Records { release: release.clone(), source: Box::new(self) }
    }

    /// The error of work that ended because the program is shutting down.
    pub(crate) fn shutting_down() -> Self {
        Self::Unreachable { reason: "the program is shutting down".to_owned() }
    }
}

impl From<Status> for ClusterError {
    fn from(status: Status) -> Self {
        let details = status.details.map(|details| {
            let is_named = !details.kind.is_empty() && !details.name.is_empty();
            (is_named, details.causes, details.retry_after_seconds)
        });
        let (is_named, causes, seconds) = details.unwrap_or_default();
        // A status inside a watch may lack the code; the reason implies it.
        let code = match (status.code, status.reason.as_str()) {
            (0, reason::EXPIRED | reason::GONE) => 410,
            (0, reason::NOT_FOUND) => 404,
            (0, reason::FORBIDDEN) => 403,
            (0, _) => 500,
            (code, _) => code,
        };
        Self::Refused {
            code,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            names_absent: code == 404 && status.reason == reason::NOT_FOUND && is_named,
            reason: status.reason,
            message: status.message,
            causes: causes
                .into_iter()
                .map(|cause| Cause { reason: cause.reason, field: cause.field, message: cause.message })
                .collect(),
        }
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => Self::Unreadable { line: error.line(), column: error.column() },
            kube::Error::BuildRequest(error) => error.into(),
            kube::Error::HttpError(error) => Self::InvalidRequest { reason: error.to_string() },
            other => Self::unanswered(&other),
        }
    }
}

impl From<kube::core::request::Error> for ClusterError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::InvalidRequest { reason: error.to_string() }
    }
}

impl ClusterError {
    fn unanswered(error: &(dyn Error + 'static)) -> Self {
        let reason = causes_of(error);
        match is_untrusted(error) {
            true => Self::Untrusted { reason },
            false => Self::Unreachable { reason },
        }
    }
}

fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // `source` of an I/O error skips the error that it wraps.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if held.is_some_and(|held| is_untrusted(held))
            || matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Sends `request` and returns the body of a successful response, of at most `cap` bytes, within the time `within`.
pub(crate) async fn send(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    cap: usize,
    within: Duration,
) -> Result<Vec<u8>, ClusterError> {
    Ok(send_warned(client, request, cap, within).await?.0)
}

/// Like [`send`], and also returns the API server's warnings.
pub(crate) async fn send_warned(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    cap: usize,
    within: Duration,
) -> Result<(Vec<u8>, Vec<String>), ClusterError> {
    let exchange = async {
        let answer = client.send(request.map(Body::from)).await?;
        let status = answer.status();
        if status.is_success() {
            let warnings =
                answer.headers().get_all(http::header::WARNING).iter().filter_map(warning).collect();
            return Ok((collect(answer.into_body(), cap).await?, warnings));
        }
        let pause = answer.headers().get(http::header::RETRY_AFTER).and_then(seconds);
        let body = collect(answer.into_body(), REFUSAL_CAP).await.unwrap_or_default();
        let refusal = match serde_json::from_slice::<Status>(&body) {
            Ok(refusal) if refusal.status.is_some() => Status { code: status.as_u16(), ..refusal }.into(),
            // The body may be a JSON list of the known paths, or a page.
            _ if status == StatusCode::NOT_FOUND => ClusterError::Unserved,
            // A proxy's page, which adds nothing to the status code.
            _ => ClusterError::Refused {
                code: status.as_u16(),
                reason: status.canonical_reason().unwrap_or_default().to_owned(),
                message: "the answer is not a Kubernetes status".to_owned(),
                causes: Vec::new(),
                retry_after: None,
                names_absent: false,
            },
        };
        Err(refusal.with_pause(pause))
    };
    tokio::time::timeout(within, exchange).await.unwrap_or(Err(ClusterError::Late { within }))
}

pub async fn fetch<T: DeserializeOwned>(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    within: Duration,
) -> Result<T, ClusterError> {
    decode(&send(client, request, BODY_CAP, within).await?)
}

/// The object; `None` if the API server confirms that it does not exist.
pub(crate) fn found<T>(answer: Result<T, ClusterError>) -> Result<Option<T>, ClusterError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        // An unserved kind does not show whether the object exists.
        Err(error) if error.proves_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClusterError> {
    serde_json::from_slice(body)
        .map_err(|error| ClusterError::Unreadable { line: error.line(), column: error.column() })
}

pub(crate) fn encode(object: &impl Serialize) -> Result<Vec<u8>, ClusterError> {
    serde_json::to_vec(object).map_err(|error| ClusterError::InvalidRequest { reason: error.to_string() })
}

pub fn get(path: &str) -> Result<Request<Vec<u8>>, ClusterError> {
    let request = Request::get(path).header(http::header::ACCEPT, "application/json");
    request.body(Vec::new()).map_err(|error| ClusterError::InvalidRequest { reason: error.to_string() })
}

/// Reads `path` and query from a guard's own HTTP API, which responds like the API server: JSON, and a `Status` for
/// errors.
pub async fn read(client: &kube::Client, path: &str, within: Duration) -> Result<Vec<u8>, ClusterError> {
    send(client, get(path)?, BODY_CAP, within).await
}

pub(super) async fn post<T: DeserializeOwned>(
    client: &kube::Client,
    path: &str,
    object: &Value,
) -> Result<T, ClusterError> {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| ClusterError::InvalidRequest { reason: error.to_string() })?;
    fetch(client, request, PATIENCE).await
}

/// The text of a warning: `299 - "text"`. The API server sends it in UTF-8, which `HeaderValue::to_str` rejects.
fn warning(header: &http::HeaderValue) -> Option<String> {
    let quoted = str::from_utf8(header.as_bytes()).ok()?.split_once('"')?.1.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    Some(text)
}

/// The seconds of a `Retry-After`. API servers never send a date.
fn seconds(header: &http::HeaderValue) -> Option<Duration> {
    header.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn collect(body: Body, cap: usize) -> Result<Vec<u8>, ClusterError> {
    match Limited::new(body, cap).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(ClusterError::TooLarge { cap }),
        Err(error) => Err(ClusterError::Unreachable { reason: causes_of(error.as_ref()) }),
    }
}

#[cfg(test)]
mod tests;
