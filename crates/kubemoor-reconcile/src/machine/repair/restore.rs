//! Restores the declared state of a changed object.
//!
//! Entry points: `Reconciler::begin_restoring`, `restore`. Invariant: what is to be
//! written is decided on one version of the object, and on records that were read
//! after it; a write in between makes the guard start over. `send` writes.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::Reconciler;
use super::doubt::{Answer, NO_DRY_RUNS, doubts, question};
use super::{AGAIN, Done, Next, RETRY, Repair, Seen, Sending, Situation, Task};
use crate::elapsed::elapsed;
use crate::event::{Failure, Fault, Outcome, Work};
use crate::judge::Standing;
use crate::occurrence::Occurrence;
use crate::plan::Plan;
use crate::report::DriftKind;
use crate::rollout::touches_template;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::Release;
use kubemoor_verdict::edit::Evidence;
use kubemoor_verdict::sealed;

/// The number of immediate restarts after writes by others.
pub(super) const ROUNDS: usize = 3;

/// Why the guard leaves a sealed field alone.
const LEFT: &str = "whoever has set this has to undo it, or delete the object, which is re-created then";

/// The most fields that a reason names.
const NAMED: usize = 5;

/// Why the guard leaves fields that the API server does not let it set: they are immutable, or something that it does
/// not name excludes them.
pub(super) fn fixed_fields<'p>(paths: impl IntoIterator<Item = &'p Path>) -> String {
    let paths: Vec<String> = paths.into_iter().take(NAMED).map(ToString::to_string).collect();
    format!("the API server refuses to set these fields in place: {}", paths.join(", "))
}

/// The state of a restoration before the first write.
pub(crate) enum Restore {
    /// The object is read.
    Reading(Start),
    /// The release's records are read.
    Records(Start, Box<Seen>),
    /// The records of the release that the object's annotations name are read.
    Owner(Start, Box<Seen>, ReleaseId),
    /// The API server is asked about doubts.
    Asking(Box<Judged>),
    /// Its namespace is read.
    Namespace(Box<Judged>),
    /// Another workload of the release is read, which still makes its new pods.
    Rollout(Box<Judged>, ObjectId),
}

/// The beginning of a restoration.
#[derive(Clone)]
pub(crate) struct Start {
    release: Arc<Release>,
    /// The time since which the object drifts.
    since: Timestamp,
    /// The number of restarts.
    round: usize,
}

/// An object that was read, and the decision about it.
pub(crate) struct Judged {
    pub(super) situation: Situation,
    pub(super) seen: Seen,
    pub(super) changes: Vec<FieldChange>,
    pub(super) answer: Answer,
    pub(super) start: Start,
}

impl Reconciler {
    /// Begins to revert a change, or to return fields to Helm.
    pub(super) fn begin_restoring(
        task: &Task,
        situation: &Situation,
        since: Timestamp,
        round: usize,
    ) -> Next {
        let start = Start { release: Arc::clone(&situation.release), since, round };
        let version = Arc::clone(&situation.declared.version);
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::work(work, Repair::Restore(Restore::Reading(start)))
    }

    /// Starts over after a write by another writer.
    pub(super) fn start_over(&mut self, task: &Task, start: &Start) -> Next {
        if start.round + 1 >= ROUNDS {
            return Next::again(AGAIN);
        }
        let Some(situation) = self.situation(task) else { return Next::settled() };
        Self::begin_restoring(task, &situation, start.since, start.round + 1)
    }

    pub(super) fn restore(&mut self, task: &Task, restore: Restore, outcome: Outcome) -> Next {
        match (restore, outcome) {
            (Restore::Reading(start), Outcome::Object { live: Some(live), version }) => {
                let seen = Box::new(Seen { live: *live, version });
                // The records are read after the object: what they say now is what counts.
                let work = Work::ReadRecords { release: task.id.clone() };
                Next::work(work, Repair::Restore(Restore::Records(start, seen)))
            }
            (Restore::Reading(_), Outcome::Object { live: None, .. }) => {
                // A watch may have told since that it was created again: a look decides.
                self.drifts.suspect(&task.id, task.object.clone(), self.now);
                Next::again(AGAIN)
            }
            (Restore::Records(start, seen), Outcome::Records(ruled)) => {
                self.learn_records(&task.id, ruled);
                // Helm writes the record first, but of the two the object may be known first;
                // what Helm has just taken over must not be taken back.
                match seen.live.sighting.release.clone().filter(|named| *named != task.id) {
                    Some(named) => Next::work(
                        Work::ReadRecords { release: named.clone() },
                        Repair::Restore(Restore::Owner(start, seen, named)),
                    ),
                    None => self.judge_read(task, start, *seen),
                }
            }
            (Restore::Owner(start, seen, named), Outcome::Records(ruled)) => {
                self.learn_records(&named, ruled);
                if self.known.declares(&named, &task.object) {
                    // The release that it belongs to now learns of it by its own record.
                    self.take_in(&task.id, &seen.live, &seen.version);
                    return Next::settled();
                }
                self.judge_read(task, start, *seen)
            }
            (Restore::Asking(judged), outcome) => {
                let Judged { situation, seen, start, .. } = *judged;
                let answer = Answer::of(outcome);
                let standing = self.weigh_answered(task, &situation, &seen, &answer);
                self.weighed(task, (situation, seen, start), standing, answer)
            }
            (Restore::Namespace(judged), Outcome::Namespace { deleting: true }) => {
                drop(judged);
                self.keep(task, Some("its namespace is being deleted"));
                Next::settled()
            }
            // A guard that may not read namespaces learns it from the write.
            (Restore::Namespace(judged), _) => self.restore_unless_held(task, judged),
            (Restore::Rollout(judged, other), outcome) => self.rolls_on(task, judged, &other, outcome),
            (Restore::Reading(start), Outcome::Failed(failure)) => {
                self.fail_by(task, &start.release, &failure)
            }
            (_, Outcome::Failed(Failure { fault: Fault::NotLeading, .. })) => Next::again(RETRY),
            (_, Outcome::Failed(failure)) => self.fail_with(task, &failure),
            _ => Next::again(AGAIN),
        }
    }

    /// Judges the object after it and the records were read.
    fn judge_read(&mut self, task: &Task, start: Start, seen: Seen) -> Next {
        let Some(situation) = self.situation(task) else { return Next::settled() };
        if !Arc::ptr_eq(&start.release, &situation.release) {
            // Helm may just have written it.
            self.take_in(&task.id, &seen.live, &seen.version);
        }
        if situation.plan != Plan::Repair {
            return Next::again(AGAIN);
        }
        let standing = self.weigh(&situation, &seen, Evidence::None);
        if doubts(&standing).is_empty() {
            return self.weighed(task, (situation, seen, start), standing, Answer::Unasked);
        }
        if !self.settings.dry_runs {
            let answer = Answer::none(NO_DRY_RUNS);
            return self.weighed(task, (situation, seen, start), standing, answer);
        }
        let work = question(task, &situation, &seen);
        let judged = Judged { situation, seen, changes: Vec::new(), answer: Answer::Unasked, start };
        Next::work(work, Repair::Restore(Restore::Asking(Box::new(judged))))
    }

    /// Continues with the result of the comparison.
    fn weighed(
        &mut self,
        task: &Task,
        (situation, seen, start): (Situation, Seen, Start),
        standing: Standing,
        answer: Answer,
    ) -> Next {
        let changes = match standing {
            Standing::Taken(taken, _) => return self.give_back(task, situation, &seen, &taken),
            Standing::Drifts(DriftKind::Changed, changes) => changes,
            other => return self.leave_as_found(task, &situation, &seen, other),
        };
        if let Answer::None { why, .. } = &answer
            && changes.iter().all(|change| change.agreement == Agreement::Doubt)
        {
            self.say(task, &situation.release, why);
            return Next::settled();
        }
        if changes.iter().all(|change| is_left(&task.object, change)) {
            self.say(task, &situation.release, LEFT);
            return Next::settled();
        }
        let judged = Box::new(Judged { situation, seen, changes, answer, start });
        match task.object.namespace.clone() {
            Some(name) => Next::work(
                Work::ReadNamespace { name: name.to_string() },
                Repair::Restore(Restore::Namespace(judged)),
            ),
            None => self.restore_unless_held(task, judged),
        }
    }

    /// Leaves an object that no longer has the reported drift.
    fn leave_as_found(
        &mut self,
        task: &Task,
        situation: &Situation,
        seen: &Seen,
        standing: Standing,
    ) -> Next {
        if task.towards.is_some() {
            self.take_in(&task.id, &seen.live, &seen.version);
            return Next::settled();
        }
        self.note(task, situation, seen, standing);
        if self.situation(task).is_none() {
            self.tell(Occurrence::Present(situation.drift.kind));
        }
        Next::settled()
    }

    /// Restores the object unless an earlier attempt has shown that its fields cannot be changed.
    fn restore_unless_held(&mut self, task: &Task, mut judged: Box<Judged>) -> Next {
        let is_known = self.are_known_fixed(task, &judged);
        let Judged { situation, changes, .. } = &mut *judged;
        if is_known {
            let reason = fixed_fields(changes.iter().map(|change| &change.path));
            self.say(task, &situation.release, &reason);
            return Next::settled();
        }
        // Other drift is repaired even if an addition stays unconfirmed.
        if changes.iter().any(|change| situation.removes(change)) {
            changes.retain(|change| situation.removes(change));
        } else {
            return self.leave_additions(task, situation, changes);
        }
        if !situation.confirms(changes) {
            return self.leave_unconfirmed(task, situation);
        }
        let rolls = changes.iter().any(|change| touches_template(&task.object, &change.path));
        let other = self.repairs.rollouts.of_another(&task.id, &task.object, self.now).filter(|_| rolls);
        let Some(other) = other else { return self.send(task, Sending::new(*judged)) };
        let declared = situation.release.declared(&other.object);
        let Some(version) = declared.map(|declared| Arc::clone(&declared.version)) else {
            self.repairs.rollouts.end(&task.id);
            return self.send(task, Sending::new(*judged));
        };
        let work = Work::ReadObject { object: other.object.clone(), version };
        Next::work(work, Repair::Restore(Restore::Rollout(judged, other.object)))
    }

    /// Continues after the other workload was read.
    fn rolls_on(&mut self, task: &Task, judged: Box<Judged>, other: &ObjectId, outcome: Outcome) -> Next {
        let live = match outcome {
            Outcome::Object { live, .. } => live.and_then(|live| live.object),
            _ => None,
        };
        match live {
            Some(object) => {
                self.repairs.rollouts.see(&task.id, other, &object, self.now);
            }
            None => self.repairs.rollouts.end(&task.id),
        }
        let Some(rollout) = self.repairs.rollouts.of_another(&task.id, &task.object, self.now) else {
            return self.send(task, Sending::new(*judged));
        };
        self.keep(task, Some(&format!("{} of its release is still being rolled out", rollout.object)));
        // The watch reports when it is done. If it does not, the workload is read at growing
        // intervals.
        Next::Done(Done::Later(elapsed(rollout.since, self.now).clamp(AGAIN, RETRY)))
    }
}

/// Whether a change is of a sealed field that no repair may undo.
pub(super) fn is_left(object: &ObjectId, change: &FieldChange) -> bool {
    sealed::is_sealed(object, &change.path) && change.declared.is_none() && sealed::stays(object, change)
}
