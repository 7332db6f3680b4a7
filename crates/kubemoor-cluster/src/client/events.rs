//! Events (`events.k8s.io/v1`): written about objects and GuardedReleases, and read about one object.
//!
//! An equal notice is not written again within ten minutes. Writes are rate-limited, and notices beyond the rate are
//! dropped. Callers pass redacted notes. kube's own recorder is not used: it repeats the first note of a series, and it
//! builds event names from object names, which are invalid for objects such as ClusterRoles.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Event;
use kube::core::params::{ListParams, PostParams};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::lease::Leadership;
use crate::client::resource::ApiResource;
use crate::client::writer::{ClusterWriter, at_least_one};
use kubemoor_runtime::metrics::EventFate;

const CONTROLLER: &str = "kubemoor.dev/guard";

/// The time in which an equal notice is not written again.
const QUIET: Duration = Duration::from_secs(600);

/// Events per second, and in one burst.
const RATE: NonZeroU32 = at_least_one(10);
const BURST: NonZeroU32 = at_least_one(50);

const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The maximum size of a note in bytes.
const NOTE: usize = 1024;

/// The namespace of events about cluster-scoped objects, which every API server accepts. Older ones reject `default`.
const CLUSTER_SCOPED_NAMESPACE: &str = "kube-system";

pub struct Events {
    writer: ClusterWriter,
    instance: String,
    /// When each notice was written; at most as many as [`RATE`] and [`BURST`] allow within [`QUIET`].
    written: Mutex<HashMap<u64, Instant>>,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Regarding {
    pub api_version: String,
    pub kind: String,
    /// Its namespace; `None` for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Its uid; `None` for missing objects.
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

impl Events {
    /// Writes events in the name of the replica `instance`.
    pub fn new(client: kube::Client, leadership: Leadership, instance: String) -> Self {
        let rate = Quota::per_second(RATE).allow_burst(BURST);
        let writer = ClusterWriter::new(client, rate, leadership).within(WRITE_PATIENCE);
        Self { writer, instance, written: Mutex::default() }
    }

    /// Writes an event, unless it repeats an earlier one or exceeds the rate.
    pub async fn publish(&self, notice: &Notice) -> Result<EventFate, ClusterError> {
        let (key, now) = (key(notice), Instant::now());
        let is_repeated = {
            let mut written = self.written.lock();
            written.retain(|_, at| now.duration_since(*at) < QUIET);
            written.contains_key(&key)
        };
        if is_repeated {
            return Ok(EventFate::Counted);
        }
        match self.writer.send_now(self.request(notice, key)?).await {
            None | Some(Err(ClusterError::NotLeading)) => Ok(EventFate::Dropped),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => {
                self.written.lock().insert(key, now);
                Ok(EventFate::Written)
            }
        }
    }

    fn request(&self, notice: &Notice, key: u64) -> Result<Request<Vec<u8>>, ClusterError> {
        let time = Timestamp::now();
        let namespace = notice.regarding.namespace.as_deref().unwrap_or(CLUSTER_SCOPED_NAMESPACE);
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": event_name(&notice.regarding.name, key, time), "namespace": namespace},
            "eventTime": micros(time),
            "type": if notice.warning { "Warning" } else { "Normal" },
            "reason": notice.reason, "action": notice.action, "note": cut(&notice.note),
            "regarding": notice.regarding, "related": notice.related,
            "reportingController": CONTROLLER, "reportingInstance": self.instance,
        });
        let requests =
            ApiResource::new("events.k8s.io", "v1", "Event", "events").requests(Some(namespace))?;
        Ok(requests.create(&PostParams::default(), call::encode(&body)?)?)
    }
}

fn key(notice: &Notice) -> u64 {
    let mut hasher = DefaultHasher::new();
    notice.hash(&mut hasher);
    hasher.finish()
}

/// A valid event name, whatever the object's name is.
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

/// Formats a time as a MicroTime.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn cut(note: &str) -> &str {
    note.get(..note.floor_char_boundary(NOTE)).unwrap_or(note)
}

const MOST_LISTED: u32 = 200;

/// When an event, of either API version, was last seen.
pub fn last_seen(event: &Event) -> Option<Timestamp> {
    let (last, created) = (event.last_timestamp.as_ref(), event.metadata.creation_timestamp.as_ref());
    let seen = last.map(|time| time.0).or(event.event_time.as_ref().map(|time| time.0));
    seen.or(created.map(|time| time.0))
}

/// The events in `namespace` about the object of this kind and name.
pub async fn list_object_events(
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
