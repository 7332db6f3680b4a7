//! The verdict on an edit of a declared object; [`decide`] makes the same decision on recorded facts.
//!
//! Apart from the exceptions, `Deny` never allows an edit of a declared path unless it restores the declared value,
//! and never denies an edit that touches neither a declared path nor a sealed field.

use std::sync::Arc;

use jiff::Timestamp;

use crate::claims::{self, counting};
use crate::diff::{ChangeKind, ChangedField, ClaimFacts, Diff, EditFacts, ObjectComparison};
use crate::edit::{
    DryRunEvidence, Edit, EditOutcome, EvidenceKind, FieldFinding, Grounds, ObjectDeclaration, Rules,
    Verdict, VerdictReason,
};
use crate::exceptions::{ObjectExceptions, matching_exemption};
use crate::identities;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::{EditsMode, ObjectId, Operation, PROBE_MANAGER};
use kubemoor_helm::release::Release;
use kubemoor_helm::state::{self, ReleaseClaim};
use kubemoor_policy::Policy;

/// Judges one edit by the releases that declare its object (`claims`, in the order in which they were seen first), in
/// these steps:
///
/// 1. declared by no release: allow;
/// 2. the object is being deleted already: a deletion is allowed, and so is the removal of finalizers; other changes
///    are judged, because the object stays in use until its finalizers are removed;
/// 3. the edit is Kubemoor's own, or exactly one that a built-in identity makes: allow;
/// 4. the manifest opts the object out: allow;
/// 5. no declared or sealed field changes, apart from those that a policy ignores, that an autoscaler sets, or that
///    get the declared value: allow;
/// 6. a deletion that Helm's own operation makes: allow;
/// 7. an allowance covers the changes, or the policy exempts the user: allow, and record if the policy records drift;
/// 8. otherwise the policy's mode decides.
///
/// If several releases claim the object, any of them may allow the edit. Only releases that declare it in the version
/// of the request are consulted.
///
/// Also returns the facts of the edit, by which other policies can judge it later; `None` if every policy would allow
/// the edit.
pub fn judge(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    rules: &Rules<'_>,
    evidence: DryRunEvidence<'_>,
    now: Timestamp,
) -> (Verdict, Option<EditFacts>) {
    let plain = |reason| (Verdict::allow(reason), None);
    if claims.is_empty() {
        return plain(VerdictReason::NotDeclared);
    }
    // The guard's own dry run: nothing is stored, and it must not wait for itself.
    if edit.dry_run && edit.field_manager == PROBE_MANAGER {
        return plain(VerdictReason::Probe);
    }
    let claimed: Vec<(ReleaseClaim<'_>, Arc<Policy>)> = counting(claims, edit.object, &edit.owner)
        .filter_map(|release| {
            let policy = rules.resolver.policy(&release.id);
            let standing = state::current_claim(release, edit.object, policy.operation_timeout, now)?;
            let standing = match edit.version {
                Some(version) => standing.in_version(version)?,
                None => standing,
            };
            Some((standing, policy))
        })
        .collect();
    if claimed.is_empty() {
        return plain(VerdictReason::NotDeclared);
    }
    if edit.operation == Operation::Delete && edit.old.is_some_and(claims::is_being_deleted) {
        return plain(VerdictReason::BeingDeleted);
    }
    let own = rules.own_account.is_some_and(|own| own == edit.actor.user);
    if own || (edit.operation == Operation::Delete && identities::deletes(edit.actor, edit.object)) {
        return plain(VerdictReason::Identity);
    }
    let unaided = if matches!(evidence, DryRunEvidence::Nowhere) { evidence } else { DryRunEvidence::None };
    let decide_aided = |aided: Option<usize>| {
        decide(claimed.iter().enumerate().map(|(index, (standing, policy))| {
            let evidence = if aided == Some(index) { evidence } else { unaided };
            judge_claim(edit, standing, policy, evidence, now)
        }))
    };
    let mut decision = decide_aided(None);
    if !decision.verdict.passes() && !matches!(evidence, DryRunEvidence::None | DryRunEvidence::Nowhere) {
        // The dry run was made with the manifest of this release, so it does not apply to another one.
        decision = decide_aided(Some(decision.index));
    }
    let Decision { verdict, claims, .. } = decision;
    let differs = || claims.iter().flat_map(|it| &it.alternatives).any(|it| !it.changes.is_empty());
    if verdict.outcome == EditOutcome::Allow && !differs() {
        return (verdict, None);
    }
    let unheard = claimed.len().saturating_sub(claims.len());
    let circumstances = edit.circumstances.clone();
    (verdict, Some(EditFacts { claims, unevaluated_claims: unheard, circumstances }))
}

/// The verdict of one release that declares the object, by the policy of that release.
fn judge_claim(
    edit: &Edit<'_>,
    standing: &ReleaseClaim<'_>,
    policy: &Policy,
    evidence: DryRunEvidence<'_>,
    now: Timestamp,
) -> (Verdict, ClaimFacts) {
    let facts = ClaimFacts {
        release: standing.release.id.clone(),
        revision: standing.release.state.revision,
        pending: standing.pending,
        authorised: edit.operation == Operation::Delete
            && edit.old.is_some_and(|old| standing.deletion.covers(old)),
        evidence: evidence.into(),
        alternatives: Vec::new(),
        uncompared_manifests: 0,
    };
    let alternatives = standing.alternatives.iter().enumerate().map(|(index, declared)| {
        // The dry run was made with the first alternative.
        let evidence = if index == 0 { evidence } else { DryRunEvidence::None };
        let (object, release) = (edit.object, &standing.release.id);
        let of = ObjectDeclaration { object, release, declared };
        let circumstances = edit.circumstances;
        let exceptions = ObjectExceptions::new(of, policy, circumstances, Some(edit.actor), now);
        let seal = exceptions.sealed();
        let diff = match edit.new {
            Some(new) if edit.operation != Operation::Delete && !declared.opted_out => {
                ObjectComparison { object, claim: standing, declared, circumstances, evidence, seal }
                    .of_edit(edit, new)
            }
            // Deletions and opted-out objects are not compared.
            _ => Diff::empty(declared, VerdictReason::Unchanged, None),
        };
        (diff, exceptions)
    });
    Claim { facts, policy }.judge(edit, alternatives)
}

const EXCEPTIONS: usize = 8;

/// One release that claims the object: its facts, without those that come from a comparison, and its policy.
pub(crate) struct Claim<'a> {
    pub(crate) facts: ClaimFacts,
    pub(crate) policy: &'a Policy,
}

pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) index: usize,
    pub(crate) claims: Vec<ClaimFacts>,
}

/// The verdict of the first release that allows the edit, after which no other is consulted; if none does, the mildest
/// verdict, preferably one that a dry run may change, then the first.
pub(crate) fn decide(judged: impl Iterator<Item = (Verdict, ClaimFacts)>) -> Decision {
    let mut mildest: Option<(usize, Verdict)> = None;
    let mut claims = Vec::new();
    for (index, (verdict, facts)) in judged.enumerate() {
        claims.push(facts);
        if verdict.passes() {
            return Decision { verdict, index, claims };
        }
        let rank = |verdict: &Verdict| (verdict.outcome, !verdict.arguable);
        if mildest.as_ref().is_none_or(|(_, kept)| rank(&verdict) < rank(kept)) {
            mildest = Some((index, verdict));
        }
    }
    let (index, verdict) = mildest.unwrap_or_else(|| (0, Verdict::allow(VerdictReason::NotDeclared)));
    Decision { verdict, index, claims }
}

impl Claim<'_> {
    /// The release's verdict on the edit, compared with each manifest in turn.
    pub(crate) fn judge<'e>(
        mut self,
        edit: &Edit<'_>,
        mut alternatives: impl ExactSizeIterator<Item = (Diff, ObjectExceptions<'e>)>,
    ) -> (Verdict, ClaimFacts) {
        let (mut weighed, all) = (Vec::new(), alternatives.len());
        let verdict = match edit.operation {
            Operation::Delete => self.deletion(edit, &mut alternatives, &mut weighed),
            Operation::Create | Operation::Update => self.change(edit, &mut alternatives, &mut weighed),
        };
        // A manifest that opts the object out is not counted as compared.
        self.facts.uncompared_manifests = all.saturating_sub(weighed.len());
        self.facts.alternatives = weighed;
        (verdict, self.facts)
    }

    fn deletion<'e>(
        &self,
        edit: &Edit<'_>,
        alternatives: &mut dyn Iterator<Item = (Diff, ObjectExceptions<'e>)>,
        weighed: &mut Vec<Diff>,
    ) -> Verdict {
        let mut allowed = None;
        for (facts, exceptions) in alternatives {
            if facts.declared.opted_out {
                return Verdict::allow(VerdictReason::OptedOut);
            }
            allowed = allowed.or_else(|| Some((exceptions.of_deletion()?, exceptions.allowance_names(None))));
            weighed.push(facts);
        }
        if self.facts.authorised {
            return Verdict::allow(VerdictReason::InBand);
        }
        let grounds = self.grounds(Vec::new());
        let exempt = matching_exemption(self.policy, edit.actor).map(|by| (VerdictReason::Exempt, vec![by]));
        match exempt.or(allowed) {
            Some((reason, by)) => Verdict::excused(self.policy, reason, by_exceptions(grounds, by)),
            None => Verdict::by_mode(self.policy, VerdictReason::Deletion, Some(grounds)),
        }
    }

    fn change<'e>(
        &self,
        edit: &Edit<'_>,
        alternatives: &mut dyn Iterator<Item = (Diff, ObjectExceptions<'e>)>,
        seen: &mut Vec<Diff>,
    ) -> Verdict {
        let mut least: Option<(usize, ManifestFindings)> = None;
        for (index, (facts, exceptions)) in alternatives.enumerate() {
            if facts.declared.opted_out {
                return Verdict::allow(VerdictReason::OptedOut);
            }
            let weighed = find_drift(edit.object, &facts, &exceptions);
            seen.push(facts);
            if weighed.findings.is_empty() {
                return match weighed.allowed.is_empty() {
                    true => Verdict::allow(weighed.reason),
                    false => {
                        let grounds = by_exceptions(self.grounds(weighed.allowed), weighed.allowed_by);
                        Verdict::excused(self.policy, VerdictReason::Allowed, grounds)
                    }
                };
            }
            if least.as_ref().is_none_or(|(_, least)| weighed.weight() < least.weight()) {
                least = Some((index, weighed));
            }
        }
        let (index, weighed) =
            least.unwrap_or_else(|| (0, ManifestFindings::of_nothing(VerdictReason::Unchanged)));
        if let Some(by) = matching_exemption(self.policy, edit.actor) {
            let grounds = by_exceptions(self.grounds(weighed.findings), vec![by]);
            return Verdict::excused(self.policy, VerdictReason::Exempt, grounds);
        }
        self.by_mode(edit, index, weighed)
    }

    /// The verdict by the policy's mode on an edit that drifts from all manifests, least from the one at `index`.
    fn by_mode(&self, edit: &Edit<'_>, index: usize, weighed: ManifestFindings) -> Verdict {
        let Self { policy, facts: ClaimFacts { evidence, pending, .. } } = *self;
        let ManifestFindings { findings, certain, in_doubt, merged, .. } = weighed;
        let all_in_doubt = findings.iter().all(|finding| finding.in_doubt);
        let grounds = self.grounds(findings);
        if merged && pending {
            return Verdict::excused(policy, VerdictReason::Unsettled, grounds);
        }
        if all_in_doubt && evidence == EvidenceKind::Nowhere {
            // An uncertain difference that cannot be settled is reported as one, and never denied.
            let outcome =
                Verdict::by_mode(policy, VerdictReason::Unsettled, None).outcome.min(EditOutcome::Warn);
            let grounds = Some(Arc::new(grounds));
            return Verdict { outcome, reason: VerdictReason::Unsettled, grounds, arguable: false };
        }
        // The dry run was made with the first manifest.
        let is_untold = match evidence {
            EvidenceKind::None => false,
            EvidenceKind::Canonical => index > 0,
            EvidenceKind::Unavailable | EvidenceKind::Nowhere => true,
        };
        if !certain && pending && is_untold {
            // A valid write by Helm can fail a dry run. It must not be denied for a value that a webhook or the API
            // server may have changed.
            return Verdict::excused(policy, VerdictReason::Unsettled, grounds);
        }
        let arguable = evidence == EvidenceKind::None && !edit.scale && (in_doubt || pending);
        let verdict = Verdict::by_mode(policy, VerdictReason::Drift, Some(grounds));
        // A Scale has only its replicas, and a new object has no earlier state.
        let outcome = match policy.edits {
            EditsMode::Revert if edit.operation == Operation::Update && !edit.scale => EditOutcome::Revert,
            _ => verdict.outcome,
        };
        Verdict { arguable, outcome, ..verdict }
    }

    fn grounds(&self, fields: Vec<FieldFinding>) -> Grounds {
        Grounds::new(&self.facts.release, self.facts.revision, fields)
    }
}

/// Adds the exceptions that allow the edit to the grounds: only the first ones, without duplicates.
fn by_exceptions(grounds: Grounds, by: Vec<String>) -> Grounds {
    let mut exceptions: Vec<String> = Vec::new();
    for name in by {
        if exceptions.len() < EXCEPTIONS && !exceptions.contains(&name) {
            exceptions.push(name);
        }
    }
    Grounds { exceptions, ..grounds }
}

struct ManifestFindings {
    findings: Vec<FieldFinding>,
    /// Whether a finding cannot come from a webhook that only adds fields or an API server that drops unknown ones.
    certain: bool,
    /// Whether a dry run could show that all findings match the declaration.
    in_doubt: bool,
    /// Whether all findings may come from the merge of a running Helm operation.
    merged: bool,
    /// The drift that an allowance covers.
    allowed: Vec<FieldFinding>,
    allowed_by: Vec<String>,
    /// The reason why the edit is allowed if there is no finding.
    reason: VerdictReason,
}

fn find_drift(object: &ObjectId, diff: &Diff, exceptions: &ObjectExceptions<'_>) -> ManifestFindings {
    let mut weighed = ManifestFindings { merged: true, ..ManifestFindings::of_nothing(diff.reason) };
    for (it, excused) in exceptions.excuse(&diff.changes) {
        let ChangedField { change, kind, .. } = it;
        if excused.is_none() && *kind != ChangeKind::Added {
            weighed.certain |= change.agreement == FieldAgreement::Differs && *kind != ChangeKind::Merged;
            weighed.in_doubt &= matches!(change.agreement, FieldAgreement::Doubt | FieldAgreement::Missing);
        }
        weighed.merged &= excused.is_some() || *kind == ChangeKind::Merged;
        match excused {
            None => weighed.findings.push(finding(object, it, &diff.fields)),
            Some(VerdictReason::Allowed) => {
                weighed.allowed_by.extend(exceptions.allowance_names(match kind {
                    ChangeKind::Owner => None,
                    _ => Some(&change.path),
                }));
                weighed.allowed.push(finding(object, it, &diff.fields));
            }
            Some(other) => weighed.reason = other,
        }
    }
    weighed
}

pub(crate) fn finding(object: &ObjectId, diff: &ChangedField, fields: &DeclaredFields) -> FieldFinding {
    let ChangedField { change, element, .. } = diff;
    let Some(element) = element else { return FieldFinding::of_change(object, change) };
    // If an element appears or disappears, the change itself holds only its keys.
    let declared = fields.element(&change.path);
    let values = [declared.as_ref(), element.old.as_ref(), element.new.as_ref()];
    let in_doubt = change.agreement == FieldAgreement::Doubt;
    FieldFinding { in_doubt, ..FieldFinding::new(object, &change.path, values) }
}

impl ManifestFindings {
    fn of_nothing(reason: VerdictReason) -> Self {
        let (findings, allowed, allowed_by) = (Vec::new(), Vec::new(), Vec::new());
        Self { findings, certain: false, in_doubt: true, merged: false, allowed, allowed_by, reason }
    }

    /// The distance of the edit from the declaration: uncertain differences weigh least, however many there are.
    fn weight(&self) -> (bool, usize) {
        (self.findings.iter().any(|finding| !finding.in_doubt), self.findings.len())
    }
}

#[cfg(test)]
pub(crate) mod tests;
