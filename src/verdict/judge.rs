//! The verdict on an edit of a declared object.
//!
//! Entry points: `judge`, `judge_with_facts`; `decide` is the same decision on facts that were
//! kept. Invariant: past the exceptions, an edit of a
//! declared path is never allowed under `Deny` unless it restores the declared
//! value, and one that touches neither a declared path nor a sealed field is
//! never refused.

mod decide;
mod observe;
mod weigh;

use std::sync::Arc;

use jiff::Timestamp;

pub(super) use self::decide::{Claim, Decision, Heard, decide};
use self::observe::Observation;
use super::circumstances::DeclaredObject;
use super::claims::counting;
use super::edit::{Edit, Evidence, Outcome, Reason, Rules, Verdict};
use super::exceptions::Exceptions;
use super::facts::{AlternativeFacts, EditFacts};
use super::identities;
use crate::helm::release::{Declared, Release};
use crate::helm::state::{self, Standing};
use crate::model::{Operation, PROBE_MANAGER};
use crate::policy::Policy;

/// Judges one edit by the releases that declare its object (`claims`, the one
/// seen first in front), in the order of the steps:
///
/// 1. declared by no release: allow;
/// 2. the object is being deleted already: allow;
/// 3. a built-in identity does exactly its work: allow;
/// 4. the manifest opts the object out: allow;
/// 5. the declared and sealed fields that change, without those that a policy
///    ignores, that an autoscaler moves or that become what the manifest
///    declares; none left: allow;
/// 6. a deletion that Helm's own operation makes: allow;
/// 7. what an allowance covers, or somebody does whom the policy exempts:
///    allow, and record it where drift is recorded;
/// 8. what the policy's mode says.
///
/// Of several releases that speak for the object, any may let it pass. Heard are
/// those that declare it in the version in which it is sent.
pub fn judge(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    rules: &Rules<'_>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Verdict {
    judge_with_facts(edit, claims, rules, evidence, now).0
}

/// The same, with what the edit does: by that other policies can judge it later. None where it passes
/// whatever the policies say.
pub fn judge_with_facts(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    rules: &Rules<'_>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> (Verdict, Option<EditFacts>) {
    let plain = |reason| (Verdict::allow(reason), None);
    if claims.is_empty() {
        return plain(Reason::NotDeclared);
    }
    // Nothing is stored, and the arbiter must not wait for itself.
    if edit.dry_run && edit.field_manager == PROBE_MANAGER {
        return plain(Reason::Probe);
    }
    let hearings: Vec<_> = counting(claims, edit.object, &edit.owner)
        .filter_map(|release| {
            let policy = rules.resolver.of(&release.id);
            let standing = state::standing(release, edit.object, policy.operation_timeout, now)?;
            let standing = match edit.version {
                Some(version) => standing.in_version(version)?,
                None => standing,
            };
            Some(Hearing { standing, policy })
        })
        .collect();
    if hearings.is_empty() {
        return plain(Reason::NotDeclared);
    }
    if edit
        .old
        .is_some_and(|old| old.get("metadata").is_some_and(|own| own.get("deletionTimestamp").is_some()))
    {
        return plain(Reason::BeingDeleted);
    }
    let own = rules.own_account.is_some_and(|own| own == edit.actor.user);
    if own || (edit.operation == Operation::Delete && identities::deletes(edit.actor, edit.object)) {
        return plain(Reason::Identity);
    }
    let unaided = if matches!(evidence, Evidence::Nowhere) { evidence } else { Evidence::None };
    let hear = |aided: Option<usize>| {
        let of = |index| if aided == Some(index) { evidence } else { unaided };
        let heard = hearings.iter().enumerate().map(|(index, it)| it.heard(edit, of(index), now));
        decide(heard)
    };
    let mut decision = hear(None);
    if !decision.verdict.passes() && !matches!(evidence, Evidence::None | Evidence::Nowhere) {
        // The arbiter was asked about this release's manifest and says nothing of
        // another's.
        decision = hear(Some(decision.index));
    }
    let Decision { verdict, claims, .. } = decision;
    let differs = || claims.iter().flat_map(|it| &it.alternatives).any(|it| !it.changes.is_empty());
    if verdict.outcome == Outcome::Allow && !differs() {
        return (verdict, None);
    }
    let unheard = hearings.len().saturating_sub(claims.len());
    let circumstances = edit.circumstances.clone();
    (verdict, Some(EditFacts { claims, unheard, circumstances }))
}

/// What one release says of the object, and what holds for that release.
struct Hearing<'r> {
    standing: Standing<'r>,
    policy: Arc<Policy>,
}

impl Hearing<'_> {
    fn heard(&self, edit: &Edit<'_>, evidence: Evidence<'_>, now: Timestamp) -> Heard {
        let Self { standing, policy } = self;
        let claim = Claim {
            release: &standing.release.id,
            revision: standing.release.state.revision,
            pending: standing.pending,
            authorised: edit.operation == Operation::Delete
                && edit.old.is_some_and(|old| standing.deletion.covers(old)),
            evidence: evidence.into(),
            policy,
        };
        let alternatives = standing.alternatives.iter().enumerate().map(|(index, declared)| {
            // The arbiter was asked about the first alternative.
            let evidence = if index == 0 { evidence } else { Evidence::None };
            let exceptions = self.exceptions(edit, declared, now);
            (self.facts(edit, declared, evidence, &exceptions), exceptions)
        });
        claim.heard(edit, alternatives)
    }

    /// What the edit changes; of a deletion, and of what the manifest opts out, nothing is compared.
    fn facts(
        &self,
        edit: &Edit<'_>,
        declared: &Arc<Declared>,
        evidence: Evidence<'_>,
        exceptions: &Exceptions<'_>,
    ) -> AlternativeFacts {
        let (standing, seal) = (&self.standing, exceptions.sealed());
        match edit.new {
            Some(new) if edit.operation != Operation::Delete && !declared.opted_out => {
                Observation { edit, new, standing, declared, evidence, seal }.facts()
            }
            _ => {
                let declared = Arc::clone(declared);
                AlternativeFacts { declared, changes: Vec::new(), reason: Reason::Unchanged, seal: None }
            }
        }
    }

    /// What may differ of the object as one of the manifests declares it.
    fn exceptions<'a>(
        &'a self,
        edit: &'a Edit<'_>,
        declared: &'a Arc<Declared>,
        now: Timestamp,
    ) -> Exceptions<'a> {
        let of = DeclaredObject { object: edit.object, release: &self.standing.release.id, declared };
        Exceptions::new(of, &self.policy, edit.circumstances, Some(edit.actor), now)
    }
}

#[cfg(test)]
pub(crate) mod tests;
