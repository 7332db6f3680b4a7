//! The wire format of admission: `AdmissionReview` of `admission.k8s.io/v1`.
//!
//! [`ReviewHead::parse`] reads the identifying fields from the front of a body without touching the objects,
//! [`AdmissionRequest::parse`] reads all of it and leaves the objects as text, [`AdmissionResponse`] writes the answer.
//! Parsing never recurses with the nesting of a body, so its sender cannot exhaust the stack.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use json_patch::Patch;
use serde_json::json;
use smol_str::SmolStr;
use thiserror::Error;

use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{Actor, ObjectId, Operation, text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewHead {
    /// The request's identity, which its answer must echo.
    pub uid: SmolStr,
    /// The kind of `object` in the version in which it is sent. For a
    /// subresource this is the kind of its body, such as `autoscaling/v1 Scale`.
    pub kind: GroupVersionKind,
    /// The resource under judgement; for a subresource, its parent's.
    pub resource: GroupVersionResource,
    pub subresource: Option<SmolStr>,
    /// The object's namespace; `None` for cluster-scoped objects. Namespaces are cluster-scoped
    /// too: the API server repeats their name here, this type does not.
    pub namespace: Option<SmolStr>,
    /// The object's name. `None` in the items of a `deletecollection`, whose
    /// name only `oldObject` has.
    pub name: Option<SmolStr>,
    pub operation: Option<Operation>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    pub group: SmolStr,
    pub version: SmolStr,
    pub kind: SmolStr,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct GroupVersionResource {
    pub group: SmolStr,
    pub version: SmolStr,
    pub resource: SmolStr,
}

#[derive(Clone, Debug)]
pub struct AdmissionRequest<'a> {
    pub head: ReviewHead,
    pub actor: Actor,
    /// The object as it would be; `None` on DELETE.
    pub object: Option<Excerpt<'a>>,
    /// The object as it is; `None` on CREATE.
    pub old_object: Option<Excerpt<'a>>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The field manager that the client named; `None` where the API server
    /// derives one from the user agent.
    pub field_manager: Option<SmolStr>,
}

#[derive(Debug, Error)]
pub enum ReviewError {
    #[error("the body is not an AdmissionReview in JSON: {0}")]
    Parse(#[source] serde_json::Error),
    #[error("the body ends before the review does")]
    Truncated,
    #[error(
        "the body is {kind} of {api_version}, but only AdmissionReview of admission.k8s.io/v1 is supported: \
         list v1 in the webhook's admissionReviewVersions"
    )]
    OtherKind { api_version: String, kind: String },
    #[error("the review lacks {0}")]
    Missing(&'static str),
}

impl ReviewHead {
    /// Reads a review's head from the front of `body`, which may be cut off after it: the API server writes the objects
    /// last.
    pub fn parse(body: &[u8]) -> Result<Self, ReviewError> {
        from_front(body, "\"userInfo\"", |request| request.head())
    }

    /// The object of the review, with the kind of the body. Its name is empty if the head has none.
    pub fn object(&self) -> ObjectId {
        self.object_of(&self.kind.group, &self.kind.kind)
    }

    pub fn object_of(&self, group: &str, kind: &str) -> ObjectId {
        ObjectId {
            group: group.into(),
            kind: kind.into(),
            namespace: self.namespace.as_deref().map(Into::into),
            name: self.name.as_deref().unwrap_or_default().into(),
        }
    }
}

/// The user, from the front of a review that is not read whole; an empty user if the front does not
/// name one.
pub fn author(front: &[u8]) -> Actor {
    let user = |request: ReviewFields<'_>| request.user_info.ok_or(ReviewError::Missing("request.userInfo"));
    from_front(front, "\"object\"", user).unwrap_or_default()
}

impl<'a> AdmissionRequest<'a> {
    pub(super) fn from_front(head: ReviewHead, front: &[u8]) -> Self {
        let actor = author(front);
        Self { head, actor, object: None, old_object: None, dry_run: false, field_manager: None }
    }

    /// Reads a whole review, except for the values of its objects.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let mut fields = fields(body)?;
        Ok(Self {
            actor: fields.user_info.take().unwrap_or_default(),
            object: fields.object.take(),
            old_object: fields.old_object.take(),
            dry_run: fields.dry_run.unwrap_or(false),
            field_manager: fields.options.take().and_then(|options| filled(options.field_manager)),
            head: fields.head()?,
        })
    }
}

/// The positions of `{`, `[` and `,` outside of strings, with their depths.
fn structure(json: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let (mut depth, mut within_text, mut escaped) = (0_usize, false, false);
    json.iter().enumerate().filter_map(move |(at, byte)| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within_text => escaped = true,
            b'"' => within_text = !within_text,
            _ if within_text => {}
            b'{' | b'[' => {
                depth += 1;
                return Some((at, depth));
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => return Some((at, depth)),
            _ => {}
        }
        None
    })
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewBody<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    request: Option<ReviewFields<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewFields<'a> {
    uid: Option<SmolStr>,
    kind: Option<GroupVersionKind>,
    resource: Option<GroupVersionResource>,
    sub_resource: Option<SmolStr>,
    name: Option<SmolStr>,
    namespace: Option<SmolStr>,
    operation: Option<String>,
    user_info: Option<Actor>,
    #[serde(borrow)]
    object: Option<Excerpt<'a>>,
    #[serde(borrow)]
    old_object: Option<Excerpt<'a>>,
    dry_run: Option<bool>,
    options: Option<Options>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    field_manager: Option<SmolStr>,
}

fn fields(body: &[u8]) -> Result<ReviewFields<'_>, ReviewError> {
    let review: ReviewBody<'_> = serde_json::from_slice(body).map_err(|error| match error.is_eof() {
        true => ReviewError::Truncated,
        false => ReviewError::Parse(error),
    })?;
    let (api_version, kind) = (review.api_version.as_deref(), review.kind.as_deref());
    if api_version != Some("admission.k8s.io/v1") || kind != Some("AdmissionReview") {
        return Err(ReviewError::OtherKind {
            api_version: api_version.unwrap_or("no apiVersion").to_owned(),
            kind: kind.unwrap_or("no kind").to_owned(),
        });
    }
    review.request.ok_or(ReviewError::Missing("request"))
}

/// Applies `take` to the fields that the API server writes before the key `stop`, without parsing the rest; if that
/// fails, to all fields.
fn from_front<T>(
    body: &[u8],
    stop: &str,
    take: impl Fn(ReviewFields<'_>) -> Result<T, ReviewError>,
) -> Result<T, ReviewError> {
    let front = before(body, stop).and_then(|front| take(fields(&front).ok()?).ok());
    front.map_or_else(|| take(fields(body)?), Ok)
}

/// The review without the fields of its request from the key `stop` on.
fn before(body: &[u8], stop: &str) -> Option<Vec<u8>> {
    let mut fields = structure(body).filter(|(_, depth)| *depth == 2).map(|(at, _)| body.split_at(at));
    let (front, _) = fields.find(|(_, rest)| {
        let next = rest.strip_prefix(b",").map(<[u8]>::trim_ascii_start);
        next.is_some_and(|next| next.starts_with(stop.as_bytes()))
    })?;
    Some([front, b"}}"].concat())
}

impl ReviewFields<'_> {
    fn head(self) -> Result<ReviewHead, ReviewError> {
        let resource = self
            .resource
            .filter(|resource| !resource.resource.is_empty())
            .ok_or(ReviewError::Missing("request.resource"))?;
        let operation = self.operation.ok_or(ReviewError::Missing("request.operation"))?;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        Ok(ReviewHead {
            uid: filled(self.uid).ok_or(ReviewError::Missing("request.uid"))?,
            kind: self
                .kind
                .filter(|kind| !kind.kind.is_empty())
                .ok_or(ReviewError::Missing("request.kind"))?,
            subresource: filled(self.sub_resource),
            namespace: filled(self.namespace).filter(|_| !is_namespace),
            name: filled(self.name),
            operation: match operation.as_str() {
                "CREATE" => Some(Operation::Create),
                "UPDATE" => Some(Operation::Update),
                "DELETE" => Some(Operation::Delete),
                _ => None,
            },
            resource,
        })
    }
}

/// A string that is present and not empty; Go omits empty ones or not, depending on the field's
/// tag.
fn filled(text: Option<SmolStr>) -> Option<SmolStr> {
    text.filter(|text| !text.is_empty())
}

pub type Body = Full<Bytes>;

/// The API server cuts longer warnings once all of them are too long.
const WARNING_CHARS: usize = 256;

/// The maximum length of all warnings that the API server passes on in one response, in characters.
const WARNINGS_CHARS: usize = 4096;

/// The maximum length of the last warning, which counts the dropped ones, in characters.
const REST_CHARS: usize = 40;

/// A key of an audit annotation. The API server stores it behind the name of
/// the webhook: `edits.kubemoor.dev/decision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditKey {
    Decision,
    Reason,
    /// The release, as `namespace/name`.
    Release,
    Revision,
    Fields,
}

#[derive(Clone, Default, PartialEq)]
pub struct AdmissionResponse {
    denial: Option<String>,
    warnings: Vec<String>,
    audit: BTreeMap<AuditKey, Cow<'static, str>>,
    patch: Option<Patch>,
}

impl AdmissionResponse {
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

    #[must_use]
    pub fn patch(mut self, patch: Patch) -> Self {
        self.patch = Some(patch).filter(|patch| !patch.0.is_empty());
        self
    }

    /// Adds an annotation to the API server's audit event; the last value of a key counts.
    #[must_use]
    pub fn annotate(mut self, key: AuditKey, value: impl Into<Cow<'static, str>>) -> Self {
        self.audit.insert(key, value.into());
        self
    }

    pub fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The review that answers the request `uid`, as HTTP 200.
    pub fn respond(&self, uid: &str) -> Response<Body> {
        let patch = match self.patch.as_ref().map(serde_json::to_vec).transpose() {
            Ok(patch) => patch.map(|patch| STANDARD.encode(patch)),
            Err(error) => return failed(&format!("a patch could not be written as JSON: {error}")),
        };
        let status = self.denial.as_deref().map(|message| Denial {
            status: "Failure",
            code: 403,
            reason: "Forbidden",
            message,
        });
        let response = ReviewAnswer {
            uid,
            allowed: self.allowed(),
            status,
            audit_annotations: &self.audit,
            warnings: within_limits(&self.warnings),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
        };
        let review = AnsweredReview { kind: "AdmissionReview", api_version: "admission.k8s.io/v1", response };
        json_response(StatusCode::OK, &review)
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredReview<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: ReviewAnswer<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAnswer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Denial<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<AuditKey, Cow<'static, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(serde::Serialize)]
struct Denial<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
}

impl fmt::Debug for AdmissionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A patch may hold the values of a Secret.
        f.debug_struct("AdmissionResponse")
            .field("denial", &self.denial)
            .field("warnings", &self.warnings)
            .field("audit", &self.audit)
            .field("patches", &self.patch.is_some())
            .finish()
    }
}

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

pub fn plain(status: StatusCode, error: &str) -> Response<Body> {
    json_response(status, &json!({"error": error}))
}

fn json_response(status: StatusCode, content: &impl serde::Serialize) -> Response<Body> {
    let (status, body) = match serde_json::to_vec(content) {
        Ok(body) => (status, body),
        Err(error) => {
            tracing::error!(%error, "failed to serialize a response as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn within_limits(warnings: &[String]) -> Vec<Cow<'_, str>> {
    let mut kept: Vec<Cow<'_, str>> = Vec::with_capacity(warnings.len());
    let mut chars = 0;
    for (index, warning) in warnings.iter().enumerate() {
        let warning = text::shortened(text::one_line(warning), WARNING_CHARS);
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

#[cfg(test)]
mod tests;
