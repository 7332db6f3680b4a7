//! Refusals that are equal to one of the last minute, such as those of a program that tries again and again: the first
//! is a row, and the others are counted on it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use jiff::{SignedDuration, Timestamp};

use super::entry::Entry;
use super::row::Kind;
use kubemoor_verdict::edit::Outcome;

/// For how long equal refusals are counted on the first of them.
const SPAN: SignedDuration = SignedDuration::from_mins(1);

/// The most refusals that are remembered; then all are forgotten, and the next equal ones have a row again.
const MOST: usize = 4096;

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Batch<'e> {
    /// Rows that are new.
    pub(crate) rows: Vec<&'e Entry>,
    /// How often rows are repeated, by their ids: rows of this batch and of those before.
    pub(crate) repeats: BTreeMap<i64, i64>,
}

/// The refusals of the last minute.
#[derive(Default)]
pub(crate) struct Refusals {
    hasher: RandomState,
    /// The time and the id of the first one, by what makes refusals equal.
    first: HashMap<u64, (Timestamp, i64)>,
}

impl Refusals {
    /// Takes the repeats out of these rows.
    pub(crate) fn fold<'e>(&mut self, entries: &'e [Entry]) -> Batch<'e> {
        let mut batch = Batch::default();
        for entry in entries {
            match self.note(entry) {
                Some(first) => *batch.repeats.entry(first).or_default() += 1,
                None => batch.rows.push(entry),
            }
        }
        batch
    }

    /// Remembers nothing any more: what was noted last is not in the database.
    pub(crate) fn forget(&mut self) {
        self.first.clear();
    }

    /// The id of the row that `entry` repeats; `None` for one that is a row of its own.
    fn note(&mut self, entry: &Entry) -> Option<i64> {
        if entry.kind != Kind::Verdict.as_str() || entry.verdict != Outcome::Deny.as_str() {
            return None;
        }
        // Everything but their times, the uids of their reviews, and the facts for a replay, which follow from the rest.
        let Entry { namespace, release, revision, object, operation, user, groups, reason, detail, .. } =
            entry;
        let whose = (namespace, release, revision, user, groups);
        let what = (object, operation, reason, detail, &entry.fields, entry.more_fields);
        let key = self.hasher.hash_one((whose, what));
        // A clock that was set back begins anew.
        if let Some((at, id)) = self.first.get(&key)
            && entry.time.duration_since(*at).abs() <= SPAN
        {
            return Some(*id);
        }
        if self.first.len() >= MOST {
            self.first.clear();
        }
        self.first.insert(key, (entry.time, entry.id));
        None
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

    fn rows(refusals: &mut Refusals, entries: &[Entry]) -> usize {
        refusals.fold(entries).rows.len()
    }

    #[test]
    fn equal_refusals_within_a_minute_are_counted_on_the_first() {
        let mut refusals = Refusals::default();
        let first = refusal(0, "drift").id;
        let entries = [refusal(0, "drift"), refusal(1, "drift"), refusal(2, "drift")];
        let batch = refusals.fold(&entries);
        assert_eq!((batch.rows, batch.repeats), (vec![&entries[0]], BTreeMap::from([(first, 2)])));
        let later = [refusal(59, "drift")];
        let batch = refusals.fold(&later);
        assert_eq!((batch.rows, batch.repeats), (vec![], BTreeMap::from([(first, 1)])));
        let next = [refusal(61, "drift"), refusal(62, "drift")];
        assert_eq!(rows(&mut refusals, &next), 1, "another minute");
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
            assert_eq!(rows(&mut Refusals::default(), &[refusal(0, "drift"), entry.clone()]), 2, "{entry:?}");
        }
    }

    #[test]
    fn refusals_of_the_last_minute_are_remembered_within_a_bound() {
        let mut refusals = Refusals::default();
        let many = i64::try_from(MOST).unwrap() * 2;
        let flood: Vec<_> = (0..many).map(|number| refusal(1, &format!("r{number}"))).collect();
        assert_eq!(rows(&mut refusals, &flood), MOST * 2);
        assert!(refusals.first.len() <= MOST);
        refusals.fold(&[refusal(2, "drift")]);
        refusals.forget();
        assert_eq!(rows(&mut refusals, &[refusal(3, "drift")]), 1);
    }
}
