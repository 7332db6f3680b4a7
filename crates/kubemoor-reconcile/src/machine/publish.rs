//! Combines the loop's knowledge of a release into a report.
//!
//! Entry point: `Reconciler::publish`. Invariant: publishes nothing before all objects that were
//! declared at the start have been listed, and never that all objects match while some of them have
//! not been looked for. Must not decide anything.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::drifts::Drift;
use super::super::effort::note;
use super::super::event::Action;
use super::super::occurrence::Occurrence;
use super::super::report::ReleaseReport;
use super::Reconciler;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::{Declarations, Declared, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::standing;
use kubemoor_verdict::health::{Control, Health, ObjectFacts, ObjectState, Reason, RecordFacts, RecordState};

impl Reconciler {
    /// Publishes what is known of a release, once everything has been listed.
    pub(super) fn publish(&mut self, id: &ReleaseId) {
        self.recount();
        let oldest = self.tally.oldest();
        if oldest != self.oldest {
            self.oldest = oldest;
            self.tell(Occurrence::Oldest(oldest));
        }
        if !self.listed {
            return;
        }
        if self.stopping {
            self.drifts.leave_unread(id);
        }
        match (self.known.release(id).cloned(), self.known.policy(id).cloned()) {
            (Some(release), Some(policy)) => {
                self.drifts.note_manager(&release);
                let report = self.report_of(&release, &policy);
                // Suspects may have another state, and are about to be read.
                let is_judged = matches!(release.state.status, Status::Deployed | Status::Failed);
                if self.drifts.has_untried(id) && all_match(&report.health())
                    || is_judged && self.drifts.has_outdated(id)
                {
                    return;
                }
                if self.awaits_listing(&release) && report.health().counts.drifted == 0 {
                    return;
                }
                self.act(Action::Report(Box::new(report)));
            }
            _ => {
                self.unlisted.remove(id);
                self.act(Action::Withdraw(id.clone()));
            }
        }
    }

    /// Looks again at the releases with objects that only the first listing of a watch will show.
    pub(super) fn attend_unlisted(&mut self) {
        std::mem::take(&mut self.unlisted).iter().for_each(|release| self.attend(release));
    }

    /// Whether a watch is about to show an object of a release for the first time.
    fn awaits_listing(&mut self, release: &Release) -> bool {
        let unseen: Vec<_> =
            release.objects.keys().filter(|object| self.is_unseen(release, object)).collect();
        if !unseen.is_empty() {
            self.unlisted.insert(release.id.clone());
        }
        let is_awaited =
            |object: &ObjectId| !self.scopes.is_watched(object) || self.scopes.is_awaited(object);
        !self.stopping && unseen.into_iter().any(|object| is_awaited(object))
    }

    /// Whether nobody has looked for an object of a release yet: the first listing of its watch is not complete, or
    /// its watch is about to be opened.
    fn is_unseen(&self, release: &Release, object: &ObjectId) -> bool {
        let is_judged = matches!(release.state.status, Status::Deployed | Status::Failed);
        is_judged
            && release.declared(object).is_some()
            && self.drifts.life(object).is_none()
            && match self.scopes.is_watched(object) {
                true => !self.scopes.shows(object) && !self.scopes.is_forbidden(object),
                false => self.unscoped.contains(&release.id),
            }
    }

    fn report_of(&self, release: &Release, policy: &Policy) -> ReleaseReport {
        let id = &release.id;
        note(release.objects.len());
        let records = RecordFacts::of(release, policy.operation_timeout, self.now);
        let mut drifts_of: Vec<(Arc<ObjectId>, Drift)> = self.drifts.of(id);
        drifts_of.sort_by(|(a, _), (b, _)| a.cmp(b));
        let declared = release.objects.values().filter(|it| in_force(it, records.state).is_some()).count();
        let mut seen_alive = self.drifts.seen_alive(release);
        seen_alive.iter_mut().for_each(|seen| seen.settled = self.known.settled(&seen.object));
        let (confirmed, mut unconfirmed) = self.drifts.confirmed(release);
        let drifting = drifts_of.iter().map(|(object, _)| object);
        let added = drifting.filter(|object| self.drifts.may_hold_additions(release, object));
        unconfirmed.extend(added.map(|object| ObjectId::clone(object)));
        unconfirmed.sort();
        unconfirmed.dedup();
        let foreign = self.drifts.foreign(release);
        let excused = self.excused(release, records.state, &foreign);
        let first = self.drifts.first(id, records.revision);
        let known: HashSet<&ObjectId> = drifts_of
            .iter()
            .map(|(object, _)| &**object)
            .chain(excused.iter().map(|it| &it.object))
            .collect();
        ReleaseReport {
            release: id.clone(),
            record: first.and_then(|first| first.uid.clone()),
            digest: first.map_or(release.state.digest, |first| first.digest),
            declared,
            seen_alive,
            confirmed,
            unconfirmed,
            drifted: drifts_of.iter().map(|(object, drift)| drift.shown(object)).collect(),
            flaws: flaws(release),
            foreign,
            unwatched: self.unwatched(release, &known),
            excused,
            records,
            control: Control {
                drift: policy.drift,
                open: self.open,
                suspended: self.suspensions.of(id, self.now).cloned(),
                braked: self.repairs.brake.is_on(&id.namespace),
            },
            manager: self.drifts.manager(release, release.state.apply_method),
            leads: self.leads,
            answer: self.asked.answer(id),
        }
    }

    /// The objects that neither match nor drift: allowed to differ, opted out, outside of the
    /// release's namespace, owned by another release, not created by the failed operation, or not
    /// readable; in the order of objects.
    fn excused(
        &self,
        release: &Release,
        state: RecordState,
        foreign: &[(ObjectId, ReleaseId)],
    ) -> Vec<ObjectFacts> {
        let state_of = |object: &ObjectId, declarations: &Declarations| {
            let declared = in_force(declarations, state)?;
            let life = self.drifts.life(object);
            if declared.opted_out {
                return Some(ObjectState::OptedOut);
            }
            if !self.may_look(release, object) {
                return Some(ObjectState::Outside);
            }
            if foreign.iter().any(|(other, _)| other == object) {
                return Some(ObjectState::Foreign);
            }
            if self.drifts.is_known(&release.id, object) {
                return None;
            }
            let is_absent = || life.is_none_or(|it| !it.alive) && self.scopes.shows(object);
            if state == RecordState::Failed && declarations.baseline.is_none() && is_absent() {
                return Some(ObjectState::Awaited);
            }
            if self.is_unseen(release, object) {
                return Some(ObjectState::Unread);
            }
            // Kinds that the guard may not watch are reported with the reason.
            if self.drifts.is_unread(&release.id, object) && !self.scopes.is_forbidden(object) {
                return Some(ObjectState::Unread);
            }
            life.is_some_and(|life| life.alive && life.allowed).then_some(ObjectState::Allowed)
        };
        let facts = |(object, it): (&Arc<ObjectId>, &Declarations)| {
            state_of(object, it).map(|state| ObjectFacts::new(ObjectId::clone(object), state))
        };
        let mut excused: Vec<_> = release.objects.iter().filter_map(facts).collect();
        excused.sort_by(|a, b| a.object.cmp(&b.object));
        excused
    }
}

/// Whether a report says that nothing drifts.
fn all_match(health: &Health) -> bool {
    match health.reason {
        Reason::ReleaseFailed => health.counts.drifted == 0,
        reason => reason == Reason::InSync,
    }
}

/// The declaration of an object that is in force in this state of the record.
fn in_force(declarations: &Declarations, state: RecordState) -> Option<&Arc<Declared>> {
    // Agreeing with either manifest is enough then.
    let or_before = declarations.baseline.as_ref().filter(|_| state == RecordState::Failed);
    declarations.latest.as_ref().or(or_before)
}

/// The errors in the manifest's annotations that allow changes.
fn flaws(release: &Release) -> Vec<(ObjectId, Flaw)> {
    let declared = release.objects.iter().filter_map(|(object, it)| Some((object, it.latest.as_ref()?)));
    let flawed = declared.filter_map(|(object, declared)| {
        let flaw = standing::of_manifest(declared).err()?.into_iter().next()?;
        Some((ObjectId::clone(object), flaw))
    });
    let mut flaws: Vec<_> = flawed.collect();
    flaws.sort_by(|(a, _), (b, _)| a.cmp(b));
    flaws
}
