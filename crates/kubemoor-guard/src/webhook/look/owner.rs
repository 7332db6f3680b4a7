//! Finds the owner of an object that is scaled, which a Scale does not name.
//!
//! Entry points: [`is_wanted`], then `Looker::learn_owner`. Invariant: a claim of another namespace
//! counts only once the object is known to name it. If that cannot be known, such claims may deny.
//! They must not allow. The same holds for claims beside one that a policy leaves to its operators.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::timeout;

use super::{Live, Looker, Unreached};
use crate::webhook::case::{Aspect, Basis, Case, Judgement};
use kubemoor_cluster::client::call::CallError;
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::claims::hangs_on_owner;
use kubemoor_verdict::edit::{Evidence, Outcome, Owner};

/// Whether the owner of the object has to be known: no claim of its own namespace allows the Scale, or not any of them
/// may.
pub(super) fn is_wanted(case: &Case<'_>, judgement: &Judgement, resolver: &PolicyResolver) -> bool {
    matches!(case.subject.aspect, Aspect::Scale(_))
        && case.owner == Owner::Unknown
        && (judgement.claims.is_empty()
            || judgement.verdict.outcome != Outcome::Allow
            || hangs_on_owner(&judgement.claims, resolver))
}

impl Looker<'_> {
    /// Looks up the owner of the object, if that can change the verdict.
    ///
    /// # Errors
    /// The object cannot be read; then the owner is [`Looker::assumed_owner`].
    pub(super) async fn learn_owner(
        &self,
        live: &Live,
        case: &mut Case<'_>,
        judgement: &Judgement,
    ) -> Result<(), Unreached> {
        let foreign = case.foreign_claims(self.source.index());
        let assumed = self.assumed_owner(case, judgement);
        // Either no release declares it, or the edit passes for each of them.
        let is_settled = foreign.is_empty() || (judgement.claims.is_empty() && assumed == Owner::Nobody);
        if is_settled && !hangs_on_owner(&judgement.claims, self.rules.resolver) {
            case.owner = Owner::Nobody;
            return Ok(());
        }
        let within = self.left();
        let claims: Vec<_> = foreign.iter().chain(&judgement.claims).cloned().collect();
        let looked = timeout(within, self.owner(live, case, &claims)).await;
        match looked.unwrap_or(Err(CallError::Late { within })) {
            Ok(owner) => case.owner = owner,
            Err(error) => {
                case.owner = assumed;
                return Err(Unreached::Own(Box::new(error)));
            }
        }
        Ok(())
    }

    /// The owner where it cannot be looked up: the strictest claim of another namespace, so that
    /// none allows an edit that another one denies. If the object's own namespace has claims, the
    /// strictest of those that a policy leaves to operators. `Owner::Nobody` if there is none, or it
    /// does not deny.
    pub(super) fn assumed_owner(&self, case: &Case<'_>, judgement: &Judgement) -> Owner {
        let resolver = self.rules.resolver;
        let mut claims = case.foreign_claims(self.source.index());
        if !judgement.claims.is_empty() {
            claims.clone_from(&judgement.claims);
            claims.retain(|claim| !resolver.of(&claim.id).operators.is_empty());
            if !hangs_on_owner(&judgement.claims, resolver) {
                return Owner::Nobody;
            }
        }
        let circumstances = self.source.circumstances(&case.subject.object);
        let basis = Basis {
            index: self.source.index(),
            circumstances: &circumstances,
            rules: self.rules,
            evidence: Evidence::None,
            now: Timestamp::now(),
        };
        let outcome = |claim: &Arc<Release>| case.judge_by(vec![Arc::clone(claim)], basis).verdict.outcome;
        let strictest =
            claims.iter().map(|claim| (outcome(claim), claim)).max_by_key(|(outcome, _)| *outcome);
        match strictest {
            Some((outcome, claim)) if outcome != Outcome::Allow => Owner::Release(claim.id.clone()),
            _ => Owner::Nobody,
        }
    }

    async fn owner(&self, live: &Live, case: &Case<'_>, claims: &[Arc<Release>]) -> Result<Owner, CallError> {
        let object = &case.subject.object;
        let declared = claims.iter().find_map(|claim| claim.declared(object));
        let target = declared.and_then(|declared| live.kinds.target(object, &declared.version));
        let sighting = live.objects.sight(&target.ok_or(CallError::Unserved)?).await?;
        Ok(sighting.and_then(|sighting| sighting.release).map_or(Owner::Nobody, Owner::Release))
    }
}

#[cfg(test)]
mod tests;
