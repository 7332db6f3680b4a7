//! What of an object the loop leaves alone at a time.
//!
//! Entry point: [`Spared::of`]. Invariant: whatever lets an editor change a
//! field also spares it from repairs: this is the one place that says so. Pure.

use std::sync::Arc;

use jiff::Timestamp;

use crate::helm::release::Declared;
use crate::model::ObjectId;
use crate::policy::Policy;
use crate::policy::mask::Mask;

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
    /// What the policy leaves alone of an object at `now`: what it ignores, and
    /// what a standing allowance lets anybody change.
    pub(super) fn of(policy: &Policy, object: &ObjectId, declared: &Arc<Declared>, now: Timestamp) -> Self {
        let rules = policy.rules(object, declared);
        let mut spared = Self { mask: rules.ignored, absence: false, until: None };
        for standing in &rules.standing {
            if standing.open(now) {
                spared.mask.0.extend_from_slice(&standing.grant.mask.0);
                spared.absence |= standing.grant.deletes;
            }
            let change = standing.next_change(now);
            spared.until = [spared.until, change].into_iter().flatten().min();
        }
        spared
    }
}

#[cfg(test)]
mod tests;
