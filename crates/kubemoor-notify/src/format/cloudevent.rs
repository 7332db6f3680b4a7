//! A message as a CloudEvent (version 1.0, JSON format).
//!
//! Entry point: [`body`]. Invariant: the same message always has the same id, so that a receiver can
//! recognize duplicates.

use serde_json::{Value, json};

use crate::message::{Message, digest};
use kubemoor_verdict::shown::Shown;

/// The maximum number of fields in a message.
const FIELDS: usize = 20;

/// The event; `source` names the cluster.
pub(super) fn body(message: &Message, source: &str) -> Value {
    let data = data(message);
    let kind = format!("dev.kubemoor.{}", message.subject.as_str());
    let named = json!([source, kind, data]).to_string();
    json!({
        "specversion": "1.0",
        "id": digest(&named),
        "source": source,
        "type": kind,
        "subject": subject(message),
        "time": message.at,
        "datacontenttype": "application/json",
        "data": data,
    })
}

/// The facts of a message, for machines.
pub(super) fn data(message: &Message) -> Value {
    let Message { release, revision, object, drift, fields, by, since, detail, .. } = message;
    let Message { namespace, until, count, .. } = message;
    // Of long values the front: an event is for people.
    let brief = |value: &Option<Shown>| value.as_ref().map(ToString::to_string);
    let mut data = json!({
        "release": release.as_ref().map(|release| json!({
            "namespace": release.namespace, "name": release.name, "revision": revision,
        })),
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
    let more = [
        ("namespace", namespace.as_ref().map(|it| json!(it))),
        ("until", until.as_ref().map(|it| json!(it))),
        ("count", (*count > 1).then(|| json!(count))),
    ];
    if let Some(data) = data.as_object_mut() {
        data.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    data
}

fn subject(message: &Message) -> String {
    let Message { object, release, namespace, .. } = message;
    match (object, release, namespace) {
        (Some(object), ..) => {
            let place = object.namespace.as_deref().map(|it| format!("{it}/")).unwrap_or_default();
            format!("{}/{place}{}", object.kind, object.name)
        }
        (None, Some(release), _) => release.to_string(),
        (None, None, Some(namespace)) => namespace.clone(),
        (None, None, None) => "cluster".to_owned(),
    }
}
