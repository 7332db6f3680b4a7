//! One request to the API server: bytes in, bytes or a typed refusal out.
//!
//! Entry point: `send`. Invariant: no body beyond its cap is held, every
//! request ends within its time, and no body ever reaches a log or an error
//! (kube's own decoding logs what it cannot decode, and bodies hold Secrets).

mod error;

use std::time::Duration;

use http::request::Builder;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::error::CallError;
pub(crate) use self::error::causes_of;

/// The most bytes of one object or one page: etcd takes requests of 1.5 MiB, a
/// page holds up to [`super::pages::PAGE`] objects' metadata.
pub(crate) const BODY_CAP: usize = 64 << 20;

/// The most bytes of a refusal that are read.
const REFUSAL_CAP: usize = 1 << 20;

/// Time limit for one request, unless the caller sets a shorter one.
pub const PATIENCE: Duration = Duration::from_secs(30);

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
        let pause = answer.headers().get(http::header::RETRY_AFTER).and_then(seconds);
        let body = collect(answer.into_body(), REFUSAL_CAP).await.unwrap_or_default();
        let refusal = match serde_json::from_slice::<Status>(&body) {
            Ok(refusal) if refusal.status.is_some() => Status { code: status.as_u16(), ..refusal }.into(),
            // With the known paths, also as JSON, or with a page.
            _ if status == StatusCode::NOT_FOUND => CallError::Unserved,
            // Some proxy's page, which says nothing that the status does not.
            _ => CallError::Refused {
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
    tokio::time::timeout(within, exchange).await.unwrap_or(Err(CallError::Late { within }))
}

/// [`send`], decoded.
///
/// # Errors
/// See [`CallError`].
pub async fn fetch<T: DeserializeOwned>(
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
pub fn get(path: &str) -> Result<Request<Vec<u8>>, CallError> {
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

/// The text of a warning: `299 - "text"`. The API server sends it in UTF-8, which not every header may hold.
fn warning(header: &http::HeaderValue) -> Option<String> {
    let quoted = str::from_utf8(header.as_bytes()).ok()?.split_once('"')?.1.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        text.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    Some(text)
}

/// The seconds of a `Retry-After`. API servers send no dates.
fn seconds(header: &http::HeaderValue) -> Option<Duration> {
    header.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
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
