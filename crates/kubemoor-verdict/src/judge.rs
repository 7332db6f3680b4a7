//! The verdict on an edit of a declared object.
//!
//! Entry points: `judge`, `judge_with_facts`; `decide` makes the same decision on recorded facts.
//! Invariant: apart from the exceptions, `Deny` never allows an edit of a declared path unless it
//! restores the declared value, and never denies an edit that touches neither a declared path nor a
//! sealed field. Must not do I/O.

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
use super::{deletion, identities};
use kubemoor_declare::model::{Operation, PROBE_MANAGER};
use kubemoor_helm::release::{Declared, Release};
use kubemoor_helm::state::{self, Standing};
use kubemoor_policy::Policy;

/// One release's declaration of the object, with the policy of that release.
struct Hearing<'r> {
    standing: Standing<'r>,
    policy: Arc<Policy>,
}

/// Judges one edit by the releases that declare its object (`claims`, the one
/// seen first in front), in the order of the steps:
///
/// 1. declared by no release: allow;
/// 2. the object is being deleted already: a deletion is allowed, and so is the removal of
///    finalizers; other changes are judged, because a finalizer keeps the object at work;
/// 3. the edit is exactly the work of a built-in identity: allow;
/// 4. the manifest opts the object out: allow;
/// 5. the declared and sealed fields that change, without those that a policy
///    ignores, that an autoscaler moves or that become what the manifest
///    declares; none left: allow;
/// 6. a deletion that Helm's own operation makes: allow;
/// 7. an allowance covers the changes, or the policy exempts the user: allow, and record it where
///    drift is recorded;
/// 8. otherwise the policy's mode decides.
///
/// If several releases claim the object, any of them may allow the edit. Only releases that declare
/// it in the version of the request are consulted.
pub fn judge(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    rules: &Rules<'_>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Verdict {
    judge_with_facts(edit, claims, rules, evidence, now).0
}

/// The same, with the facts of the edit, by which other policies can judge it later. No facts where
/// every policy would allow it.
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
    if edit.operation == Operation::Delete && edit.old.is_some_and(deletion::is_underway) {
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
        // The arbiter was asked about this release's manifest, so its answer does not apply to
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

    /// The changes of the edit; deletions and opted-out objects are not compared.
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
                let (fields, changes) = (declared.fields(), Vec::new());
                AlternativeFacts { declared, fields, changes, reason: Reason::Unchanged, seal: None }
            }
        }
    }

    /// The exceptions of the object as one of the manifests declares it.
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
