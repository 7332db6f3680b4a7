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
use super::identities;
use super::judge::{Claim, Decision, Heard, decide};
use super::recorded::{RecordedClaim, RecordedDeclaration, RecordedEdit, RecordedFacts, RecordedRecordEdit};
use super::records::{self, Falsified};
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_helm::release::Declared;
use kubemoor_policy::Policy;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::resolver::{Labels, Policies};
use kubemoor_policy::subject::Subject;

/// The most declarations, and the most policies of releases of a cluster, that are remembered.
const REMEMBERED: usize = 10_000;

/// The policies by which recorded edits are judged.
pub struct Replay {
    defaults: Policy,
    accepted: Vec<Arc<Compiled>>,
    clusters: HashMap<Labels, ClusterPolicies>,
    /// The declarations of each object by a release: rules are kept for each of them.
    declared: HashMap<ReleaseId, HashMap<ObjectId, Declarations>>,
    declarations: usize,
}

/// The declarations of one object.
type Declarations = HashMap<RecordedDeclaration, Arc<Declared>>;

/// The policies of one cluster.
struct ClusterPolicies {
    policies: Policies,
    /// The policy of each release in a namespace with these labels.
    resolved: HashMap<ReleaseId, (Labels, Arc<Policy>)>,
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
    /// The object as each manifest declares it.
    declared: Vec<Arc<Declared>>,
    /// Additions count, but none were stored.
    is_unsealed: bool,
}

/// The changes of an edit by each manifest of one release, with the exceptions.
type Alternatives<'h> = Vec<(AlternativeFacts, Exceptions<'h>)>;

impl Replay {
    /// Creates a replay by these policies; `defaults` apply where none of them sets a value.
    pub fn new(defaults: Policy, accepted: Vec<Arc<Compiled>>) -> Self {
        Self { defaults, accepted, clusters: HashMap::new(), declared: HashMap::new(), declarations: 0 }
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
        let policies: Vec<_> =
            releases.map(|(id, labels)| self.policy(&recorded.cluster, &id, labels)).collect();
        let names_groups = |policy: &Arc<Policy>| are_groups(&policy.exempt) || are_groups(&policy.operators);
        if !past.has_all_groups && policies.iter().any(names_groups) {
            return Err(Unreplayable::Groups);
        }
        let known = |release: &ReleaseId| {
            let found = facts.releases.iter().zip(&policies).find(|(it, _)| *it == release);
            found.map_or_else(|| Arc::new(self.defaults.clone()), |(_, policy)| Arc::clone(policy))
        };
        let (verdict, falsified) = records::decide(past.actor, &facts, known);
        Ok(Replayed { verdict, policy: policies.into_iter().next(), declared: None, falsified })
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
        let (mut hearings, mut facts) = (Vec::new(), Vec::new());
        for claim in &recorded.claims {
            let (hearing, of_claim) = self.hearing(past, &recorded.cluster, claim)?;
            hearings.push(hearing);
            facts.push(of_claim);
        }
        let alternatives =
            hearings.iter().zip(facts).map(|(it, facts)| it.excepted(past, &circumstances, facts));
        let alternatives = alternatives.collect::<Result<Vec<_>, _>>()?;
        let decision = decide(hearings.iter().zip(alternatives).map(|(it, of)| it.heard(&edit, of)));
        let hearing = hearings.get(decision.index).ok_or(Unreplayable::Unknown)?;
        let is_whole = recorded.unheard == 0 && hearings.iter().all(|it| it.claim.unweighed == 0);
        let is_unsealed = hearings.iter().any(|it| it.is_unsealed);
        check(&decision, hearing, is_whole, is_unsealed)?;
        let declared = hearing.declared.first().map(Arc::clone);
        let policy = Some(Arc::clone(&hearing.policy));
        Ok(Replayed { verdict: decision.verdict, policy, declared, falsified: None })
    }

    /// One claim with its policy, and the changes by each manifest.
    fn hearing<'c>(
        &mut self,
        past: PastEdit<'_>,
        cluster: &Labels,
        claim: &'c RecordedClaim,
    ) -> Result<(Hearing<'c>, Vec<AlternativeFacts>), Unreplayable> {
        let release = claim.release.id();
        let policy = self.policy(cluster, &release, claim.release.labels());
        let (mut alternatives, mut declarations, mut is_unsealed) = (Vec::new(), Vec::new(), false);
        // Nobody searches for additions in other edits.
        let may_add = past.operation != Operation::Delete && !identities::is_built_in(past.actor);
        for recorded in &claim.alternatives {
            let declared =
                self.declared(&release, past.object, &recorded.declared).ok_or(Unreplayable::Unknown)?;
            if recorded.declared.cut && policy.reads_metadata() {
                return Err(Unreplayable::Metadata);
            }
            declarations.push(Arc::clone(&declared));
            let mut facts = recorded.facts(declared).ok_or(Unreplayable::Unknown)?;
            let seal = policy.rules(past.object, &facts.declared).sealed.written();
            if seal != facts.seal {
                facts.changes.retain(|change| change.kind != ChangeKind::Added);
                is_unsealed |= seal.is_some() && may_add;
            }
            alternatives.push(facts);
        }
        Ok((Hearing { release, claim, policy, declared: declarations, is_unsealed }, alternatives))
    }

    /// The policy of a release, whose namespace has these labels, in a cluster with those.
    fn policy(&mut self, cluster: &Labels, release: &ReleaseId, labels: Labels) -> Arc<Policy> {
        if !self.clusters.contains_key(cluster) {
            let policies = Policies::new(self.defaults.clone(), cluster, self.accepted.iter().cloned());
            let of_cluster = ClusterPolicies { policies, resolved: HashMap::new() };
            self.clusters.insert(cluster.clone(), of_cluster);
        }
        match self.clusters.get_mut(cluster) {
            Some(of_cluster) => of_cluster.policy(release, labels),
            None => Arc::new(self.defaults.clone()),
        }
    }

    fn declared(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        recorded: &RecordedDeclaration,
    ) -> Option<Arc<Declared>> {
        let of_object = self.declared.get(release).and_then(|of_release| of_release.get(object));
        let known = of_object.and_then(|of_object| of_object.get(recorded));
        if let Some(declared) = known {
            return Some(Arc::clone(declared));
        }
        let declared = Arc::new(recorded.declared(release)?);
        if self.declarations >= REMEMBERED {
            (self.declared, self.declarations) = (HashMap::new(), 0);
        }
        self.declarations += 1;
        let of_release = self.declared.entry(release.clone()).or_default();
        let of_object = of_release.entry(object.clone()).or_default();
        of_object.insert(recorded.clone(), Arc::clone(&declared));
        Some(declared)
    }
}

impl ClusterPolicies {
    fn policy(&mut self, release: &ReleaseId, labels: Labels) -> Arc<Policy> {
        match self.resolved.get(release) {
            Some((of, policy)) if *of == labels => return Arc::clone(policy),
            _ => {}
        }
        let policy = Arc::new(self.policies.of(release, &labels));
        if self.resolved.len() >= REMEMBERED {
            self.resolved.clear();
        }
        self.resolved.insert(release.clone(), (labels, Arc::clone(&policy)));
        policy
    }
}

impl Hearing<'_> {
    /// The changes with the exceptions that were in force, unless these depend on data that was not stored.
    fn excepted<'h>(
        &'h self,
        past: PastEdit<'h>,
        circumstances: &'h Circumstances,
        facts: Vec<AlternativeFacts>,
    ) -> Result<Alternatives<'h>, Unreplayable> {
        let (object, actor) = (past.object, past.actor);
        let mut alternatives = Vec::new();
        for ((facts, declared), recorded) in
            facts.into_iter().zip(&self.declared).zip(&self.claim.alternatives)
        {
            let of = DeclaredObject { object, release: &self.release, declared };
            let exceptions = Exceptions::new(of, &self.policy, circumstances, Some(actor), past.time);
            if !past.has_all_groups && (are_groups(&self.policy.exempt) || exceptions.hang_on_groups()) {
                return Err(Unreplayable::Groups);
            }
            if facts.changes.iter().any(|it| exceptions.hang_on_places(&it.change.path)) {
                return Err(Unreplayable::Place);
            }
            let mut cuts = recorded.changes.iter().filter(|it| it.cut).filter_map(|it| it.path());
            if cuts.any(|path| exceptions.hang_on_values(&path)) {
                return Err(Unreplayable::Value);
            }
            alternatives.push((facts, exceptions));
        }
        Ok(alternatives)
    }

    fn heard(&self, edit: &Edit<'_>, alternatives: Alternatives<'_>) -> Heard {
        let RecordedClaim { revision, pending, authorised, evidence, .. } = *self.claim;
        let claim =
            Claim { release: &self.release, revision, pending, authorised, evidence, policy: &self.policy };
        claim.heard(edit, alternatives.into_iter())
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
