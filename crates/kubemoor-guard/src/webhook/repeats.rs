//! Finds updates about which the API server asks a second time.
//!
//! An API server tries an update again if the object changed before the update was stored. One request is then judged twice.
//! Only the same update of the same object by the same user is a repeat, and only if the first one was certainly not stored:
//! of all updates of one version of an object at most one is stored ([`ObjectVersion`]). Of denied ones, which an API server
//! may ask about again too, the ledger counts the repeats.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_verdict::edit::{FieldFinding, Verdict};
use kubemoor_verdict::shown::{SealingKey, Shown};

/// The longest time between two reviews of an update. Before the second one, other webhooks may take their
/// time for the first one.
const PASSING: Duration = Duration::from_secs(10);

/// The most updates that are remembered.
const MOST: usize = 1024;

/// The recent updates that passed although they drift.
#[derive(Default)]
pub(super) struct EditRepeats {
    hasher: RandomState,
    passed: Mutex<VecDeque<PassedUpdate>>,
}

struct PassedUpdate {
    at: Instant,
    key: u64,
    version: ObjectVersion,
    /// How many reviews of it there were about this version.
    asked: usize,
    /// The number of requests that they belong to.
    requests: usize,
}

impl EditRepeats {
    /// Records a verdict on a user's update of an object, which changes `version`. Returns whether the API server has
    /// asked about it before.
    pub(super) fn is_repeat(
        &self,
        (object, actor): (&ObjectId, &Actor),
        verdict: &Verdict,
        version: ObjectVersion,
        now: Instant,
    ) -> bool {
        if !changes(verdict) {
            return false;
        }
        let key = self.key(object, actor, verdict);
        let mut last = self.passed.lock();
        make_room(&mut last, now);
        let concerns = |seen: &PassedUpdate| {
            seen.key == key && (seen.version == version || version.follows(&seen.version))
        };
        let known = last.iter().rposition(concerns).and_then(|place| last.remove(place));
        let mut seen = match known {
            // An API server asks again only because the object has changed: on the same version it is another request.
            Some(seen) if seen.version == version => PassedUpdate { asked: seen.asked + 1, ..seen },
            Some(seen) => PassedUpdate { asked: 1, version, ..seen },
            None => PassedUpdate { at: now, key, version, asked: 1, requests: 0 },
        };
        let is_repeat = seen.asked <= seen.requests;
        seen.requests = seen.requests.max(seen.asked);
        last.push_back(PassedUpdate { at: now, ..seen });
        is_repeat
    }

    fn key(&self, object: &ObjectId, actor: &Actor, verdict: &Verdict) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        (object, &actor.user, &actor.groups, verdict.outcome.as_str(), verdict.reason).hash(&mut hasher);
        for field in verdict.grounds.iter().flat_map(|grounds| &grounds.fields) {
            hash(field, &mut hasher);
        }
        hasher.finish()
    }
}

/// Forgets the updates that are too old, and the oldest one of too many.
fn make_room(last: &mut VecDeque<PassedUpdate>, now: Instant) {
    while last.front().is_some_and(|seen| now.duration_since(seen.at) > PASSING) || last.len() >= MOST {
        last.pop_front();
    }
}

/// Whether the object shows if the update was stored: it has another value then.
fn changes(verdict: &Verdict) -> bool {
    verdict.grounds.iter().flat_map(|grounds| &grounds.fields).any(|field| field.old != field.new)
}

/// Hashes a field with its old and new value; for a Secret, their digests.
fn hash(finding: &FieldFinding, hasher: &mut impl Hasher) {
    finding.path.to_string().hash(hasher);
    for value in [&finding.old, &finding.new] {
        match value {
            Some(value) if value.is_masked() => value.sealed(&SealingKey::new([0; 32])).hash(hasher),
            value => value.as_ref().map(Shown::full).hash(hasher),
        }
    }
}

/// The version of an object that an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectVersion {
    uid: String,
    resource_version: String,
    /// The object's generation, where the update raises it: the API server counts the changes of the kind's `spec` so.
    /// Other updates raise the resourceVersion alone, which counts the writes to the whole database.
    generation: Option<i64>,
}

impl ObjectVersion {
    /// The version that the update from `old` to `new` changes; `None` where the objects do not tell. `changed` are the
    /// fields by which updates are compared: if none of them raises the generation by itself, another change of them in
    /// between would not be counted.
    pub(super) fn before<'p>(
        old: &Excerpt<'_>,
        new: &Excerpt<'_>,
        changed: impl IntoIterator<Item = &'p Path>,
    ) -> Option<Self> {
        let generation = |object: &Excerpt<'_>| -> Option<i64> {
            object.at(&["metadata", "generation"])?.value()?.as_i64()
        };
        let [uid, resource_version] = old.texts(&["metadata"], ["uid", "resourceVersion"]);
        let is_given = |text: &String| !text.is_empty();
        let (uid, resource_version) = (uid.filter(is_given)?, resource_version.filter(is_given)?);
        let is_counted = changed.into_iter().any(raises_generation);
        let is_raised = |before: &i64| is_counted && generation(new).is_some_and(|now| now > *before);
        Some(Self { uid, resource_version, generation: generation(old).filter(is_raised) })
    }

    /// Whether the object has this version after `before`, with at most one change in between that `generation` counts,
    /// or exactly one of any kind.
    fn follows(&self, before: &Self) -> bool {
        if self.uid != before.uid || self.resource_version == before.resource_version {
            return false;
        }
        match (before.generation, self.generation) {
            (Some(before), Some(now)) => now == before || before.checked_add(1) == Some(now),
            (None, None) => {
                let [before, now] = [before, self].map(|it| it.resource_version.parse::<u64>().ok());
                before.and_then(|before| before.checked_add(1)).is_some_and(|next| now == Some(next))
            }
            _ => false,
        }
    }
}

/// Whether the API server may count changes of this field: it never counts those of metadata and status.
fn raises_generation(path: &Path) -> bool {
    !matches!(path.0.first(), Some(Segment::Field(name)) if name == "metadata" || name == "status")
}

#[cfg(test)]
mod tests;
