//! The message format of a receiver.
//!
//! Entry points: [`Format::body`] for the bytes of one request, [`Format::together`] for the number of
//! messages in it. Invariant: text from the cluster stays text, whatever it contains. Does no I/O; `now` is
//! an argument.

mod alertmanager;
mod cloudevent;
pub(super) mod pagerduty;
mod slack;
mod teams;
pub(super) mod template;

use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;

use self::template::Template;
use super::message::{Message, Phase, Subject, Topic};
use crate::message::Severity;

/// The form of messages.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// CloudEvents 1.0.
    CloudEvents,
    /// Incoming webhooks of Slack, Mattermost, Rocket.Chat.
    Slack,
    /// Workflows webhooks of Microsoft Teams.
    Teams,
    /// Alertmanager's API.
    Alertmanager,
    /// PagerDuty's events, under this routing key.
    PagerDuty(SecretString),
    /// What a template makes.
    Template(Box<Template>),
}

impl Format {
    /// How many messages one request may hold.
    pub(super) fn together(&self) -> usize {
        match self {
            Self::CloudEvents | Self::PagerDuty(_) | Self::Template(_) => 1,
            Self::Slack => slack::TOGETHER,
            Self::Teams => teams::TOGETHER,
            Self::Alertmanager => alertmanager::TOGETHER,
        }
    }

    /// Whether a lasting state needs reminders.
    pub(super) fn wants_reminders(&self) -> bool {
        matches!(self, Self::Alertmanager)
    }

    /// Whether the receiver supports such events. PagerDuty opens an alert for each event, and nothing would
    /// ever resolve one for a denial.
    pub(super) fn takes(&self, topic: Topic) -> bool {
        !matches!((self, topic), (Self::PagerDuty(_), Topic::Denial))
    }

    /// Whether a receiver without routes gets such events.
    pub(super) fn tells(&self, topic: Topic) -> bool {
        // A granted exception is no reason to page anyone.
        self.takes(topic) && !matches!((self, topic), (Self::PagerDuty(_), Topic::Exception))
    }

    /// How its requests describe themselves.
    pub(super) fn content_type(&self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            _ => "application/json; charset=utf-8",
        }
    }

    /// The body of one request with some messages; `None` where there is nothing to send. `source` names the
    /// cluster.
    pub(super) fn body(
        &self,
        messages: &[Arc<Message>],
        source: &str,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, String> {
        let Some(first) = messages.first() else { return Ok(None) };
        let json = match self {
            Self::CloudEvents => Some(cloudevent::body(first, source)),
            Self::Slack => Some(slack::body(messages)),
            Self::Teams => Some(teams::body(messages)),
            Self::Alertmanager => Some(alertmanager::body(messages, source, now)),
            Self::PagerDuty(routing_key) => pagerduty::body(first, routing_key, source),
            Self::Template(template) => return template.render(first, source).map(Some),
        };
        Ok(json.map(|json| json.to_string().into_bytes()))
    }
}

/// By which colour and sign people tell how bad it is, in Teams and in Slack.
fn mark(subject: Subject) -> (&'static str, &'static str) {
    match (subject.phase(), subject.topic().severity()) {
        (Phase::Ends, _) => ("Good", ":white_check_mark:"),
        (_, Severity::Critical) => ("Attention", ":rotating_light:"),
        (_, Severity::Warning) => ("Warning", ":warning:"),
        (_, Severity::Info) => ("Accent", ":information_source:"),
    }
}

#[cfg(test)]
mod tests;
