//! A review as the verdict's functions take it.
//!
//! Entry points: [`Question::of`], [`Question::answer`].

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Report;
use crate::declaration::path::{Path, Segment};
use crate::helm::index::Index;
use crate::helm::record::{self, DEFAULT_CAP};
use crate::model::{ObjectId, Operation};
use crate::verdict::dependants;
use crate::verdict::edit::{Edit, Evidence, Outcome, Owner, Reason, Rules, Verdict};
use crate::verdict::judge::judge;
use crate::verdict::message;
use crate::verdict::records::{self, RecordEdit, Stored};
use crate::webhook::review::{self, ObjectError, Request};

/// One review, its objects read.
pub(super) struct Question<'r> {
    request: &'r Request<'r>,
    operation: Operation,
    old: Read,
    new: Read,
}

/// An object of a review: none, or its value, or why it has none.
type Read = Option<Result<Value, ObjectError>>;

/// Why a review asks nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuestionError {
    /// `CONNECT`, or a word that is no operation.
    #[error("its operation is none of CREATE, UPDATE and DELETE")]
    Operation,
    /// Neither the request nor its object has a name.
    #[error("it names no object")]
    Name,
}

impl<'r> Question<'r> {
    pub(super) fn of(request: &'r Request<'r>) -> Result<Self, QuestionError> {
        let operation = request.head.operation.ok_or(QuestionError::Operation)?;
        let question = Self {
            request,
            operation,
            old: request.old_object.map(review::object),
            new: request.object.map(review::object),
        };
        if question.name().is_empty() { Err(QuestionError::Name) } else { Ok(question) }
    }

    /// The namespace that the object under judgement lies in, or is.
    pub(super) fn namespace(&self) -> Option<&str> {
        let kind = &self.request.head.kind;
        let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
        if is_namespace { Some(self.name()) } else { self.request.head.namespace.as_deref() }
    }

    /// The release that the object says it belongs to.
    pub(super) fn owner(&self) -> Owner {
        if self.is("scale") {
            return Owner::Unknown;
        }
        self.before().or(self.after()).map_or(Owner::Unknown, Owner::of)
    }

    /// The verdict by the releases of `index`.
    pub(super) fn answer(&self, index: &Index, rules: &Rules<'_>, now: Timestamp) -> Report {
        let object = self.object(index);
        let (verdict, message) = self.judged(&object, index, rules, now);
        let message = (verdict.outcome != Outcome::Allow).then_some(message).flatten();
        Report { object, operation: self.operation, verdict, message }
    }

    fn judged(
        &self,
        object: &ObjectId,
        index: &Index,
        rules: &Rules<'_>,
        now: Timestamp,
    ) -> (Verdict, Option<String>) {
        let plain = |verdict: Verdict| (verdict, None);
        if !(self.request.head.subresource.is_none() || self.is("status") || self.is("scale")) {
            return plain(Verdict::allow(Reason::NotDeclared));
        }
        let unread = |read: &Read| matches!(read, Some(Err(_)));
        let claims = index.claims(object);
        if unread(&self.old) || unread(&self.new) {
            return plain(match claims.is_empty() {
                true => Verdict::allow(Reason::NotDeclared),
                false => Verdict::by_mode(rules.policy, Reason::TooDeep, None),
            });
        }
        if let ("Secret" | "ConfigMap", Some((id, _))) = (object.kind.as_str(), records::names(object)) {
            let edit = self.record_edit(object);
            let (verdict, falsified) = records::judge(&edit, index.release(&id).map(AsRef::as_ref), rules);
            return (verdict, falsified.map(|falsified| message::of_record(object, falsified)));
        }
        let scale = self.is("scale").then(|| {
            let head = &self.request.head;
            index.kind_of_resource(&head.resource.group, &head.resource.resource).and_then(|(_, path)| path)
        });
        let (old, new) = match scale {
            None => (self.before().map(Cow::Borrowed), self.after().map(Cow::Borrowed)),
            Some(None) => return plain(Verdict::allow(Reason::NotDeclared)),
            Some(Some(path)) => (
                self.before().map(|it| Cow::Owned(scaled(it, path))),
                self.after().map(|it| Cow::Owned(scaled(it, path))),
            ),
        };
        let edit = Edit {
            operation: self.operation,
            actor: &self.request.actor,
            object,
            old: old.as_deref(),
            new: new.as_deref(),
            scale: scale.is_some(),
            owner: self.owner(),
            dry_run: self.request.dry_run,
            field_manager: self.request.field_manager.as_deref().unwrap_or_default(),
        };
        if let (Operation::Delete, Some(taken)) = (self.operation, dependants::taken(object)) {
            let along = dependants::of(&taken, index, rules, now);
            let verdict = dependants::judge(&edit, claims, &along, rules, now);
            let message = match verdict.reason {
                Reason::Dependants => message::of_dependants(object, &along),
                _ => message::sentence(object, self.operation, &verdict),
            };
            return (verdict, Some(message));
        }
        let verdict = judge(&edit, claims, rules, Evidence::None, now);
        let message = message::sentence(object, self.operation, &verdict);
        (verdict, Some(message))
    }

    /// The object under judgement; of a subresource, its parent.
    fn object(&self, index: &Index) -> ObjectId {
        let head = &self.request.head;
        let parent = || index.kind_of_resource(&head.resource.group, &head.resource.resource);
        let (group, kind) = match (self.is("scale"), parent()) {
            (true, Some((kind, _))) => (head.resource.group.to_string(), kind.to_owned()),
            _ => (head.kind.group.to_string(), head.kind.kind.to_string()),
        };
        ObjectId {
            group,
            kind,
            namespace: head.namespace.as_deref().map(str::to_owned),
            name: self.name().to_owned(),
        }
    }

    fn name(&self) -> &str {
        match &self.request.head.name {
            Some(name) => name,
            None => self
                .before()
                .or(self.after())
                .and_then(|object| object.pointer("/metadata/name"))
                .and_then(Value::as_str)
                .unwrap_or_default(),
        }
    }

    fn is(&self, subresource: &str) -> bool {
        self.request.head.subresource.as_deref() == Some(subresource)
    }

    fn before(&self) -> Option<&Value> {
        self.old.as_ref()?.as_ref().ok()
    }

    fn after(&self) -> Option<&Value> {
        self.new.as_ref()?.as_ref().ok()
    }

    fn record_edit<'e>(&'e self, object: &'e ObjectId) -> RecordEdit<'e> {
        RecordEdit {
            operation: self.operation,
            actor: &self.request.actor,
            object,
            old: self.before().map(stored),
            new: self.after().map(stored),
            being_deleted: self
                .before()
                .is_some_and(|old| old.pointer("/metadata/deletionTimestamp").is_some()),
        }
    }
}

/// An object with nothing but the replicas of `scale`, where its kind keeps
/// them. A Scale leaves out zero.
fn scaled(scale: &Value, path: &Path) -> Value {
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| Value::from(0));
    path.0.iter().rev().fold(replicas, |inner, segment| match segment {
        Segment::Field(name) => Value::Object(Map::from_iter([(name.clone(), inner)])),
        // A CRD's path to the replicas has fields alone.
        Segment::Key(_) | Segment::Element(_) => inner,
    })
}

fn stored(object: &Value) -> Stored {
    let label = |name: &str| Some(object.pointer("/metadata/labels")?.get(name)?.as_str()?.to_owned());
    let release = object.pointer("/data/release").and_then(Value::as_str).unwrap_or_default();
    let payload = match object.get("kind").and_then(Value::as_str) {
        Some("ConfigMap") => release.as_bytes().to_vec(),
        // What is no base64 is no record either: decoding it says so.
        _ => BASE64_STANDARD.decode(release).unwrap_or_default(),
    };
    Stored {
        owner: label("owner"),
        name: label("name"),
        version: label("version"),
        status: label("status"),
        payload: record::decode(&payload, DEFAULT_CAP),
    }
}
