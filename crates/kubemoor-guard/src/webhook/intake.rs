//! Authenticates the API server, and reads the body of a review.
//!
//! An unknown caller gets an empty response and is counted. Memory for bodies is bounded and reserved as bytes arrive,
//! so that a client that sends nothing uses nothing; it is released with the last copy of the bytes. Every body gets an
//! answer, even if it is too large, too late or arrives while the guard is busy: if it does not fit, its front is
//! passed on, which is enough to identify and judge the request. Otherwise a user could bypass the guard by sending too
//! much.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::registration::{MUTATE, OBSERVE, VALIDATE};
use super::review;
use super::shares::{MemoryShares, ShortageCause, TakenShare};
use kubemoor_runtime::callers::CallerSecrets;
use kubemoor_runtime::metrics::AdmissionMetrics;

const REVIEW: &str = "application/json";

/// The API server's own default for a webhook without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// The time by which an answer must precede the API server's timeout.
const MARGIN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewStage {
    /// Fields of the object may be reverted.
    Mutate,
    Validate,
    /// The request is always allowed, and may be recorded.
    Observe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiServerProof {
    /// By the token in the path.
    Token,
    /// By the client certificate of its connection: the path holds no token.
    Certificate,
}

/// Distinguishes the API server from all other callers, by the path of a request alone. Cheap to clone. It never logs a
/// path or a token.
#[derive(Clone, Debug)]
pub struct CallerGate {
    proof: ApiServerProof,
    callers: CallerSecrets,
    metrics: AdmissionMetrics,
}

impl CallerGate {
    /// A gate that requires `proof`; rejected callers are counted in `metrics`.
    pub fn new(proof: ApiServerProof, callers: CallerSecrets, metrics: AdmissionMetrics) -> Self {
        Self { proof, callers, metrics }
    }

    /// The stage that a request for `path` asks for; `None` for a caller without access.
    pub fn stage(&self, path: &str) -> Option<ReviewStage> {
        let stages = [
            (VALIDATE, ReviewStage::Validate),
            (MUTATE, ReviewStage::Mutate),
            (OBSERVE, ReviewStage::Observe),
        ];
        let asked = stages
            .into_iter()
            .find_map(|(prefix, stage)| Some((path.strip_prefix(prefix)?, stage)))
            .filter(|(shown, _)| match self.proof {
                ApiServerProof::Token => {
                    shown.strip_prefix('/').is_some_and(|token| self.callers.admits(token.as_bytes()))
                }
                ApiServerProof::Certificate => shown.is_empty(),
            });
        if asked.is_none() {
            self.metrics.caller_refused();
        }
        asked.map(|(_, stage)| stage)
    }

    pub fn callers(&self) -> &CallerSecrets {
        &self.callers
    }
}

/// How much of a body is read and kept. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// A longer body is kept only up to `front`.
    pub whole: usize,
    /// The bytes that are kept of a body that is not kept whole: enough for the fields that the API
    /// server writes before the objects.
    pub front: usize,
    /// The bytes that are read of a body before it is answered unread.
    pub read: usize,
    /// Bodies up to this size are always kept whole.
    pub small: usize,
    /// The maximum size of all larger bodies together; one alone may use half of it.
    pub together: usize,
}

#[derive(Clone, Debug)]
pub struct Intake {
    limits: BodyLimits,
    memory: Arc<MemoryShares>,
}

#[derive(Debug)]
pub struct Submission {
    pub body: ReceivedBody,
    /// When the answer must be ready, a margin before the API server gives up.
    pub deadline: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedBody {
    Whole(Bytes),
    /// The front of a body that was not kept whole.
    Front(Bytes, UnreadCause),
}

/// Why a review cannot be judged by its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCause {
    TooLarge,
    /// There was no memory or no turn in time, because its own namespace or user had used its share.
    Crowded,
    /// The same, because others had used theirs.
    Busy,
    /// It did not arrive, or could not be read, in time. The rest of a body that is late cannot be distinguished from a
    /// next request.
    Late,
}

struct BodyReader {
    limits: BodyLimits,
    /// The maximum size that the HTTP headers announce.
    expected: usize,
    kept: Vec<u8>,
    read: usize,
    share: Option<TakenShare>,
    cut: Option<UnreadCause>,
}

/// Bytes that release their memory when their last copy is dropped.
struct TrackedBytes {
    bytes: Vec<u8>,
    _share: TakenShare,
}

#[derive(Debug, Error)]
pub enum IntakeError {
    #[error("reviews must be sent by POST, not by {0}")]
    Method(Method),
    #[error("reviews must be sent as application/json, not as {0}")]
    ContentType(String),
    #[error("the body did not arrive within {0:?}")]
    Slow(Duration),
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { whole: 32 << 20, front: 64 << 10, read: 64 << 20, small: 64 << 10, together: 64 << 20 }
    }
}

impl ReceivedBody {
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Whole(bytes) | Self::Front(bytes, _) => bytes,
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
        // The rest of the body cannot be distinguished from a next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

impl Intake {
    pub fn new(limits: BodyLimits) -> Self {
        Self { limits, memory: MemoryShares::new(limits.together) }
    }

    /// Reads the review in `request` of `peer`, within the time that the API
    /// server gives in `?timeout=`.
    ///
    /// # Errors
    /// The request holds no review; [`IntakeError::respond`] answers it.
    pub async fn receive<B>(&self, peer: IpAddr, request: Request<B>) -> Result<Submission, IntakeError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, mut body) = request.into_parts();
        if parts.method != Method::POST {
            return Err(IntakeError::Method(parts.method));
        }
        check_content_type(&parts.headers)?;
        let allowed = timeout(parts.uri.query());
        let start = Instant::now();
        let deadline = start + allowed.saturating_sub(MARGIN.min(allowed / 4));
        let mut arriving = BodyReader::new(self.limits, &body);
        let come = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| IntakeError::Broken(error.to_string()))?;
                let Ok(data) = frame.into_data() else { continue };
                let until = start + allowed / 2;
                if !arriving.take(data, |front| self.share(peer, front), until).await {
                    break;
                }
            }
            Ok(())
        };
        let body = match timeout_at(deadline, come).await {
            Ok(come) => come.map(|()| arriving.end())?,
            Err(_) => {
                let front = arriving.front();
                if review::ReviewHead::parse(&front).is_err() {
                    return Err(IntakeError::Slow(allowed));
                }
                ReceivedBody::Front(front, UnreadCause::Late)
            }
        };
        Ok(Submission { body, deadline })
    }

    /// An empty share of the memory for a body of `peer` that begins with `front`.
    fn share(&self, peer: IpAddr, front: &[u8]) -> TakenShare {
        let namespace = review::ReviewHead::parse(front).ok().and_then(|head| head.namespace);
        self.memory.share(peer, &namespace.unwrap_or_default(), &review::author(front).user)
    }
}

impl BodyReader {
    fn new(limits: BodyLimits, body: &impl Body) -> Self {
        let size = body.size_hint();
        let expected = usize::try_from(size.upper().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let least = usize::try_from(size.lower()).unwrap_or(usize::MAX);
        let cut = (least > limits.whole).then_some(UnreadCause::TooLarge);
        Self { limits, expected, kept: Vec::new(), read: 0, share: None, cut }
    }

    /// Takes the next piece; returns whether more is needed. A larger body gets its memory from
    /// `share`, which receives its beginning, and waits for it until `until`.
    async fn take(&mut self, data: Bytes, share: impl Fn(&[u8]) -> TakenShare, until: Instant) -> bool {
        self.read = self.read.saturating_add(data.len());
        if self.read > self.limits.whole {
            self.cut(UnreadCause::TooLarge);
        }
        self.keep(&data, &share, until).await;
        self.cut.is_none() || self.read <= self.limits.read
    }

    /// Keeps as much of a piece as there is memory for.
    async fn keep(&mut self, data: &[u8], share: &impl Fn(&[u8]) -> TakenShare, until: Instant) {
        let needed = self.kept.len().saturating_add(data.len());
        if self.cut.is_none() && needed > self.kept.capacity() {
            // At most twice the received bytes, so that a client cannot reserve much by announcing
            // it.
            let twice = self.kept.capacity().saturating_mul(2).max(self.limits.small);
            let size = self.expected.min(self.limits.whole).min(twice).max(needed);
            if size > self.limits.small {
                let kept = &self.kept;
                let taken = self.share.get_or_insert_with(|| {
                    let more = data.len().min(self.limits.front.saturating_sub(kept.len()));
                    share(&[kept, data.get(..more).unwrap_or_default()].concat())
                });
                if let Err(lack) = taken.grow(size, until).await {
                    self.cut(lack.into());
                }
            }
            if self.cut.is_none() {
                self.kept.reserve_exact(size - self.kept.len());
            }
        }
        let left = match self.cut {
            None => data.len(),
            Some(_) => self.limits.front.saturating_sub(self.kept.len()).min(data.len()),
        };
        self.kept.extend_from_slice(data.get(..left).unwrap_or(data));
    }

    /// Keeps only the front from now on, and releases the memory.
    fn cut(&mut self, cut: UnreadCause) {
        if self.cut.is_none() {
            self.cut = Some(cut);
            self.kept.truncate(self.limits.front);
            self.kept.shrink_to_fit();
            self.share = None;
        }
    }

    fn front(mut self) -> Bytes {
        self.cut(UnreadCause::TooLarge);
        self.kept.into()
    }

    fn end(self) -> ReceivedBody {
        let Some(cut) = self.cut else {
            return ReceivedBody::Whole(match self.share {
                Some(share) => Bytes::from_owner(TrackedBytes { bytes: self.kept, _share: share }),
                None => self.kept.into(),
            });
        };
        ReceivedBody::Front(self.kept.into(), cut)
    }
}

impl From<ShortageCause> for UnreadCause {
    fn from(lack: ShortageCause) -> Self {
        match lack {
            ShortageCause::Own => Self::Crowded,
            ShortageCause::Others => Self::Busy,
        }
    }
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), IntakeError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Err(IntakeError::ContentType("nothing".to_owned()));
    };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(REVIEW) {
        Ok(())
    } else {
        Err(IntakeError::ContentType(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

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
