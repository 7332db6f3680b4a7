//! Reads a review's fields from JSON text, as far as they are needed.
//!
//! Entry point: [`Fields::read`]. Invariant: only the
//! review's own few levels are read by recursion; unknown fields are skipped. Must not interpret an
//! object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Head, Kind, Request, Resource, ReviewError};
use kubemoor_declare::model::{Actor, Operation};
use kubemoor_declare::outline::Excerpt;

/// How far a body is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Until the head is known.
    Head,
    /// Until the user is known too.
    Author,
    /// To its end.
    End,
}

/// The fields of a review that have been read.
#[derive(Default)]
pub(super) struct Fields<'a> {
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    has_request: bool,
    uid: Option<Text<'a>>,
    object_kind: Option<Kind<'a>>,
    resource: Option<Resource<'a>>,
    subresource: Option<Text<'a>>,
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    user: Option<UserInfo<'a>>,
    object: Option<Excerpt<'a>>,
    old_object: Option<Excerpt<'a>>,
    dry_run: Option<bool>,
    options: Option<Options<'a>>,
    /// Reading ended because the needed fields are known.
    settled: bool,
    /// The field that occurs twice.
    duplicate: Option<&'static str>,
}

/// A string that borrows from the body unless it holds escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(serde::Deserialize)]
struct UserInfo<'a> {
    #[serde(borrow, default)]
    username: Option<Text<'a>>,
    #[serde(default)]
    groups: Option<Vec<String>>,
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    /// Lists may be null, as Go writes empty ones.
    #[serde(default)]
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options<'a> {
    #[serde(borrow, default)]
    field_manager: Option<Text<'a>>,
}

/// The fields of `AdmissionReview`.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Outer {
    Kind,
    ApiVersion,
    Request,
    #[serde(other)]
    Other,
}

/// The fields of `AdmissionRequest` in the order of the API server's type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
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

/// The fields that the API server always writes before `userInfo`.
const BEFORE_USER: [Field; 6] =
    [Field::Uid, Field::Kind, Field::Resource, Field::RequestKind, Field::RequestResource, Field::Operation];

/// The fields that were read, and whether they were in the API server's order.
struct Met {
    fields: u32,
    last: Option<Field>,
    ordered: bool,
}

struct OuterSeed<'f, 'a> {
    fields: &'f mut Fields<'a>,
    until: Until,
}

struct RequestSeed<'f, 'a> {
    fields: &'f mut Fields<'a>,
    /// The first field that is not needed; `None` if all are.
    stop: Option<Field>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(body: &'a [u8], until: Until) -> Result<Self, ReviewError> {
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

    pub(super) fn request(mut self) -> Result<Request<'a>, ReviewError> {
        let head = self.head()?;
        let actor = self.author();
        Ok(Request {
            head,
            actor,
            object: self.object,
            old_object: self.old_object,
            dry_run: self.dry_run.unwrap_or(false),
            field_manager: self.options.and_then(|options| filled(options.field_manager)),
        })
    }

    /// Takes the next value of the request, which is this field's.
    fn take<A: MapAccess<'a>>(&mut self, field: Field, map: &mut A) -> Result<(), A::Error> {
        match field {
            Field::Uid => self.uid = map.next_value()?,
            Field::Kind => self.object_kind = map.next_value()?,
            Field::Resource => self.resource = map.next_value()?,
            Field::SubResource => self.subresource = map.next_value()?,
            Field::Name => self.name = map.next_value()?,
            Field::Namespace => self.namespace = map.next_value()?,
            Field::Operation => self.operation = map.next_value()?,
            Field::UserInfo => self.user = map.next_value()?,
            Field::Object => self.object = excerpt(map.next_value()?),
            Field::OldObject => self.old_object = excerpt(map.next_value()?),
            Field::DryRun => self.dry_run = map.next_value()?,
            Field::Options => self.options = map.next_value()?,
            Field::RequestKind | Field::RequestResource | Field::RequestSubResource | Field::Other => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    /// Takes the head out of the fields.
    pub(super) fn head(&mut self) -> Result<Head<'a>, ReviewError> {
        self.check_envelope()?;
        let resource = self
            .resource
            .take()
            .filter(|resource| !resource.resource.is_empty())
            .ok_or(ReviewError::Missing("request.resource"))?;
        let operation = self.operation.take().ok_or(ReviewError::Missing("request.operation"))?;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        Ok(Head {
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

    /// Takes the user out of the fields.
    pub(super) fn author(&mut self) -> Actor {
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

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::Uid => "request.uid",
            Self::Kind => "request.kind",
            Self::Resource => "request.resource",
            Self::SubResource => "request.subResource",
            Self::RequestKind => "request.requestKind",
            Self::RequestResource => "request.requestResource",
            Self::RequestSubResource => "request.requestSubResource",
            Self::Name => "request.name",
            Self::Namespace => "request.namespace",
            Self::Operation => "request.operation",
            Self::UserInfo => "request.userInfo",
            Self::Object => "request.object",
            Self::OldObject => "request.oldObject",
            Self::DryRun => "request.dryRun",
            Self::Options => "request.options",
            Self::Other => "an unknown field",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

impl Met {
    fn new() -> Self {
        Self { fields: 0, last: None, ordered: true }
    }

    /// Records `field`; returns whether it occurs for the first time.
    fn note(&mut self, field: Field) -> bool {
        if field == Field::Other {
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
    fn past(&self, stop: Field, field: Field) -> bool {
        field >= stop && self.ordered && BEFORE_USER.iter().all(|f| self.fields & f.bit() != 0)
    }
}

/// The text of an object; `None` for null.
fn excerpt(text: Option<&RawValue>) -> Option<Excerpt<'_>> {
    text.map(|text| Excerpt::of(text.get()))
}

/// A string that is present and not empty; Go omits empty ones or not, depending on the field's
/// tag.
fn filled(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
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
                Outer::ApiVersion => fields.api_version.is_some().then_some("apiVersion"),
                Outer::Kind => fields.kind.is_some().then_some("kind"),
                Outer::Request => fields.has_request.then_some("request"),
                Outer::Other => None,
            };
            if let Some(name) = twice {
                fields.duplicate = Some(name);
                return Err(A::Error::duplicate_field(name));
            }
            match field {
                Outer::ApiVersion => fields.api_version = map.next_value()?,
                Outer::Kind => fields.kind = map.next_value()?,
                Outer::Request => {
                    let stop = match self.until {
                        Until::Head => Some(Field::UserInfo),
                        Until::Author => Some(Field::Object),
                        Until::End => None,
                    };
                    let stop = stop.filter(|_| fields.api_version.is_some() && fields.kind.is_some());
                    map.next_value_seed(RequestSeed { fields: &mut *fields, stop })?;
                }
                Outer::Other => {
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
        let mut met = Met::new();
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
