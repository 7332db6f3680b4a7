//! Counts drifting objects, for the brake that stops repairs.
//!
//! Entry points: `Reconciler::pull_brake` before a repair, `ease` when a person orders one, `release_brake` when the
//! lead ends, `forget_brake` when a release is gone.
//! Invariant: objects that a Helm operation removes, or that are never re-created, do not count; a
//! record alone cannot stop repairs. Must not repair anything.

use std::sync::Arc;

use super::super::Reconciler;
use crate::brake::Pull;
use crate::drifts::Life;
use crate::occurrence::Occurrence;
use crate::plan::never;
use crate::report::DriftKind;
use crate::tally::Share;
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::Release;
use kubemoor_policy::declaration::Declaration;

impl Reconciler {
    /// The state of the brake for repairs of a release.
    pub(super) fn pull_brake(&mut self, release: &ReleaseId) -> Pull {
        if self.repairs.brake.is_on(&release.namespace) {
            return Pull::On;
        }
        self.recount();
        let drifting = self.tally.drifting(self.known.objects());
        let pull = self.repairs.brake.pull(&release.namespace, drifting, self.now);
        if let Pull::Sets(reach) = pull {
            let drifting = drifting.clone();
            self.tell(Occurrence::Braked { reach, namespace: release.namespace.to_string(), drifting });
        }
        pull
    }

    /// Handles a person's repair order: the brake is released if most of the drift is in `release`.
    /// Returns whether it was.
    pub(crate) fn ease(&mut self, release: &ReleaseId) -> bool {
        self.recount();
        let drifting = self.tally.drifting_besides(release, self.known.objects());
        let eased = self.repairs.brake.ease(&release.namespace, &drifting);
        for reach in &eased {
            self.tell(Occurrence::Eased { reach: *reach, release: release.clone() });
        }
        !eased.is_empty()
    }

    /// Only who leads repairs, and so has a brake.
    pub(crate) fn release_brake(&mut self) {
        let released = self.repairs.brake.release_all();
        if !released.is_empty() {
            released.into_iter().for_each(|namespace| self.tell(Occurrence::Unbraked { namespace }));
            self.attend_all();
        }
    }

    /// A namespace without releases has no brake: one of the same name is another one.
    pub(crate) fn forget_brake(&mut self, namespace: &str) {
        let is_left = |release: &Arc<Release>| release.id.namespace == namespace;
        if self.repairs.brake.is_on_in(namespace) && !self.known.releases().any(is_left) {
            self.repairs.brake.forget(namespace);
            self.tell(Occurrence::Unbraked { namespace: Some(namespace.to_owned()) });
        }
    }

    /// Counts the drifts of changed releases again.
    pub(crate) fn recount(&mut self) {
        for id in self.drifts.take_touched() {
            let share = Share { drifting: self.count_drifting(&id), oldest: self.drifts.oldest(&id) };
            self.tally.set(&id, share);
        }
    }

    /// How many objects of a release drift and could be repaired.
    fn count_drifting(&self, id: &ReleaseId) -> usize {
        let Some((release, policy)) = self.known.release(id).zip(self.known.policy(id)) else { return 0 };
        if release.state.status != Status::Deployed || policy.drift != DriftMode::Repair {
            return 0;
        }
        let is_confirmed = |object: &ObjectId, life: &Life| {
            let digest = release.declared(object).and_then(|declared| declared.digest.as_ref());
            let declaration = digest.map(|digest| Declaration { release: id, object, digest, seal: None });
            let agreed = life.agreed.as_ref().zip(declaration);
            agreed.is_some_and(|(agreement, declaration)| {
                life.is_with(&self.settings.key, agreement, &declaration)
            })
        };
        self.drifts.count(id, |object, life| {
            let kind = if life.alive { DriftKind::Changed } else { DriftKind::Missing };
            release.declared(object).is_some_and(|it| !it.opted_out && it.plural().is_some())
                && never(release, object, kind, policy.repair).is_none()
                && is_confirmed(object, life)
        })
    }
}
