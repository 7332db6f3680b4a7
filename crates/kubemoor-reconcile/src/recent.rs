//! Recently seen objects that match no known manifest: Helm's write of an object can arrive before
//! the record.
//!
//! Entry point: [`Recent`]. Invariant: bounded to a few seconds and megabytes, whatever is written.
//! Must not be used for anything but the question whether an object agreed with the present
//! declaration.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::elapsed::elapsed;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The time in which a record has to arrive.
const AGE: Duration = Duration::from_secs(10);

/// The most bytes that are kept in all, and of one object.
const BYTES: usize = 4 << 20;
const OBJECT: usize = 512 << 10;

/// Objects as they were just seen.
#[derive(Default)]
pub(crate) struct Recent {
    seen: VecDeque<Seen>,
    bytes: usize,
}

/// One object as it was seen in a version of its kind.
struct Seen {
    release: ReleaseId,
    object: ObjectId,
    version: String,
    text: Vec<u8>,
    at: Timestamp,
}

impl Recent {
    /// Keeps the seen state of an object of a release.
    pub(crate) fn keep(
        &mut self,
        (release, object): (&ReleaseId, &ObjectId),
        version: &str,
        value: &Value,
        now: Timestamp,
    ) {
        let Ok(text) = serde_json::to_vec(value) else { return };
        if text.len() > OBJECT {
            return;
        }
        self.bytes += text.len();
        let (release, object, version) = (release.clone(), object.clone(), version.to_owned());
        self.seen.push_back(Seen { release, object, version, text, at: now });
        while self.bytes > BYTES || self.seen.front().is_some_and(|it| elapsed(it.at, now) > AGE) {
            let Some(oldest) = self.seen.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// Removes and returns the recently seen objects of a release: each with the version of its
    /// kind, the oldest first.
    pub(crate) fn take(&mut self, release: &ReleaseId, now: Timestamp) -> Vec<(ObjectId, String, Value)> {
        if self.seen.iter().all(|it| it.release != *release) {
            return Vec::new();
        }
        let (own, others): (VecDeque<Seen>, _) =
            std::mem::take(&mut self.seen).into_iter().partition(|it| it.release == *release);
        self.seen = others;
        self.bytes = self.seen.iter().map(|it| it.text.len()).sum();
        let fresh = own.into_iter().filter(|it| elapsed(it.at, now) <= AGE);
        fresh.filter_map(|it| Some((it.object, it.version, serde_json::from_slice(&it.text).ok()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "shop".into(), name: name.into() }
    }

    fn object(name: &str) -> ObjectId {
        ObjectId::namespaced("", "ConfigMap", "shop", name)
    }

    #[test]
    fn release_takes_its_own_once_and_for_ten_seconds() {
        let (mut recent, now) = (Recent::default(), "2026-05-01T12:00:00Z".parse::<Timestamp>().unwrap());
        for (of, name, seconds) in [("web", "a", 0), ("api", "b", 1), ("web", "a", 5), ("web", "c", 6)] {
            let at = now + Duration::from_secs(seconds);
            recent.keep((&release(of), &object(name)), "v1", &json!(seconds), at);
        }
        let names = |taken: Vec<(ObjectId, String, Value)>| {
            taken.into_iter().map(|(object, _, value)| format!("{}{value}", object.name)).collect::<Vec<_>>()
        };
        assert_eq!(names(recent.take(&release("web"), now + Duration::from_secs(11))), ["a5", "c6"]);
        assert!(recent.take(&release("web"), now).is_empty());
        assert_eq!(names(recent.take(&release("api"), now + Duration::from_secs(11))), ["b1"]);
        assert_eq!(recent.bytes, 0);
    }

    #[test]
    fn oversized_objects_are_not_kept_and_oldest_are_evicted_first() {
        let (mut recent, now) = (Recent::default(), "2026-05-01T12:00:00Z".parse::<Timestamp>().unwrap());
        let text = |bytes: usize| json!("x".repeat(bytes));
        recent.keep((&release("web"), &object("huge")), "v1", &text(OBJECT), now);
        assert_eq!(recent.bytes, 0);
        for index in 0..20 {
            recent.keep((&release("web"), &object(&index.to_string())), "v1", &text(OBJECT - 2), now);
        }
        assert_eq!(recent.bytes, BYTES);
        let taken = recent.take(&release("web"), now);
        assert_eq!((taken.len(), taken[0].0.name.as_str()), (BYTES / OBJECT, "12"));
    }
}
