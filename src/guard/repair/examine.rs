//! Holds one object against its release, and asks the arbiter in doubt.
//!
//! Entry points: `Task::examine`, `Task::settle_doubt`. Invariant: no dry run
//! but for a doubt, and none twice for the same one.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::observe::version_of;
use super::super::pass::RETRY;
use super::{AGAIN, Done, LOOK, Situation, Task};
use crate::cluster::arbiter::Question;
use crate::declaration::equality::Agreement;
use crate::reconcile::judge::{Standing, doubts, record, weigh};
use crate::reconcile::live::Live;
use crate::verdict::edit::Evidence;

/// What the arbiter says.
pub(super) enum Answer {
    /// It was not asked.
    Unasked,
    Canonical(Arc<Value>),
    /// It cannot tell, or there is none.
    None(String),
}

impl Answer {
    /// What it says, if it does.
    pub(super) fn canonical(&self) -> Option<&Value> {
        if let Self::Canonical(value) = self { Some(value) } else { None }
    }
}

/// How an object stands once the arbiter was asked about doubts.
pub(super) struct Examined {
    pub(super) standing: Standing,
    pub(super) answer: Answer,
}

impl Task<'_> {
    /// Asks the arbiter about a drift that is nothing but doubt.
    ///
    /// # Errors
    /// When the doubt stays; with the reason, where there is one.
    pub(super) async fn settle_doubt(&self) -> Result<Done, Option<String>> {
        let situation = self.situation().ok_or(None)?;
        let target = self.shared.target(&situation.release, self.object).ok_or(None)?;
        let live = match self.shared.guard.objects.read(&target).await {
            Ok(live) => live.ok_or(None)?,
            Err(_) => return Ok(Done::Later(RETRY)),
        };
        let Examined { standing, answer } = self.examine(&situation, &live).await;
        if let Answer::None(reason) = &answer {
            return Err(Some(reason.clone()));
        }
        self.note(&situation, &live, standing, answer.canonical().is_some());
        // It is looked at anew: as what it turned out to be.
        match self.situation() {
            None => Ok(Done::Settled),
            Some(now) if !now.drift.doubt => Ok(Done::Later(AGAIN)),
            Some(_) => Err(None),
        }
    }

    /// Weighs the object, and asks the arbiter where only it can tell.
    pub(super) async fn examine(&self, situation: &Situation, live: &Live) -> Examined {
        let Situation { release, policy, circumstances, .. } = situation;
        let weigh = |evidence| weigh(release, live, policy, circumstances, evidence, Timestamp::now());
        let standing = weigh(Evidence::None);
        let in_doubt = match &standing {
            Standing::Drifts(_, changes) => changes.iter().any(|it| it.agreement == Agreement::Doubt),
            _ => false,
        };
        if !in_doubt {
            return Examined { standing, answer: Answer::Unasked };
        }
        let Some(arbiter) = &self.shared.guard.arbiter else {
            return Examined {
                standing,
                answer: Answer::None("the guard makes no dry runs in its modes".to_owned()),
            };
        };
        let question = Question {
            object: self.object.clone(),
            uid: live.sighting.uid.clone(),
            release: release.id.clone(),
            revision: release.state.revision,
        };
        match arbiter.canonical(&question, LOOK).await {
            Ok(canonical) => Examined {
                standing: weigh(Evidence::Canonical(&canonical)),
                answer: Answer::Canonical(canonical),
            },
            Err(error) => Examined { standing, answer: Answer::None(error.to_string()) },
        }
    }

    /// Notes how the object stands, and what the arbiter settled.
    pub(super) fn note(&self, situation: &Situation, live: &Live, standing: Standing, asked: bool) {
        let (release, now) = (&situation.release, Timestamp::now());
        let settled = matches!(standing, Standing::AsDeclared(_) | Standing::Taken(..)) && asked;
        let unaided = settled
            .then(|| weigh(release, live, &situation.policy, &situation.circumstances, Evidence::None, now));
        let index = self.shared.guard.releases.index().read();
        let mut drifts = self.shared.drifts.lock();
        let Some(current) = index.release(&release.id) else { return };
        if !Arc::ptr_eq(current, release) || drifts.is_overtaken(self.object, version_of(live)) {
            // What is known by now says otherwise, or will.
            drifts.suspect(&release.id, self.object.clone(), now);
            return;
        }
        if let Some(Standing::Drifts(_, changes)) = unaided {
            drifts.settle(self.object, doubts(release.state.revision, &changes));
        }
        record(&mut drifts, release, live, standing, now);
    }
}
