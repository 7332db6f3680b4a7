//! The wire format of admission: `AdmissionReview` of `admission.k8s.io/v1`.
//!
//! Entry points: [`Head::parse`] reads who and what from the front of a body
//! without touching the objects, [`Request::parse`] reads all of it
//! and leaves the objects as text, [`object`] turns that text into a value, [`Answer`]
//! writes the verdict, [`Question`] writes a review.
//!
//! Invariant: reading a body never recurses with its nesting, so its sender
//! cannot exhaust the stack. A review that is none is a [`ReviewError`]; an
//! object that is too deep to be judged is an [`ObjectError`], because its
//! author is the editor and must not gain an error by it. Must not judge.

mod answer;
mod fields;
mod question;

use std::borrow::Cow;

use serde_json::Value;
use thiserror::Error;

pub use self::answer::{Answer, AuditKey, Body, failed, malformed, nothing, plain};
use self::fields::{Fields, Until};
pub use self::question::Question;
use kubemoor_declare::model::{Actor, ObjectId, Operation};
use kubemoor_declare::outline::Excerpt;

/// The nesting that [`object`] reads; deeper ones are [`ObjectError::TooDeep`].
/// It is the fixed bound of the parser.
pub const MAX_DEPTH: usize = 127;

/// The subject of a review, without its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The request's identity, which its answer must echo.
    pub uid: Cow<'a, str>,
    /// The kind of `object` in the version in which it is sent. For a
    /// subresource this is the kind of its body, such as `autoscaling/v1 Scale`.
    pub kind: Kind<'a>,
    /// The resource under judgement; for a subresource, its parent's.
    pub resource: Resource<'a>,
    /// The subresource, such as `scale` or `status`.
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

/// `group`, `version` and `kind` of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct Kind<'a> {
    /// The API group; empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// The version.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The kind.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
}

/// `group`, `version` and plural name of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct Resource<'a> {
    /// The API group; empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// The version.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The plural name, such as `deployments`.
    #[serde(borrow, default)]
    pub resource: Cow<'a, str>,
}

/// A whole review, its objects still as text.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The subject of the review.
    pub head: Head<'a>,
    /// The user who makes the request.
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
    /// The body is not JSON, or a field has another type than the API gives it.
    #[error("the body is not an AdmissionReview in JSON: {0}")]
    Parse(#[source] serde_json::Error),
    /// The body ends within the review.
    #[error("the body ends before the review does")]
    Truncated,
    /// The body is another object, or another version of this one.
    #[error(
        "the body is {kind} of {api_version}, but only AdmissionReview of admission.k8s.io/v1 is \
         answered: name v1 in the webhook's admissionReviewVersions"
    )]
    OtherKind {
        /// Its `apiVersion`, or `no apiVersion`.
        api_version: String,
        /// Its `kind`, or `no kind`.
        kind: String,
    },
    /// The review has no request, or its request lacks a field.
    #[error("the review lacks {0}")]
    Missing(&'static str),
    /// A field of the review occurs twice.
    #[error("the review has {0} twice")]
    Duplicate(&'static str),
}

/// The reason why the content of an object in a review cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// The object nests deeper than [`MAX_DEPTH`].
    #[error("the object nests more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// The object holds a number or text that has no value, such as `1e999`.
    #[error("the object holds a value that cannot be read")]
    Unreadable,
}

impl<'a> Head<'a> {
    /// Reads a review's head from the front of `body`, which may be cut off
    /// behind it.
    ///
    /// The API server writes the fields in the order of its Go type, objects
    /// last; where the fields come in exactly that order, reading ends before
    /// the objects. In any other order the whole body is read, with the same
    /// result as [`Request::parse`].
    ///
    /// # Errors
    /// Says what is wrong with the part that was read.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        Fields::read(body, Until::Head)?.head()
    }

    /// The object that it is about, of the kind of the body. Without a name, its name is empty.
    pub fn object(&self) -> ObjectId {
        self.object_of(&self.kind.group, &self.kind.kind)
    }

    /// The same object of another kind.
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
    Fields::read(front, Until::Author).map(|mut fields| fields.author()).unwrap_or_default()
}

impl<'a> Request<'a> {
    /// Reads a whole review, but for the values of its objects.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        Fields::read(body, Until::End)?.request()
    }
}

/// Reads one object of a review. If a key occurs twice, the last one counts, as in the API server.
///
/// # Errors
/// The object's content is beyond what can be judged.
pub fn object(text: &str) -> Result<Value, ObjectError> {
    serde_json::from_str(text).map_err(|_| {
        if nests_deeper(text, MAX_DEPTH) { ObjectError::TooDeep } else { ObjectError::Unreadable }
    })
}

/// Whether JSON nests more than `levels` deep.
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

#[cfg(test)]
mod tests;
