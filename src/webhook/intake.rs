//! Takes a review's bytes out of an HTTP request.
//!
//! Entry point: [`Intake::receive`]. Invariant: memory for bodies is bounded,
//! and no body is too large, and no moment too busy, for an answer: what does
//! not fit is given as its front, from which the request can still be named
//! and judged. Otherwise an editor could pass by sending too much. Must not
//! read what the bytes mean.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::review;

/// How a review is declared.
const REVIEW: &str = "application/json";

/// The API server's own default for a webhook without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest `timeoutSeconds` of a webhook.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// How long before the API server gives up an answer must be on its way.
const MARGIN: Duration = Duration::from_millis(200);

/// How much of a body is read and kept. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// A longer body is kept only up to `front`.
    pub whole: usize,
    /// What is kept of a body that is not kept whole: enough for the fields
    /// that the API server writes before the objects.
    pub front: usize,
    /// What is read of a body before it is answered unread.
    pub read: usize,
    /// Bodies up to this size are always kept whole.
    pub small: usize,
    /// What all larger bodies together may take at one time.
    pub together: usize,
}

/// Reads bodies within [`BodyLimits`]; shared by all connections.
#[derive(Clone, Debug)]
pub struct Intake {
    limits: BodyLimits,
    budget: Arc<Semaphore>,
}

/// A review as it came in.
#[derive(Debug)]
pub struct Submission {
    /// The review's text, or its front.
    pub body: Received,
    /// When the answer must be ready, a margin before the API server gives up.
    pub deadline: Instant,
    /// Gives the body's share of the memory back when it is dropped.
    _share: Option<OwnedSemaphorePermit>,
}

/// A body, as much of it as was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// All of it.
    Whole(Bytes),
    /// The front of a body that is larger than [`BodyLimits::whole`].
    TooLarge(Bytes),
    /// The front of a body for which other bodies left no room in time.
    Busy(Bytes),
}

/// Why a request holds no review.
#[derive(Debug, Error)]
pub enum IntakeError {
    /// The method is not POST.
    #[error("a review is sent by POST, not by {0}")]
    Method(Method),
    /// The content is not declared as JSON.
    #[error("a review is sent as application/json, not as {0}")]
    ContentType(String),
    /// The body did not arrive in time.
    #[error("the body did not arrive within {0:?}")]
    Slow(Duration),
    /// The connection broke within the body.
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { whole: 32 << 20, front: 256 << 10, read: 64 << 20, small: 256 << 10, together: 64 << 20 }
    }
}

impl Received {
    /// The bytes that were kept.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Whole(bytes) | Self::TooLarge(bytes) | Self::Busy(bytes) => bytes,
        }
    }
}

impl IntakeError {
    /// The response to a request that holds no review: HTTP 400, or 408 when it
    /// was too slow.
    pub fn respond(&self) -> Response<review::Body> {
        let status = match self {
            Self::Method(_) | Self::ContentType(_) | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
        };
        let mut response = review::plain(status, &self.to_string());
        // What is left of the body cannot be told from a next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

impl Intake {
    /// Takes bodies within `limits`.
    pub fn new(limits: BodyLimits) -> Self {
        let budget = limits.together.max(limits.whole).min(Semaphore::MAX_PERMITS);
        Self { limits, budget: Arc::new(Semaphore::new(budget)) }
    }

    /// Reads the review in `request`, within the time that the API server
    /// gives in `?timeout=`.
    ///
    /// # Errors
    /// The request holds no review; [`IntakeError::respond`] answers it.
    pub async fn receive<B>(&self, request: Request<B>) -> Result<Submission, IntakeError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            return Err(IntakeError::Method(parts.method));
        }
        check_content_type(&parts.headers)?;
        let allowed = timeout(parts.uri.query());
        let start = Instant::now();
        let deadline = start + allowed.saturating_sub(MARGIN.min(allowed / 4));
        let (share, fit) = self.make_room(&body, start + allowed / 2).await;
        let kept = match fit {
            Fit::Whole => self.limits.whole,
            Fit::TooLarge | Fit::Busy => self.limits.front,
        };
        match timeout_at(deadline, read(body, kept, self.limits)).await {
            Err(_) => Err(IntakeError::Slow(allowed)),
            Ok(Err(error)) => Err(error),
            Ok(Ok((bytes, all))) => {
                let body = match fit {
                    _ if all => Received::Whole(bytes),
                    Fit::Busy => Received::Busy(bytes),
                    Fit::Whole | Fit::TooLarge => Received::TooLarge(bytes),
                };
                Ok(Submission { body, deadline, _share: share })
            }
        }
    }

    /// Takes the body's share of the memory, waiting until `until` for it.
    async fn make_room(&self, body: &impl Body, until: Instant) -> (Option<OwnedSemaphorePermit>, Fit) {
        let size = body.size_hint();
        // A body of unknown length may come to be as long as any.
        let most = usize::try_from(size.upper().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let least = usize::try_from(size.lower()).unwrap_or(usize::MAX);
        if most <= self.limits.small {
            return (None, Fit::Whole);
        }
        if least > self.limits.whole {
            return (None, Fit::TooLarge);
        }
        let share = u32::try_from(most.min(self.limits.whole)).unwrap_or(u32::MAX);
        match timeout_at(until, Arc::clone(&self.budget).acquire_many_owned(share)).await {
            Ok(Ok(permit)) => (Some(permit), Fit::Whole),
            Ok(Err(_)) | Err(_) => (None, Fit::Busy),
        }
    }
}

/// How much of a body will be kept.
#[derive(Clone, Copy)]
enum Fit {
    Whole,
    TooLarge,
    Busy,
}

/// Reads `body`, keeping its first `keep` bytes; says whether that is all of it.
/// Once more came than is kept, what is kept shrinks to the front.
async fn read<B>(mut body: B, keep: usize, limits: BodyLimits) -> Result<(Bytes, bool), IntakeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut first: Option<Bytes> = None;
    let mut kept: Vec<u8> = Vec::new();
    let mut read = 0_usize;
    let mut all = true;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| IntakeError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        read = read.saturating_add(data.len());
        if !all {
            if read > limits.read {
                break;
            }
            continue;
        }
        if read > keep {
            all = false;
            if let Some(whole) = first.take() {
                kept.extend_from_slice(&whole);
            }
            kept.truncate(limits.front);
            let missing = limits.front.saturating_sub(kept.len()).min(data.len());
            kept.extend(data.iter().take(missing));
            kept.shrink_to_fit();
        } else if read == data.len() {
            // Most bodies that fit the connection's buffer come in one piece.
            first = Some(data);
        } else {
            if kept.is_empty() {
                kept.reserve_exact(expected.min(keep).max(read));
            }
            if let Some(front) = first.take() {
                kept.extend_from_slice(&front);
            }
            kept.extend_from_slice(&data);
        }
    }
    Ok((first.unwrap_or_else(|| Bytes::from(kept)), all))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), IntakeError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Err(IntakeError::ContentType("nothing".to_owned()));
    };
    if value == REVIEW {
        return Ok(());
    }
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(REVIEW) {
        Ok(())
    } else {
        Err(IntakeError::ContentType(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

/// The time that the API server gives, from `timeout=3s` in the query.
fn timeout(query: Option<&str>) -> Duration {
    query
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(|value| value.strip_suffix('s'))
        .and_then(|seconds| seconds.parse::<u32>().ok())
        .filter(|seconds| *seconds > 0)
        .map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.into()).min(MAX_TIMEOUT))
}

#[cfg(test)]
mod tests;
