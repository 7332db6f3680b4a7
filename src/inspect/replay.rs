//! The findings of a replay of recorded changes, row by row, for the command and the page.
//!
//! Entry point: [`Tally`], which takes rows newest first and becomes a [`Report`]. Invariant: the verdicts
//! are those of [`crate::verdict::replay`]. A change that it cannot judge is counted and never shown as a
//! verdict.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::ledger::repeats::Repeats;
use crate::ledger::entry::{Entry, Object};
use crate::ledger::query::parse_operation;
use crate::model::{Actor, ObjectId, Operation, ReleaseId};
use crate::policy::Policy;
use crate::policy::mask::Mask;
use crate::verdict::edit::{Outcome, Reason};
use crate::verdict::recorded::RecordedFacts;
use crate::verdict::records::Falsified;
use crate::verdict::replay::{PastEdit, Replay, Replayed};

/// The maximum number of different changes of verdicts that are listed.
const MOST: usize = 10_000;

/// The reasons of rows about a request as a whole, without fields.
const WHOLE: [Reason; 6] =
    [Reason::TooLarge, Reason::TooDeep, Reason::Busy, Reason::Late, Reason::Request, Reason::Dependants];

/// The verdicts under which an edit does not pass as it was sent.
pub(crate) const REFUSED: [&str; 2] = ["Deny", "Revert"];

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
pub(crate) struct Report {
    pub(crate) since: Timestamp,
    /// Rows about changes.
    pub(crate) edits: u64,
    pub(crate) replayed: u64,
    /// How many could not be judged, by why.
    pub(crate) not_replayable: BTreeMap<&'static str, u64>,
    /// How many passed and would be refused.
    pub(crate) refused: u64,
    /// How many were refused and would pass.
    pub(crate) permitted: u64,
    /// How many Helm operations were begun.
    pub(crate) helm_operations: usize,
    /// Helm operations of which something passed that would be refused.
    pub(crate) helm_operations_touched: usize,
    /// The days on which something was recorded, the oldest first.
    pub(crate) days: Vec<Day>,
    /// The verdicts that would change, the most frequent first.
    pub(crate) changes: Vec<Changed>,
    /// Changed verdicts that are not among them.
    pub(crate) more_changes: u64,
    /// The verdicts that would change, day by day, the oldest first; of so many alone.
    #[serde(skip)]
    pub(crate) by_day: Vec<(Date, Vec<Changed>)>,
}

/// What a replay has found of one day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Day {
    pub(crate) date: Date,
    /// Rows about changes.
    pub(crate) edits: u64,
    /// How many passed and would be refused.
    pub(crate) refused: u64,
    /// How many were refused and would pass.
    pub(crate) permitted: u64,
}

/// Changes of one user that would be judged otherwise.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Changed {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// How many.
    pub(crate) edits: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

/// What makes changed verdicts one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Key {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) release: String,
    pub(crate) user: String,
    /// The object's kind.
    pub(crate) kind: String,
    /// The field; empty where it is about the object as a whole.
    pub(crate) field: String,
    /// The verdict that was.
    pub(crate) was: String,
    /// The verdict that would be.
    pub(crate) now: &'static str,
    /// The rule by which.
    pub(crate) rule: String,
}

/// How often, first and last.
type Times = (u64, Timestamp, Timestamp);

/// The findings of a replay so far.
pub(crate) struct Tally {
    report: Report,
    days: BTreeMap<Date, Day>,
    changes: BTreeMap<Key, Times>,
    by_day: BTreeMap<(Date, Key), Times>,
    /// The users who wrote the records of revisions.
    writers: HashSet<(ReleaseId, u64, String)>,
    begun: BTreeSet<(ReleaseId, u64)>,
    /// The users who would be refused during an operation.
    refused: HashSet<(ReleaseId, u64, String)>,
    touched: BTreeSet<(ReleaseId, u64)>,
    repeats: Repeats,
}

impl Tally {
    pub(crate) fn new(since: Timestamp) -> Self {
        let report = Report {
            since,
            edits: 0,
            replayed: 0,
            not_replayable: BTreeMap::new(),
            refused: 0,
            permitted: 0,
            helm_operations: 0,
            helm_operations_touched: 0,
            days: Vec::new(),
            changes: Vec::new(),
            more_changes: 0,
            by_day: Vec::new(),
        };
        let (changes, writers, refused) = (BTreeMap::new(), HashSet::new(), HashSet::new());
        Self {
            report,
            days: BTreeMap::new(),
            changes,
            by_day: BTreeMap::new(),
            writers,
            begun: BTreeSet::new(),
            refused,
            touched: BTreeSet::new(),
            repeats: Repeats::default(),
        }
    }

    /// Takes a row that is older than those before.
    pub(crate) fn add(&mut self, replay: &mut Replay, entry: &Entry) {
        let is_refused = REFUSED.contains(&entry.verdict.as_str());
        if entry.kind != "verdict" || (is_refused && !self.repeats.note_first(entry)) {
            return;
        }
        self.report.edits += 1;
        self.day(entry.time).edits += 1;
        match replayed(replay, entry) {
            Ok((replayed, is_record, operation)) => {
                self.report.replayed += 1;
                self.compare(entry, &replayed, is_record, operation);
            }
            Err(why) => *self.report.not_replayable.entry(why).or_default() += 1,
        }
    }

    pub(crate) fn finish(self) -> Report {
        let Self { mut report, days, changes, by_day, writers, begun, refused, mut touched, .. } = self;
        touched.extend(
            refused.intersection(&writers).map(|(release, revision, _)| (release.clone(), *revision)),
        );
        (report.helm_operations, report.helm_operations_touched) = (begun.len(), touched.len());
        report.days = days.into_values().collect();
        let changed = |(key, (edits, first, last))| Changed { key, edits, first, last };
        report.changes = changes.into_iter().map(changed).collect();
        report.changes.sort_by_key(|it| std::cmp::Reverse(it.edits));
        for ((date, key), times) in by_day {
            let changed = changed((key, times));
            match report.by_day.last_mut() {
                Some((last, day)) if *last == date => day.push(changed),
                _ => report.by_day.push((date, vec![changed])),
            }
        }
        report.by_day.iter_mut().for_each(|(_, day)| day.sort_by_key(|it| std::cmp::Reverse(it.edits)));
        report
    }

    fn compare(&mut self, entry: &Entry, replayed: &Replayed, is_record: bool, operation: Operation) {
        let was_refused = REFUSED.contains(&entry.verdict.as_str());
        let is_refused = replayed.verdict.outcome.is_refusal();
        let by_user =
            |(release, revision): &(ReleaseId, u64)| (release.clone(), *revision, entry.user.clone());
        if let Some(under_way) = &replayed.operation {
            if is_record {
                self.writers.insert(by_user(under_way));
                self.begun.extend((operation == Operation::Create).then(|| under_way.clone()));
            }
            if is_refused && !was_refused {
                match is_record {
                    true => drop(self.touched.insert(under_way.clone())),
                    false => drop(self.refused.insert(by_user(under_way))),
                }
            }
        }
        let (refused, permitted) =
            (u64::from(is_refused && !was_refused), u64::from(was_refused && !is_refused));
        self.report.refused += refused;
        self.report.permitted += permitted;
        let day = self.day(entry.time);
        (day.refused, day.permitted) = (day.refused + refused, day.permitted + permitted);
        // A revert that would leave nothing of the change is a denial.
        let is_denied_revert = was_refused && replayed.verdict.outcome == Outcome::Revert;
        if replayed.verdict.outcome.as_str() != entry.verdict && !is_denied_revert {
            self.add_changes(entry, replayed);
        }
    }

    fn day(&mut self, time: Timestamp) -> &mut Day {
        let date = time.to_zoned(TimeZone::UTC).date();
        self.days.entry(date).or_insert(Day { date, edits: 0, refused: 0, permitted: 0 })
    }

    fn add_changes(&mut self, entry: &Entry, replayed: &Replayed) {
        let Object { group, kind, namespace, name } = entry.object.clone();
        let object = ObjectId { group, kind, namespace, name };
        let grounds = replayed.verdict.grounds.as_ref();
        let mut fields: Vec<String> =
            grounds.iter().flat_map(|it| &it.fields).map(|field| field.path.to_string()).collect();
        if fields.is_empty() {
            fields = entry.fields.iter().map(|field| field.path.clone()).collect();
        }
        if fields.is_empty() {
            fields.push(String::new());
        }
        for field in fields {
            let key = Key {
                cluster: entry.cluster.clone(),
                namespace: entry.namespace.clone(),
                release: entry.release.clone().unwrap_or_default(),
                user: entry.user.clone(),
                kind: object.kind.clone(),
                rule: rule(replayed, &object, &field),
                field,
                was: entry.verdict.clone(),
                now: replayed.verdict.outcome.as_str(),
            };
            let of_day = (entry.time.to_zoned(TimeZone::UTC).date(), key.clone());
            if self.by_day.len() < MOST || self.by_day.contains_key(&of_day) {
                count(self.by_day.entry(of_day).or_insert((0, entry.time, entry.time)), entry.time);
            }
            if self.changes.len() >= MOST && !self.changes.contains_key(&key) {
                self.report.more_changes += 1;
                continue;
            }
            count(self.changes.entry(key).or_insert((0, entry.time, entry.time)), entry.time);
        }
    }
}

/// Counts one that is older than those before.
fn count((edits, first, _): &mut Times, time: Timestamp) {
    (*edits, *first) = (*edits + 1, time);
}

impl Report {
    /// How many changes could not be judged, and why, in words.
    pub(crate) fn unjudged(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.not_replayable.iter().map(|(why, count)| {
            (*count, WHY.iter().find(|(name, _)| name == why).map_or(*why, |(_, words)| *words))
        })
    }
}

/// The verdict on the change in a row, whether it changes a record, and the operation.
fn replayed(replay: &mut Replay, entry: &Entry) -> Result<(Replayed, bool, Operation), &'static str> {
    let Some(facts) = &entry.facts else {
        let is_whole = entry.verdict == "Error" || WHOLE.iter().any(|it| it.as_str() == entry.reason);
        return Err(if is_whole { "whole" } else { "unrecorded" });
    };
    let facts: RecordedFacts = serde_json::from_str(facts).map_err(|_| "unknown")?;
    let operation = entry.operation.as_deref().and_then(|it| parse_operation(it).ok()).ok_or("unknown")?;
    let Object { group, kind, namespace, name } = entry.object.clone();
    let object = ObjectId { group, kind, namespace, name };
    let actor = Actor { user: entry.user.clone(), groups: entry.groups.clone(), ..Actor::default() };
    let past = PastEdit {
        time: entry.time,
        operation,
        object: &object,
        actor: &actor,
        has_all_groups: entry.has_all_groups(),
        facts: &facts,
    };
    let replayed = replay.verdict(past).map_err(|why| why.as_str())?;
    Ok((replayed, matches!(facts, RecordedFacts::Record(_)), operation))
}

/// The rule that decides a verdict.
fn rule(replayed: &Replayed, object: &ObjectId, field: &str) -> String {
    let Replayed { verdict, policy, declared, falsified, .. } = replayed;
    let Some(policy) = policy else { return String::new() };
    let by_mode = || format!("edits: {:?} ({})", policy.edits, policy.sources.edits);
    match verdict.reason {
        Reason::Exempt => "exempt".to_owned(),
        Reason::Allowed => "exception".to_owned(),
        Reason::Autoscaled => "autoscalers".to_owned(),
        Reason::Record | Reason::RecordIntact if *falsified == Some(Falsified::Stranger) => {
            "operators".to_owned()
        }
        Reason::Ignored => match declared.as_ref().and_then(|it| ignoring(policy, object, it, field)) {
            Some(name) => format!("ignore (policy {name})"),
            None => "ignore".to_owned(),
        },
        _ => by_mode(),
    }
}

/// The name of the policy that ignores a field.
fn ignoring(
    policy: &Policy,
    object: &ObjectId,
    declared: &crate::helm::release::Declared,
    field: &str,
) -> Option<String> {
    let path = field.parse().ok()?;
    let about = |mask: &Mask| mask.covers(&path) || mask.reaches_below(&path);
    policy.ignoring(object, declared).find(|(_, mask)| about(mask)).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests;
