//! The end of releases, and of the objects that they declared.
//!
//! Entry points: `Reconciler::forget_dropped` once a release has changed, `forget_undeclared` after work on an object,
//! `forget_gone` after a pass. Invariant: nothing is kept of what is gone, so that the memory is bounded by what is
//! there, and what comes back under the same name is new. Must not write.

use super::Reconciler;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::Release;

impl Reconciler {
    /// Forgets what a release has ceased to declare. Another one that declares it judges it from now on.
    pub(super) fn forget_dropped(&mut self, id: &ReleaseId, before: Option<&Release>, now: Option<&Release>) {
        // The record of an uninstalled release may be kept, and declares nothing.
        let standing = now.filter(|now| now.state.status != Status::Uninstalled);
        let is_declared = |object: &ObjectId| standing.is_some_and(|it| it.objects.contains_key(object));
        let dropped = before.into_iter().flat_map(|before| before.objects.keys());
        for object in dropped.filter(|object| !is_declared(object)) {
            self.known.forget_settled(id, object);
            self.alarms.set(id, object, None);
            self.repairs.forget(id, object);
            if self.known.claims(object).iter().any(|claim| claim.id != *id) {
                self.judge_again([ObjectId::clone(object)]);
            }
        }
        if now.is_none() {
            self.recent.take(id, self.now);
            self.asked.forget(id);
            self.forget_brake(&id.namespace);
        }
    }

    /// Forgets what work on an object has found that its release has ceased to declare meanwhile.
    pub(super) fn forget_undeclared(&mut self, id: &ReleaseId, object: &ObjectId) {
        if !self.known.declares(id, object) {
            self.drifts.record_undeclared(id, object);
            self.repairs.forget(id, object);
        }
    }

    /// Forgets what is noted of a release that was gone by then.
    pub(super) fn forget_gone(&mut self, id: &ReleaseId) {
        if self.known.release(id).is_none() {
            self.drifts.forget_release(id, None);
        }
    }
}
