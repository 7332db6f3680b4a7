//! Recorded edits, judged by other policies.
//!
//! Entry point: [`Replay::verdict`]. Invariant: the rules are those of [`super::judge`] and
//! [`super::records`]. Must not guess: if a verdict depends on data that was not stored, there is
//! no verdict.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::circumstances::{Circumstances, DeclaredObject};
use super::edit::{Edit, Outcome, Owner, Verdict};
use super::exceptions::Exceptions;
use super::facts::{AlternativeFacts, ChangeKind, EvidenceKind};
use super::judge::{Claim, Decision, Heard, decide};
use super::recorded::{RecordedClaim, RecordedDeclaration, RecordedEdit, RecordedFacts, RecordedRecordEdit};
use super::records::{self, Falsified};
use crate::helm::release::Declared;
use crate::model::{Actor, ObjectId, Operation, ReleaseId};
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::policy::mask::Mask;
use crate::policy::resolver::{Labels, Policies};
use crate::policy::subject::Subject;

/// The most declarations, and the most policies of releases, that are remembered.
const REMEMBERED: usize = 10_000;

/// The policies by which recorded edits are judged.
pub struct Replay {
    defaults: Policy,
    accepted: Vec<Arc<Compiled>>,
    clusters: HashMap<Labels, Policies>,
    resolved: HashMap<(Labels, ReleaseId, Labels), Arc<Policy>>,
    declared: HashMap<(ReleaseId, RecordedDeclaration), Arc<Declared>>,
}

/// One recorded edit.
#[derive(Clone, Copy, Debug)]
pub struct PastEdit<'a> {
    /// When it was made.
    pub time: Timestamp,
    /// The operation.
    pub operation: Operation,
    /// The object.
    pub object: &'a ObjectId,
    /// The user.
    pub actor: &'a Actor,
    /// Whether all groups of the user are known.
    pub has_all_groups: bool,
    /// Its facts.
    pub facts: &'a RecordedFacts,
}

/// The new verdict on a recorded edit.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The verdict.
    pub verdict: Verdict,
    /// The policy that decided; `None` for an edit that no release governs.
    pub policy: Option<Arc<Policy>>,
    /// The declaration of the object, if rules selected by it.
    pub declared: Option<Arc<Declared>>,
    /// The reason why a record would be falsified.
    pub falsified: Option<Falsified>,
    /// The release and revision of a Helm operation that was running.
    pub operation: Option<(ReleaseId, u64)>,
}

/// Why a recorded edit cannot be judged by other policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unreplayable {
    /// The facts were too long to be stored.
    Cut,
    /// The stored facts cannot be read.
    Unknown,
    /// A rule depends on a value that was not stored.
    Value,
    /// A rule names list elements by their positions.
    Place,
    /// A rule depends on labels or annotations that were not stored.
    Metadata,
    /// A rule names a group, and not all groups of the user were stored.
    Groups,
    /// A policy seals a path below which additions were not searched then.
    Seal,
    /// Only a dry run could tell whether a value is as declared, and none was made.
    Unsettled,
    /// Another release or manifest would have had to be consulted.
    Unheard,
}

/// One release that was consulted, with its policy among the other policies.
struct Hearing<'c> {
    release: ReleaseId,
    claim: &'c RecordedClaim,
    policy: Arc<Policy>,
    alternatives: Vec<AlternativeFacts>,
    circumstances: &'c Circumstances,
    /// Additions count, but none were stored.
    is_unsealed: bool,
}

impl Replay {
    /// Creates a replay by these policies; `defaults` apply where none of them sets a value.
    pub fn new(defaults: Policy, accepted: Vec<Arc<Compiled>>) -> Self {
        let (clusters, resolved, declared) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { defaults, accepted, clusters, resolved, declared }
    }

    /// The verdict on a recorded edit.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn verdict(&mut self, past: PastEdit<'_>) -> Result<Replayed, Unreplayable> {
        match past.facts {
            RecordedFacts::Edit(recorded) => self.edit(past, recorded),
            RecordedFacts::Record(recorded) => self.record_edit(past, recorded),
            RecordedFacts::Cut => Err(Unreplayable::Cut),
        }
    }

    fn record_edit(
        &mut self,
        past: PastEdit<'_>,
        recorded: &RecordedRecordEdit,
    ) -> Result<Replayed, Unreplayable> {
        let facts = recorded.facts();
        let releases = recorded.releases.iter().map(|it| (it.id(), it.labels()));
        let policies: Vec<_> = releases.map(|it| self.policy(&recorded.cluster, &it)).collect();
        let names_groups = |policy: &Arc<Policy>| are_groups(&policy.exempt) || are_groups(&policy.operators);
        if !past.has_all_groups && policies.iter().any(names_groups) {
            return Err(Unreplayable::Groups);
        }
        let known = |release: &ReleaseId| {
            let found = facts.releases.iter().zip(&policies).find(|(it, _)| *it == release);
            found.map_or_else(|| Arc::new(self.defaults.clone()), |(_, policy)| Arc::clone(policy))
        };
        let (verdict, falsified) = records::decide(past.actor, &facts, known);
        let operation = facts.releases.first().map(|release| (release.clone(), facts.revision));
        Ok(Replayed { verdict, policy: policies.into_iter().next(), declared: None, falsified, operation })
    }

    fn edit(&mut self, past: PastEdit<'_>, recorded: &RecordedEdit) -> Result<Replayed, Unreplayable> {
        let circumstances = recorded.circumstances(past.object).ok_or(Unreplayable::Unknown)?;
        let edit = Edit {
            operation: past.operation,
            actor: past.actor,
            object: past.object,
            old: None,
            new: None,
            version: None,
            scale: recorded.scale,
            owner: Owner::Unknown,
            dry_run: false,
            field_manager: recorded.manager(),
            circumstances: &circumstances,
        };
        let mut hearings = Vec::new();
        for claim in &recorded.claims {
            hearings.push(self.hearing(past, &recorded.cluster, claim, &circumstances)?);
        }
        let decision = decide(hearings.iter().map(|it| it.heard(&edit, past.time)));
        let hearing = hearings.get(decision.index).ok_or(Unreplayable::Unknown)?;
        let is_whole = recorded.unheard == 0 && hearings.iter().all(|it| it.claim.unweighed == 0);
        let is_unsealed = hearings.iter().any(|it| it.is_unsealed);
        check(&decision, hearing, is_whole, is_unsealed)?;
        let declared = hearing.alternatives.first().map(|facts| Arc::clone(&facts.declared));
        let (release, revision) = (hearing.release.clone(), hearing.claim.revision);
        Ok(Replayed {
            verdict: decision.verdict,
            policy: Some(Arc::clone(&hearing.policy)),
            declared,
            falsified: None,
            operation: hearing.claim.pending.then_some((release, revision)),
        })
    }

    fn hearing<'c>(
        &mut self,
        past: PastEdit<'_>,
        cluster: &Labels,
        claim: &'c RecordedClaim,
        circumstances: &'c Circumstances,
    ) -> Result<Hearing<'c>, Unreplayable> {
        let release = claim.release.id();
        let policy = self.policy(cluster, &(release.clone(), claim.release.labels()));
        let (mut alternatives, mut is_unsealed) = (Vec::new(), false);
        for recorded in &claim.alternatives {
            let declared = self.declared(&release, &recorded.declared).ok_or(Unreplayable::Unknown)?;
            if recorded.declared.cut && policy.reads_metadata() {
                return Err(Unreplayable::Metadata);
            }
            let mut facts = recorded.facts(declared).ok_or(Unreplayable::Unknown)?;
            let seal = policy.rules(past.object, &facts.declared).sealed.text(&Mask::default());
            if seal != facts.seal {
                facts.changes.retain(|change| change.kind != ChangeKind::Added);
                is_unsealed |= seal.is_some();
            }
            let cuts = recorded.changes.iter().filter(|it| it.cut).filter_map(|it| it.path());
            let cuts: Vec<_> = cuts.collect();
            let of = DeclaredObject { object: past.object, release: &release, declared: &facts.declared };
            let exceptions = Exceptions::new(of, &policy, circumstances, Some(past.actor), past.time);
            if !past.has_all_groups && (are_groups(&policy.exempt) || exceptions.hang_on_groups()) {
                return Err(Unreplayable::Groups);
            }
            if facts.changes.iter().any(|it| exceptions.hang_on_places(&it.change.path)) {
                return Err(Unreplayable::Place);
            }
            if cuts.iter().any(|path| exceptions.hang_on_values(path)) {
                return Err(Unreplayable::Value);
            }
            alternatives.push(facts);
        }
        Ok(Hearing { release, claim, policy, alternatives, circumstances, is_unsealed })
    }

    /// The policy of a release in a cluster with these labels.
    fn policy(&mut self, cluster: &Labels, (release, labels): &(ReleaseId, Labels)) -> Arc<Policy> {
        let key = (cluster.clone(), release.clone(), labels.clone());
        if let Some(policy) = self.resolved.get(&key) {
            return Arc::clone(policy);
        }
        let (defaults, accepted) = (&self.defaults, &self.accepted);
        let new = || Policies::new(defaults.clone(), cluster, accepted.iter().cloned());
        let policies = self.clusters.entry(cluster.clone()).or_insert_with(new);
        let policy = Arc::new(policies.of(release, labels));
        if self.resolved.len() >= REMEMBERED {
            self.resolved.clear();
        }
        self.resolved.insert(key, Arc::clone(&policy));
        policy
    }

    fn declared(&mut self, release: &ReleaseId, recorded: &RecordedDeclaration) -> Option<Arc<Declared>> {
        let key = (release.clone(), recorded.clone());
        if let Some(declared) = self.declared.get(&key) {
            return Some(Arc::clone(declared));
        }
        let declared = Arc::new(recorded.declared(release)?);
        if self.declared.len() >= REMEMBERED {
            self.declared.clear();
        }
        self.declared.insert(key, Arc::clone(&declared));
        Some(declared)
    }
}

impl Hearing<'_> {
    fn heard(&self, edit: &Edit<'_>, now: Timestamp) -> Heard {
        let RecordedClaim { revision, pending, authorised, evidence, .. } = *self.claim;
        let claim =
            Claim { release: &self.release, revision, pending, authorised, evidence, policy: &self.policy };
        let alternatives = self.alternatives.iter().map(|facts| {
            let of =
                DeclaredObject { object: edit.object, release: &self.release, declared: &facts.declared };
            let exceptions = Exceptions::new(of, &self.policy, self.circumstances, Some(edit.actor), now);
            (facts.clone(), exceptions)
        });
        claim.heard(edit, alternatives)
    }
}

/// Checks that more stored data could not have changed the verdict.
fn check(
    decision: &Decision,
    hearing: &Hearing<'_>,
    is_whole: bool,
    is_unsealed: bool,
) -> Result<(), Unreplayable> {
    let verdict = &decision.verdict;
    if verdict.passes() {
        return if is_unsealed { Err(Unreplayable::Seal) } else { Ok(()) };
    }
    if !is_whole {
        return Err(Unreplayable::Unheard);
    }
    if verdict.outcome == Outcome::Allow {
        return Ok(());
    }
    let fields = verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    let is_doubt = hearing.claim.evidence != EvidenceKind::Canonical
        && fields.clone().count() > 0
        && fields.clone().all(|field| field.doubt);
    match verdict.arguable || (is_doubt && verdict.outcome.is_refusal()) {
        true => Err(Unreplayable::Unsettled),
        false => Ok(()),
    }
}

fn are_groups(subjects: &[Subject]) -> bool {
    subjects.iter().any(|subject| matches!(subject, Subject::Group(_)))
}

impl Unreplayable {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Cut,
        Self::Unknown,
        Self::Value,
        Self::Place,
        Self::Metadata,
        Self::Groups,
        Self::Seal,
        Self::Unsettled,
        Self::Unheard,
    ];

    /// The reason's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Unknown => "unknown",
            Self::Value => "value",
            Self::Place => "place",
            Self::Metadata => "metadata",
            Self::Groups => "groups",
            Self::Seal => "seal",
            Self::Unsettled => "unsettled",
            Self::Unheard => "unheard",
        }
    }
}
