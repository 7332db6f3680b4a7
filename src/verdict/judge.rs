//! The verdict on an edit of a declared object.
//!
//! Entry point: [`judge`]. Invariant: past the exceptions, an edit of a
//! declared path is never allowed under `Deny` unless it restores the declared
//! value, and one that touches neither a declared path nor a sealed field is
//! never refused.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::claims::counting;
use super::edit::{Edit, Evidence, Finding, Grounds, Outcome, Reason, Rules, Verdict};
use super::exceptions::Exceptions;
use super::shown::Shown;
use super::{additions, identities, sealed};
use crate::declaration::additions::Addition;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Settler};
use crate::declaration::path::Path;
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
            let policy = rules.book.of(&release.id);
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
        alternatives.find_map(|declared| exceptions(edit, claim, declared, now).of_deletion())
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
        let weighed = weigh(edit, declared, claim, new, evidence, now);
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

fn exceptions<'a>(
    edit: &'a Edit<'_>,
    claim: &Claim<'_>,
    declared: &'a Arc<Declared>,
    now: Timestamp,
) -> Exceptions<'a> {
    let named = (edit.object, &claim.standing.release.id);
    Exceptions::new(named, declared, &claim.policy, edit.circumstances, Some(edit.actor), now)
}

struct Weighed {
    findings: Vec<Finding>,
    /// Whether neither a webhook that only adds nor a server that drops what it
    /// does not know can have made one of them.
    certain: bool,
    /// Whether a dry run can tell of all of them that they are as declared.
    in_doubt: bool,
    /// What drifts and may, since an allowance covers it.
    allowed: Vec<Finding>,
    /// Why the edit passes if there is no finding.
    reason: Reason,
}

impl Weighed {
    /// How far the edit is from what is declared: what is only in doubt weighs
    /// least, however much of it there is.
    fn weight(&self) -> (bool, usize) {
        (self.findings.iter().any(|finding| !finding.doubt), self.findings.len())
    }
}

fn weigh(
    edit: &Edit<'_>,
    declared: &Arc<Declared>,
    claim: &Claim<'_>,
    new: &Value,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Weighed {
    let standing = &claim.standing;
    let exceptions = exceptions(edit, claim, declared, now);
    let changes = match edit.old {
        Some(old) => declared.fields.changed(old, new),
        None => declared.fields.drift(new),
    };
    let mut reason = if changes.is_empty() { Reason::Unchanged } else { Reason::AsDeclared };
    let (mut findings, mut allowed) = (Vec::new(), Vec::new());
    let mut settler = settler(declared, evidence);
    let (mut certain, mut in_doubt) = (false, true);
    for change in changes {
        if identities::writes(edit.actor, edit.object, &change.path) {
            reason = Reason::Identity;
            continue;
        }
        let named = (edit.object, &standing.release.id);
        match settled(&change, standing, settler.as_mut()) {
            Agreement::Agrees => {}
            _ if edit.circumstances.have_settled(named, declared, &change) => {}
            agreement => {
                let excused = exceptions.of_field(&change);
                let finding = finding(edit, change, agreement == Agreement::Doubt);
                match excused {
                    None => {
                        certain |= agreement == Agreement::Differs;
                        in_doubt &= matches!(agreement, Agreement::Doubt | Agreement::Missing);
                        findings.push(finding);
                    }
                    Some(Reason::Allowed) => allowed.push(finding),
                    Some(other) => reason = other,
                }
            }
        }
    }
    if let (Some(old), false) = (edit.old, edit.scale) {
        for change in sealed::changes(edit.object, &declared.fields, old, new) {
            if identities::writes(edit.actor, edit.object, &change.path)
                || (change.deletion && standing.deletion.covers(old))
            {
                reason = Reason::InBand;
                continue;
            }
            // A declared null is judged already.
            if findings.iter().any(|finding: &Finding| finding.path == change.path) {
                continue;
            }
            let excused = match change.deletion {
                true => exceptions.of_deletion(),
                false => exceptions.of_sealed(&change.path, change.old, change.new),
            };
            let finding = Finding {
                declared: None,
                old: shown(edit, &change.path, change.old),
                new: shown(edit, &change.path, change.new),
                path: change.path,
                doubt: false,
                added: false,
            };
            match excused {
                None => {
                    (certain, in_doubt) = (true, false);
                    findings.push(finding);
                }
                Some(Reason::Allowed) => allowed.push(finding),
                Some(other) => reason = other,
            }
        }
    }
    let added = additions(edit, declared, standing, &exceptions, new, evidence);
    for (finding, excused) in added {
        match excused {
            None => findings.push(finding),
            Some(Reason::Allowed) => allowed.push(finding),
            Some(other) => reason = other,
        }
    }
    Weighed { findings, certain, in_doubt, allowed, reason }
}

/// What the edit adds below sealed paths, each with why it may. Whether a webhook or the server
/// adds it to whatever is sent only a dry run can tell. What a Helm operation drops the server may
/// fill in again.
fn additions(
    edit: &Edit<'_>,
    declared: &Declared,
    standing: &Standing<'_>,
    exceptions: &Exceptions<'_>,
    new: &Value,
    evidence: Evidence<'_>,
) -> Vec<(Finding, Option<Reason>)> {
    let seal = exceptions.sealed();
    if seal.is_empty() || identities::is_built_in(edit.actor) {
        return Vec::new();
    }
    let mut found = additions::of_edit(edit.object, &declared.fields, seal, edit.old, new);
    if let Evidence::Canonical(canonical) = evidence {
        additions::drop_servers(&mut found, canonical, (edit.operation, standing.pending));
    }
    let baseline = standing.release.objects.get(edit.object).and_then(|it| it.baseline.as_ref());
    if let Some(baseline) = baseline.filter(|_| standing.pending) {
        found.retain(|it| it.is_member || !baseline.fields.covers(&it.path, it.new));
    }
    let judged = found.into_iter().map(|Addition { path, old, new, .. }| {
        let excused = exceptions.of_sealed(&path, old, Some(new));
        let (old, new) = (shown(edit, &path, old), shown(edit, &path, Some(new)));
        (Finding { declared: None, old, new, path, doubt: false, added: true }, excused)
    });
    judged.collect()
}

/// Whether the value after is the declared one, as far as the evidence goes.
///
/// While an operation is under way the arbiter counts even against a plain
/// difference: a mutating webhook may rewrite what Helm sends, and the dry run
/// passes through the same webhooks.
fn settled(
    change: &FieldChange,
    standing: &Standing<'_>,
    settler: Option<&mut Settler<'_, '_>>,
) -> Agreement {
    match (change.agreement, settler) {
        (Agreement::Doubt | Agreement::Missing, Some(settler)) => settler.settle(change),
        (Agreement::Altered | Agreement::Differs, Some(settler)) if standing.pending => {
            settler.settle(change)
        }
        (agreement, _) => agreement,
    }
}

fn settler<'d, 'v>(declared: &'d Declared, evidence: Evidence<'v>) -> Option<Settler<'d, 'v>> {
    match evidence {
        Evidence::Canonical(canonical) => Some(declared.fields.settler(canonical)),
        Evidence::None | Evidence::Unavailable | Evidence::Nowhere => None,
    }
}

fn finding(edit: &Edit<'_>, change: FieldChange, doubt: bool) -> Finding {
    Finding {
        declared: shown(edit, &change.path, change.declared.as_ref()),
        old: shown(edit, &change.path, change.old.as_ref()),
        new: shown(edit, &change.path, change.new.as_ref()),
        path: change.path,
        doubt,
        added: false,
    }
}

fn shown(edit: &Edit<'_>, path: &Path, value: Option<&Value>) -> Option<Shown> {
    value.map(|value| Shown::of(edit.object, path, value))
}

fn grounds(release: &Release, fields: Vec<Finding>) -> Grounds {
    Grounds { release: release.id.clone(), revision: release.state.revision, fields }
}

#[cfg(test)]
pub(crate) mod tests;
