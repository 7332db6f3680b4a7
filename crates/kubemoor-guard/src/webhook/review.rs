//! The wire format of admission: `AdmissionReview` of `admission.k8s.io/v1`.
//!
//! [`ReviewHead::parse`] reads who and what from the front of a body without touching the objects,
//! [`AdmissionRequest::parse`] reads all of it and leaves the objects as text, [`AdmissionResponse`] writes the answer.
//! Reading a body never recurses with its nesting, so its sender cannot exhaust the stack. A review that is none is a
//! [`ReviewError`]; an object that is too deep to be judged is an [`ObjectError`], because its author is the editor and
//! must not gain an error by it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use json_patch::Patch;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use thiserror::Error;

use kubemoor_declare::model::{Actor, ObjectId, Operation, text};
use kubemoor_declare::outline::Excerpt;

/// The nesting that [`object`] reads; deeper ones are [`ObjectError::TooDeep`].
/// It is the fixed bound of the parser.
pub const MAX_DEPTH: usize = 127;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewHead<'a> {
    /// The request's identity, which its answer must echo.
    pub uid: Cow<'a, str>,
    /// The kind of `object` in the version in which it is sent. For a
    /// subresource this is the kind of its body, such as `autoscaling/v1 Scale`.
    pub kind: GroupVersionKind<'a>,
    /// The resource under judgement; for a subresource, its parent's.
    pub resource: GroupVersionResource<'a>,
    pub subresource: Option<Cow<'a, str>>,
    /// The object's namespace; `None` for cluster-scoped objects. Namespaces are cluster-scoped
    /// too: the API server repeats their name here, this type does not.
    pub namespace: Option<Cow<'a, str>>,
    /// The object's name. `None` in the items of a `deletecollection`, whose
    /// name only `oldObject` has.
    pub name: Option<Cow<'a, str>>,
    /// The operation; `None` for `CONNECT`, which changes no object.
    pub operation: Option<Operation>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct GroupVersionKind<'a> {
    /// The API group; empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct GroupVersionResource<'a> {
    /// The API group; empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub resource: Cow<'a, str>,
}

#[derive(Clone, Debug)]
pub struct AdmissionRequest<'a> {
    pub head: ReviewHead<'a>,
    pub actor: Actor,
    /// The object as it would be; `None` on DELETE.
    pub object: Option<Excerpt<'a>>,
    /// The object as it is; `None` on CREATE.
    pub old_object: Option<Excerpt<'a>>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The field manager that the client named; `None` where the API server
    /// derives one from the user agent.
    pub field_manager: Option<Cow<'a, str>>,
}

/// The reason why a body is not a review.
#[derive(Debug, Error)]
pub enum ReviewError {
    #[error("the body is not an AdmissionReview in JSON: {0}")]
    Parse(#[source] serde_json::Error),
    #[error("the body ends before the review does")]
    Truncated,
    #[error(
        "the body is {kind} of {api_version}, but only AdmissionReview of admission.k8s.io/v1 is \
         answered: name v1 in the webhook's admissionReviewVersions"
    )]
    OtherKind {
        /// Its `apiVersion`, or `no apiVersion`.
        api_version: String,
        kind: String,
    },
    #[error("the review lacks {0}")]
    Missing(&'static str),
    #[error("the review has {0} twice")]
    Duplicate(&'static str),
}

/// The reason why the content of an object in a review cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    #[error("the object nests more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("the object holds a value that cannot be read")]
    Unreadable,
}

impl<'a> ReviewHead<'a> {
    /// Reads a review's head from the front of `body`, which may be cut off
    /// behind it.
    ///
    /// The API server writes the fields in the order of its Go type, objects
    /// last; where the fields come in exactly that order, reading ends before
    /// the objects. In any other order the whole body is read, with the same
    /// result as [`AdmissionRequest::parse`].
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        ReviewFields::read(body, ReadUntil::Head)?.head()
    }

    /// The object that it is about, of the kind of the body. Without a name, its name is empty.
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
    ReviewFields::read(front, ReadUntil::Author).map(|mut fields| fields.author()).unwrap_or_default()
}

impl<'a> AdmissionRequest<'a> {
    /// What the front of a review says, without its objects and options.
    pub(super) fn from_front(head: ReviewHead<'a>, front: &[u8]) -> Self {
        let actor = author(front);
        Self { head, actor, object: None, old_object: None, dry_run: false, field_manager: None }
    }

    /// Reads a whole review, but for the values of its objects.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        ReviewFields::read(body, ReadUntil::End)?.request()
    }
}

/// Reads one object of a review. If a key occurs twice, the last one counts, as in the API server.
pub fn object(text: &str) -> Result<Value, ObjectError> {
    serde_json::from_str(text).map_err(|_| {
        if nests_deeper(text, MAX_DEPTH) { ObjectError::TooDeep } else { ObjectError::Unreadable }
    })
}

fn nests_deeper(json: &str, levels: usize) -> bool {
    let mut depth = 0_usize;
    let mut within_text = false;
    let mut escaped = false;
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within_text => escaped = true,
            b'"' => within_text = !within_text,
            _ if within_text => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadUntil {
    Head,
    Author,
    End,
}

#[derive(Default)]
struct ReviewFields<'a> {
    api_version: Option<JsonText<'a>>,
    kind: Option<JsonText<'a>>,
    has_request: bool,
    uid: Option<JsonText<'a>>,
    object_kind: Option<GroupVersionKind<'a>>,
    resource: Option<GroupVersionResource<'a>>,
    subresource: Option<JsonText<'a>>,
    name: Option<JsonText<'a>>,
    namespace: Option<JsonText<'a>>,
    operation: Option<JsonText<'a>>,
    user: Option<RequestUser<'a>>,
    object: Option<Excerpt<'a>>,
    old_object: Option<Excerpt<'a>>,
    dry_run: Option<bool>,
    options: Option<Options<'a>>,
    /// Reading ended because the needed fields are known.
    settled: bool,
    duplicate: Option<&'static str>,
}

/// A string that borrows from the body unless it holds escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct RequestUser<'a> {
    #[serde(borrow, default)]
    username: Option<JsonText<'a>>,
    #[serde(default)]
    groups: Option<Vec<String>>,
    #[serde(borrow, default)]
    uid: Option<JsonText<'a>>,
    /// Lists may be null, as Go writes empty ones.
    #[serde(default)]
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options<'a> {
    #[serde(borrow, default)]
    field_manager: Option<JsonText<'a>>,
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ReviewField {
    Kind,
    ApiVersion,
    Request,
    #[serde(other)]
    Other,
}

/// The fields of `AdmissionRequest` in the order of the API server's type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum RequestField {
    Uid,
    Kind,
    Resource,
    SubResource,
    RequestKind,
    RequestResource,
    RequestSubResource,
    Name,
    Namespace,
    Operation,
    UserInfo,
    Object,
    OldObject,
    DryRun,
    Options,
    #[serde(other)]
    Other,
}

const FIELD_NAMES: [&str; 15] = [
    "request.uid",
    "request.kind",
    "request.resource",
    "request.subResource",
    "request.requestKind",
    "request.requestResource",
    "request.requestSubResource",
    "request.name",
    "request.namespace",
    "request.operation",
    "request.userInfo",
    "request.object",
    "request.oldObject",
    "request.dryRun",
    "request.options",
];

/// The fields that the API server always writes before `userInfo`.
const BEFORE_USER: [RequestField; 6] = [
    RequestField::Uid,
    RequestField::Kind,
    RequestField::Resource,
    RequestField::RequestKind,
    RequestField::RequestResource,
    RequestField::Operation,
];

struct FieldOrder {
    fields: u32,
    last: Option<RequestField>,
    ordered: bool,
}

struct OuterSeed<'f, 'a> {
    fields: &'f mut ReviewFields<'a>,
    until: ReadUntil,
}

struct RequestSeed<'f, 'a> {
    fields: &'f mut ReviewFields<'a>,
    /// The first field that is not needed; `None` if all are.
    stop: Option<RequestField>,
}

impl<'a> ReviewFields<'a> {
    fn read(body: &'a [u8], until: ReadUntil) -> Result<Self, ReviewError> {
        let mut fields = Self::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = OuterSeed { fields: &mut fields, until }.deserialize(&mut json).and_then(|()| json.end());
        match read {
            Ok(()) => Ok(fields),
            Err(_) if fields.settled => Ok(fields),
            Err(error) => match fields.duplicate {
                Some(field) => Err(ReviewError::Duplicate(field)),
                None if error.is_eof() => Err(ReviewError::Truncated),
                None => Err(ReviewError::Parse(error)),
            },
        }
    }

    fn request(mut self) -> Result<AdmissionRequest<'a>, ReviewError> {
        let head = self.head()?;
        let actor = self.author();
        Ok(AdmissionRequest {
            head,
            actor,
            object: self.object,
            old_object: self.old_object,
            dry_run: self.dry_run.unwrap_or(false),
            field_manager: self.options.and_then(|options| filled(options.field_manager)),
        })
    }

    /// Takes the next value of the request, which is this field's.
    fn take<A: MapAccess<'a>>(&mut self, field: RequestField, map: &mut A) -> Result<(), A::Error> {
        match field {
            RequestField::Uid => self.uid = map.next_value()?,
            RequestField::Kind => self.object_kind = map.next_value()?,
            RequestField::Resource => self.resource = map.next_value()?,
            RequestField::SubResource => self.subresource = map.next_value()?,
            RequestField::Name => self.name = map.next_value()?,
            RequestField::Namespace => self.namespace = map.next_value()?,
            RequestField::Operation => self.operation = map.next_value()?,
            RequestField::UserInfo => self.user = map.next_value()?,
            RequestField::Object => self.object = excerpt(map.next_value()?),
            RequestField::OldObject => self.old_object = excerpt(map.next_value()?),
            RequestField::DryRun => self.dry_run = map.next_value()?,
            RequestField::Options => self.options = map.next_value()?,
            RequestField::RequestKind
            | RequestField::RequestResource
            | RequestField::RequestSubResource
            | RequestField::Other => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn head(&mut self) -> Result<ReviewHead<'a>, ReviewError> {
        self.check_envelope()?;
        let resource = self
            .resource
            .take()
            .filter(|resource| !resource.resource.is_empty())
            .ok_or(ReviewError::Missing("request.resource"))?;
        let operation = self.operation.take().ok_or(ReviewError::Missing("request.operation"))?;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        Ok(ReviewHead {
            uid: filled(self.uid.take()).ok_or(ReviewError::Missing("request.uid"))?,
            kind: self
                .object_kind
                .take()
                .filter(|kind| !kind.kind.is_empty())
                .ok_or(ReviewError::Missing("request.kind"))?,
            subresource: filled(self.subresource.take()),
            namespace: filled(self.namespace.take()).filter(|_| !is_namespace),
            name: filled(self.name.take()),
            operation: match operation.0.as_ref() {
                "CREATE" => Some(Operation::Create),
                "UPDATE" => Some(Operation::Update),
                "DELETE" => Some(Operation::Delete),
                _ => None,
            },
            resource,
        })
    }

    fn author(&mut self) -> Actor {
        let Some(user) = self.user.take() else { return Actor::default() };
        let listed = |(key, values): (String, Option<Vec<String>>)| (key, values.unwrap_or_default());
        Actor {
            user: user.username.map(|name| name.0.into_owned()).unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            uid: user.uid.map(|uid| uid.0.into_owned()).unwrap_or_default(),
            extra: user.extra.into_iter().flatten().map(listed).collect(),
        }
    }

    fn check_envelope(&self) -> Result<(), ReviewError> {
        let api_version = self.api_version.as_ref().map(|text| text.0.as_ref());
        let kind = self.kind.as_ref().map(|text| text.0.as_ref());
        if api_version != Some("admission.k8s.io/v1") || kind != Some("AdmissionReview") {
            return Err(ReviewError::OtherKind {
                api_version: api_version.unwrap_or("no apiVersion").to_owned(),
                kind: kind.unwrap_or("no kind").to_owned(),
            });
        }
        if self.has_request { Ok(()) } else { Err(ReviewError::Missing("request")) }
    }
}

impl RequestField {
    fn name(self) -> &'static str {
        FIELD_NAMES.get(self as usize).copied().unwrap_or("an unknown field")
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

impl FieldOrder {
    fn new() -> Self {
        Self { fields: 0, last: None, ordered: true }
    }

    /// Records `field`; returns whether it occurs for the first time.
    fn note(&mut self, field: RequestField) -> bool {
        if field == RequestField::Other {
            self.ordered = false;
            return true;
        }
        let first = self.fields & field.bit() == 0;
        self.fields |= field.bit();
        self.ordered &= self.last.is_none_or(|last| last < field);
        self.last = Some(field);
        first
    }

    /// Whether the last recorded `field` shows that all fields before `stop` have been read; `stop`
    /// is after the head.
    fn past(&self, stop: RequestField, field: RequestField) -> bool {
        field >= stop && self.ordered && BEFORE_USER.iter().all(|f| self.fields & f.bit() != 0)
    }
}

/// The text of an object; `None` for null.
fn excerpt(text: Option<&RawValue>) -> Option<Excerpt<'_>> {
    text.map(|text| Excerpt::new(text.get()))
}

/// A string that is present and not empty; Go omits empty ones or not, depending on the field's
/// tag.
fn filled(text: Option<JsonText<'_>>) -> Option<Cow<'_, str>> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

impl<'a> DeserializeSeed<'a> for OuterSeed<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for OuterSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.fields;
        while let Some(field) = map.next_key()? {
            let twice = match field {
                ReviewField::ApiVersion => fields.api_version.is_some().then_some("apiVersion"),
                ReviewField::Kind => fields.kind.is_some().then_some("kind"),
                ReviewField::Request => fields.has_request.then_some("request"),
                ReviewField::Other => None,
            };
            if let Some(name) = twice {
                fields.duplicate = Some(name);
                return Err(A::Error::duplicate_field(name));
            }
            match field {
                ReviewField::ApiVersion => fields.api_version = map.next_value()?,
                ReviewField::Kind => fields.kind = map.next_value()?,
                ReviewField::Request => {
                    let stop = match self.until {
                        ReadUntil::Head => Some(RequestField::UserInfo),
                        ReadUntil::Author => Some(RequestField::Object),
                        ReadUntil::End => None,
                    };
                    let stop = stop.filter(|_| fields.api_version.is_some() && fields.kind.is_some());
                    map.next_value_seed(RequestSeed { fields: &mut *fields, stop })?;
                }
                ReviewField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> DeserializeSeed<'a> for RequestSeed<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_option(self)
    }
}

impl<'a> Visitor<'a> for RequestSeed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionRequest")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.fields;
        fields.has_request = true;
        let mut met = FieldOrder::new();
        while let Some(field) = map.next_key()? {
            if !met.note(field) {
                fields.duplicate = Some(field.name());
                return Err(A::Error::duplicate_field(field.name()));
            }
            if self.stop.is_some_and(|stop| met.past(stop, field)) {
                fields.settled = true;
                // The parser finds that the map continues, and stops.
                return Ok(());
            }
            fields.take(field, &mut map)?;
        }
        Ok(())
    }
}

/// The edit that a review asks about, its objects as values.
#[derive(Clone, Debug)]
pub struct ReviewQuestion<'a> {
    pub head: ReviewHead<'a>,
    pub actor: &'a Actor,
    /// The object as it would be; `None` on DELETE.
    pub object: Option<Value>,
    /// The object as it is; `None` on CREATE.
    pub old_object: Option<Value>,
}

impl ReviewQuestion<'_> {
    /// The `AdmissionReview` of `admission.k8s.io/v1`, of no dry run.
    pub fn to_json(&self) -> Value {
        let ReviewHead { uid, kind, resource, subresource, namespace, name, operation } = &self.head;
        let Actor { user, groups, uid: user_uid, extra } = self.actor;
        let mut request = json!({
            "uid": uid,
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.resource},
            "userInfo": {"username": user, "groups": groups, "uid": user_uid, "extra": extra},
            "object": self.object,
            "oldObject": self.old_object,
            "dryRun": false,
        });
        // The API server omits absent fields.
        let texts = [("subResource", subresource), ("namespace", namespace), ("name", name)];
        let mut fields: Map<String, Value> = texts
            .into_iter()
            .filter_map(|(field, text)| Some((field.to_owned(), text.as_deref()?.into())))
            .collect();
        fields.insert("operation".to_owned(), operation.map_or_else(|| json!("CONNECT"), |it| json!(it)));
        if let Value::Object(request) = &mut request {
            request.extend(fields);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    }
}

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

const ROOM: usize = 4096;

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

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: ResponseBody<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ResponseStatus<'a>>,
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
struct ResponseStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
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

    /// Adds a patch of the object that is under review. An empty patch is dropped.
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
        if let Some(body) = self.plain_allow(uid) {
            return with_body(StatusCode::OK, body);
        }
        let patch = match self.patch.as_ref().map(serde_json::to_vec).transpose() {
            Ok(patch) => patch.map(|patch| STANDARD.encode(patch)),
            Err(error) => return failed(&format!("a patch could not be written as JSON: {error}")),
        };
        let envelope = Envelope {
            kind: "AdmissionReview",
            api_version: "admission.k8s.io/v1",
            response: ResponseBody {
                uid,
                allowed: self.allowed(),
                status: self.denial.as_deref().map(|message| ResponseStatus {
                    status: "Failure",
                    code: 403,
                    reason: "Forbidden",
                    message,
                }),
                audit_annotations: &self.audit,
                warnings: within_limits(&self.warnings),
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
            },
        };
        json_response(StatusCode::OK, &envelope)
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
    json_response(status, &json!({"error": error}))
}

fn json_response(status: StatusCode, content: &impl serde::Serialize) -> Response<Body> {
    let mut body = Vec::with_capacity(ROOM);
    let (status, body) = match serde_json::to_writer(&mut body, content) {
        Ok(()) => (status, body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    with_body(status, body)
}

fn with_body(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

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
