//! The response to the API server.
//!
//! Entry point: [`Answer`]. Invariant: an answer respects the API server's limits on warnings, so
//! none is lost on its way to the client. Must not judge.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use json_patch::Patch;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::ReviewError;

use kubemoor_declare::model::text;

/// The body of every response.
pub type Body = Full<Bytes>;

/// The API server cuts longer warnings once all of them are too long.
const WARNING_CHARS: usize = 256;

/// The most characters that the API server passes on in one response.
const WARNINGS_CHARS: usize = 4096;

/// The most characters of the last warning, which counts the dropped ones.
const REST_CHARS: usize = 40;

/// What stands before and behind the uid in the answer that a request passes, as serde writes it.
const ALLOW: [&str; 2] = [
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":""#,
    r#"","allowed":true}}"#,
];

/// Room for most bodies, in bytes.
const ROOM: usize = 4096;

/// A key of an audit annotation. The API server stores it behind the name of
/// the webhook: `edits.kubemoor.dev/decision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditKey {
    /// The decision about the request.
    Decision,
    /// The reason for it.
    Reason,
    /// The release, as `namespace/name`.
    Release,
    /// The revision that was the declaration.
    Revision,
    /// The fields in question.
    Fields,
}

/// The answer to one review.
#[derive(Clone, Default, PartialEq)]
pub struct Answer {
    denial: Option<String>,
    warnings: Vec<String>,
    audit: Vec<(AuditKey, Cow<'static, str>)>,
    patch: Option<Patch>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Wire<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    audit_annotations: Annotations<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(serde::Serialize)]
struct Status<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
}

struct Annotations<'a>(&'a [(AuditKey, Cow<'static, str>)]);

#[derive(serde::Serialize)]
struct Failure<'a> {
    error: &'a str,
}

impl AuditKey {
    /// All keys.
    pub const ALL: [Self; 5] = [Self::Decision, Self::Reason, Self::Release, Self::Revision, Self::Fields];

    /// The key as it stands in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Reason => "reason",
            Self::Release => "release",
            Self::Revision => "revision",
            Self::Fields => "fields",
        }
    }
}

impl Answer {
    /// The request passes.
    pub fn allow() -> Self {
        Self::default()
    }

    /// The request is refused, as 403 `Forbidden`. The API server puts the
    /// webhook's name in front of `message`.
    pub fn deny(message: impl Into<String>) -> Self {
        Self { denial: Some(message.into()), ..Self::default() }
    }

    /// Adds a warning. Text that the API server could not pass on is changed when the answer is
    /// written: control characters become spaces, a warning is cut at 256 characters, and the ones
    /// beyond 4096 in all are counted.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds a patch of the object that is under review. An empty patch is dropped.
    #[must_use]
    pub fn patch(mut self, patch: Patch) -> Self {
        self.patch = Some(patch).filter(|patch| !patch.0.is_empty());
        self
    }

    /// Adds an annotation to the API server's audit event; the last value of a key counts.
    #[must_use]
    pub fn annotate(mut self, key: AuditKey, value: impl Into<Cow<'static, str>>) -> Self {
        self.audit.retain(|(present, _)| *present != key);
        self.audit.reserve(AuditKey::ALL.len().saturating_sub(self.audit.len()));
        self.audit.push((key, value.into()));
        self
    }

    /// Whether the request passes.
    pub fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The review that answers the request `uid`, as HTTP 200.
    pub fn respond(&self, uid: &str) -> Response<Body> {
        if let Some(body) = self.plain_allow(uid) {
            return of_json(StatusCode::OK, body);
        }
        let patch = match self.patch.as_ref().map(serde_json::to_vec).transpose() {
            Ok(patch) => patch.map(|patch| STANDARD.encode(patch)),
            Err(error) => return failed(&format!("a patch could not be written as JSON: {error}")),
        };
        let envelope = Envelope {
            kind: "AdmissionReview",
            api_version: "admission.k8s.io/v1",
            response: Wire {
                uid,
                allowed: self.allowed(),
                status: self.denial.as_deref().map(|message| Status {
                    status: "Failure",
                    code: 403,
                    reason: "Forbidden",
                    message,
                }),
                audit_annotations: Annotations(&self.audit),
                warnings: within_limits(&self.warnings),
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
            },
        };
        json(StatusCode::OK, &envelope)
    }

    /// The body of the most frequent answer; `None` where JSON has to escape a part of it.
    fn plain_allow(&self, uid: &str) -> Option<Vec<u8>> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let Self { denial: None, warnings, audit, patch: None } = self else { return None };
        (warnings.is_empty() && audit.is_empty() && uid.bytes().all(is_plain)).then(|| {
            let [front, back] = ALLOW;
            [front, uid, back].concat().into_bytes()
        })
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A patch may hold the values of a Secret.
        f.debug_struct("Answer")
            .field("denial", &self.denial)
            .field("warnings", &self.warnings)
            .field("audit", &self.audit)
            .field("patches", &self.patch.is_some())
            .finish()
    }
}

impl Annotations<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key.as_str(), value)?;
        }
        map.end()
    }
}

/// HTTP 400: the body is no review.
pub fn malformed(error: &ReviewError) -> Response<Body> {
    plain(StatusCode::BAD_REQUEST, &error.to_string())
}

/// HTTP 500: no verdict could be reached; the webhook's `failurePolicy` decides.
pub fn failed(error: &str) -> Response<Body> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, error)
}

/// The empty response to a caller without access.
pub fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// A response of `status` whose JSON body names what is wrong.
pub fn plain(status: StatusCode, error: &str) -> Response<Body> {
    json(status, &Failure { error })
}

fn json(status: StatusCode, content: &impl serde::Serialize) -> Response<Body> {
    let mut body = Vec::with_capacity(ROOM);
    let (status, body) = match serde_json::to_writer(&mut body, content) {
        Ok(()) => (status, body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    of_json(status, body)
}

fn of_json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The warnings as the API server passes them on.
fn within_limits(warnings: &[String]) -> Vec<Cow<'_, str>> {
    let mut kept: Vec<Cow<'_, str>> = Vec::with_capacity(warnings.len());
    let mut chars = 0;
    for (index, warning) in warnings.iter().enumerate() {
        let warning = one_line(warning);
        if kept.contains(&warning) {
            continue;
        }
        let length = warning.chars().count();
        let is_last = index + 1 == warnings.len();
        let room = if is_last { WARNINGS_CHARS } else { WARNINGS_CHARS - REST_CHARS };
        if chars + length > room {
            let rest = warnings.len() - index;
            kept.push(Cow::Owned(format!(
                "… and {rest} more {}",
                if rest == 1 { "warning" } else { "warnings" }
            )));
            break;
        }
        chars += length;
        kept.push(warning);
    }
    kept
}

/// `warning` without unprintable characters, at most [`WARNING_CHARS`] long.
fn one_line(warning: &str) -> Cow<'_, str> {
    let line = text::one_line(warning);
    if line.chars().nth(WARNING_CHARS).is_none() {
        return line;
    }
    line.chars().take(WARNING_CHARS - 1).chain(['…']).collect::<String>().into()
}

#[cfg(test)]
mod tests;
