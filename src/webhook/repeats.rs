//! Finds denied updates that the API server sends a second time.
//!
//! Entry point: [`Repeats::note`]. An API server tries a denied update again with the object from
//! its database if it first had the object from its cache: one request is then denied twice within
//! milliseconds. Invariant: only the same update of the same object by the same user is a repeat;
//! bounded. Must not judge.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Actor, ObjectId, Operation};
use crate::verdict::edit::{Finding, Outcome, Verdict};
use crate::verdict::shown::{SealingKey, Shown};

/// The longest time between the first and the second review.
const SPAN: Duration = Duration::from_secs(1);

/// The most denials that are remembered.
const MOST: usize = 1024;

/// Whether the API server asks for the first or the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    First,
    Again,
}

/// The recent denials.
#[derive(Default)]
pub(super) struct Repeats {
    hasher: RandomState,
    last: Mutex<VecDeque<(Instant, u64)>>,
}

impl Repeats {
    /// Records a verdict on a user's edit of an object, and returns whether the API server has
    /// asked about it before. A third time is another request.
    pub(super) fn note(
        &self,
        (object, operation, actor): (&ObjectId, Operation, &Actor),
        verdict: &Verdict,
        now: Instant,
    ) -> Time {
        if verdict.outcome != Outcome::Deny || operation != Operation::Update {
            return Time::First;
        }
        let mut hasher = self.hasher.build_hasher();
        (object, &actor.user, &actor.groups, verdict.reason).hash(&mut hasher);
        for field in verdict.grounds.iter().flat_map(|grounds| &grounds.fields) {
            hash(field, &mut hasher);
        }
        let key = hasher.finish();
        let mut last = self.last.lock();
        while last.front().is_some_and(|(at, _)| now.duration_since(*at) > SPAN) || last.len() >= MOST {
            last.pop_front();
        }
        match last.iter().position(|(_, known)| *known == key) {
            Some(known) => {
                last.remove(known);
                Time::Again
            }
            None => {
                last.push_back((now, key));
                Time::First
            }
        }
    }
}

/// Hashes a field with its old and new value; for a Secret, their digests.
fn hash(finding: &Finding, hasher: &mut impl Hasher) {
    // Hashing cannot fail.
    let _ = write!(Written(hasher), "{}", finding.path);
    hasher.write_u8(0xff);
    for value in [&finding.old, &finding.new] {
        match value {
            Some(value) if value.is_masked() => value.sealed(&SealingKey::new([0; 32])).hash(hasher),
            value => value.as_ref().map(Shown::full).hash(hasher),
        }
    }
}

/// A hasher that text is written to.
struct Written<'h, H>(&'h mut H);

impl<H: Hasher> fmt::Write for Written<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::declaration::path::Path;
    use crate::model::ReleaseId;
    use crate::verdict::difference::Values;
    use crate::verdict::edit::{Grounds, Reason};

    fn object(kind: &str) -> ObjectId {
        ObjectId {
            group: String::new(),
            kind: kind.to_owned(),
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
        }
    }

    fn refused(object: &ObjectId, outcome: Outcome, new: Value) -> Verdict {
        let path: Path = "/data/key".parse().unwrap();
        let values = Values::of(object, &path, [None, Some(&json!("YQ==")), Some(&new)]);
        let grounds = Grounds {
            release: ReleaseId { namespace: "shop".to_owned(), name: "shop".to_owned() },
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
                repeats.note((object, operation, &actor), &refused(object, outcome, json!(new)), at)
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
        let times = [0; 4].map(|_| repeats.note((&object, Operation::Update, &actor), &verdict, now));
        assert_eq!(times, [Time::First, Time::Again, Time::First, Time::Again]);
    }
}
