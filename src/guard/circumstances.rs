//! What is known of an object beside its release, for the loop's verdicts.
//!
//! Entry point: `Shared::circumstances`. Invariant: gathers and decides nothing:
//! what may differ says [`crate::verdict::exceptions`].

use super::Shared;
use crate::helm::release::Release;
use crate::model::ObjectId;
use crate::verdict::exceptions::Circumstances;

impl Shared {
    /// What is known of an object of `release` now. When an autoscaler goes,
    /// replicas stay as they are until the next revision, or until a person
    /// `asked`: a guard must not scale production down.
    pub(super) fn circumstances(&self, release: &Release, object: &ObjectId, asked: bool) -> Circumstances {
        let autoscaler = {
            let index = self.guard.releases.index().read();
            self.guard.autoscalers.of(object, &index)
        };
        let departed = self.guard.autoscalers.departed(object);
        Circumstances {
            allowances: self.guard.allowances.of(object, &release.id),
            autoscaler,
            departed: !asked && departed.is_some_and(|at| at > release.state.created),
        }
    }
}
