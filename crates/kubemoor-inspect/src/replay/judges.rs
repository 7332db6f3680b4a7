//! Recorded changes, judged again by several threads.
//!
//! Entry point: [`Judges::judge`]. Invariant: each row has its answer at its own place, whatever the number of
//! threads.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use super::REFUSED;
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_ledger::entry::{Entry, Object};
use kubemoor_ledger::query::parse_operation;
use kubemoor_policy::Policy;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::mask::Mask;
use kubemoor_verdict::edit::{Outcome, Reason};
use kubemoor_verdict::recorded::RecordedFacts;
use kubemoor_verdict::records::Falsified;
use kubemoor_verdict::replay::{PastEdit, Replay, Replayed};

/// The fewest rows for which a thread is worth its start.
const FEWEST: usize = 64;

/// The reasons of rows about a request as a whole, without fields.
const WHOLE: [Reason; 6] =
    [Reason::TooLarge, Reason::TooDeep, Reason::Busy, Reason::Late, Reason::Request, Reason::Dependants];

/// The policies by which rows are judged; each thread remembers what it resolves.
pub struct Judges(Vec<Replay>);

/// The answer to a row.
pub(super) struct Judged {
    /// Whether the change would not pass.
    pub(super) is_refused: bool,
    /// Whether it changes a record.
    pub(super) is_record: bool,
    pub(super) operation: Operation,
    /// The Helm operation that was running.
    pub(super) under_way: Option<(ReleaseId, u64)>,
    /// The verdict, where it is another one.
    pub(super) changed: Option<NewVerdict>,
}

/// Another verdict than the recorded one.
pub(super) struct NewVerdict {
    pub(super) now: &'static str,
    /// The fields, each with the rule that decides; one without a name where it is about the object as a whole.
    pub(super) fields: Vec<(String, String)>,
}

impl Judges {
    /// So many threads at most; `defaults` apply where no policy sets a value.
    pub fn new(threads: usize, defaults: &Policy, accepted: &[Arc<Compiled>]) -> Self {
        let replay = |_| Replay::new(defaults.clone(), accepted.to_vec());
        Self((0..threads.max(1)).map(replay).collect())
    }

    /// The answers, or the reasons why a row has none, in the order of the rows.
    pub(super) fn judge(&mut self, rows: &[&Entry]) -> Vec<Result<Judged, &'static str>> {
        let judge = |rows: &[&Entry], replay: &mut Replay| -> Vec<_> {
            rows.iter().map(|row| judged(replay, row)).collect()
        };
        let share = rows.len().div_ceil(self.0.len()).max(FEWEST);
        match self.0.as_mut_slice() {
            [first, ..] if rows.len() <= share => judge(rows, first),
            all => thread::scope(|scope| {
                let shares = rows.chunks(share).zip(all);
                let judging: Vec<_> =
                    shares.map(|(rows, replay)| scope.spawn(move || judge(rows, replay))).collect();
                let answers =
                    judging.into_iter().map(|it| it.join().unwrap_or_else(|why| resume_unwind(why)));
                answers.flatten().collect()
            }),
        }
    }
}

fn judged(replay: &mut Replay, entry: &Entry) -> Result<Judged, &'static str> {
    let Some(facts) = &entry.facts else {
        let is_whole = entry.verdict == "Error" || WHOLE.iter().any(|it| it.as_str() == entry.reason);
        return Err(if is_whole { "whole" } else { "unrecorded" });
    };
    let facts: RecordedFacts = serde_json::from_str(facts).map_err(|_| "unknown")?;
    let operation = entry.operation.as_deref().and_then(|it| parse_operation(it).ok()).ok_or("unknown")?;
    let Object { group, kind, namespace, name } = entry.object.clone();
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
    Ok(Judged {
        is_refused: replayed.verdict.outcome.is_refusal(),
        is_record: matches!(facts, RecordedFacts::Record(_)),
        operation,
        changed: changed(entry, &object, &replayed),
        under_way: replayed.operation,
    })
}

/// The verdict of a replay, if it is another one.
fn changed(entry: &Entry, object: &ObjectId, replayed: &Replayed) -> Option<NewVerdict> {
    let outcome = replayed.verdict.outcome;
    // A revert that would leave nothing of the change is a denial.
    let is_denied_revert = REFUSED.contains(&entry.verdict.as_str()) && outcome == Outcome::Revert;
    if outcome.as_str() == entry.verdict || is_denied_revert {
        return None;
    }
    let grounds = replayed.verdict.grounds.as_ref();
    let mut fields: Vec<String> =
        grounds.iter().flat_map(|it| &it.fields).map(|field| field.path.to_string()).collect();
    if fields.is_empty() {
        fields = entry.fields.iter().map(|field| field.path.clone()).collect();
    }
    if fields.is_empty() {
        fields.push(String::new());
    }
    let with_rule = |field: String| {
        let rule = rule(replayed, object, &field);
        (field, rule)
    };
    Some(NewVerdict { now: outcome.as_str(), fields: fields.into_iter().map(with_rule).collect() })
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
    declared: &kubemoor_helm::release::Declared,
    field: &str,
) -> Option<String> {
    let path = field.parse().ok()?;
    let about = |mask: &Mask| mask.covers(&path) || mask.reaches_below(&path);
    policy.ignoring(object, declared).find(|(_, mask)| about(mask)).map(|(name, _)| name.to_owned())
}
