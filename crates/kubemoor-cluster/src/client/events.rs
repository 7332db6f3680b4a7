//! Events (`events.k8s.io/v1`) about objects and GuardedReleases.
//!
//! Entry point: [`Events::publish`]. Invariant: a repeated notice increments the count of its existing event
//! (a series), which is written at most every half minute. All writes are rate-limited, and notices beyond
//! the rate are dropped. Only a leader writes. Must not put a Secret's values into a note: notes come
//! redacted.
//!
//! kube's own recorder keeps the first note of a series for every later one, and builds the event's name from
//! the object's name. Names such as those of ClusterRoles are not valid there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use jiff::Timestamp;
use kube::core::Request as Requests;
use kube::core::params::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::CallError;
use super::lease::Leadership;
use super::resource::{Resource, segment};
use super::writer::{SendError, Turn, Writer};

/// The name under which Kubemoor reports.
const CONTROLLER: &str = "kubemoor.dev/guard";

/// Repeats within this time form one series.
const SERIES: Duration = Duration::from_secs(600);

/// The minimum time between two writes of a series.
const QUIET: Duration = Duration::from_secs(30);

/// Series that are remembered.
const REMEMBERED: usize = 4096;

/// Events per second, and in one burst.
const RATE: NonZeroU32 = match NonZeroU32::new(10) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};
const BURST: NonZeroU32 = match NonZeroU32::new(50) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// How long one write may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes that the API server takes as a note.
const NOTE: usize = 1024;

/// The namespace of events about cluster-scoped objects: the one that every API
/// server takes them in. Older ones take none in `default`.
const NOWHERE: &str = "kube-system";

/// Writes events.
pub struct Events {
    writer: Writer,
    instance: String,
    series: Mutex<HashMap<u64, Series>>,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Regarding {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; none for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid; none for objects that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// What it is about.
    pub regarding: Regarding,
    /// What else it concerns.
    pub related: Option<Regarding>,
    /// Whether the event needs attention.
    pub warning: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// What the guard did, in one word.
    pub action: &'static str,
    /// For people.
    pub note: String,
}

/// The outcome of publishing a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is written.
    Written,
    /// It was said a moment ago and is only counted.
    Counted,
    /// Too much was said.
    Dropped,
}

struct Series {
    name: String,
    count: u32,
    said: Instant,
    written: Instant,
}

impl Events {
    /// Events by `instance`, one of several replicas.
    pub fn new(client: kube::Client, leadership: Leadership, instance: String) -> Self {
        let rate = Quota::per_second(RATE).allow_burst(BURST);
        let writer = Writer::new(client, rate, leadership).within(PATIENCE);
        Self { writer, instance, series: Mutex::default() }
    }

    /// Says `notice`.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn publish(&self, notice: &Notice) -> Result<Published, CallError> {
        let key = key(notice);
        let now = Instant::now();
        let again = {
            let mut series = self.series.lock();
            series.retain(|_, series| now.duration_since(series.said) < SERIES);
            series.get_mut(&key).map(|series| {
                series.count = series.count.saturating_add(1);
                series.said = now;
                let due = now.duration_since(series.written) >= QUIET;
                (series.name.clone(), series.count, due)
            })
        };
        if let Some((_, _, false)) = again {
            return Ok(Published::Counted);
        }
        let Some(turn) = self.writer.turn_now() else { return Ok(Published::Dropped) };
        match self.write(&turn, key, notice, again.map(|(name, count, _)| (name, count))).await {
            Ok(()) => Ok(Published::Written),
            Err(SendError::NotLeading) => Ok(Published::Dropped),
            Err(SendError::Call(error)) => Err(error),
        }
    }

    /// Writes a notice: as the event of this name and count, or as a new one.
    async fn write(
        &self,
        turn: &Turn<'_>,
        key: u64,
        notice: &Notice,
        again: Option<(String, u32)>,
    ) -> Result<(), SendError> {
        let namespace = notice.regarding.namespace.as_deref().unwrap_or(NOWHERE);
        let requests =
            Requests::new(Resource::new("events.k8s.io", "v1", "Event", "events").path(Some(namespace))?);
        if let Some((name, count)) = again {
            let patch = json!({"series": {"count": count, "lastObservedTime": micros(Timestamp::now())}});
            let request = requests
                .patch(&segment(&name)?, &PatchParams::default(), &Patch::Merge(patch))
                .map_err(CallError::from)?;
            match turn.send(request).await {
                // Events live for an hour, or less.
                Err(SendError::Call(error)) if error.is_not_found() => {}
                outcome => {
                    outcome?;
                    self.remember(key, name, Some(count));
                    return Ok(());
                }
            }
        }
        let time = Timestamp::now();
        let name = event_name(&notice.regarding.name, key, time);
        let body = self.body(notice, namespace, &name, time);
        let body =
            serde_json::to_vec(&body).map_err(|error| CallError::Unformed { reason: error.to_string() })?;
        let request = requests.create(&PostParams::default(), body).map_err(CallError::from)?;
        turn.send(request).await?;
        self.remember(key, name, None);
        Ok(())
    }

    fn body(&self, notice: &Notice, namespace: &str, name: &str, time: Timestamp) -> Value {
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micros(time),
            "type": if notice.warning { "Warning" } else { "Normal" },
            "reason": notice.reason, "action": notice.action, "note": cut(&notice.note),
            "regarding": notice.regarding,
            "reportingController": CONTROLLER, "reportingInstance": self.instance,
        });
        if let (Some(related), Some(fields)) = (&notice.related, body.as_object_mut()) {
            fields.insert("related".to_owned(), json!(related));
        }
        body
    }

    fn remember(&self, key: u64, name: String, count: Option<u32>) {
        let now = Instant::now();
        let mut series = self.series.lock();
        if series.len() >= REMEMBERED && !series.contains_key(&key) {
            let oldest = series.iter().min_by_key(|(_, series)| series.said).map(|(key, _)| *key);
            oldest.and_then(|oldest| series.remove(&oldest));
        }
        series.insert(key, Series { name, count: count.unwrap_or(1), said: now, written: now });
    }
}

/// Tells notices apart.
fn key(notice: &Notice) -> u64 {
    let mut hasher = DefaultHasher::new();
    notice.hash(&mut hasher);
    hasher.finish()
}

/// A name that the API server takes, whatever the object is called.
fn event_name(object: &str, key: u64, time: Timestamp) -> String {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let name: String = object
        .chars()
        .take(180)
        .map(|letter| if fits(letter) { letter } else { '-' })
        .skip_while(|letter| *letter == '-')
        .collect();
    let name = if name.is_empty() { "object" } else { &name };
    format!("{}.{key:x}{:x}", name.trim_end_matches('-'), time.as_microsecond())
}

/// As the API writes a MicroTime.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn cut(note: &str) -> &str {
    note.get(..note.floor_char_boundary(NOTE)).unwrap_or(note)
}

#[cfg(test)]
mod tests;
