//! One request to the API server: bytes in, bytes or a typed refusal out.
//!
//! Entry point: `send`. Invariant: no body beyond its cap is held, every
//! request ends within its time, and no body ever reaches a log or an error
//! (kube's own decoding logs what it cannot decode, and bodies hold Secrets).

use std::time::Duration;

use http::request::Builder;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::Status;
use kube::core::response::reason;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::Cause;

/// The most bytes of one object or one page: etcd takes requests of 1.5 MiB, a
/// page holds up to [`super::pages::PAGE`] objects' metadata.
pub(crate) const BODY_CAP: usize = 64 << 20;

/// The most bytes of a refusal that are read.
const REFUSAL_CAP: usize = 1 << 20;

/// Replaces a message that could quote a Secret's values.
const WITHHELD: &str = "(withheld, since it may quote the Secret)";

/// Time limit for one request, unless the caller sets a shorter one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Why the API server gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, or it broke.
    #[error("the API server did not answer: {reason}")]
    Unreachable {
        /// The transport's reason.
        reason: String,
    },
    /// The time for the request ran out.
    #[error("the API server did not answer within {} ms", .within.as_millis())]
    Late {
        /// The time that the request had.
        within: Duration,
    },
    /// The API server refused.
    #[error("the API server refused ({code} {reason}): {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The API's reason word, such as `NotFound`; may be empty.
        reason: String,
        /// The API server's message. Withheld where it could quote a Secret.
        message: String,
        /// The fields at fault, as `field: message`, where the API names any.
        causes: Vec<Cause>,
    },
    /// The API server knows no such path: it does not serve the kind, or not in
    /// this version.
    #[error("the API server does not serve this")]
    Unserved,
    /// The answer is larger than the cap.
    #[error("the API server's answer exceeds {cap} bytes")]
    TooLarge {
        /// The cap in bytes.
        cap: usize,
    },
    /// The answer is not what the API promises. Holds a place, no content.
    #[error("the API server's answer cannot be read at line {line}, column {column}")]
    Unreadable {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The request could not be formed.
    #[error("the request cannot be formed: {reason}")]
    Unformed {
        /// What is wrong with it.
        reason: String,
    },
}

/// Sends `request` and gives the body of a successful answer, of at most `cap`
/// bytes, within the time `within`.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn send(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    cap: usize,
    within: Duration,
) -> Result<Vec<u8>, CallError> {
    Ok(send_warned(client, request, cap, within).await?.0)
}

/// [`send`], with the API server's warnings.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn send_warned(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    cap: usize,
    within: Duration,
) -> Result<(Vec<u8>, Vec<String>), CallError> {
    let exchange = async {
        let answer = client.send(request.map(Body::from)).await?;
        let status = answer.status();
        if status.is_success() {
            let warnings =
                answer.headers().get_all(http::header::WARNING).iter().filter_map(warning).collect();
            return Ok((collect(answer.into_body(), cap).await?, warnings));
        }
        let body = collect(answer.into_body(), REFUSAL_CAP).await.unwrap_or_default();
        Err(match serde_json::from_slice::<Status>(&body) {
            Ok(refusal) if refusal.status.is_some() => Status { code: status.as_u16(), ..refusal }.into(),
            // With the known paths, also as JSON, or with a page.
            _ if status == StatusCode::NOT_FOUND => CallError::Unserved,
            // Some proxy's page, which says nothing that the status does not.
            _ => CallError::Refused {
                code: status.as_u16(),
                reason: status.canonical_reason().unwrap_or_default().to_owned(),
                message: "the answer is not a Kubernetes status".to_owned(),
                causes: Vec::new(),
            },
        })
    };
    tokio::time::timeout(within, exchange).await.unwrap_or(Err(CallError::Late { within }))
}

/// [`send`], decoded.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn fetch<T: DeserializeOwned>(
    client: &kube::Client,
    request: Request<Vec<u8>>,
    within: Duration,
) -> Result<T, CallError> {
    decode(&send(client, request, BODY_CAP, within).await?)
}

/// Decodes an answer.
///
/// # Errors
/// [`CallError::Unreadable`].
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body)
        .map_err(|error| CallError::Unreadable { line: error.line(), column: error.column() })
}

/// A GET of `path`.
///
/// # Errors
/// [`CallError::Unformed`] when `path` is no path.
pub(crate) fn get(path: &str) -> Result<Request<Vec<u8>>, CallError> {
    Request::get(path)
        .header(http::header::ACCEPT, "application/json")
        .body(Vec::new())
        .map_err(|error| CallError::Unformed { reason: error.to_string() })
}

/// Posts an object as JSON; the answer.
///
/// # Errors
/// See [`CallError`].
pub(super) async fn post<T: DeserializeOwned>(
    client: &kube::Client,
    path: &str,
    object: &Value,
) -> Result<T, CallError> {
    fetch(client, carry(Request::post(path), "application/json", object)?, PATIENCE).await
}

/// The request that carries an object in this form of JSON.
pub(super) fn carry(request: Builder, form: &str, object: &Value) -> Result<Request<Vec<u8>>, CallError> {
    request
        .header(http::header::CONTENT_TYPE, form)
        .header(http::header::ACCEPT, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| CallError::Unformed { reason: error.to_string() })
}

impl CallError {
    /// Whether the object, or the kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. } | Self::Unserved)
    }

    /// Whether the rights for the request are missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }

    /// Whether the API server does not accept the credentials, or no longer does.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { code: 401, .. })
    }

    /// Whether the `resourceVersion` or `continue` token of the request has expired.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    /// Whether the API server did not answer: trying the same again soon may help.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code >= 500 || *code == 429,
            Self::Unserved | Self::TooLarge { .. } | Self::Unreadable { .. } | Self::Unformed { .. } => false,
            Self::Unreachable { .. } | Self::Late { .. } => true,
        }
    }

    /// The same refusal without any text that could quote a field's value.
    pub(crate) fn without_values(self) -> Self {
        match self {
            Self::Refused { code, reason, causes, .. } => Self::Refused {
                code,
                reason,
                message: WITHHELD.to_owned(),
                causes: causes
                    .into_iter()
                    .map(|cause| Cause { message: WITHHELD.to_owned(), ..cause })
                    .collect(),
            },
            other => other,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        Self::Refused {
            // A status inside a watch may lack the code; the word says the same.
            code: match (status.code, status.reason.as_str()) {
                (0, reason::EXPIRED | reason::GONE) => 410,
                (0, reason::NOT_FOUND) => 404,
                (0, reason::FORBIDDEN) => 403,
                (0, _) => 500,
                (code, _) => code,
            },
            reason: status.reason,
            message: status.message,
            causes: causes
                .into_iter()
                .map(|cause| Cause { reason: cause.reason, field: cause.field, message: cause.message })
                .collect(),
        }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => Self::Unreadable { line: error.line(), column: error.column() },
            kube::Error::BuildRequest(error) => error.into(),
            kube::Error::HttpError(error) => Self::Unformed { reason: error.to_string() },
            other => Self::Unreachable { reason: causes_of(&other) },
        }
    }
}

impl From<kube::core::request::Error> for CallError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::Unformed { reason: error.to_string() }
    }
}

/// The error and what caused it, in one sentence: transports say the useful
/// part (refused, name not known, bad certificate) only in the innermost.
pub(crate) fn causes_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The text of a warning: `299 - "text"`.
fn warning(header: &http::HeaderValue) -> Option<String> {
    let quoted = header.to_str().ok()?.split_once('"')?.1.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    Some(text)
}

async fn collect(body: Body, cap: usize) -> Result<Vec<u8>, CallError> {
    match Limited::new(body, cap).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallError::TooLarge { cap }),
        Err(error) => Err(CallError::Unreachable { reason: causes_of(error.as_ref()) }),
    }
}

#[cfg(test)]
mod tests;
