//! Counts drifting objects, for the brake that stops repairs.
//!
//! Entry points: `Reconciler::pull_brake` before a repair, `ease` when a person asks
//! for one. Invariant: what an operation of Helm's takes away, or never comes back,
//! does not count; what a record alone says stops nobody's repairs.

use super::super::Reconciler;
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::model::{DriftMode, ObjectId, ReleaseId};
use crate::policy::declaration::Declaration;
use crate::reconcile::brake::{Drifting, Pull};
use crate::reconcile::drifts::Life;
use crate::reconcile::plan::never;
use crate::reconcile::report::DriftKind;
use crate::reconcile::told::Told;

impl Reconciler {
    /// Whether so much drifts at once that repairs of a release stop.
    pub(super) fn pull_brake(&mut self, release: &ReleaseId) -> Pull {
        // What drifts is counted once for each event, and not at all once repairs have stopped.
        if self.repairs.brake.is_on(&release.namespace) {
            return Pull::On;
        }
        let drifting = self.drifting.take().unwrap_or_else(|| self.count_drifting(None));
        let pull = self.repairs.brake.pull(&release.namespace, &drifting, self.now);
        if let Pull::Sets(reach) = pull {
            let drifting = drifting.clone();
            self.tell(Told::Braked { reach, namespace: release.namespace.clone(), drifting });
        }
        self.drifting = Some(drifting);
        pull
    }

    /// A person asks for repairs of `release`: the brake goes off if that is most of
    /// what drifts. Gives whether it does.
    pub(in crate::reconcile) fn ease(&mut self, release: &ReleaseId) -> bool {
        let drifting = self.count_drifting(Some(release));
        let eased = self.repairs.brake.ease(&release.namespace, &drifting);
        if eased {
            self.tell(Told::Eased(release.clone()));
        }
        eased
    }

    /// What drifts and could be repaired, but for one release.
    fn count_drifting(&self, but: Option<&ReleaseId>) -> Drifting {
        let is_confirmed = |release: &Release, object: &ObjectId, life: &Life| {
            let digest = release.declared(object).and_then(|declared| declared.digest.as_ref());
            let declaration =
                digest.map(|digest| Declaration { release: &release.id, object, digest, seal: None });
            let agreed = life.agreed.as_ref().zip(declaration);
            agreed.is_some_and(|(agreement, declaration)| {
                life.is_with(&self.settings.key, agreement, &declaration)
            })
        };
        let counts = |id: &ReleaseId, object: &ObjectId, life: &Life| {
            let known = self.known.release(id).zip(self.known.policy(id)).filter(|_| but != Some(id));
            let Some((release, policy)) = known else { return false };
            let kind = if life.alive { DriftKind::Changed } else { DriftKind::Missing };
            release.state.status == Status::Deployed
                && policy.drift == DriftMode::Repair
                && release.declared(object).is_some_and(|it| !it.opted_out && it.plural.is_some())
                && never(release, object, kind, policy.repair).is_none()
                && is_confirmed(release, object, life)
        };
        Drifting { by_namespace: self.drifts.count(counts), declared: self.known.objects() }
    }
}
