//! What is known of an object beside its release, for the loop's verdicts.
//!
//! Entry point: `Shared::circumstances`. Invariant: gathers and decides nothing:
//! what may differ says [`crate::verdict::exceptions`].

use super::Shared;
use crate::helm::release::Release;
use crate::model::{ObjectId, ReleaseId};
use crate::reconcile::blame::is_autoscaled;
use crate::reconcile::live::Live;
use crate::verdict::exceptions::Circumstances;

impl Shared {
    /// What is known of an object of `release` now. When an autoscaler goes,
    /// replicas stay as they are until the next revision, or until
    /// [`Shared::take_back_replicas`]: a guard must not scale production down.
    pub(super) fn circumstances(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let autoscalers = {
            let index = self.guard.releases.index().read();
            self.guard.autoscalers.of(object, &index)
        };
        let departed = self.guard.autoscalers.departed(object);
        Circumstances {
            allowances: self.guard.allowances.of(object, &release.id),
            autoscalers,
            departed: departed.and_then(|it| it.since(release.state.created)),
            settled: self.guard.settled.of(object),
        }
    }

    /// An object is seen for the first time: what its autoscaler left behind
    /// while no guard ran, or before this one did, stays as well.
    pub(super) fn inherit_replicas(&self, release: &Release, live: &Live) {
        let object = &live.sighting.id;
        if release.declared(object).is_some_and(|declared| is_autoscaled(live, declared)) {
            self.guard.autoscalers.inherit_departed(object);
        }
    }

    /// Has replicas that autoscalers left behind count as drift, because a
    /// person asked for the release as it is declared. Whoever judges next, be
    /// it for a repair or before one, must see it: hence no matter of one pass.
    pub(super) fn take_back_replicas(&self, release: &ReleaseId) {
        let Some(release) = self.release(release) else { return };
        release.objects.keys().for_each(|object| self.guard.autoscalers.forget_departed(object));
    }
}
