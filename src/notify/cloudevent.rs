//! A message as a CloudEvent (version 1.0, JSON format).
//!
//! Entry point: [`body`]. Invariant: the same message has the same id, so that a
//! receiver that is told twice can tell.

use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Message, Subject};
use crate::verdict::shown::Shown;

/// The most fields that are told of.
const FIELDS: usize = 20;

/// The bytes that are sent; `source` names the cluster.
pub(super) fn body(message: &Message, source: &str, now: Timestamp) -> Vec<u8> {
    let Message { subject, release, revision, object, drift, fields, by, since, detail } = message;
    // Of long values the front: an event is for people.
    let brief = |value: &Option<Shown>| value.as_ref().map(ToString::to_string);
    let data = json!({
        "release": {"namespace": release.namespace, "name": release.name, "revision": revision},
        "object": object,
        "drift": drift,
        "fields": fields.iter().take(FIELDS).map(|field| json!({
            "path": field.path.to_string(), "declared": brief(&field.declared), "live": brief(&field.new),
        })).collect::<Vec<_>>(),
        "moreFields": fields.len().saturating_sub(FIELDS),
        "by": by,
        "since": since,
        "detail": detail,
    });
    let kind = kind(*subject);
    let named = json!([source, kind, data]).to_string();
    let id: String =
        Sha256::digest(named.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let place = object.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let event = json!({
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": kind,
        "subject": format!("{}/{place}{}", object.kind, object.name),
        "time": now,
        "datacontenttype": "application/json",
        "data": data,
    });
    event.to_string().into_bytes()
}

fn kind(subject: Subject) -> &'static str {
    match subject {
        Subject::Drifted => "dev.kubemoor.drift.detected",
        Subject::Repaired => "dev.kubemoor.drift.repaired",
        Subject::NotRepaired => "dev.kubemoor.drift.not-repaired",
    }
}
