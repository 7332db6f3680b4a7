//! Messages as alerts of Alertmanager (API v2).
//!
//! Entry point: [`body`]. Invariant: the first and the last message about a condition have the same labels,
//! by which Alertmanager resolves the alert. An alert without reminders ends automatically. `endsAt` is never
//! before `startsAt`, which Alertmanager would reject. Alertmanager forwards annotations to chats unchanged,
//! so text from the cluster cannot mention anyone there.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::slack::disarmed;
use crate::message::{Message, Phase, Topic};
use crate::words::{Line, Piece, Words};

/// The most alerts in one request.
pub(super) const TOGETHER: usize = 64;

/// How long an alert lasts without a reminder. Reminders come within a third of it.
const LASTING: SignedDuration = SignedDuration::from_mins(6);

/// Some alerts; `source` names the cluster.
pub(super) fn body(messages: &[Arc<Message>], source: &str, now: Timestamp) -> Value {
    messages.iter().map(|message| alert(message, source, now)).collect()
}

fn alert(message: &Message, source: &str, now: Timestamp) -> Value {
    let Message { subject, since, object, .. } = message;
    let words = Words::of(message);
    let topic = subject.topic();
    let ends = match (subject.phase(), message.until) {
        (Phase::Ends, _) => now,
        (Phase::Begins, Some(until)) => until,
        (Phase::Begins | Phase::Once, _) => now.checked_add(LASTING).unwrap_or(now),
    };
    let object = object.as_ref();
    let labels = [
        ("alertname", Some(name(topic))),
        ("severity", Some(topic.severity().as_str())),
        ("cluster", Some(source.strip_prefix("urn:kubemoor:").unwrap_or(source))),
        ("namespace", message.concerned()),
        ("release", message.release.as_ref().map(|release| release.name.as_str())),
        ("object_kind", object.map(|it| it.kind.as_str())),
        ("object_group", object.map(|it| it.group.as_str())),
        ("object_namespace", object.and_then(|it| it.namespace.as_deref())),
        ("object_name", object.map(|it| it.name.as_str())),
        ("exception", Some(message.key.as_str()).filter(|_| topic == Topic::Exception)),
        ("user", message.by.as_deref().filter(|_| topic == Topic::Denial)),
    ];
    // An empty label counts as absent.
    let labels =
        labels.into_iter().filter_map(|(name, value)| Some((name, value.filter(|it| !it.is_empty())?)));
    let description: Vec<_> = words.lines.iter().map(harmless).collect();
    json!({
        "labels": labels.collect::<std::collections::BTreeMap<_, _>>(),
        "annotations": {"summary": harmless(&words.title), "description": description.join("\n")},
        "startsAt": since,
        "endsAt": ends.max(*since),
    })
}

/// Makes text from the cluster safe for chats: it mentions no one, and is not Slack markup.
fn harmless(line: &Line) -> String {
    line.iter()
        .map(|piece| match piece {
            Piece::Said(text) => text.clone(),
            Piece::Named(text) => disarmed(text).replace('<', "<\u{200b}"),
        })
        .collect()
}

fn name(topic: Topic) -> &'static str {
    match topic {
        Topic::Drift => "KubemoorDrift",
        Topic::Contest => "KubemoorContest",
        Topic::Brake => "KubemoorBrake",
        Topic::Emergency => "KubemoorEmergency",
        Topic::Exception => "KubemoorException",
        Topic::Denial => "KubemoorDenial",
        Topic::Operation => "KubemoorOperationStuck",
        Topic::Test => "KubemoorTest",
    }
}
