//! Holds one object against its release, and asks the API server in doubt.
//!
//! Entry points: `Reconciler::weigh`, `begin_settling`, `settle_doubt`. Invariant: no
//! dry run but for a doubt, and none twice for the same one.

use std::sync::Arc;

use super::super::event::{Outcome, Secret, Work};
use super::super::judge::{Standing, doubts, record, weigh};
use super::super::machine::Reconciler;
use super::super::machine::observe::version_of;
use super::{AGAIN, Next, RETRY, Repair, Seen, Situation, Task};
use crate::declaration::equality::Agreement;
use crate::verdict::edit::Evidence;

/// What the API server says of a doubt.
pub(crate) enum Answer {
    /// It was not asked.
    Unasked,
    Canonical(Arc<Secret>),
    /// It cannot tell, or nobody may ask it.
    None(String),
}

/// A doubt that is settled by itself, with the reason that is said if it stays.
pub(crate) enum Doubt {
    /// The object is read.
    Reading(Box<Situation>, &'static str),
    /// The API server is asked.
    Asking(Box<Situation>, Box<Seen>, &'static str),
}

impl Answer {
    /// What it says, if it does.
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        match self {
            Self::Canonical(value) => Evidence::Canonical(&value.0),
            Self::Unasked | Self::None(_) => Evidence::None,
        }
    }

    /// Of what came of the question.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Canonical(value) => Self::Canonical(value),
            Outcome::Failed(failure) => Self::None(failure.message),
            _ => Self::None("the answer is to another question".to_owned()),
        }
    }
}

impl Reconciler {
    /// Asks the API server about a drift that is nothing but doubt.
    pub(super) fn begin_settling(task: &Task, situation: &Situation, reason: &'static str) -> Next {
        let version = Arc::clone(&situation.declared.version);
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::Do(work, Repair::Doubt(Doubt::Reading(Box::new(situation.clone()), reason)))
    }

    pub(super) fn settle_doubt(&mut self, task: &Task, doubt: Doubt, outcome: Outcome) -> Next {
        match (doubt, outcome) {
            (Doubt::Reading(situation, reason), Outcome::Object { live: Some(live), version }) => {
                let seen = Seen { live: *live, version };
                let standing = self.weigh(&situation, &seen, &Answer::Unasked);
                if !is_in_doubt(&standing) {
                    return self.settled(task, &situation, &seen, Answer::Unasked, reason);
                }
                if !self.settings.dry_runs {
                    self.say(task, &situation.release, NO_DRY_RUNS);
                    return Next::settled();
                }
                let work = question(task, &situation, &seen);
                Next::Do(work, Repair::Doubt(Doubt::Asking(situation, Box::new(seen), reason)))
            }
            (Doubt::Reading(situation, reason), Outcome::Object { live: None, .. }) => {
                self.say(task, &situation.release, reason);
                Next::settled()
            }
            (Doubt::Asking(situation, seen, reason), outcome) => {
                self.settled(task, &situation, &seen, Answer::of(outcome), reason)
            }
            (Doubt::Reading(..), _) => Next::later(RETRY),
        }
    }

    fn settled(
        &mut self,
        task: &Task,
        situation: &Situation,
        seen: &Seen,
        answer: Answer,
        reason: &str,
    ) -> Next {
        if let Answer::None(why) = &answer {
            self.say(task, &situation.release, why);
            return Next::settled();
        }
        let standing = self.weigh(situation, seen, &answer);
        self.note(task, situation, seen, standing, matches!(answer, Answer::Canonical(_)));
        // It is looked at anew: as what it turned out to be.
        match self.situation(task) {
            None => Next::settled(),
            Some(now) if !now.drift.doubt => Next::later(AGAIN),
            Some(_) => {
                self.say(task, &situation.release, reason);
                Next::settled()
            }
        }
    }

    /// How the object stands, as far as the answer tells.
    pub(super) fn weigh(&self, situation: &Situation, seen: &Seen, answer: &Answer) -> Standing {
        let Situation { release, policy, circumstances, .. } = situation;
        weigh(release, &seen.live, policy, circumstances, answer.evidence(), self.now)
    }

    /// Notes how the object stands, and what the API server settled.
    pub(super) fn note(
        &mut self,
        task: &Task,
        situation: &Situation,
        seen: &Seen,
        standing: Standing,
        asked: bool,
    ) {
        let release = &situation.release;
        let settled = matches!(standing, Standing::AsDeclared(_) | Standing::Taken(..)) && asked;
        let unaided = settled.then(|| self.weigh(situation, seen, &Answer::Unasked));
        let Some(current) = self.known.release(&release.id) else { return };
        let is_old = self.drifts.is_overtaken(&task.object, version_of(&seen.live));
        if !Arc::ptr_eq(current, release) || is_old {
            // What is known by now says otherwise, or will.
            self.drifts.suspect(&release.id, task.object.clone(), self.now);
            return;
        }
        if let Some(Standing::Drifts(_, changes)) = unaided {
            self.drifts.settle(&task.object, doubts(release.state.revision, &changes));
        }
        record(&mut self.drifts, release, &seen.live, standing, self.now);
    }
}

/// Why nobody asks.
pub(super) const NO_DRY_RUNS: &str = "the guard makes no dry runs in its modes";

/// Whether only the API server can tell how an object stands.
pub(super) fn is_in_doubt(standing: &Standing) -> bool {
    match standing {
        Standing::Drifts(_, changes) => changes.iter().any(|it| it.agreement == Agreement::Doubt),
        _ => false,
    }
}

/// What the API server is asked about an object as it was seen.
pub(super) fn question(task: &Task, situation: &Situation, seen: &Seen) -> Work {
    Work::Ask {
        object: task.object.clone(),
        uid: seen.live.sighting.uid.clone(),
        revision: situation.release.state.revision,
    }
}
