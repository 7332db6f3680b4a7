//! Publishes the state of a release. Nothing is published before all objects that were declared at the start have been
//! listed, and never that all objects match before each was read or listed. Values appear only in redacted findings.

use std::collections::HashSet;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::drifts::ObjectDrift;
use crate::event::{LoopAction, LoopNotice};
use crate::machine::Reconciler;
use crate::note_effort;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::{DeclaredObject, ObjectDeclarations, Release};
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::guarded::OrderAnswer;
use kubemoor_policy::{Policy, allowance};
use kubemoor_verdict::health::{
    HealthFacts, HealthReason, ObjectFacts, ObjectState, RecordHealth, RecordState, ReleaseHealth,
    RepairControl, Unwatched,
};

#[derive(Clone, Debug, PartialEq)]
pub struct LoopReport {
    pub release: ReleaseId,
    /// The uid of the reported revision's record, if known.
    pub record: Option<String>,
    /// SHA-256 of the reported revision's manifest as it was first seen.
    pub digest: [u8; 32],
    pub declared: usize,
    /// The objects that were seen alive with the release's annotations, and their agreements; sorted.
    pub seen_alive: Vec<ObservedObject>,
    /// How many of them were seen with their declared values.
    pub confirmed: usize,
    /// The seen objects that are only repaired after the confirmation of a user; sorted.
    pub unconfirmed: Vec<ObjectId>,
    pub drifted: Vec<ObjectDrift>,
    /// The first error in the manifest's annotations that allow changes of an object; such annotations have no effect.
    /// In the order of objects.
    pub flaws: Vec<(ObjectId, Flaw)>,
    /// Declared objects in the release's namespace whose annotations name another release, so they are compared only
    /// with that one; in the order of objects.
    pub foreign: Vec<(ObjectId, ReleaseId)>,
    /// Declared objects that the guard has no permission to watch, in the order of kinds.
    pub unwatched: Vec<Unwatched>,
    /// Objects that may differ or are not judged: allowed, opted out, outside of the release's namespace, owned by
    /// another release, not created by a failed operation; in the order of objects.
    pub excused: Vec<ObjectFacts>,
    pub records: RecordHealth,
    pub control: RepairControl,
    /// The field manager with which Helm writes its objects; `None` if no object has ever shown it.
    pub manager: Option<SmolStr>,
    /// Whether this replica was the leader when the report was made: only the leader decides about drifts.
    pub leads: bool,
    /// The answer to the last order; `None` if this process received no order.
    pub answer: Option<OrderAnswer>,
}

/// The most fields of one object that a report names.
pub const SHOWN_FIELDS: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DriftKind {
    #[default]
    Missing,
    /// Declared fields have other values.
    Changed,
    /// Declared fields have their values and belong to a manager that would make Helm's next upgrade fail.
    Ownership,
    /// It is being deleted, and a finalizer may be blocking the deletion. It drifts if fields differ, or if finalizers
    /// have held it for some minutes.
    Terminating,
    /// It is nested too deeply to be judged.
    Unreadable,
}

/// Something that happened to one object: it was found drifted, was repaired, or could not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    pub release: ReleaseId,
    pub revision: u64,
    /// The object; `repaired` and `kept` say what happened.
    pub drifted: ObjectDrift,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LoopAnnouncement {
    Object(Box<Incident>),
    /// Repairs stop because of too much drift, in one namespace or (`None`) everywhere.
    Braked {
        namespace: Option<String>,
        drifting: usize,
        declared: usize,
    },
    Eased {
        namespace: Option<String>,
    },
}

impl DriftKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Ownership => "ownership",
            Self::Terminating => "terminating",
            Self::Unreadable => "unreadable",
        }
    }
}

impl LoopReport {
    pub fn facts(&self) -> HealthFacts {
        let objects = self.drifted.iter().map(|it| ObjectFacts {
            kept: match it.kind {
                DriftKind::Terminating => it.held(),
                _ => it
                    .needs_dry_run
                    .then(|| it.unrepaired_reason.as_deref().unwrap_or("no dry run was made yet").to_owned()),
            },
            contested_by: it.contested_by().map(str::to_owned),
            unconfirmed: it.unconfirmed,
            ..ObjectFacts::new(ObjectId::clone(&it.object), it.state())
        });
        HealthFacts {
            release: self.release.clone(),
            record: self.records,
            control: self.control.clone(),
            declared: self.declared,
            objects: objects.chain(self.excused.iter().cloned()).collect(),
            unwatched: self.unwatched.clone(),
        }
    }

    pub fn health(&self) -> ReleaseHealth {
        ReleaseHealth::new(&self.facts())
    }
}

impl Reconciler {
    /// Publishes the state of a release once everything has been listed; forgets a deleted release.
    pub(crate) fn publish(&mut self, id: &ReleaseId) {
        if self.known.release(id).is_none() {
            self.drifts.forget_release(id, None);
        }
        self.recount();
        let oldest = self.tally.oldest();
        if oldest != self.oldest {
            self.oldest = oldest;
            self.tell(LoopNotice::Oldest(oldest));
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
                let is_judged =
                    matches!(release.state.status, ReleaseStatus::Deployed | ReleaseStatus::Failed);
                if self.drifts.has_untried(id) && all_match(&report.health())
                    || is_judged && self.drifts.has_outdated(id)
                {
                    return;
                }
                if self.awaits_listing(&release) && report.health().counts.drifted == 0 {
                    return;
                }
                self.act(LoopAction::Report(Box::new(report)));
            }
            _ => {
                self.unlisted.remove(id);
                self.act(LoopAction::Withdraw(id.clone()));
            }
        }
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

    /// Whether an object of a release was neither read nor listed yet: the first list of its watch is not complete, or
    /// its watch is about to be opened.
    fn is_unseen(&self, release: &Release, object: &ObjectId) -> bool {
        let is_judged = matches!(release.state.status, ReleaseStatus::Deployed | ReleaseStatus::Failed);
        is_judged
            && release.declared(object).is_some()
            && self.drifts.last_seen_state(object).is_none()
            && match self.scopes.is_watched(object) {
                true => !self.scopes.shows(object) && !self.scopes.is_forbidden(object),
                false => self.unscoped.contains(&release.id),
            }
    }

    fn report_of(&self, release: &Release, policy: &Policy) -> LoopReport {
        let id = &release.id;
        note_effort(release.objects.len());
        let records = RecordHealth::new(release, policy.operation_timeout, self.now);
        // Without the loop's own counters: a report that differs only in these is not announced.
        let told = |drift: ObjectDrift| ObjectDrift { reported: false, counted: false, tries: 0, ..drift };
        let mut drifted: Vec<_> = self.drifts.of_release(id).into_iter().map(told).collect();
        drifted.sort_by(|a, b| a.object.cmp(&b.object));
        let declared = release.objects.values().filter(|it| in_force(it, records.state).is_some()).count();
        let mut seen_alive = self.drifts.seen_alive(release);
        seen_alive.iter_mut().for_each(|seen| seen.settled = self.known.settled.get(&seen.object));
        let (confirmed, mut unconfirmed) = self.drifts.confirmed(release);
        let drifting = drifted.iter().map(|drift| &drift.object);
        let added = drifting.filter(|object| self.drifts.may_hold_additions(release, object));
        unconfirmed.extend(added.map(|object| ObjectId::clone(object)));
        unconfirmed.sort();
        unconfirmed.dedup();
        let foreign = self.drifts.foreign(release);
        let excused = self.excused(release, records.state, &foreign);
        let first = self.drifts.first(id, records.revision);
        let known: HashSet<&ObjectId> =
            drifted.iter().map(|drift| &*drift.object).chain(excused.iter().map(|it| &it.object)).collect();
        let unwatched = self.scopes.unwatched(release, &known);
        LoopReport {
            release: id.clone(),
            record: first.and_then(|first| first.uid.clone()),
            digest: first.map_or(release.state.digest, |first| first.digest),
            declared,
            seen_alive,
            confirmed,
            unconfirmed,
            drifted,
            flaws: flaws(release),
            foreign,
            unwatched,
            excused,
            records,
            control: RepairControl {
                drift: policy.drift,
                enforcement_disabled: self.enforcement_disabled,
                suspended: self.suspensions.get(id, self.now).cloned(),
                braked: self.repairs.brake.is_on(&id.namespace),
            },
            manager: self.drifts.manager(release, release.state.apply_method),
            leads: self.leads,
            answer: self.asked.answer(id),
        }
    }

    /// The objects that neither match nor drift: allowed to differ, opted out, outside of the release's namespace,
    /// owned by another release, not created by the failed operation, or not readable; in the order of objects.
    fn excused(
        &self,
        release: &Release,
        state: RecordState,
        foreign: &[(ObjectId, ReleaseId)],
    ) -> Vec<ObjectFacts> {
        let state_of = |object: &ObjectId, declarations: &ObjectDeclarations| {
            let declared = in_force(declarations, state)?;
            let life = self.drifts.last_seen_state(object);
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
            if self.is_unseen(release, object) {
                return Some(ObjectState::Unread);
            }
            // Kinds that the guard may not watch are reported with the reason.
            if self.drifts.is_unread(&release.id, object) && !self.scopes.is_forbidden(object) {
                return Some(ObjectState::Unread);
            }
            let is_absent = || life.is_none_or(|it| !it.alive) && self.scopes.shows(object);
            if state == RecordState::Failed && declarations.baseline.is_none() && is_absent() {
                return Some(ObjectState::NotCreated);
            }
            life.is_some_and(|life| life.alive && life.allowed).then_some(ObjectState::Allowed)
        };
        let facts = |(object, it): (&Arc<ObjectId>, &ObjectDeclarations)| {
            state_of(object, it).map(|state| ObjectFacts::new(ObjectId::clone(object), state))
        };
        let mut excused: Vec<_> = release.objects.iter().filter_map(facts).collect();
        excused.sort_by(|a, b| a.object.cmp(&b.object));
        excused
    }
}

fn all_match(health: &ReleaseHealth) -> bool {
    match health.reason {
        HealthReason::ReleaseFailed => health.counts.drifted == 0,
        reason => reason == HealthReason::InSync,
    }
}

/// The declaration of an object that is in force in this state of the record.
fn in_force(declarations: &ObjectDeclarations, state: RecordState) -> Option<&Arc<DeclaredObject>> {
    // After a failed operation, it is enough to match either manifest.
    let or_before = declarations.baseline.as_ref().filter(|_| state == RecordState::Failed);
    declarations.latest.as_ref().or(or_before)
}

/// The errors in the manifest's annotations that allow changes.
fn flaws(release: &Release) -> Vec<(ObjectId, Flaw)> {
    let declared = release.objects.iter().filter_map(|(object, it)| Some((object, it.latest.as_ref()?)));
    let flawed = declared.filter_map(|(object, declared)| {
        let flaw = allowance::allowance_from_annotations(declared).err()?.into_iter().next()?;
        Some((ObjectId::clone(object), flaw))
    });
    let mut flaws: Vec<_> = flawed.collect();
    flaws.sort_by(|(a, _), (b, _)| a.cmp(b));
    flaws
}
