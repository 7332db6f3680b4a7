//! Finds updates about which the API server asks a second time.
//!
//! Entry point: [`Repeats::note`]. An API server tries an update again with the object from its database if it first
//! had the object from its cache and the update is denied, or if the object changed before the update was stored. One
//! request is then judged twice. Invariant: only the same update of the same object by the same user is a repeat. Of
//! updates that pass, a repeat is one only if the first one was certainly not stored ([`Version`]). Bounded. Must not
//! judge.

mod denied;
mod version;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use self::denied::Denied;
pub(super) use self::version::Version;
use kubemoor_declare::model::{Actor, ObjectId, Operation};
use kubemoor_verdict::edit::{Finding, Outcome, Verdict};
use kubemoor_verdict::shown::{SealingKey, Shown};

/// The longest time between two reviews of an update that passes. Before the second one, other webhooks may take their
/// time for the first one.
const PASSING: Duration = Duration::from_secs(10);

/// The most updates that are remembered of those that passed.
const MOST: usize = 1024;

/// Whether the API server asks for the first or the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    First,
    Again,
}

/// The recent updates that were denied, or passed although they drift.
#[derive(Default)]
pub(super) struct Repeats {
    hasher: RandomState,
    denied: Mutex<Denied>,
    passed: Mutex<VecDeque<Seen>>,
}

/// An update that passed.
struct Seen {
    at: Instant,
    key: u64,
    /// The version that it would have changed.
    version: Version,
    /// How many reviews of it there were about this version.
    asked: usize,
    /// The number of requests that they belong to.
    requests: usize,
}

impl Repeats {
    /// Records a verdict on a user's edit of an object, which changes `version`. Returns whether the API server has
    /// asked about it before. The third review of a denied update is another request.
    pub(super) fn note(
        &self,
        (object, operation, actor): (&ObjectId, Operation, &Actor),
        verdict: &Verdict,
        version: Option<Version>,
        now: Instant,
    ) -> Time {
        if operation != Operation::Update {
            return Time::First;
        }
        let key = self.key(object, actor, verdict);
        match (verdict.outcome, version) {
            (Outcome::Deny, _) if self.denied.lock().note(key, now) => Time::Again,
            (Outcome::Warn | Outcome::Record, Some(version)) if changes(verdict) => {
                self.note_passing(key, version, now)
            }
            _ => Time::First,
        }
    }

    fn note_passing(&self, key: u64, version: Version, now: Instant) -> Time {
        let mut last = self.passed.lock();
        make_room(&mut last, now);
        let concerns =
            |seen: &Seen| seen.key == key && (seen.version == version || version.follows(&seen.version));
        let known = last.iter().rposition(concerns).and_then(|place| last.remove(place));
        let mut seen = match known {
            // An API server asks again only because the object has changed: on the same version it is another request.
            Some(seen) if seen.version == version => Seen { asked: seen.asked + 1, ..seen },
            Some(seen) => Seen { asked: 1, version, ..seen },
            None => Seen { at: now, key, version, asked: 1, requests: 0 },
        };
        let time = if seen.asked > seen.requests { Time::First } else { Time::Again };
        seen.requests = seen.requests.max(seen.asked);
        last.push_back(Seen { at: now, ..seen });
        time
    }

    /// What tells an update from others.
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
fn make_room(last: &mut VecDeque<Seen>, now: Instant) {
    while last.front().is_some_and(|seen| now.duration_since(seen.at) > PASSING) || last.len() >= MOST {
        last.pop_front();
    }
}

/// Whether the object shows if the update was stored: it has another value then.
fn changes(verdict: &Verdict) -> bool {
    verdict.grounds.iter().flat_map(|grounds| &grounds.fields).any(|field| field.old != field.new)
}

/// Hashes a field with its old and new value; for a Secret, their digests.
fn hash(finding: &Finding, hasher: &mut impl Hasher) {
    finding.path.pointer().hash(hasher);
    for value in [&finding.old, &finding.new] {
        match value {
            Some(value) if value.is_masked() => value.sealed(&SealingKey::new([0; 32])).hash(hasher),
            value => value.as_ref().map(Shown::full).hash(hasher),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use kubemoor_declare::model::ReleaseId;
    use kubemoor_declare::path::Path;
    use kubemoor_verdict::difference::Values;
    use kubemoor_verdict::edit::{Grounds, Reason};

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "web")
    }

    fn refused(object: &ObjectId, outcome: Outcome, new: Value) -> Verdict {
        let path: Path = "/data/key".parse().unwrap();
        let values = Values::of(object, &path, [None, Some(&json!("YQ==")), Some(&new)]);
        let grounds = Grounds {
            release: ReleaseId { namespace: "shop".into(), name: "shop".into() },
            revision: 1,
            fields: vec![Finding::of(path, values)],
            exceptions: Vec::new(),
        };
        Verdict { outcome, reason: Reason::Drift, grounds: Some(grounds.into()), arguable: false }
    }

    #[test]
    fn only_second_look_at_same_refused_update_counts_as_repeat() {
        let (start, kinds) = (Instant::now(), [object("ConfigMap"), object("Secret")]);
        let later = |millis| start + Duration::from_millis(millis);
        let check = |changed: (usize, Operation, &str, Outcome, &str), millis, expected| {
            let repeats = Repeats::default();
            let note = |(kind, operation, user, outcome, new): (usize, _, &str, _, &str), at| {
                let actor = Actor { user: user.to_owned(), ..Actor::default() };
                let object = &kinds[kind];
                repeats.note((object, operation, &actor), &refused(object, outcome, json!(new)), None, at)
            };
            let first = (changed.0, Operation::Update, "alice", Outcome::Deny, "Yg==");
            assert_eq!(note(first, start), Time::First);
            assert_eq!(note(changed, later(millis)), expected, "{changed:?} {millis}");
        };
        for kind in [0, 1] {
            let same = (kind, Operation::Update, "alice", Outcome::Deny, "Yg==");
            check(same, 5, Time::Again);
            check(same, 1001, Time::First);
            check((kind, Operation::Update, "bob", Outcome::Deny, "Yg=="), 5, Time::First);
            check((kind, Operation::Update, "alice", Outcome::Deny, "Yw=="), 5, Time::First);
            check((kind, Operation::Update, "alice", Outcome::Warn, "Yg=="), 5, Time::First);
            check((kind, Operation::Delete, "alice", Outcome::Deny, "Yg=="), 5, Time::First);
        }
    }

    #[test]
    fn three_refusals_within_a_moment_are_two_requests() {
        let (repeats, now, object) = (Repeats::default(), Instant::now(), object("ConfigMap"));
        let verdict = refused(&object, Outcome::Deny, json!("Yg=="));
        let actor = Actor::default();
        let times = [0; 4].map(|_| repeats.note((&object, Operation::Update, &actor), &verdict, None, now));
        assert_eq!(times, [Time::First, Time::Again, Time::First, Time::Again]);
    }

    #[test]
    fn passing_update_is_one_request_only_if_certainly_not_stored() {
        let object = object("ConfigMap");
        let actor = Actor::default();
        let check = |outcome, steps: &[(&str, &str, &str, Time)]| {
            let (repeats, now) = (Repeats::default(), Instant::now());
            for (place, (resource_version, generation, new, expected)) in steps.iter().enumerate() {
                let version = Version::sample("u", resource_version, generation.parse().ok());
                let (what, verdict) =
                    ((&object, Operation::Update, &actor), refused(&object, outcome, json!(new)));
                let time = repeats.note(what, &verdict, Some(version), now + Duration::from_millis(5));
                assert_eq!(time, *expected, "{place} of {steps:?}");
            }
        };
        let (first, again) = (Time::First, Time::Again);
        for outcome in [Outcome::Warn, Outcome::Record] {
            // The object changed meanwhile, but not by this update: its generation would be higher, or its value new.
            check(
                outcome,
                &[("10", "3", "Yg==", first), ("17", "3", "Yg==", again), ("19", "3", "Yg==", again)],
            );
            check(outcome, &[("10", "3", "Yg==", first), ("17", "4", "Yg==", again)]);
            check(outcome, &[("10", "", "Yg==", first), ("11", "", "Yg==", again)]);
            // It may have been stored and set back.
            check(outcome, &[("10", "3", "Yg==", first), ("17", "5", "Yg==", first)]);
            check(outcome, &[("10", "", "Yg==", first), ("12", "", "Yg==", first)]);
            check(outcome, &[("10", "", "Yg==", first), ("11", "1", "Yg==", first)]);
            check(outcome, &[("17", "4", "Yg==", first), ("10", "3", "Yg==", first)]);
            // Another update.
            check(outcome, &[("10", "3", "Yg==", first), ("17", "3", "Yw==", first)]);
            // Two requests at one time, each of which is asked about twice.
            check(
                outcome,
                &[
                    ("10", "3", "Yg==", first),
                    ("10", "3", "Yg==", first),
                    ("17", "3", "Yg==", again),
                    ("17", "3", "Yg==", again),
                    ("17", "3", "Yg==", first),
                ],
            );
        }
        // No version tells more of what is reverted at once.
        check(Outcome::Revert, &[("10", "3", "Yg==", first), ("17", "3", "Yg==", first)]);
    }

    #[test]
    fn passing_update_is_another_request_after_ten_seconds() {
        let (repeats, start, object) = (Repeats::default(), Instant::now(), object("ConfigMap"));
        let verdict = refused(&object, Outcome::Warn, json!("Yg=="));
        let actor = Actor::default();
        let note = |resource_version: &str, at| {
            let version = Version::sample("u", resource_version, Some(3));
            repeats.note((&object, Operation::Update, &actor), &verdict, Some(version), at)
        };
        assert_eq!(note("10", start), Time::First);
        assert_eq!(note("11", start + PASSING), Time::Again);
        assert_eq!(note("12", start + PASSING * 3), Time::First);
    }
}
