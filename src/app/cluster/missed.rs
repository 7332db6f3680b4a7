//! Records the policies and autoscalers that were deleted while no guard ran.
//!
//! Entry point: [`MissedEnds::run`]. Invariant: asks the ledger once, when this process first leads. The newest row about
//! a subject shows that it was in force. What this process saw itself has rows of its own. Must not judge.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::scaling::{ScalingHistory, declared, ended, named};
use crate::app::policing::{IN_FILE, Subject};
use kubemoor_declare::model::{ObjectId, Operation};
use kubemoor_ledger::entry::{Entry, Object};
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};
use kubemoor_runtime::telemetry::FailureLog;

/// The pause before a ledger that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);

/// The acts after which a subject is in force, and those that end it.
const BEGIN: [Act; 4] = [Act::CreatePolicy, Act::ChangePolicy, Act::StartAutoscaling, Act::ChangeAutoscaling];
const END: [Act; 2] = [Act::DeletePolicy, Act::StopAutoscaling];

/// Records the ends that no guard saw.
pub(super) struct MissedEnds(pub(super) ScalingHistory);

/// How far the ledger was read.
#[derive(Default)]
struct Reading {
    history: History,
    /// The place of the next page.
    before: Option<i64>,
    is_whole: bool,
}

/// The newest rows about each subject.
#[derive(Default)]
struct History(HashMap<Subject, Newest>);

/// The newest rows about one subject.
#[derive(Default)]
struct Newest {
    begun: Option<(i64, Timestamp)>,
    ended: Option<Timestamp>,
}

impl MissedEnds {
    /// Records them once this process leads, then waits for `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.record() => {}
        }
        stop.cancelled().await;
    }

    async fn record(&self) {
        if self.0.leadership.watch().wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let (mut reading, mut failures) = (Reading::default(), FailureLog::default());
        while !reading.is_whole {
            match self.read(&mut reading).await {
                Ok(()) => failures.note_success(),
                Err(error) => {
                    if failures.note_failure() {
                        tracing::warn!(
                            error,
                            "deletions while no guard ran are not recorded yet, trying again"
                        );
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        let in_force = reading.history.in_force();
        let rows = in_force.into_iter().filter_map(|(subject, id)| self.row(&subject, id));
        rows.for_each(|row| self.0.ledger.record(row));
        self.0.witnessed.close();
    }

    /// Reads what the ledger tells, from where the last attempt ended. Fails with the reason.
    async fn read(&self, reading: &mut Reading) -> Result<(), String> {
        let ledger = &self.0.ledger;
        let (Some(store), Some(cluster)) = (ledger.store(), ledger.cluster()) else {
            return Err("the ledger is not open".to_owned());
        };
        let verdicts: Vec<_> = BEGIN.iter().chain(&END).map(|act| act.as_str().to_owned()).collect();
        let (cluster, before) = (Some(cluster.to_owned()), reading.before);
        let mut filter = Filter { cluster, verdicts, before, ..Filter::default() };
        while !reading.is_whole {
            let page = store.page(&filter).await.map_err(|error| error.to_string())?;
            page.items.iter().for_each(|entry| reading.history.add(entry));
            filter.before = page.next.and_then(|next| next.parse().ok());
            (reading.before, reading.is_whole) = (filter.before, filter.before.is_none());
        }
        Ok(())
    }

    /// The row about a subject that is gone; `None` if it is still there, or its end has a row.
    fn row(&self, subject: &Subject, begun: i64) -> Option<Row> {
        let Subject { object, autoscaler } = subject;
        let (act, operation, release, detail) = match autoscaler.as_str() {
            "" => {
                let detail = "deleted while no guard recorded it".to_owned();
                (Act::DeletePolicy, Some(Operation::Delete), None, detail)
            }
            name => {
                let index = self.0.releases.index().read();
                let (release, replicas) = declared(&index, object)?;
                if self.0.autoscalers.scalings(object, &index).iter().any(|it| it.name == name) {
                    return None;
                }
                let how = "it was deleted, or got another target, while no guard recorded it";
                let detail = format!("{}: {how}", ended(name, replicas));
                (Act::StopAutoscaling, None, Some((release.id.clone(), release.state.revision)), detail)
            }
        };
        // Asked last: this process may see the end meanwhile.
        if self.0.witnessed.has(subject) {
            return None;
        }
        let same = Some(format!("{object} {autoscaler} is gone after row {begun}"));
        let edit = ReviewedEdit::watched(object.clone(), operation);
        Some(Row { same, detail, ..Row::act(Timestamp::now(), edit, release, act) })
    }
}

impl History {
    /// Takes a row in; of each subject the newest first.
    fn add(&mut self, entry: &Entry) {
        let is_one_of = |acts: &[Act]| acts.iter().any(|act| act.as_str() == entry.verdict);
        let Some(subject) = subject(entry) else { return };
        let newest = self.0.entry(subject).or_default();
        if is_one_of(&END) {
            newest.ended.get_or_insert(entry.time);
        } else {
            newest.begun.get_or_insert((entry.id, entry.time));
        }
    }

    /// The subjects that are in force by their newest row, and the row. Rows of one second are in no order.
    fn in_force(self) -> Vec<(Subject, i64)> {
        let is_over = |begun: Timestamp, ended: Timestamp| ended.as_second() >= begun.as_second();
        let in_force = self.0.into_iter().filter_map(|(subject, newest)| {
            let (id, begun) = newest.begun?;
            (!newest.ended.is_some_and(|ended| is_over(begun, ended))).then_some((subject, id))
        });
        in_force.collect()
    }
}

/// What a row is about; `None` for a policy in a file, which is there or not by the flags of the guard.
fn subject(entry: &Entry) -> Option<Subject> {
    let Entry { object: Object { group, kind, namespace, name }, detail, .. } = entry;
    let is_policy = [Act::CreatePolicy, Act::ChangePolicy, Act::DeletePolicy];
    let autoscaler = match is_policy.iter().any(|act| act.as_str() == entry.verdict) {
        true if detail.starts_with(IN_FILE) => return None,
        true => String::new(),
        false => named(detail)?.to_owned(),
    };
    let namespace = namespace.as_deref().map(Into::into);
    let object = ObjectId { group: group.into(), kind: kind.into(), namespace, name: name.into() };
    Some(Subject { object, autoscaler })
}

#[cfg(test)]
mod tests;
