//! A review as the API server asks it, for code that asks in its place.
//!
//! Entry point: [`Question::to_json`]. Invariant: [`super::Request::parse`] reads the written
//! review back unchanged. Must not choose the question.

use serde_json::{Map, Value, json};

use super::Head;
use kubemoor_declare::model::Actor;

/// The edit that a review asks about, its objects as values.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The subject of the review.
    pub head: Head<'a>,
    /// The user who makes the request.
    pub actor: &'a Actor,
    /// The object as it would be; `None` on DELETE.
    pub object: Option<Value>,
    /// The object as it is; `None` on CREATE.
    pub old_object: Option<Value>,
}

impl Question<'_> {
    /// The `AdmissionReview` of `admission.k8s.io/v1`, of no dry run.
    pub fn to_json(&self) -> Value {
        let Head { uid, kind, resource, subresource, namespace, name, operation } = &self.head;
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

#[cfg(test)]
mod tests;
