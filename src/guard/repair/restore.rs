//! Makes a changed object again what its release declares.
//!
//! Entry point: `Task::restore`. Invariant: every write is bound to the version
//! of the object that was judged; whoever writes in between makes the guard
//! start over. What the object is afterwards is compared again.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::pass::{RETRY, is_gone, take_in};
use super::examine::{Answer, Examined};
use super::fixed::{Fixed, LEFT, is_left};
use super::trouble::Trouble;
use super::{AGAIN, Done, LOOK, Situation, Task, version_of};
use crate::cluster::call::CallError;
use crate::cluster::objects::{Target, WriteError};
use crate::cluster::releases::LookError;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::state;
use crate::metrics::Repair;
use crate::model::ObjectId;
use crate::reconcile::blame::{Taken, returned};
use crate::reconcile::body;
use crate::reconcile::elapsed::elapsed;
use crate::reconcile::judge::{self, Standing};
use crate::reconcile::live::Live;
use crate::reconcile::plan::Plan;
use crate::reconcile::report::DriftKind;
use crate::reconcile::rollout::{Rollout, touches_template};
use crate::verdict::drift::{self, Subject};
use crate::verdict::edit::Evidence;

/// How often the guard starts over at once when somebody else writes meanwhile.
const ROUNDS: usize = 3;

/// What came of one round.
pub(super) enum Round {
    Done(Done),
    /// Somebody wrote meanwhile.
    Again,
}

impl Task<'_> {
    /// Puts a change right, or gives back what others hold.
    pub(super) async fn restore(&self, since: Timestamp) -> Done {
        for _ in 0..ROUNDS {
            match self.round(since).await {
                Round::Done(done) => return done,
                Round::Again => {}
            }
        }
        Done::Later(AGAIN)
    }

    async fn round(&self, since: Timestamp) -> Round {
        let Self { shared, id, object, .. } = self;
        let done = |done| Round::Done(done);
        let Some(before) = self.situation() else { return done(Done::Settled) };
        let Some(target) = shared.target(&before.release, object) else {
            return done(self.is_unserved(&before));
        };
        let live = match shared.guard.objects.read(&target).await {
            Ok(Some(live)) => live,
            Ok(None) => {
                is_gone(shared, &before.release, object, since);
                return done(Done::Later(AGAIN));
            }
            Err(CallError::Unserved) => return done(self.is_unserved(&before)),
            Err(error) => return done(self.failed(&error.to_string())),
        };
        // The records are read after the object: what they say now is what counts.
        if let Err(error) = shared.guard.releases.fresh(id, LOOK).await {
            return done(self.failed(&error.to_string()));
        }
        match self.is_taken_over(&live).await {
            Ok(false) => {}
            Ok(true) => {
                // The release that it belongs to now hears of it by its own record.
                take_in(shared, id, &live, &target.resource.version);
                return done(Done::Settled);
            }
            Err(error) => return done(self.failed(&error.to_string())),
        }
        let Some(situation) = self.situation() else { return done(Done::Settled) };
        if !Arc::ptr_eq(&before.release, &situation.release) {
            // It may be what Helm has just made of it.
            take_in(shared, id, &live, &target.resource.version);
        }
        if situation.plan != Plan::Repair {
            return done(Done::Later(AGAIN));
        }
        let Examined { standing, answer } = self.examine(&situation, &live).await;
        let mut changes = match standing {
            Standing::Taken(taken, _) => return self.give_back(&situation, &target, &live, &taken).await,
            Standing::Drifts(DriftKind::Changed, changes) => changes,
            other => {
                if self.towards.is_some() {
                    take_in(shared, id, &live, &target.resource.version);
                    return done(Done::Settled);
                }
                self.note(&situation, &live, other);
                if self.situation().is_none() {
                    shared.guard.metrics.repaired(before.drift.kind.into(), Repair::Present);
                }
                return done(Done::Settled);
            }
        };
        if let Answer::None(reason) = &answer
            && changes.iter().all(|change| change.agreement == Agreement::Doubt)
        {
            self.say(&situation.release, reason);
            return done(Done::Settled);
        }
        if changes.iter().all(|change| is_left(object, change)) {
            self.say(&situation.release, LEFT);
            return done(Done::Settled);
        }
        if let Some(namespace) = &object.namespace
            && self.is_terminating(namespace).await
        {
            self.keep(Some("its namespace is being deleted"));
            return done(Done::Settled);
        }
        if self.is_known_fixed(&situation, &changes) {
            self.say(&situation.release, "these fields cannot be changed in place");
            return done(Done::Settled);
        }
        // What else drifts is put right beside an addition that nobody has confirmed.
        if changes.iter().any(|change| situation.removes(change)) {
            changes.retain(|change| situation.removes(change));
        } else {
            return done(self.leave_additions(&situation, &changes));
        }
        if !situation.confirms(&changes) {
            return done(self.leave_unconfirmed(&situation).await);
        }
        let rolls = changes.iter().any(|change| touches_template(object, &change.path));
        if rolls && let Some(Rollout { object: other, since, .. }) = self.rolls_out(&situation).await {
            self.keep(Some(&format!("{other} of its release is still being rolled out")));
            // The watch tells when it is done. Should it not, it is asked after less and less.
            return done(Done::Later(elapsed(since, Timestamp::now()).clamp(AGAIN, RETRY)));
        }
        self.write(&situation, &target, &live, changes, &answer).await
    }

    async fn write(
        &self,
        situation: &Situation,
        target: &Target,
        live: &Live,
        changes: Vec<FieldChange>,
        answer: &Answer,
    ) -> Round {
        let Self { shared, id, object, .. } = self;
        let attempts = shared.repairer.backoff.lock().attempt(object, Timestamp::now());
        let left = changes.iter().filter(|change| is_left(object, change));
        let mut fixed: Vec<Path> = left.map(|change| change.path.clone()).collect();
        let mut written = self.send(situation, target, live, &changes, &fixed, answer).await;
        let refusal = match &written {
            Err(Trouble::Write(WriteError::Invalid { message, .. })) => Some(message.clone()),
            _ => None,
        };
        // One field that stays can make another one invalid.
        for _ in 0..ROUNDS {
            let Err(Trouble::Write(WriteError::Invalid { causes, .. })) = &written else { break };
            let before = fixed.len();
            let refused = body::immutable(&changes, causes);
            fixed.extend(refused.into_iter().filter(|path| !fixed.contains(path)).collect::<Vec<_>>());
            if fixed.len() == before || fixed.len() == changes.len() {
                break;
            }
            written = self.send(situation, target, live, &changes, &fixed, answer).await;
        }
        let outdated = match &refusal {
            Some(message) if !fixed.is_empty() => self.is_outdated(situation, target, message).await,
            _ => None,
        };
        let now = match written {
            Ok(Some(now)) => now,
            Ok(None) => return Round::Done(self.failed("nothing can be written that would change it")),
            Err(Trouble::Write(WriteError::Conflict { .. }) | Trouble::Moved) => return Round::Again,
            Err(Trouble::Write(WriteError::Invalid { .. })) if let Some(reason) = outdated => {
                return Round::Done(self.failed(&reason));
            }
            Err(Trouble::Write(WriteError::Invalid { message, .. })) if !fixed.is_empty() => {
                self.learn_fixed(situation, &fixed);
                self.say(&situation.release, &format!("these fields cannot be changed in place: {message}"));
                shared.guard.metrics.repaired(DriftKind::Changed.into(), Repair::Failed);
                return Round::Done(Done::Settled);
            }
            Err(Trouble::Write(WriteError::Failed(CallError::Unserved))) => {
                return Round::Done(self.is_unserved(situation));
            }
            Err(Trouble::Write(error)) => return Round::Done(self.refused(&error)),
            Err(Trouble::Unconfirmed) => {
                // Nobody has undone anything.
                shared.repairer.backoff.lock().forget(object);
                return Round::Done(self.leave_unconfirmed(situation).await);
            }
            Err(Trouble::Other(reason)) => return Round::Done(self.failed(&reason)),
        };
        if changes.iter().any(|change| touches_template(object, &change.path)) {
            shared.repairer.rollouts.lock().begin(id, object, &now, Timestamp::now());
        }
        let fixed = Fixed { paths: fixed, outdated };
        self.compare(situation, live, &changes, &fixed, &now, answer, attempts)
    }

    /// Compares the object as it was written with what is declared.
    #[allow(clippy::too_many_arguments, reason = "all that is known of one repair")]
    fn compare(
        &self,
        situation: &Situation,
        live: &Live,
        changes: &[FieldChange],
        fixed: &Fixed,
        now: &Value,
        answer: &Answer,
        attempts: u32,
    ) -> Round {
        let Self { shared, id, object, .. } = self;
        let evidence = answer.canonical().map_or(Evidence::None, Evidence::Canonical);
        let timeout = situation.policy.operation_timeout;
        let at = Timestamp::now();
        let standing = state::standing(&situation.release, object, timeout, at);
        let stands = standing.map(|standing| {
            let Situation { policy, circumstances, .. } = situation;
            let subject = Subject { object, standing: &standing, policy, circumstances, now: at };
            drift::compare(&subject, Some(now), evidence)
        });
        let mut left = match stands {
            Some(drift::Live::Drifted(drift)) => drift.changes,
            _ => Vec::new(),
        };
        left.retain(|change| change.agreement > Agreement::Doubt && situation.removes(change));
        let (known, open): (Vec<_>, Vec<_>) = left.into_iter().partition(|it| fixed.paths.contains(&it.path));
        if !open.is_empty() {
            let paths: Vec<String> = open.iter().map(|change| change.path.to_string()).collect();
            let reason = format!(
                "the API server took the write, and something set it back at once: {}",
                paths.join(", ")
            );
            return Round::Done(self.failed(&reason));
        }
        let contested = shared.repairer.backoff.lock().is_contested(object, Timestamp::now());
        let helms = situation.life.as_ref().map(|life| life.managers.clone()).unwrap_or_default();
        let seen = judge::seen(live, DriftKind::Changed, changes, &helms, false, situation.drift.since);
        let mut told = situation.clone();
        told.drift = seen;
        if known.is_empty() {
            self.repaired(&told, Repair::Repaired, attempts, contested);
            shared.drifts.lock().is_restored(id, object, version_of(now));
            return Round::Done(Done::Repaired);
        } else {
            self.repaired(&told, Repair::Partly, attempts, contested);
            let rest = judge::seen(live, DriftKind::Changed, &known, &helms, false, situation.drift.since);
            shared.drifts.lock().drifts(id, object, rest);
            if let Some(reason) = &fixed.outdated {
                return Round::Done(self.failed(reason));
            }
            self.learn_fixed(situation, &fixed.paths);
            self.say(&situation.release, "these fields cannot be changed in place");
        }
        Round::Done(Done::Settled)
    }

    /// Gives fields back to Helm, once for each manager and revision.
    pub(super) async fn give_back(
        &self,
        situation: &Situation,
        target: &Target,
        live: &Live,
        taken: &Taken,
    ) -> Round {
        let Self { shared, id, object, .. } = self;
        let revision = situation.release.state.revision;
        let key = ((*object).clone(), taken.by.clone(), revision);
        // What the guard itself has left half done it may finish.
        if taken.by != taken.helm.name && shared.repairer.returned.lock().contains(&key) {
            self.say(&situation.release, "it was given back once, and was taken again");
            return Round::Done(Done::Settled);
        }
        let patch = live.whole().and_then(|whole| returned(&whole, &taken.helm, &taken.paths));
        let Some(patch) = patch else { return Round::Done(Done::Settled) };
        match shared.guard.objects.merge(target, &patch, &taken.helm.name).await {
            Ok(now) => {
                let mut given = shared.repairer.returned.lock();
                given.retain(|(other, _, at)| other != *object || *at == revision);
                given.insert(key);
                drop(given);
                self.repaired(situation, Repair::Repaired, 1, false);
                shared.drifts.lock().is_restored(id, object, version_of(&now));
                Round::Done(Done::Repaired)
            }
            Err(WriteError::Conflict { .. }) => Round::Again,
            Err(error) => Round::Done(self.refused(&error)),
        }
    }

    /// Whether the object's annotations name another release, and that declares
    /// it. Helm writes the record first, but of the two the object may be known
    /// first; what Helm has just taken over must not be taken back.
    async fn is_taken_over(&self, live: &Live) -> Result<bool, LookError> {
        let Self { shared, id, object, .. } = self;
        let Some(named) = live.sighting.release.as_ref().filter(|named| named != id) else {
            return Ok(false);
        };
        shared.guard.releases.fresh(named, LOOK).await?;
        Ok(shared.release(named).is_some_and(|other| other.objects.contains_key(*object)))
    }

    async fn is_terminating(&self, namespace: &str) -> bool {
        let id = ObjectId {
            group: String::new(),
            kind: "Namespace".to_owned(),
            namespace: None,
            name: namespace.to_owned(),
        };
        let Some(target) = self.shared.guard.kinds.target(&id, "v1") else { return false };
        // Whoever may not look at namespaces learns it from the write.
        matches!(self.shared.guard.objects.sight(&target).await, Ok(Some(sighting)) if sighting.deleting)
    }

    /// Another workload of the release that still makes its new pods.
    async fn rolls_out(&self, situation: &Situation) -> Option<Rollout> {
        let rollouts = &self.shared.repairer.rollouts;
        let rollout = rollouts.lock().of_another(self.id, self.object, Timestamp::now())?;
        let live = match self.shared.target(&situation.release, &rollout.object) {
            Some(target) => self.shared.guard.objects.read(&target).await.ok().flatten(),
            None => None,
        };
        let mut rollouts = rollouts.lock();
        match live.and_then(|live| live.object) {
            Some(object) => {
                rollouts.see(self.id, &rollout.object, &object, Timestamp::now());
            }
            None => rollouts.end(self.id),
        }
        rollouts.of_another(self.id, self.object, Timestamp::now())
    }
}
