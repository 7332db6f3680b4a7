//! Events (`events.k8s.io/v1`): written about objects and GuardedReleases, and read about one object.
//!
//! A repeated notice increments the count of its existing event (a series), which is written at most every half minute.
//! All writes are rate-limited, and notices beyond the rate are dropped. Notes come redacted. kube's own recorder keeps
//! the first note of a series for every later one, and builds the event's name from the object's name; names such as
//! those of ClusterRoles are not valid there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Event;
use kube::core::params::{ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::lease::Leadership;
use crate::client::resource::{ApiResource, segment};
use crate::client::writer::{ClusterWriter, WriteTurn, at_least_one};
use kubemoor_runtime::metrics::EventFate;

const CONTROLLER: &str = "kubemoor.dev/guard";

/// Repeats within this time form one series.
const SERIES: Duration = Duration::from_secs(600);

/// The minimum time between two writes of a series.
const QUIET: Duration = Duration::from_secs(30);

const REMEMBERED: usize = 4096;

/// Events per second, and in one burst.
const RATE: NonZeroU32 = at_least_one(10);
const BURST: NonZeroU32 = at_least_one(50);

const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes that the API server takes as a note.
const NOTE: usize = 1024;

/// The namespace of events about cluster-scoped objects: the one that every API
/// server takes them in. Older ones take none in `default`.
const NOWHERE: &str = "kube-system";

pub struct Events {
    writer: ClusterWriter,
    instance: String,
    series: Mutex<HashMap<u64, Series>>,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Regarding {
    pub api_version: String,
    pub kind: String,
    /// Its namespace; none for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Its uid; none for objects that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    pub regarding: Regarding,
    pub related: Option<Regarding>,
    pub warning: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// What the guard did, in one word.
    pub action: &'static str,
    pub note: String,
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
        let writer = ClusterWriter::new(client, rate, leadership).within(WRITE_PATIENCE);
        Self { writer, instance, series: Mutex::default() }
    }

    /// Writes an event, unless it repeats one, which then counts, or there are too many.
    pub async fn publish(&self, notice: &Notice) -> Result<EventFate, ClusterError> {
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
            return Ok(EventFate::Counted);
        }
        let Some(turn) = self.writer.turn_now() else { return Ok(EventFate::Dropped) };
        match self.write(&turn, key, notice, again.map(|(name, count, _)| (name, count))).await {
            Ok(()) => Ok(EventFate::Written),
            Err(ClusterError::NotLeading) => Ok(EventFate::Dropped),
            Err(error) => Err(error),
        }
    }

    /// Writes a notice: as the event of this name and count, or as a new one.
    async fn write(
        &self,
        turn: &WriteTurn<'_>,
        key: u64,
        notice: &Notice,
        again: Option<(String, u32)>,
    ) -> Result<(), ClusterError> {
        let namespace = notice.regarding.namespace.as_deref().unwrap_or(NOWHERE);
        let resource = ApiResource::new("events.k8s.io", "v1", "Event", "events");
        let requests = resource.requests(Some(namespace))?;
        if let Some((name, count)) = again {
            let patch = json!({"series": {"count": count, "lastObservedTime": micros(Timestamp::now())}});
            let request = requests.patch(&segment(&name)?, &PatchParams::default(), &Patch::Merge(patch))?;
            match turn.send(request).await {
                // Events live for an hour, or less.
                Err(error) if error.is_not_found() => {}
                outcome => {
                    outcome?;
                    self.remember(key, name, Some(count));
                    return Ok(());
                }
            }
        }
        let time = Timestamp::now();
        let name = event_name(&notice.regarding.name, key, time);
        let body = call::encode(&self.body(notice, namespace, &name, time))?;
        turn.send(requests.create(&PostParams::default(), body)?).await?;
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

const MOST_LISTED: u32 = 200;

/// When an event, in either of the API's forms, was seen last.
pub fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let (last, created) = (event.last_timestamp.as_ref(), event.metadata.creation_timestamp.as_ref());
    let seen = series.map(|time| time.0).or(last.map(|time| time.0));
    seen.or(event.event_time.as_ref().map(|time| time.0)).or(created.map(|time| time.0))
}

/// The events in `namespace` about the object of this kind and name.
pub async fn about(
    client: &kube::Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<Event>, ClusterError> {
    let requests = ApiResource::new("", "v1", "Event", "events").requests(Some(namespace))?;
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let parameters = ListParams::default().fields(&fields).limit(MOST_LISTED);
    let list: List<Event> = call::fetch(client, requests.list(&parameters)?, PATIENCE).await?;
    Ok(list.items)
}

#[cfg(test)]
mod tests;
