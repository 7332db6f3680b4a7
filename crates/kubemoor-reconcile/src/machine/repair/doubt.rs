//! Compares one object with its release, and asks the API server in case of doubt.
//!
//! Entry points: `Reconciler::weigh`, `begin_settling`, `settle_doubt`. Invariant: dry runs are
//! made only for doubts, and once for each doubt. Must not write anything.

use std::sync::Arc;

use serde_json::Value;

use super::super::Reconciler;
use super::super::observe::version_of;
use super::{AGAIN, Next, RETRY, Repair, Seen, Situation, Task};
use crate::event::{Failure, Fault, Outcome, Secret, Work};
use crate::judge::{Standing, Weighing, record};
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_policy::declaration::Declaration;
use kubemoor_policy::settled::Settled;
use kubemoor_verdict::drift::settle_obstructed;
use kubemoor_verdict::edit::Evidence;

/// The answer of the API server about a doubt.
pub(crate) enum Answer {
    /// It was not asked.
    Unasked,
    Canonical(Arc<Secret>),
    /// It cannot tell, or must not be asked: the reason.
    None {
        why: String,
        refusal: Option<Refusal>,
    },
}

/// What the API server refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The requested object.
    Manifest,
    /// The requested object in the place of the live one, and not as a new one.
    InPlace,
}

/// A doubt that is settled outside a repair, with the reason to report if it remains.
pub(crate) enum Doubt {
    /// The object is read.
    Reading(Box<Situation>, &'static str),
    /// The API server is asked.
    Asking(Box<Situation>, Box<Seen>, &'static str),
}

/// An object that is in doubt, as it was seen.
struct Doubted<'a> {
    situation: &'a Situation,
    seen: &'a Seen,
    /// The reason to report if it stays in doubt.
    reason: &'static str,
}

impl Answer {
    /// An answer that settles nothing.
    pub(super) fn none(why: &str) -> Self {
        Self::None { why: why.to_owned(), refusal: None }
    }

    /// The object as the API server would store it, if it answered.
    pub(crate) fn canonical(&self) -> Option<&Value> {
        if let Self::Canonical(value) = self { Some(&value.0) } else { None }
    }

    /// Whether it was asked and could not tell.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None { .. })
    }

    /// Turns the outcome of a request into an answer.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Canonical(value) => Self::Canonical(value),
            Outcome::Failed(Failure { fault, message }) => {
                let refusal = match fault {
                    Fault::Refused => Some(Refusal::Manifest),
                    Fault::Obstructed => Some(Refusal::InPlace),
                    _ => None,
                };
                Self::None { why: message, refusal }
            }
            _ => Self::none("the answer is to another question"),
        }
    }

    fn evidence(&self) -> Evidence<'_> {
        match self {
            Self::Canonical(value) => Evidence::Canonical(&value.0),
            // The API server refuses the manifest for this object, so the doubtful value is a
            // different one.
            Self::None { refusal: Some(_), .. } => Evidence::Unavailable,
            Self::Unasked | Self::None { .. } => Evidence::None,
        }
    }
}

impl Reconciler {
    /// Asks the API server about a drift that is nothing but doubt.
    pub(super) fn begin_settling(task: &Task, situation: &Situation, reason: &'static str) -> Next {
        let version = Arc::clone(&situation.declared.version);
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::work(work, Repair::Doubt(Doubt::Reading(Box::new(situation.clone()), reason)))
    }

    pub(super) fn settle_doubt(&mut self, task: &Task, doubt: Doubt, outcome: Outcome) -> Next {
        match (doubt, outcome) {
            (Doubt::Reading(situation, reason), Outcome::Object { live: Some(live), version }) => {
                let seen = Seen { live: *live, version };
                let standing = self.weigh(&situation, &seen, Evidence::None);
                if doubts(&standing).is_empty() {
                    let doubted = Doubted { situation: &situation, seen: &seen, reason };
                    return self.settled(task, doubted, Answer::Unasked);
                }
                if !self.settings.dry_runs {
                    let doubted = Doubted { situation: &situation, seen: &seen, reason };
                    return self.settled(task, doubted, Answer::none(NO_DRY_RUNS));
                }
                let work = question(task, &situation, &seen);
                Next::work(work, Repair::Doubt(Doubt::Asking(situation, Box::new(seen), reason)))
            }
            (Doubt::Reading(situation, reason), Outcome::Object { live: None, .. }) => {
                self.say(task, &situation.release, reason);
                Next::settled()
            }
            (Doubt::Asking(situation, seen, reason), outcome) => {
                let doubted = Doubted { situation: &situation, seen: &seen, reason };
                self.settled(task, doubted, Answer::of(outcome))
            }
            (Doubt::Reading(..), _) => Next::again(RETRY),
        }
    }

    /// Compares the object with its release.
    pub(super) fn weigh(&self, situation: &Situation, seen: &Seen, evidence: Evidence<'_>) -> Standing {
        let Situation { release, policy, circumstances, .. } = situation;
        Weighing { release, live: &seen.live, policy, circumstances, now: self.now }.weigh(evidence)
    }

    /// Compares the object with its release by the answer. Remembers the values that the answer has
    /// settled: those that are in doubt without it and not with it.
    pub(super) fn weigh_answered(
        &mut self,
        task: &Task,
        situation: &Situation,
        seen: &Seen,
        answer: &Answer,
    ) -> Standing {
        let mut stands = self.weigh(situation, seen, answer.evidence());
        if let (Standing::Drifts(_, changes), Answer::None { refusal: Some(Refusal::InPlace), .. }) =
            (&mut stands, answer)
        {
            settle_obstructed(changes);
        }
        let (Answer::Canonical(_), Some(digest)) = (answer, &situation.declared.digest) else {
            return stands;
        };
        let left = match &stands {
            Standing::Drifts(_, changes) => changes.as_slice(),
            _ => &[],
        };
        let before = doubts(&self.weigh(situation, seen, Evidence::None));
        let declaration = Declaration { release: &task.id, object: &task.object, digest, seal: None };
        let settled = before.iter().filter(|doubt| left.iter().all(|it| it.path != doubt.path));
        let settled = settled.map(|doubt| (&doubt.path, doubt.new.as_ref()));
        let settled = Settled::of(&self.settings.key, &declaration, settled);
        self.settle(&task.object, settled);
        stands
    }

    /// Records the result for the object.
    pub(super) fn note(&mut self, task: &Task, situation: &Situation, seen: &Seen, standing: Standing) {
        let release = &situation.release;
        let Some(current) = self.known.release(&release.id) else { return };
        // A suspicion that the looks before have left is newer than this, such as that a listing lacks the object.
        let is_old = self.drifts.is_overtaken(&task.object, version_of(&seen.live))
            || self.drifts.is_suspect(&task.id, &task.object);
        if !Arc::ptr_eq(current, release) || !self.is_ruled_alike(&task.object, situation) || is_old {
            // Newer knowledge contradicts this, or soon will.
            self.drifts.suspect(&release.id, task.object.clone(), self.now);
            return;
        }
        if standing.agrees() {
            self.note_put_right(release, &seen.live);
        }
        record(&mut self.drifts, release, &seen.live, standing, self.now);
    }

    fn settled(&mut self, task: &Task, doubted: Doubted<'_>, answer: Answer) -> Next {
        let Doubted { situation, seen, reason } = doubted;
        let standing = self.weigh_answered(task, situation, seen, &answer);
        let is_certain = matches!(
            &standing,
            Standing::Drifts(_, changes) if changes.iter().any(|it| it.agreement != Agreement::Doubt)
        );
        if let (Answer::None { why, .. }, false) = (&answer, is_certain) {
            self.say(task, &situation.release, why);
            return Next::settled();
        }
        if is_certain && task.towards.is_some() {
            // The recorded drift stays a doubt: it is a difference from the manifest that failed.
            self.say(task, &situation.release, reason);
            return Next::settled();
        }
        self.note(task, situation, seen, standing);
        // The situation is gathered again, with the new result.
        match self.situation(task) {
            None => Next::settled(),
            Some(now) if !now.drift.doubt => Next::again(AGAIN),
            // Something has changed meanwhile: another look follows.
            Some(_) if self.drifts.is_suspect(&task.id, &task.object) => Next::again(AGAIN),
            Some(_) => {
                self.say(task, &situation.release, reason);
                Next::settled()
            }
        }
    }
}

/// The reason where no dry run is made.
pub(super) const NO_DRY_RUNS: &str = "the guard makes no dry runs in its modes";

/// The changes about which only the API server can tell.
pub(super) fn doubts(standing: &Standing) -> Vec<FieldChange> {
    match standing {
        Standing::Drifts(_, changes) => {
            changes.iter().filter(|it| it.agreement == Agreement::Doubt).cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// The question to the API server about a live object.
pub(super) fn question(task: &Task, situation: &Situation, seen: &Seen) -> Work {
    Work::Ask {
        object: task.object.clone(),
        uid: seen.live.sighting.uid.clone(),
        revision: situation.release.state.revision,
        digest: situation.declared.digest,
    }
}
