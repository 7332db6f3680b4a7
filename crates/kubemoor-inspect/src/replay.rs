//! The findings of a replay of recorded changes, row by row, for the command and the page.
//!
//! Entry point: [`Judging`], which takes rows newest first and becomes a [`Report`]. Invariant: the verdicts
//! are those of [`kubemoor_verdict::replay`]. A change that it cannot judge is counted and never shown as a
//! verdict.

mod judges;
mod judging;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

pub use self::judges::Judges;
use self::judges::{Judged, NewVerdict};
pub use self::judging::Judging;
use super::ledger::repeats::Repeats;
use kubemoor_declare::model::{Operation, ReleaseId};
use kubemoor_ledger::entry::Entry;

/// The maximum number of different changes of verdicts that are listed, in all and of days.
const MOST: usize = 10_000;

/// The Helm operations that are listed.
const OPERATIONS: usize = 100;

/// The verdicts under which an edit does not pass as it was sent.
pub const REFUSED: [&str; 2] = ["Deny", "Revert"];

/// Why changes could not be judged again, in words.
const WHY: [(&str, &str); 11] = [
    ("unrecorded", "recorded without what a replay needs"),
    ("whole", "judged as a whole: too large, too late, or a deletion that takes others along"),
    ("cut", "too long to be kept whole"),
    ("unknown", "recorded in a form that this version does not know"),
    ("value", "a rule looks into a value that was not kept"),
    ("place", "a rule names a list element by its place"),
    ("metadata", "a rule looks at labels or annotations that were not kept"),
    ("groups", "a rule names a group, and not all groups of the user were kept"),
    ("seal", "a policy seals what nobody looked at then"),
    ("unsettled", "only a dry run could tell whether a value is as declared"),
    ("unheard", "another release or revision would have had to be asked"),
];

/// What a replay has found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub since: Timestamp,
    /// Changes that were recorded.
    pub edits: u64,
    /// Further rows about refused changes: an API server may ask about one twice.
    pub repeats: u64,
    pub replayed: u64,
    /// How many could not be judged, by why.
    pub not_replayable: BTreeMap<&'static str, u64>,
    /// How many passed and would be refused.
    pub refused: u64,
    /// How many were refused and would pass.
    pub permitted: u64,
    /// How many Helm operations were begun.
    pub helm_operations: usize,
    /// Helm operations of which something passed that would be refused.
    pub helm_operations_touched: usize,
    /// These operations, the first 100 of them, by release and revision.
    pub touched_operations: Vec<TouchedOperation>,
    /// The days on which something was recorded, the oldest first.
    pub days: Vec<Day>,
    /// The verdicts that would change, the most frequent first.
    pub changes: Vec<Changed>,
    /// Changed verdicts that are not among them.
    pub more_changes: u64,
    /// The verdicts that would change, day by day, the oldest first; of so many alone.
    #[serde(skip)]
    pub by_day: Vec<(Date, Vec<Changed>)>,
}

/// What a replay has found of one day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Day {
    pub date: Date,
    /// Changes that were recorded.
    pub edits: u64,
    /// Further rows about refused changes.
    pub repeats: u64,
    /// How many passed and would be refused.
    pub refused: u64,
    /// How many were refused and would pass.
    pub permitted: u64,
}

/// An installation, an upgrade or a rollback of a release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmOperation {
    pub cluster: String,
    pub namespace: String,
    pub release: String,
    /// The revision that it made.
    pub revision: u64,
}

/// A Helm operation of which something passed that would be refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TouchedOperation {
    #[serde(flatten)]
    pub operation: HelmOperation,
    /// The users whose changes would be refused.
    pub users: Vec<String>,
}

/// Changes of one user that would be judged otherwise.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    #[serde(flatten)]
    pub key: Key,
    /// How many.
    pub edits: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// What makes changed verdicts one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub cluster: String,
    pub namespace: String,
    pub release: String,
    pub user: String,
    /// The object's kind.
    pub kind: String,
    /// The field; empty where it is about the object as a whole.
    pub field: String,
    /// The verdict that was.
    pub was: String,
    /// The verdict that would be.
    pub now: &'static str,
    /// The rule by which.
    pub rule: String,
}

/// How often, first and last.
type Times = (u64, Timestamp, Timestamp);

/// How often verdicts of one kind changed, in all and on each day, the newest first.
type Total = (Times, Vec<(Date, Times)>);

/// The findings of a replay so far.
struct Tally {
    report: Report,
    days: BTreeMap<Date, Day>,
    changes: HashMap<Key, Total>,
    /// How many days of changes are kept.
    days_of_changes: usize,
    /// The users who wrote the records of revisions.
    writers: HashSet<(HelmOperation, String)>,
    begun: HashSet<HelmOperation>,
    /// The users who would be refused during an operation.
    refused: HashSet<(HelmOperation, String)>,
    /// The same for those who write its records.
    touched: BTreeMap<HelmOperation, BTreeSet<String>>,
    repeats: Repeats,
}

impl Tally {
    fn new(since: Timestamp) -> Self {
        let report = Report {
            since,
            edits: 0,
            repeats: 0,
            replayed: 0,
            not_replayable: BTreeMap::new(),
            refused: 0,
            permitted: 0,
            helm_operations: 0,
            helm_operations_touched: 0,
            touched_operations: Vec::new(),
            days: Vec::new(),
            changes: Vec::new(),
            more_changes: 0,
            by_day: Vec::new(),
        };
        Self {
            report,
            days: BTreeMap::new(),
            changes: HashMap::new(),
            days_of_changes: 0,
            writers: HashSet::new(),
            begun: HashSet::new(),
            refused: HashSet::new(),
            touched: BTreeMap::new(),
            repeats: Repeats::default(),
        }
    }

    /// Takes rows that are older than those before.
    fn add(&mut self, judges: &mut Judges, rows: &[Entry]) {
        let mut edits = Vec::new();
        for row in rows {
            let is_refused = REFUSED.contains(&row.verdict.as_str());
            if row.kind != "verdict" {
                continue;
            }
            if is_refused && !self.repeats.note_first(row) {
                self.report.repeats += 1;
                self.day(row.time).repeats += 1;
                continue;
            }
            self.report.edits += 1;
            self.day(row.time).edits += 1;
            edits.push(row);
        }
        let judged = judges.judge(&edits);
        for (row, judged) in edits.into_iter().zip(judged) {
            match judged {
                Ok(judged) => {
                    self.report.replayed += 1;
                    self.compare(row, judged);
                }
                Err(why) => *self.report.not_replayable.entry(why).or_default() += 1,
            }
        }
    }

    fn finish(self) -> Report {
        let Self { mut report, days, changes, writers, begun, refused, mut touched, .. } = self;
        for (operation, user) in refused.intersection(&writers) {
            touched.entry(operation.clone()).or_default().insert(user.clone());
        }
        (report.helm_operations, report.helm_operations_touched) = (begun.len(), touched.len());
        let listed = touched.into_iter().take(OPERATIONS);
        report.touched_operations = listed
            .map(|(operation, users)| TouchedOperation { operation, users: users.into_iter().collect() })
            .collect();
        report.days = days.into_values().collect();
        let changed = |key, (edits, first, last)| Changed { key, edits, first, last };
        let mut by_day: BTreeMap<Date, Vec<Changed>> = BTreeMap::new();
        for (key, (times, days)) in changes {
            for (date, times) in days {
                by_day.entry(date).or_default().push(changed(key.clone(), times));
            }
            report.changes.push(changed(key, times));
        }
        sort(&mut report.changes);
        by_day.values_mut().for_each(|day| sort(day));
        report.by_day = by_day.into_iter().collect();
        report
    }

    fn compare(&mut self, entry: &Entry, judged: Judged) {
        let Judged { is_refused, is_record, operation, under_way, changed } = judged;
        let was_refused = REFUSED.contains(&entry.verdict.as_str());
        if let Some((ReleaseId { namespace, name: release }, revision)) = under_way {
            let under_way = HelmOperation {
                cluster: entry.cluster.clone(),
                namespace: namespace.to_string(),
                release: release.to_string(),
                revision,
            };
            let by_user = || (under_way.clone(), entry.user.clone());
            if is_record {
                self.writers.insert(by_user());
                self.begun.extend((operation == Operation::Create).then(|| under_way.clone()));
            }
            if is_refused && !was_refused {
                match is_record {
                    true => drop(self.touched.entry(under_way).or_default().insert(entry.user.clone())),
                    false => drop(self.refused.insert(by_user())),
                }
            }
        }
        let (refused, permitted) =
            (u64::from(is_refused && !was_refused), u64::from(was_refused && !is_refused));
        self.report.refused += refused;
        self.report.permitted += permitted;
        let day = self.day(entry.time);
        (day.refused, day.permitted) = (day.refused + refused, day.permitted + permitted);
        if let Some(changed) = changed {
            self.add_changes(entry, changed);
        }
    }

    fn day(&mut self, time: Timestamp) -> &mut Day {
        let date = date(time);
        self.days.entry(date).or_insert(Day { date, edits: 0, repeats: 0, refused: 0, permitted: 0 })
    }

    fn add_changes(&mut self, entry: &Entry, NewVerdict { now, fields }: NewVerdict) {
        let (time, date) = (entry.time, date(entry.time));
        for (field, rule) in fields {
            let key = Key {
                cluster: entry.cluster.clone(),
                namespace: entry.namespace.clone(),
                release: entry.release.clone().unwrap_or_default(),
                user: entry.user.clone(),
                kind: entry.object.kind.clone(),
                rule,
                field,
                was: entry.verdict.clone(),
                now,
            };
            if self.changes.len() >= MOST && !self.changes.contains_key(&key) {
                self.report.more_changes += 1;
                continue;
            }
            let (times, days) = self.changes.entry(key).or_insert(((0, time, time), Vec::new()));
            count(times, time);
            match days.last_mut() {
                Some((last, times)) if *last == date => count(times, time),
                _ if self.days_of_changes < MOST => {
                    self.days_of_changes += 1;
                    days.push((date, (1, time, time)));
                }
                _ => {}
            }
        }
    }
}

/// The most frequent first.
fn sort(changes: &mut [Changed]) {
    changes.sort_unstable_by(|a, b| (b.edits, &a.key).cmp(&(a.edits, &b.key)));
}

/// The day in UTC.
fn date(time: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(time).date()
}

/// Counts one that is older than those before.
fn count((edits, first, _): &mut Times, time: Timestamp) {
    (*edits, *first) = (*edits + 1, time);
}

impl Report {
    /// How many changes could not be judged, and why, in words.
    pub fn unjudged(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.not_replayable.iter().map(|(why, count)| {
            (*count, WHY.iter().find(|(name, _)| name == why).map_or(*why, |(_, words)| *words))
        })
    }
}

#[cfg(test)]
mod tests;
