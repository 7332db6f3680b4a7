//! The decision on the changes of an edit, by the rules.
//!
//! Entry points: [`Claim::heard`] for one release, [`decide`] for all of them. Invariant: recorded
//! facts give the same verdict as the edit itself. Must not look at an object, only at facts.

use std::sync::Arc;

use super::super::edit::{Edit, Finding, Grounds, Outcome, Reason, Verdict};
use super::super::exceptions::{Exceptions, exempting};
use super::super::facts::{AlternativeFacts, ClaimFacts, EvidenceKind};
use super::weigh::{Weighed, weigh};
use kubemoor_declare::model::{EditsMode, Operation, ReleaseId};
use kubemoor_policy::Policy;

/// The most exceptions that a verdict names.
const EXCEPTIONS: usize = 8;

/// One release that claims the object.
pub(in super::super) struct Claim<'a> {
    pub(in super::super) release: &'a ReleaseId,
    pub(in super::super) revision: u64,
    /// A Helm operation is running.
    pub(in super::super) pending: bool,
    /// The edit is a deletion that the state of the record authorises.
    pub(in super::super) authorised: bool,
    pub(in super::super) evidence: EvidenceKind,
    pub(in super::super) policy: &'a Policy,
}

/// One release's verdict on the edit, with its facts.
pub(in super::super) struct Heard {
    pub(in super::super) verdict: Verdict,
    pub(in super::super) facts: ClaimFacts,
}

/// The decision of all releases together.
pub(in super::super) struct Decision {
    pub(in super::super) verdict: Verdict,
    /// The place of the release whose verdict it is.
    pub(in super::super) index: usize,
    /// The facts of the releases that were consulted.
    pub(in super::super) claims: Vec<ClaimFacts>,
}

/// The verdict of the first release that allows the edit, after which no other is consulted; if
/// none does, the mildest verdict, then one that the arbiter may change, then the first.
pub(in super::super) fn decide(heard: impl Iterator<Item = Heard>) -> Decision {
    let mut mildest: Option<(usize, Verdict)> = None;
    let mut claims = Vec::new();
    for (index, Heard { verdict, facts }) in heard.enumerate() {
        claims.push(facts);
        if verdict.passes() {
            return Decision { verdict, index, claims };
        }
        let rank = |verdict: &Verdict| (verdict.outcome, !verdict.arguable);
        if mildest.as_ref().is_none_or(|(_, kept)| rank(&verdict) < rank(kept)) {
            mildest = Some((index, verdict));
        }
    }
    let (index, verdict) = mildest.unwrap_or_else(|| (0, Verdict::allow(Reason::NotDeclared)));
    Decision { verdict, index, claims }
}

impl Claim<'_> {
    /// The release's verdict on the edit, compared with each manifest in turn.
    pub(in super::super) fn heard<'e>(
        &self,
        edit: &Edit<'_>,
        mut alternatives: impl ExactSizeIterator<Item = (AlternativeFacts, Exceptions<'e>)>,
    ) -> Heard {
        let (mut weighed, all) = (Vec::new(), alternatives.len());
        let verdict = match edit.operation {
            Operation::Delete => self.deletion(edit, &mut alternatives, &mut weighed),
            Operation::Create | Operation::Update => self.change(edit, &mut alternatives, &mut weighed),
        };
        let facts = ClaimFacts {
            release: self.release.clone(),
            revision: self.revision,
            pending: self.pending,
            authorised: self.authorised,
            evidence: self.evidence,
            // One that opts the object out is not weighed.
            unweighed: all.saturating_sub(weighed.len()),
            alternatives: weighed,
        };
        Heard { verdict, facts }
    }

    fn deletion<'e>(
        &self,
        edit: &Edit<'_>,
        alternatives: &mut dyn Iterator<Item = (AlternativeFacts, Exceptions<'e>)>,
        weighed: &mut Vec<AlternativeFacts>,
    ) -> Verdict {
        let mut allowed = None;
        for (facts, exceptions) in alternatives {
            if facts.declared.opted_out {
                return Verdict::allow(Reason::OptedOut);
            }
            allowed = allowed.or_else(|| Some((exceptions.of_deletion()?, exceptions.naming_deletion())));
            weighed.push(facts);
        }
        if self.authorised {
            return Verdict::allow(Reason::InBand);
        }
        let grounds = self.grounds(Vec::new());
        let exempt = exempting(self.policy, edit.actor).map(|by| (Reason::Exempt, vec![by]));
        match exempt.or(allowed) {
            Some((reason, by)) => Verdict::excused(self.policy, reason, by_exceptions(grounds, by)),
            None => Verdict::by_mode(self.policy, Reason::Deletion, Some(grounds)),
        }
    }

    fn change<'e>(
        &self,
        edit: &Edit<'_>,
        alternatives: &mut dyn Iterator<Item = (AlternativeFacts, Exceptions<'e>)>,
        seen: &mut Vec<AlternativeFacts>,
    ) -> Verdict {
        let mut least: Option<(usize, Weighed)> = None;
        for (index, (facts, exceptions)) in alternatives.enumerate() {
            if facts.declared.opted_out {
                return Verdict::allow(Reason::OptedOut);
            }
            let weighed = weigh(edit.object, &facts, &exceptions);
            seen.push(facts);
            if weighed.findings.is_empty() {
                return match weighed.allowed.is_empty() {
                    true => Verdict::allow(weighed.reason),
                    false => {
                        let grounds = by_exceptions(self.grounds(weighed.allowed), weighed.allowed_by);
                        Verdict::excused(self.policy, Reason::Allowed, grounds)
                    }
                };
            }
            if least.as_ref().is_none_or(|(_, least)| weighed.weight() < least.weight()) {
                least = Some((index, weighed));
            }
        }
        let (index, weighed) = least.unwrap_or_else(|| (0, Weighed::of_nothing(Reason::Unchanged)));
        if let Some(by) = exempting(self.policy, edit.actor) {
            let grounds = by_exceptions(self.grounds(weighed.findings), vec![by]);
            return Verdict::excused(self.policy, Reason::Exempt, grounds);
        }
        self.by_mode(edit, index, weighed)
    }

    /// The verdict of the mode on an edit that drifts from all manifests, least from the one at `index`.
    fn by_mode(&self, edit: &Edit<'_>, index: usize, weighed: Weighed) -> Verdict {
        let Self { policy, evidence, pending, .. } = *self;
        let Weighed { findings, certain, in_doubt, merged, .. } = weighed;
        let all_in_doubt = findings.iter().all(|finding| finding.doubt);
        let grounds = self.grounds(findings);
        if merged && pending {
            let grounds = Some(Arc::new(grounds));
            return Verdict { grounds, ..Verdict::unjudged(policy, Reason::Unsettled) };
        }
        if all_in_doubt && evidence == EvidenceKind::Nowhere {
            // A doubt that cannot be settled is reported as one, and never leads to a denial.
            let outcome = Verdict::by_mode(policy, Reason::Unsettled, None).outcome.min(Outcome::Warn);
            let grounds = Some(Arc::new(grounds));
            return Verdict { outcome, reason: Reason::Unsettled, grounds, arguable: false };
        }
        // The arbiter was asked about the first manifest.
        let is_untold = match evidence {
            EvidenceKind::None => false,
            EvidenceKind::Canonical => index > 0,
            EvidenceKind::Unavailable | EvidenceKind::Nowhere => true,
        };
        if !certain && pending && is_untold {
            // A valid write of Helm can fail a dry run. A value that a webhook or the API server
            // may have changed must not stop it if that cannot be settled.
            let grounds = Some(Arc::new(grounds));
            return Verdict { grounds, ..Verdict::unjudged(policy, Reason::Unsettled) };
        }
        let arguable = evidence == EvidenceKind::None && !edit.scale && (in_doubt || pending);
        let verdict = Verdict::by_mode(policy, Reason::Drift, Some(grounds));
        // A Scale has nothing but its replicas, and a new object has no former state.
        let outcome = match policy.edits {
            EditsMode::Revert if edit.operation == Operation::Update && !edit.scale => Outcome::Revert,
            _ => verdict.outcome,
        };
        Verdict { arguable, outcome, ..verdict }
    }

    fn grounds(&self, fields: Vec<Finding>) -> Grounds {
        Grounds { release: self.release.clone(), revision: self.revision, fields, exceptions: Vec::new() }
    }
}

/// The same grounds with the exceptions that allow the edit; the first ones are named, each once.
fn by_exceptions(grounds: Grounds, by: Vec<String>) -> Grounds {
    let mut exceptions: Vec<String> = Vec::new();
    for name in by {
        if exceptions.len() < EXCEPTIONS && !exceptions.contains(&name) {
            exceptions.push(name);
        }
    }
    Grounds { exceptions, ..grounds }
}
