//! Refusals that are equal to one of the last minute, such as those of a program that tries again and again.
//!
//! Entry point: [`Refusals::fold`]. Invariant: of equal refusals within a minute the first is a row, and the others are
//! counted on it; bounded memory, and time that does not depend on what is remembered. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use jiff::{SignedDuration, Timestamp};

use super::entry::Entry;
use super::row::Kind;
use kubemoor_verdict::edit::Outcome;

/// For how long equal refusals are counted on the first of them.
const SPAN: SignedDuration = SignedDuration::from_mins(1);

/// The most refusals that are remembered.
const MOST: usize = 4096;

/// Rows for one transaction.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Rows that are new.
    pub(crate) rows: Vec<Entry>,
    /// Repeats of rows of this batch and of those before.
    pub(crate) repeats: Vec<Repeat>,
}

/// Equal refusals of one batch.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// The id of the row that they repeat.
    pub(crate) of: i64,
    /// The first of them, with the number of the others as its repeats.
    pub(crate) entry: Entry,
}

/// The refusals of the last minute.
#[derive(Default)]
pub(crate) struct Refusals {
    hasher: RandomState,
    /// The time and the id of the first one, by what makes refusals equal.
    first: HashMap<u64, (Timestamp, i64)>,
    /// The same, the oldest in front.
    order: VecDeque<(Timestamp, u64)>,
}

impl Batch {
    /// How many events it holds.
    pub(crate) fn events(&self) -> usize {
        let repeats: i64 = self.repeats.iter().map(Repeat::count).sum();
        self.rows.len().saturating_add(usize::try_from(repeats).unwrap_or_default())
    }

    /// What is written where there is no database: a line for equal refusals of this batch, with their number.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Entry> {
        self.rows.iter().chain(self.repeats.iter().map(|repeat| &repeat.entry))
    }
}

impl Repeat {
    /// How many refusals these are.
    pub(crate) fn count(&self) -> i64 {
        self.entry.repeats.saturating_add(1)
    }
}

impl Refusals {
    /// Takes the repeats out of these rows.
    pub(crate) fn fold(&mut self, entries: Vec<Entry>) -> Batch {
        let mut batch = Batch::default();
        let mut places: HashMap<i64, usize> = HashMap::new();
        for entry in entries {
            let Some(of) = self.note(&entry) else {
                batch.rows.push(entry);
                continue;
            };
            match places.get(&of).and_then(|place| batch.repeats.get_mut(*place)) {
                Some(repeat) => repeat.entry.repeats += 1,
                None => {
                    places.insert(of, batch.repeats.len());
                    batch.repeats.push(Repeat { of, entry });
                }
            }
        }
        batch
    }

    /// Remembers nothing any more: what was noted last is not in the database.
    pub(crate) fn forget(&mut self) {
        self.first.clear();
        self.order.clear();
    }

    /// The id of the row that `entry` repeats; `None` for one that is a row of its own.
    fn note(&mut self, entry: &Entry) -> Option<i64> {
        if entry.kind != Kind::Verdict.as_str() || entry.verdict != Outcome::Deny.as_str() {
            return None;
        }
        let key = self.key(entry);
        // A clock that was set back begins anew.
        let is_recent = |at: Timestamp| entry.time.duration_since(at).abs() <= SPAN;
        if let Some((at, id)) = self.first.get(&key).copied()
            && is_recent(at)
        {
            return Some(id);
        }
        while let Some((at, oldest)) = self.order.front().copied()
            && (!is_recent(at) || self.order.len() >= MOST)
        {
            self.order.pop_front();
            if self.first.get(&oldest).is_some_and(|(first, _)| *first == at) {
                self.first.remove(&oldest);
            }
        }
        self.first.insert(key, (entry.time, entry.id));
        self.order.push_back((entry.time, key));
        None
    }

    /// What makes refusals equal: everything but their times, the uids of their reviews, and the facts for a replay, which
    /// follow from the rest.
    fn key(&self, entry: &Entry) -> u64 {
        let Entry { namespace, release, revision, object, operation, user, groups, reason, detail, .. } =
            entry;
        let whose = (namespace, release, revision, user, groups);
        self.hasher.hash_one((whose, object, operation, reason, detail, &entry.fields, entry.more_fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id;

    /// A refusal so many seconds after the first, with this reason.
    fn refusal(seconds: i64, reason: &str) -> Entry {
        let time: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        let id = id::first(time + SignedDuration::from_secs(seconds)) + seconds;
        let text = serde_json::json!({
            "id": id.to_string(), "time": time + SignedDuration::from_secs(seconds), "kind": "verdict",
            "cluster": "east", "namespace": "shop", "release": "web", "revision": 3,
            "object": {"group": "", "kind": "ConfigMap", "namespace": "shop", "name": "settings"},
            "operation": "UPDATE", "user": "mallory", "groups": [], "verdict": "Deny", "reason": reason,
            "detail": "", "fields": [{"path": "/data/a", "new": "b"}], "moreFields": 0, "uid": id.to_string(),
        });
        serde_json::from_value(text).unwrap()
    }

    /// How many rows there are, and of which rows there are how many repeats.
    fn told(batch: &Batch) -> (usize, Vec<(i64, i64)>) {
        (batch.rows.len(), batch.repeats.iter().map(|repeat| (repeat.of, repeat.count())).collect())
    }

    #[test]
    fn equal_refusals_within_a_minute_are_counted_on_the_first() {
        let mut refusals = Refusals::default();
        let first = refusal(0, "drift").id;
        let batch = refusals.fold(vec![refusal(0, "drift"), refusal(1, "drift"), refusal(2, "drift")]);
        assert_eq!((told(&batch), batch.events()), ((1, vec![(first, 2)]), 3));
        assert_eq!(batch.lines().map(|line| line.repeats).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(told(&refusals.fold(vec![refusal(59, "drift")])), (0, vec![(first, 1)]));
        assert_eq!(
            told(&refusals.fold(vec![refusal(61, "drift"), refusal(62, "drift")])).0,
            1,
            "another minute"
        );
    }

    #[test]
    fn whatever_differs_is_a_row_of_its_own() {
        let change = |change: fn(&mut Entry)| {
            let mut entry = refusal(1, "drift");
            change(&mut entry);
            entry
        };
        for entry in [
            change(|entry| entry.user = "alice".to_owned()),
            change(|entry| entry.groups = vec!["people".to_owned()]),
            change(|entry| entry.object.name = "other".to_owned()),
            change(|entry| entry.operation = Some("DELETE".to_owned())),
            change(|entry| entry.reason = "busy".to_owned()),
            change(|entry| entry.revision = Some(4)),
            change(|entry| entry.fields.iter_mut().for_each(|field| field.new = Some("c".to_owned()))),
            // No refusals.
            change(|entry| entry.verdict = "Warn".to_owned()),
            change(|entry| entry.kind = "repair".to_owned()),
            // The clock was set back.
            change(|entry| entry.time -= SignedDuration::from_hours(1)),
        ] {
            let batch = Refusals::default().fold(vec![refusal(0, "drift"), entry]);
            assert_eq!(told(&batch), (2, Vec::new()), "{batch:?}");
        }
    }

    #[test]
    fn refusals_of_the_last_minute_are_remembered_within_a_bound() {
        let mut refusals = Refusals::default();
        let many = i64::try_from(MOST).unwrap() * 2;
        let flood = (0..many).map(|number| refusal(1, &format!("r{number}"))).collect();
        assert_eq!(told(&refusals.fold(flood)).0, MOST * 2);
        assert!(refusals.first.len() <= MOST && refusals.order.len() <= MOST);
        refusals.fold(vec![refusal(100, "drift")]);
        assert_eq!((refusals.first.len(), refusals.order.len()), (1, 1));
        refusals.forget();
        assert_eq!(told(&refusals.fold(vec![refusal(101, "drift")])).0, 1);
    }
}
