//! A message as an event of PagerDuty (Events API v2).
//!
//! Entry point: [`body`]. Invariant: all that lasts of one topic and release is
//! one alert, which is resolved when the last of it ends.

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::cloudevent;
use crate::message::{Message, Phase};
use crate::words::{Words, plain, tame};

/// PagerDuty's address for events, unless the file names another one.
pub(crate) const URL: &str = "https://events.pagerduty.com/v2/enqueue";

/// The most characters of a summary.
const SUMMARY: usize = 1000;

/// The event; `None` where the alert has to stay open.
pub(super) fn body(message: &Message, routing_key: &secrecy::SecretString, source: &str) -> Option<Value> {
    let dedup_key = message.incident(source);
    let routing_key = routing_key.expose_secret();
    if message.subject.phase() == Phase::Ends {
        let event = json!({"routing_key": routing_key, "event_action": "resolve", "dedup_key": dedup_key});
        return (message.remaining == 0).then_some(event);
    }
    let words = Words::of(message);
    let topic = message.subject.topic();
    let mut details = cloudevent::data(message);
    if let Some(details) = details.as_object_mut() {
        details.insert("text".to_owned(), words.text().into());
    }
    Some(json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": dedup_key,
        "client": "Kubemoor",
        "payload": {
            "summary": tame(&plain(&words.title), SUMMARY),
            "source": source,
            "severity": topic.severity().as_str(),
            "timestamp": message.since,
            "component": message.release.as_ref().map(ToString::to_string),
            "group": message.concerned(),
            "class": topic,
            "custom_details": details,
        },
    }))
}
