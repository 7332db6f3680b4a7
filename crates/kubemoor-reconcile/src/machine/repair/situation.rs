//! The state that is known and in force at a repair of an object.
//!
//! Entry point: `Reconciler::situation`. Invariant: gathered again after each answer, so that no
//! write relies on outdated knowledge. Must not decide: [`plan`] does.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::Reconciler;
use super::Task;
use crate::drifts::{Drift, Life};
use crate::plan::{Case, Plan, plan};
use crate::report::DriftKind;
use kubemoor_declare::equality::Agreement as FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::{ApplyMethod, Status};
use kubemoor_helm::release::{Declared, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::Agreement;
use kubemoor_policy::order::Verb;
use kubemoor_verdict::circumstances::{Circumstances, DeclaredObject};
use kubemoor_verdict::exceptions::Exceptions;

/// Helm's field manager where no object reveals it: its program's name.
const HELM: &str = "helm";

/// The state that is known and in force.
#[derive(Clone)]
pub(crate) struct Situation {
    pub(crate) release: Arc<Release>,
    pub(crate) declared: Arc<Declared>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) circumstances: Circumstances,
    pub(crate) life: Option<Life>,
    pub(crate) drift: Drift,
    pub(crate) plan: Plan,
    /// The agreement of the live object with the declaration.
    pub(crate) agreement: Option<Agreement>,
    /// The person who ordered the repair and may write the object themself.
    pub(crate) ordered_by: Option<String>,
    /// The object was seen with nothing added below sealed paths.
    was_without_additions: bool,
}

impl Situation {
    /// The exceptions for the object now.
    pub(crate) fn exceptions<'s>(&'s self, object: &'s ObjectId, now: Timestamp) -> Exceptions<'s> {
        let Self { release, declared, policy, circumstances, .. } = self;
        let of = DeclaredObject { object, release: &release.id, declared };
        Exceptions::new(of, policy, circumstances, None, now).of_live(of, release)
    }

    /// Whether the declared values of these fields were seen in the live object, or are ordered by
    /// a person who may write it.
    pub(crate) fn confirms(&self, changes: &[FieldChange]) -> bool {
        let paths = || changes.iter().map(|change| &change.path);
        self.ordered_by.is_some() || self.agreement.as_ref().is_some_and(|it| it.confirms(paths()))
    }

    /// Whether an addition may be removed: the object was seen without it, or a person who may
    /// write the object orders it. An addition may be intended if it existed before its path was
    /// sealed, or came with Helm's own operation. Never where the former value is unknown.
    pub(crate) fn removes(&self, change: &FieldChange) -> bool {
        match change.agreement {
            FieldAgreement::Within => false,
            FieldAgreement::Added => self.ordered_by.is_some() || self.was_without_additions,
            _ => true,
        }
    }

    /// The path of the replicas, where the autoscaler sets them in a new object because the guard
    /// has never seen them as declared.
    pub(crate) fn left_out(&self) -> Option<&Path> {
        let is_open = self.agreement.as_ref().is_some_and(|agreement| !agreement.confirms_all(None));
        self.declared.scale().filter(|_| is_open && self.ordered_by.is_none())
    }
}

impl Task {
    /// Whether a manifest of this status may be written.
    pub(crate) fn is_to_write(&self, status: Status) -> bool {
        status == Status::Deployed || (self.towards.is_some() && status == Status::Superseded)
    }
}

impl Reconciler {
    /// The present situation of a task; `None` if the object does not drift any more.
    pub(super) fn situation(&mut self, task: &Task) -> Option<Situation> {
        let drift = self.drifts.get_mut(&task.id, &task.object)?.clone();
        self.situation_of(task, drift)
    }

    /// The same for a drift that is not recorded.
    pub(super) fn situation_of(&self, task: &Task, drift: Drift) -> Option<Situation> {
        let Task { id, object, .. } = task;
        let release = self.release_of(task)?;
        let declared = Arc::clone(release.declared(object)?);
        let policy = Arc::clone(self.known.policy(id)?);
        let circumstances = self.known.circumstances(&release, object);
        let of = DeclaredObject { object, release: &release.id, declared: &declared };
        let exceptions = Exceptions::new(of, &policy, &circumstances, None, self.now);
        let may_be_gone = exceptions.of_deletion().is_some() || exceptions.may_have_expired();
        let scaled = exceptions.is_autoscaled().then_some(declared.scale()).flatten();
        let agreement = self.drifts.agreement(id, object, &declared).cloned();
        let was_without_additions = self.drifts.is_seen_without_additions(id, object, &declared);
        let life = self.drifts.life(object).cloned();
        let ordered_by = ordered_by(task, &release, drift.kind);
        let case = Case {
            release: &release,
            object,
            kind: drift.kind,
            life: life.as_ref(),
            first_digest: self.first_digest(task, &release),
            policy: &policy,
            may_be_gone,
            asked: task.asked,
            ordered: ordered_by.is_some(),
            agreement: agreement.as_ref(),
            scaled,
            is_unserved: self.is_unserved(object),
        };
        let plan = plan(&case, self.now);
        drop(exceptions);
        Some(Situation {
            release,
            declared,
            policy,
            circumstances,
            life,
            drift,
            plan,
            agreement,
            ordered_by,
            was_without_additions,
        })
    }

    /// The release that the object is repaired for; `None` if it is gone, or has changed since the
    /// order.
    pub(super) fn release_of(&self, task: &Task) -> Option<Arc<Release>> {
        let now = self.known.release(&task.id)?;
        match &task.towards {
            None => Some(Arc::clone(now)),
            Some(towards) => towards.instead_of(now),
        }
    }

    /// Whether a situation still has the present release, policy and exceptions.
    pub(super) fn is_in_force(&self, task: &Task, situation: &Situation) -> bool {
        let is_release = self.release_of(task).is_some_and(|now| Arc::ptr_eq(&now, &situation.release));
        is_release && self.is_ruled_alike(&task.object, situation)
    }

    /// Whether policy, allowances and autoscalers are still those of a situation.
    pub(super) fn is_ruled_alike(&self, object: &ObjectId, situation: &Situation) -> bool {
        let Situation { release, policy, circumstances, .. } = situation;
        let now = self.known.circumstances(release, object);
        self.known.policy(&release.id).is_some_and(|now| Arc::ptr_eq(now, policy))
            && now.allowances == circumstances.allowances
            && now.autoscalers == circumstances.autoscalers
            && now.departed == circumstances.departed
    }

    /// The field manager with which Helm writes the release's objects.
    pub(super) fn manager(&self, release: &Release, method: ApplyMethod) -> String {
        self.drifts.manager(release, method).map_or_else(|| HELM.to_owned(), String::from)
    }

    /// The digest of the first seen manifest of the revision to repair towards. For an earlier
    /// deployed revision only the last digest is known; even then, each value that is written was
    /// seen in the live object.
    fn first_digest(&self, task: &Task, release: &Release) -> Option<[u8; 32]> {
        let first = self.drifts.first(&task.id, release.state.revision).map(|first| first.digest);
        first.or_else(|| task.towards.as_ref().map(|_| release.state.digest))
    }
}

/// The person who ordered the repair of such a drift and may write the object themself.
fn ordered_by(task: &Task, release: &Release, kind: DriftKind) -> Option<String> {
    let verb = if kind == DriftKind::Missing { Verb::Create } else { Verb::Update };
    let state = &release.state;
    let ticket = task.ticket.as_ref();
    let ticket = ticket.filter(|it| it.confirms(&task.object, verb, (state.revision, &state.digest)));
    ticket.map(|ticket| ticket.user.clone())
}
