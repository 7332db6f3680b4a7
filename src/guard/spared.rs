//! What of an object the loop leaves alone at a time.
//!
//! Entry point: [`Spared::of`]. Invariant: whatever lets an editor change a
//! field also spares it from repairs: this is the one place that says so. Pure.

use std::sync::Arc;

use jiff::Timestamp;

use super::Shared;
use crate::helm::release::{Declared, Release};
use crate::model::{ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::allowance::Allowance;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::policy::resource::Autoscalers;

/// What is left alone of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Spared {
    /// These fields.
    pub(super) mask: Mask,
    /// That it is gone.
    pub(super) absence: bool,
    /// When this may change by itself.
    pub(super) until: Option<Timestamp>,
}

impl Spared {
    /// What is left alone of an object at `now`: what its policy ignores, what
    /// a standing or a local allowance lets anybody change, and, if it is
    /// `scaled`, its replicas.
    pub(super) fn of(
        policy: &Policy,
        object: &ObjectId,
        declared: &Arc<Declared>,
        allowances: &[Arc<Allowance>],
        scaled: bool,
        now: Timestamp,
    ) -> Self {
        let rules = policy.rules(object, declared);
        let mut spared = Self { mask: rules.ignored.clone(), absence: false, until: None };
        for standing in &rules.standing {
            if standing.open(now) {
                spared.mask.0.extend_from_slice(&standing.grant.mask.0);
                spared.absence |= standing.grant.deletes;
            }
            spared.changes_at(standing.next_change(now));
        }
        for allowance in allowances.iter().filter(|allowance| allowance.open(now)) {
            spared.mask.0.extend_from_slice(&allowance.grant.mask.0);
            spared.absence |= allowance.grant.deletes;
            spared.changes_at(Some(allowance.until));
        }
        if let (true, Some(replicas)) = (scaled, &declared.scale) {
            spared.mask.0.extend(Pattern::parse(&replicas.to_string()));
        }
        spared
    }

    fn changes_at(&mut self, at: Option<Timestamp>) {
        self.until = [self.until, at].into_iter().flatten().min();
    }
}

impl Shared {
    /// What is left alone of an object of `release` now. When an autoscaler
    /// goes, replicas stay as they are until the next revision, or until
    /// [`Shared::take_back_replicas`]: a guard must not scale production down.
    pub(super) fn spared(
        &self,
        release: &Release,
        object: &ObjectId,
        declared: &Arc<Declared>,
        policy: &Policy,
    ) -> Spared {
        let allowances = self.guard.allowances.of(object, &release.id);
        let autoscaler = {
            let index = self.guard.releases.index().read();
            self.guard.autoscalers.of(object, &index)
        };
        let scales = autoscaler.is_some_and(|it| policy.autoscalers == Autoscalers::Any || it.declared);
        let departed = self.guard.autoscalers.departed(object);
        let left = departed.is_some_and(|at| at > release.state.created);
        Spared::of(policy, object, declared, &allowances, scales || left, Timestamp::now())
    }

    /// Has replicas that autoscalers left behind count as drift, because a
    /// person asked for the release as it is declared. Whoever judges next, be
    /// it for a repair or before one, must see it: hence no matter of one pass.
    pub(super) fn take_back_replicas(&self, release: &ReleaseId) {
        let Some(release) = self.release(release) else { return };
        release.objects.keys().for_each(|object| self.guard.autoscalers.forget_departed(object));
    }
}

#[cfg(test)]
mod tests;
