//! Judges recorded changes by other policies: turns rows, newest first, into a [`ReplayReport`].
//!
//! The verdicts are those of [`kubemoor_verdict::replay`]. A change that it cannot judge is counted and never shown as
//! a verdict.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::failure::InspectError;
use super::ledger::RepeatFilter;
use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_helm::release::DeclaredObject;
use kubemoor_ledger::entry::{EntryObject, LedgerEntry};
use kubemoor_ledger::query::parse_operation;
use kubemoor_policy::Policy;
use kubemoor_policy::compile::CompiledPolicy;
use kubemoor_policy::mask::Mask;
use kubemoor_verdict::edit::{EditOutcome, VerdictReason};
use kubemoor_verdict::records::RecordViolation;
use kubemoor_verdict::replay::{PastEdit, RecordedFacts, Replay, Replayed};

/// Maximum number of different changed verdicts that are listed.
const MOST: usize = 10_000;

/// The verdicts under which an edit does not pass as it was sent.
pub const REFUSED: [&str; 2] = ["Deny", "Revert"];

/// The reasons of rows about a request as a whole, without fields.
const WHOLE: [VerdictReason; 6] = [
    VerdictReason::TooLarge,
    VerdictReason::TooDeep,
    VerdictReason::Busy,
    VerdictReason::Late,
    VerdictReason::Request,
    VerdictReason::Dependants,
];

/// Why changes could not be judged again, in words.
const WHY: [(&str, &str); 11] = [
    ("unrecorded", "recorded without what a replay needs"),
    ("whole", "judged as a whole: too large, too late, or a deletion that takes others along"),
    ("cut", "too long to be kept whole"),
    ("unknown", "recorded in a form that this version does not know"),
    ("value", "a rule needs a value that was not kept"),
    ("place", "a rule names a list element by its place"),
    ("metadata", "a rule needs labels or annotations that were not kept"),
    ("groups", "a rule names a group, and not all groups of the user were kept"),
    ("seal", "a policy seals fields that were not checked then"),
    ("unsettled", "only a dry run could tell whether a value is as declared"),
    ("unevaluated", "another release or revision has to be checked"),
];

/// The result of a replay.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    pub since: Timestamp,
    /// The number of recorded changes.
    pub edits: u64,
    /// The number of further rows about the same change: an API server may send it twice.
    pub repeats: u64,
    pub replayed: u64,
    /// The number of changes that could not be judged, by reason.
    pub not_replayable: BTreeMap<&'static str, u64>,
    /// The number of changes that passed and would be denied.
    pub refused: u64,
    /// The number of changes that were denied and would pass.
    pub permitted: u64,
    /// The verdicts that would change, the most frequent first.
    pub changes: Vec<ChangedVerdict>,
    /// The number of changed verdicts that are not listed.
    pub more_changes: u64,
}

/// Changes by one user that would get a different verdict.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedVerdict {
    #[serde(flatten)]
    pub key: VerdictKey,
    /// The number of changes.
    pub edits: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// The key by which changed verdicts are grouped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerdictKey {
    pub cluster: String,
    pub namespace: String,
    pub release: String,
    pub user: String,
    /// The object's kind.
    pub kind: String,
    /// The field; empty if the verdict is about the whole object.
    pub field: String,
    /// The recorded verdict.
    pub was: String,
    /// The verdict with the replayed policies.
    pub now: &'static str,
    /// The rule that decides.
    pub rule: String,
}

/// A replay that takes rows page by page.
pub struct ReplayRun(Arc<Mutex<ReplayTally>>);

struct ReplayTally {
    replay: Replay,
    report: ReplayReport,
    changes: HashMap<VerdictKey, (u64, Timestamp, Timestamp)>,
    repeats: RepeatFilter,
}

impl ReplayRun {
    /// A replay of rows since a time; `defaults` apply if no policy sets a value.
    pub fn new(defaults: Policy, accepted: Vec<Arc<CompiledPolicy>>, since: Timestamp) -> Self {
        let report = ReplayReport { since, ..ReplayReport::default() };
        let (replay, changes, repeats) =
            (Replay::new(defaults, accepted), HashMap::new(), RepeatFilter::default());
        Self(Arc::new(Mutex::new(ReplayTally { replay, report, changes, repeats })))
    }

    /// Judges rows, which must be older than those before.
    pub async fn add(&self, rows: Vec<LedgerEntry>) -> Result<(), InspectError> {
        let tally = Arc::clone(&self.0);
        let judged = spawn_blocking(move || tally.lock().add(&rows)).await;
        judged.map_err(|_| InspectError::InvalidInput("the replay was cut off: try again".to_owned()))
    }

    pub fn report(&self) -> ReplayReport {
        let ReplayTally { report, changes, .. } = &mut *self.0.lock();
        let (mut report, changes) = (std::mem::take(report), std::mem::take(changes));
        let changed = |(key, (edits, first, last))| ChangedVerdict { key, edits, first, last };
        report.changes = changes.into_iter().map(changed).collect();
        report.changes.sort_unstable_by(|a, b| (b.edits, &a.key).cmp(&(a.edits, &b.key)));
        report
    }
}

impl ReplayTally {
    /// Adds rows, which must be older than those before.
    fn add(&mut self, rows: &[LedgerEntry]) {
        for row in rows.iter().filter(|row| row.kind == "verdict") {
            let was_refused = REFUSED.contains(&row.verdict.as_str());
            if !self.repeats.insert_if_new(row) {
                self.report.repeats += 1;
                continue;
            }
            self.report.edits += 1;
            match judge(&mut self.replay, row) {
                Ok((object, replayed)) => {
                    let is_refused = replayed.verdict.outcome.is_refusal();
                    self.report.replayed += 1;
                    self.report.refused += u64::from(is_refused && !was_refused);
                    self.report.permitted += u64::from(was_refused && !is_refused);
                    self.add_changes(row, &object, &replayed);
                }
                Err(why) => *self.report.not_replayable.entry(why).or_default() += 1,
            }
        }
    }

    fn add_changes(&mut self, row: &LedgerEntry, object: &ObjectId, replayed: &Replayed) {
        let outcome = replayed.verdict.outcome;
        // A revert that would leave nothing of the change is recorded as a denial.
        let is_denied_revert = REFUSED.contains(&row.verdict.as_str()) && outcome == EditOutcome::Revert;
        if outcome.as_str() == row.verdict || is_denied_revert {
            return;
        }
        let grounds = replayed.verdict.grounds.as_ref();
        let mut fields: Vec<String> =
            grounds.iter().flat_map(|it| &it.fields).map(|field| field.path.to_string()).collect();
        if fields.is_empty() {
            fields = row.fields.iter().map(|field| field.path.clone()).collect();
        }
        if fields.is_empty() {
            fields.push(String::new());
        }
        for field in fields {
            let key = VerdictKey {
                cluster: row.cluster.clone(),
                namespace: row.namespace.clone(),
                release: row.release.clone().unwrap_or_default(),
                user: row.user.clone(),
                kind: row.object.kind.clone(),
                rule: rule(replayed, object, &field),
                field,
                was: row.verdict.clone(),
                now: outcome.as_str(),
            };
            if self.changes.len() >= MOST && !self.changes.contains_key(&key) {
                self.report.more_changes += 1;
                continue;
            }
            let (edits, first, _) = self.changes.entry(key).or_insert((0, row.time, row.time));
            (*edits, *first) = (*edits + 1, row.time);
        }
    }
}

fn judge(replay: &mut Replay, entry: &LedgerEntry) -> Result<(ObjectId, Replayed), &'static str> {
    let Some(facts) = &entry.facts else {
        let is_whole = entry.verdict == "Error" || WHOLE.iter().any(|it| it.as_str() == entry.reason);
        return Err(if is_whole { "whole" } else { "unrecorded" });
    };
    let facts: RecordedFacts = serde_json::from_str(facts).map_err(|_| "unknown")?;
    let operation = entry.operation.as_deref().and_then(|it| parse_operation(it).ok()).ok_or("unknown")?;
    let EntryObject { group, kind, namespace, name } = entry.object.clone();
    let object = ObjectId {
        group: group.into(),
        kind: kind.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    };
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
    Ok((object, replayed))
}

fn rule(replayed: &Replayed, object: &ObjectId, field: &str) -> String {
    let Replayed { verdict, policy, declared, falsified, .. } = replayed;
    let Some(policy) = policy else { return String::new() };
    let by_mode = || {
        let by = policy.edits_by.as_ref().map_or("default".to_owned(), |name| format!("policy {name}"));
        format!("edits: {:?} ({by})", policy.edits)
    };
    match verdict.reason {
        VerdictReason::Exempt => "exempt".to_owned(),
        VerdictReason::Allowed => "exception".to_owned(),
        VerdictReason::Autoscaled => "autoscalers".to_owned(),
        VerdictReason::Record | VerdictReason::RecordIntact
            if *falsified == Some(RecordViolation::Stranger) =>
        {
            "operators".to_owned()
        }
        VerdictReason::Ignored => {
            match declared.as_ref().and_then(|it| ignoring(policy, object, it, field)) {
                Some(name) => format!("ignore (policy {name})"),
                None => "ignore".to_owned(),
            }
        }
        _ => by_mode(),
    }
}

fn ignoring(policy: &Policy, object: &ObjectId, declared: &DeclaredObject, field: &str) -> Option<String> {
    let path = field.parse().ok()?;
    let about = |mask: &Mask| mask.covers(&path) || mask.reaches_below(&path);
    policy.ignoring(object, declared).find(|(_, mask)| about(mask)).map(|(name, _)| name.to_owned())
}

impl ReplayReport {
    pub fn unjudged(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.not_replayable.iter().map(|(why, count)| {
            (*count, WHY.iter().find(|(name, _)| name == why).map_or(*why, |(_, words)| *words))
        })
    }
}

#[cfg(test)]
mod tests;
