//! The verdict on an edit of a declared object.
//!
//! Entry point: [`judge`]. Invariant: past the exceptions, an edit of a
//! declared path is never allowed under `Deny` unless it restores the declared
//! value, and one that touches neither a declared path nor a sealed field is
//! never refused.

mod weigh;

use std::sync::Arc;

use jiff::Timestamp;

use self::weigh::{Weighed, Weighing};
use super::circumstances::DeclaredObject;
use super::claims::counting;
use super::edit::{Edit, Evidence, Finding, Grounds, Outcome, Reason, Rules, Verdict};
use super::exceptions::Exceptions;
use super::identities;
use crate::helm::release::{Declared, Release};
use crate::helm::state::{self, Standing};
use crate::model::{EditsMode, Operation, PROBE_MANAGER};
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
    if claims.is_empty() {
        return Verdict::allow(Reason::NotDeclared);
    }
    // Nothing is stored, and the arbiter must not wait for itself.
    if edit.dry_run && edit.field_manager == PROBE_MANAGER {
        return Verdict::allow(Reason::Probe);
    }
    let claims: Vec<_> = counting(claims, edit.object, &edit.owner)
        .filter_map(|release| {
            let policy = rules.resolver.of(&release.id);
            let standing = state::standing(release, edit.object, policy.operation_timeout, now)?;
            let standing = match edit.version {
                Some(version) => standing.in_version(version)?,
                None => standing,
            };
            Some(Claim { standing, policy })
        })
        .collect();
    if claims.is_empty() {
        return Verdict::allow(Reason::NotDeclared);
    }
    if edit
        .old
        .is_some_and(|old| old.get("metadata").is_some_and(|own| own.get("deletionTimestamp").is_some()))
    {
        return Verdict::allow(Reason::BeingDeleted);
    }
    let own = rules.own_account.is_some_and(|own| own == edit.actor.user);
    if own || (edit.operation == Operation::Delete && identities::deletes(edit.actor, edit.object)) {
        return Verdict::allow(Reason::Identity);
    }
    let unaided = if matches!(evidence, Evidence::Nowhere) { evidence } else { Evidence::None };
    let (asked, verdict) = mildest(edit, &claims, now, |_| unaided);
    if verdict.passes() || matches!(evidence, Evidence::None | Evidence::Nowhere) {
        return verdict;
    }
    // The arbiter was asked about this release's manifest and says nothing of
    // another's.
    mildest(edit, &claims, now, |index| if index == asked { evidence } else { unaided }).1
}

/// What one release says of the object, and what holds for that release.
struct Claim<'r> {
    standing: Standing<'r>,
    policy: Arc<Policy>,
}

/// The verdict of the release that lets the edit pass; where none does, of the
/// one that is mildest, then of one that the arbiter may turn, then of the
/// first. With the place of that release.
fn mildest<'e>(
    edit: &Edit<'_>,
    claims: &[Claim<'_>],
    now: Timestamp,
    evidence: impl Fn(usize) -> Evidence<'e>,
) -> (usize, Verdict) {
    let mut mildest: Option<(usize, Verdict)> = None;
    for (index, claim) in claims.iter().enumerate() {
        let verdict = match edit.operation {
            Operation::Delete => deletion(edit, claim, now),
            Operation::Create | Operation::Update => change(edit, claim, evidence(index), now),
        };
        if verdict.passes() {
            return (index, verdict);
        }
        let rank = |verdict: &Verdict| (verdict.outcome, !verdict.arguable);
        if mildest.as_ref().is_none_or(|(_, kept)| rank(&verdict) < rank(kept)) {
            mildest = Some((index, verdict));
        }
    }
    mildest.unwrap_or_else(|| (0, Verdict::allow(Reason::NotDeclared)))
}

fn deletion(edit: &Edit<'_>, claim: &Claim<'_>, now: Timestamp) -> Verdict {
    let Claim { standing, policy } = claim;
    if standing.alternatives.iter().any(|declared| declared.opted_out) {
        return Verdict::allow(Reason::OptedOut);
    }
    if edit.old.is_some_and(|old| standing.deletion.covers(old)) {
        return Verdict::allow(Reason::InBand);
    }
    let grounds = grounds(standing.release, Vec::new());
    let allowed = || {
        let mut alternatives = standing.alternatives.iter();
        alternatives.find_map(|declared| claim.exceptions(edit, declared, now).of_deletion())
    };
    match exempt(edit, policy).or_else(allowed) {
        Some(reason) => Verdict::excused(policy, reason, grounds),
        None => Verdict::by_mode(policy, Reason::Deletion, Some(grounds)),
    }
}

fn change(edit: &Edit<'_>, claim: &Claim<'_>, evidence: Evidence<'_>, now: Timestamp) -> Verdict {
    let Claim { standing, policy } = claim;
    let Some(new) = edit.new else { return Verdict::allow(Reason::Unchanged) };
    let mut least: Option<Weighed> = None;
    for (index, declared) in standing.alternatives.iter().enumerate() {
        if declared.opted_out {
            return Verdict::allow(Reason::OptedOut);
        }
        // The arbiter was asked about the first alternative.
        let evidence = if index == 0 { evidence } else { Evidence::None };
        let exceptions = claim.exceptions(edit, declared, now);
        let fields = &*declared.fields();
        let weighed = Weighing { edit, new, standing, declared, fields, exceptions, evidence }.weigh();
        if weighed.findings.is_empty() {
            return match weighed.allowed.is_empty() {
                true => Verdict::allow(weighed.reason),
                false => {
                    let grounds = grounds(standing.release, weighed.allowed);
                    Verdict::excused(policy, Reason::Allowed, grounds)
                }
            };
        }
        if least.as_ref().is_none_or(|least| weighed.weight() < least.weight()) {
            least = Some(weighed);
        }
    }
    let (certain, is_in_doubt) =
        least.as_ref().map_or((false, true), |weighed| (weighed.certain, weighed.in_doubt));
    let findings = least.map(|weighed| weighed.findings).unwrap_or_default();
    if let Some(reason) = exempt(edit, policy) {
        return Verdict::excused(policy, reason, grounds(standing.release, findings));
    }
    let all_in_doubt = findings.iter().all(|finding| finding.doubt);
    let grounds = grounds(standing.release, findings);
    if all_in_doubt && matches!(evidence, Evidence::Nowhere) {
        // Where nobody can settle a doubt it is said as one, never a refusal.
        let outcome = Verdict::by_mode(policy, Reason::Unsettled, None).outcome.min(Outcome::Warn);
        let grounds = Some(Arc::new(grounds));
        return Verdict { outcome, reason: Reason::Unsettled, grounds, arguable: false };
    }
    if !certain && standing.pending && matches!(evidence, Evidence::Unavailable | Evidence::Nowhere) {
        // A valid write of Helm's can fail a dry run, so what a webhook or the
        // server may have made of it must not stop it where nobody can tell.
        let grounds = Some(Arc::new(grounds));
        return Verdict { grounds, ..Verdict::unjudged(policy, Reason::Unsettled) };
    }
    let arguable = matches!(evidence, Evidence::None) && !edit.scale && (is_in_doubt || standing.pending);
    let verdict = Verdict::by_mode(policy, Reason::Drift, Some(grounds));
    // A Scale is nothing but its replicas, and of a new object nothing was.
    let outcome = match policy.edits {
        EditsMode::Revert if edit.operation == Operation::Update && !edit.scale => Outcome::Revert,
        _ => verdict.outcome,
    };
    Verdict { arguable, outcome, ..verdict }
}

fn exempt(edit: &Edit<'_>, policy: &Policy) -> Option<Reason> {
    policy.exempt.iter().any(|subject| subject.is(edit.actor)).then_some(Reason::Exempt)
}

impl Claim<'_> {
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

fn grounds(release: &Release, fields: Vec<Finding>) -> Grounds {
    Grounds { release: release.id.clone(), revision: release.state.revision, fields }
}

#[cfg(test)]
pub(crate) mod tests;
