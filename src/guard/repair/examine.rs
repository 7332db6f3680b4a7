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
use crate::cluster::arbiter::{ArbiterError, Question};
use crate::cluster::call::CallError;
use crate::cluster::objects::WriteError;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::policy::agreement::Declaration;
use crate::policy::settled::Settled;
use crate::reconcile::judge::{Standing, record, weigh};
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

    /// Whether it was asked and says nothing.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None(_))
    }
}

/// Whether the API server says of the object itself that it cannot be what was asked for; whoever edits it
/// can have it so. A missing right, another webhook that is away or a cut say nothing of it.
fn refuses_the_object(reason: &WriteError) -> bool {
    match reason {
        WriteError::Invalid { .. } => true,
        WriteError::Failed(CallError::Refused { message, .. }) => !message.contains("failed calling webhook"),
        _ => false,
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
        let is_certain = matches!(
            &standing,
            Standing::Drifts(_, changes) if changes.iter().any(|it| it.agreement != Agreement::Doubt)
        );
        if let (Answer::None(reason), false) = (&answer, is_certain) {
            return Err(Some(reason.clone()));
        }
        self.note(&situation, &live, standing);
        // It is looked at anew: as what it turned out to be.
        match self.situation() {
            None => Ok(Done::Settled),
            Some(now) if !now.drift.doubt => Ok(Done::Later(AGAIN)),
            // Something has changed meanwhile: it is looked at once more.
            Some(_) if self.shared.drifts.lock().is_suspect(self.id, self.object) => Ok(Done::Later(AGAIN)),
            Some(_) => Err(None),
        }
    }

    /// Weighs the object, and asks the arbiter where only it can tell.
    pub(super) async fn examine(&self, situation: &Situation, live: &Live) -> Examined {
        let Situation { release, policy, circumstances, .. } = situation;
        // One time for both looks: what an exception lets be in between is not settled.
        let now = Timestamp::now();
        let weigh = |evidence| weigh(release, live, policy, circumstances, evidence, now);
        let standing = weigh(Evidence::None);
        let doubts: Vec<FieldChange> = match &standing {
            Standing::Drifts(_, changes) => {
                changes.iter().filter(|it| it.agreement == Agreement::Doubt).cloned().collect()
            }
            _ => Vec::new(),
        };
        if doubts.is_empty() {
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
            digest: situation.declared.digest,
        };
        match arbiter.canonical(&question, LOOK).await {
            Ok(canonical) => {
                let standing = weigh(Evidence::Canonical(&canonical));
                self.settle(situation, &doubts, &standing);
                Examined { standing, answer: Answer::Canonical(canonical) }
            }
            Err(error) => {
                let is_refused =
                    matches!(&error, ArbiterError::Refused { reason, .. } if refuses_the_object(reason));
                let standing = if is_refused { weigh(Evidence::Unavailable) } else { standing };
                Examined { standing, answer: Answer::None(error.to_string()) }
            }
        }
    }

    /// Remembers the values that the arbiter has settled: those `doubts` that are none
    /// any more as the object `stands` by its answer.
    fn settle(&self, situation: &Situation, doubts: &[FieldChange], stands: &Standing) {
        let left = match stands {
            Standing::Drifts(_, changes) => changes.as_slice(),
            _ => &[],
        };
        let Some(digest) = &situation.declared.digest else { return };
        let declaration = Declaration { release: self.id, object: self.object, digest, seal: None };
        let settled = doubts.iter().filter(|doubt| left.iter().all(|it| it.path != doubt.path));
        let settled = settled.map(|doubt| (&doubt.path, doubt.new.as_ref()));
        let guard = &self.shared.guard;
        guard.settled.learn(self.object, Settled::of(&guard.key, &declaration, settled));
    }

    /// Notes how the object stands.
    pub(super) fn note(&self, situation: &Situation, live: &Live, standing: Standing) {
        let (release, now) = (&situation.release, Timestamp::now());
        let index = self.shared.guard.releases.index().read();
        let mut drifts = self.shared.drifts.lock();
        let Some(current) = index.release(&release.id) else { return };
        if !Arc::ptr_eq(current, release) || drifts.is_overtaken(self.object, version_of(live)) {
            // What is known by now says otherwise, or will.
            drifts.suspect(&release.id, self.object.clone(), now);
            return;
        }
        record(&mut drifts, release, live, standing, now);
    }
}
