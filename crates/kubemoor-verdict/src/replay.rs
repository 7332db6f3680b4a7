//! The facts of an edit as the ledger stores them, and the verdict of other policies on them.
//!
//! No stored text has more than [`MOST`] bytes, whatever an editor or a manifest contains, and none holds a Secret's
//! value. A replay does not guess: if a verdict depends on data that was not stored, there is no verdict.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::diff::{ChangeKind, ChangedField, ClaimFacts, Diff, EditFacts, EvidenceKind, JudgedFacts};
use crate::edit::{Circumstances, Edit, EditOutcome, ObjectDeclaration, ObjectOwner, Verdict, VerdictReason};
use crate::exceptions::ObjectExceptions;
use crate::judge::{Claim, Decision, decide};
use crate::records::{self, Falsified, RecordFacts};
use crate::{identities, shown};
use kubemoor_declare::catalog::KindFacts;
use kubemoor_declare::declare::declare;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{
    Actor, Autoscaler, MANAGED_BY, ObjectId, Operation, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId,
};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::release::{AllowAnnotations, DeclaredObject};
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::{Allowance, Grant};
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::selector::PolicySubject;

/// The most declarations, and the most policies of releases of a cluster, that are remembered.
const REMEMBERED: usize = 10_000;

/// The policies by which recorded edits are judged.
pub struct Replay {
    defaults: Policy,
    accepted: Vec<Arc<Compiled>>,
    clusters: HashMap<Labels, ClusterPolicies>,
    /// The declarations of each object by a release: rules are kept for each of them.
    declared: HashMap<ReleaseId, HashMap<ObjectId, KnownDeclarations>>,
    declarations: usize,
}

type KnownDeclarations = HashMap<RecordedDeclaration, Arc<DeclaredObject>>;

struct ClusterPolicies {
    policies: Policies,
    /// The policy of each release in a namespace with these labels.
    resolved: HashMap<ReleaseId, (Labels, Arc<Policy>)>,
}

#[derive(Clone, Copy, Debug)]
pub struct PastEdit<'a> {
    pub time: Timestamp,
    pub operation: Operation,
    pub object: &'a ObjectId,
    pub actor: &'a Actor,
    /// Whether all groups of the user are known.
    pub has_all_groups: bool,
    pub facts: &'a RecordedFacts,
}

#[derive(Clone, Debug)]
pub struct Replayed {
    pub verdict: Verdict,
    /// The policy that decided; `None` for an edit that no release governs.
    pub policy: Option<Arc<Policy>>,
    /// The declaration of the object, if rules selected by it.
    pub declared: Option<Arc<DeclaredObject>>,
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
struct ReplayedClaim<'c> {
    release: ReleaseId,
    claim: &'c RecordedClaim,
    policy: Arc<Policy>,
    /// The object as each manifest declares it.
    declared: Vec<Arc<DeclaredObject>>,
    /// Additions count, but none were stored.
    is_unsealed: bool,
}

/// The changes of an edit by each manifest of one release, with the exceptions.
type Alternatives<'h> = Vec<(Diff, ObjectExceptions<'h>)>;

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
            owner: ObjectOwner::Unknown,
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
        let decision = decide(hearings.iter().zip(alternatives).map(|(it, of)| it.judge(&edit, of)));
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
    ) -> Result<(ReplayedClaim<'c>, Vec<Diff>), Unreplayable> {
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
        Ok((ReplayedClaim { release, claim, policy, declared: declarations, is_unsealed }, alternatives))
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
    ) -> Option<Arc<DeclaredObject>> {
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

impl ReplayedClaim<'_> {
    /// The changes with the exceptions that were in force, unless these depend on data that was not stored.
    fn excepted<'h>(
        &'h self,
        past: PastEdit<'h>,
        circumstances: &'h Circumstances,
        facts: Vec<Diff>,
    ) -> Result<Alternatives<'h>, Unreplayable> {
        let (object, actor) = (past.object, past.actor);
        let mut alternatives = Vec::new();
        for ((facts, declared), recorded) in
            facts.into_iter().zip(&self.declared).zip(&self.claim.alternatives)
        {
            let of = ObjectDeclaration { object, release: &self.release, declared };
            let exceptions = ObjectExceptions::new(of, &self.policy, circumstances, Some(actor), past.time);
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

    fn judge(&self, edit: &Edit<'_>, alternatives: Alternatives<'_>) -> (Verdict, ClaimFacts) {
        let RecordedClaim { revision, pending, authorised, evidence, .. } = *self.claim;
        let facts = ClaimFacts {
            release: self.release.clone(),
            revision,
            pending,
            authorised,
            evidence,
            alternatives: Vec::new(),
            unweighed: 0,
        };
        Claim { facts, policy: &self.policy }.judge(edit, alternatives.into_iter())
    }
}

/// Checks that more stored data could not have changed the verdict.
fn check(
    decision: &Decision,
    hearing: &ReplayedClaim<'_>,
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
    if verdict.outcome == EditOutcome::Allow {
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

fn are_groups(subjects: &[PolicySubject]) -> bool {
    subjects.iter().any(|subject| matches!(subject, PolicySubject::Group(_)))
}

impl Unreplayable {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedFacts {
    Edit(RecordedEdit),
    Record(RecordedRecordEdit),
    Cut,
}

/// The facts of an edit of an object that a release declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEdit {
    pub(crate) claims: Vec<RecordedClaim>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unheard: usize,
    /// It used the `scale` subresource.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) scale: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    manager: String,
    /// The exceptions that were open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allowances: Vec<RecordedAllowance>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    autoscalers: Vec<RecordedAutoscaler>,
    /// The labels of the cluster.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) cluster: Labels,
}

/// The facts of an edit of a Helm record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRecordEdit {
    revision: u64,
    /// The releases that the record may describe.
    pub(crate) releases: Vec<RecordedRelease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    falsified: Option<Falsified>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) cluster: Labels,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedRelease {
    namespace: String,
    name: String,
    /// The labels of its namespace, without the one that names it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
    /// The namespace is not known to have that one: no namespace has it before Kubernetes 1.21.
    #[serde(default, skip_serializing_if = "is_false")]
    unnamed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedClaim {
    pub(crate) release: RecordedRelease,
    pub(crate) revision: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) pending: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) authorised: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) evidence: EvidenceKind,
    pub(crate) alternatives: Vec<RecordedAlternative>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unweighed: usize,
}

/// The changes of one edit, compared with one manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedAlternative {
    pub(crate) declared: RecordedDeclaration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<RecordedChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seal: Option<String>,
}

/// The parts of a manifest's object by which rules select objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedDeclaration {
    version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, Value>,
    /// Some of them are not kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) cut: bool,
    /// The exceptions of the manifest itself, and their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The path of the replicas of an object that an autoscaler scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedChange {
    path: String,
    is: FieldAgreement,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    declared: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    old: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    new: Option<Value>,
    /// Some values are not stored: null stands for them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAllowance {
    namespace: String,
    paths: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAutoscaler {
    minimum: i32,
    maximum: i32,
    #[serde(default, skip_serializing_if = "is_false")]
    keda: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    declared: Vec<(String, String)>,
}

/// A value that is present, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl RecordedEdit {
    /// Other knowledge about `object` at that time.
    pub(crate) fn circumstances(&self, object: &ObjectId) -> Option<Circumstances> {
        let allowances = self.allowances.iter().map(|it| it.allowance(object));
        let autoscalers = self.autoscalers.iter().map(|it| {
            let by = |(namespace, name): &(String, String)| ReleaseId {
                namespace: namespace.clone().into(),
                name: name.clone().into(),
            };
            Autoscaler {
                minimum: it.minimum,
                maximum: it.maximum,
                by_keda: it.keda,
                declared_by: it.declared.iter().map(by).collect(),
            }
        });
        Some(Circumstances {
            allowances: allowances.collect::<Option<_>>()?,
            autoscalers: autoscalers.collect(),
            ..Circumstances::default()
        })
    }

    pub fn manager(&self) -> &str {
        &self.manager
    }
}

impl RecordedRecordEdit {
    pub(crate) fn facts(&self) -> RecordFacts {
        let releases = self.releases.iter().map(RecordedRelease::id).collect();
        RecordFacts { revision: self.revision, releases, falsified: self.falsified }
    }
}

impl RecordedRelease {
    pub(crate) fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    /// The labels of its namespace.
    pub(crate) fn labels(&self) -> Labels {
        let mut labels = self.labels.clone();
        if !self.unnamed {
            labels.entry(NAMESPACE_NAME.to_owned()).or_insert_with(|| self.namespace.clone());
        }
        labels
    }
}

impl RecordedAllowance {
    /// `None` if a path cannot be read.
    fn allowance(&self, object: &ObjectId) -> Option<Arc<Allowance>> {
        Some(Arc::new(Allowance {
            name: String::new(),
            namespace: self.namespace.clone(),
            object: ObjectId { namespace: None, ..object.clone() },
            grant: Grant::parse(self.paths.iter().map(String::as_str))?,
            // It was open when it was stored.
            until: Timestamp::MAX,
            reason: String::new(),
            by: Actor::default(),
            version: (String::new(), 0),
            created: None,
        }))
    }
}

impl RecordedAlternative {
    pub(crate) fn facts(&self, declared: Arc<DeclaredObject>) -> Option<Diff> {
        let changes = self.changes.iter().map(RecordedChange::facts).collect::<Option<_>>()?;
        let (fields, seal) = (declared.fields(), self.seal.clone());
        Some(Diff { declared, fields, changes, reason: VerdictReason::Unchanged, seal })
    }
}

impl RecordedDeclaration {
    /// An object of `release` with nothing but the stored parts.
    pub(crate) fn declared(&self, release: &ReleaseId) -> Option<DeclaredObject> {
        let map = |name: &str, texts: &BTreeMap<String, Value>| -> Map<String, Value> {
            let own = helms(release).into_iter().filter(|(of, ..)| *of == name);
            let own = own.map(|(_, key, text)| (key.to_owned(), Value::from(text)));
            own.chain(texts.iter().map(|(name, value)| (name.clone(), value.clone()))).collect()
        };
        let (labels, annotations) = (map("labels", &self.labels), map("annotations", &self.annotations));
        let fields = declare(&json!({"metadata": {"labels": labels, "annotations": annotations}}), None);
        let allow = AllowAnnotations { allow: self.allow.clone(), until: self.until.clone(), reason: None };
        let scale = self.scale.as_deref().map(str::parse).transpose().ok()?;
        // Nothing else about the kind is recorded, and no verdict reads it.
        let facts =
            scale.map(|path| Arc::new(KindFacts { scale_replicas_path: Some(path), ..KindFacts::default() }));
        Some(DeclaredObject {
            packed: fields.into(),
            allow: allow.allow.is_some().then(|| Box::new(allow)),
            version: self.version.as_str().into(),
            facts,
            keep: false,
            opted_out: false,
            weight: 0,
            digest: None,
        })
    }
}

impl RecordedChange {
    pub(crate) fn path(&self) -> Option<Path> {
        self.path.parse().ok()
    }

    fn facts(&self) -> Option<ChangedField> {
        let Self { path, is, kind, declared, old, new, cut: _ } = self;
        let (declared, old, new) = (declared.clone(), old.clone(), new.clone());
        let change = FieldChange { path: path.parse().ok()?, declared, old, new, agreement: *is };
        Some(ChangedField { change, kind: *kind, element: None })
    }
}

/// The most bytes that are stored of one edit.
pub const MOST: usize = 4 << 10;

/// Room for the text of most edits, in bytes.
const ROOM: usize = 2 << 10;

/// The most bytes of the JSON of a value that is kept.
const VALUE: usize = 120;

/// The most differences, and the most exceptions, that are kept of one edit.
const LIST: usize = 100;

/// The most labels, and the most annotations, that are kept.
const TEXTS: usize = 64;

/// The most bytes of the JSON of a label or an annotation that is kept.
const TEXT: usize = 256;

/// The label by which the API server names every namespace, since Kubernetes 1.21.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The edit that facts are about.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    pub object: &'a ObjectId,
    pub scale: bool,
    pub manager: &'a str,
    /// The policies in force, which know the labels of cluster and namespaces.
    pub resolver: &'a PolicyResolver,
    pub now: Timestamp,
}

/// The stored text of an edit.
pub fn text(facts: &JudgedFacts, recording: Recording<'_>) -> String {
    let recorded = match facts {
        JudgedFacts::Edit(facts) => recording.edit(facts).map(RecordedFacts::Edit),
        JudgedFacts::Record(facts) => Some(RecordedFacts::Record(recording.record_edit(facts))),
    };
    // Text and numbers can always be written.
    let text = |facts: &RecordedFacts| {
        let mut text = Vec::with_capacity(ROOM);
        serde_json::to_writer(&mut text, facts)
            .map(|()| String::from_utf8(text).unwrap_or_default())
            .unwrap_or_default()
    };
    recorded.map(|it| text(&it)).filter(|it| it.len() <= MOST).unwrap_or_else(|| text(&RecordedFacts::Cut))
}

impl Recording<'_> {
    /// `None` if there is more than can be stored.
    fn edit(&self, facts: &EditFacts) -> Option<RecordedEdit> {
        let EditFacts { claims, unheard, circumstances } = facts;
        let Circumstances { allowances, autoscalers, .. } = circumstances;
        let counts = |allowance: &Allowance| {
            allowance.open(self.now) && claims.iter().any(|it| allowance.is_for(self.object, &it.release))
        };
        let changes = claims.iter().flat_map(|it| &it.alternatives).map(|it| it.changes.len()).sum::<usize>();
        if changes > LIST || allowances.len() > LIST || autoscalers.len() > LIST {
            return None;
        }
        let is_scaled = !autoscalers.is_empty();
        let open = allowances.iter().filter(|allowance| counts(allowance));
        let allowances = open.map(|it| {
            let paths = it.grant.paths().take(LIST + 1).collect();
            RecordedAllowance { namespace: it.namespace.clone(), paths }
        });
        let autoscalers = autoscalers.iter().map(|it| RecordedAutoscaler {
            minimum: it.minimum,
            maximum: it.maximum,
            keda: it.by_keda,
            declared: it
                .declared_by
                .iter()
                .map(|by| (by.namespace.to_string(), by.name.to_string()))
                .collect(),
        });
        Some(RecordedEdit {
            claims: claims.iter().map(|claim| self.claim(claim, is_scaled)).collect(),
            unheard: *unheard,
            scale: self.scale,
            manager: self.manager.chars().take(TEXT).collect(),
            allowances: allowances.collect(),
            autoscalers: autoscalers.collect(),
            cluster: self.resolver.policies().cluster().clone(),
        })
    }

    fn record_edit(&self, facts: &RecordFacts) -> RecordedRecordEdit {
        let RecordFacts { revision, releases, falsified } = facts;
        RecordedRecordEdit {
            revision: *revision,
            releases: releases.iter().map(|release| self.release(release)).collect(),
            falsified: *falsified,
            cluster: self.resolver.policies().cluster().clone(),
        }
    }

    fn claim(&self, claim: &ClaimFacts, is_scaled: bool) -> RecordedClaim {
        let ClaimFacts { release, revision, pending, authorised, evidence, alternatives, unweighed } = claim;
        let of = |facts: &Diff| self.alternative(facts, release, is_scaled);
        RecordedClaim {
            release: self.release(release),
            revision: *revision,
            pending: *pending,
            authorised: *authorised,
            evidence: *evidence,
            alternatives: alternatives.iter().map(of).collect(),
            unweighed: *unweighed,
        }
    }

    fn release(&self, release: &ReleaseId) -> RecordedRelease {
        let [namespace, name] = [&release.namespace, &release.name].map(ToString::to_string);
        let mut labels = self.resolver.labels_of(&namespace);
        let unnamed = !labels.contains_key(NAMESPACE_NAME);
        if labels.get(NAMESPACE_NAME) == Some(&namespace) {
            labels.remove(NAMESPACE_NAME);
        }
        RecordedRelease { namespace, name, labels, unnamed }
    }

    fn alternative(&self, facts: &Diff, release: &ReleaseId, is_scaled: bool) -> RecordedAlternative {
        let Diff { declared, fields, changes, reason: _, seal } = facts;
        let mut recorded = RecordedDeclaration {
            version: declared.version.to_string(),
            allow: declared.allow.as_ref().and_then(|it| it.allow.clone()),
            until: declared.allow.as_ref().and_then(|it| it.until.clone()),
            scale: declared.scale().filter(|_| is_scaled).map(ToString::to_string),
            ..RecordedDeclaration::default()
        };
        recorded.cut |= !self.add_texts(fields, "labels", release, &mut recorded.labels);
        recorded.cut |= !self.add_texts(fields, "annotations", release, &mut recorded.annotations);
        let changes = changes.iter().map(|change| self.change(change)).collect();
        RecordedAlternative { declared: recorded, changes, seal: seal.clone() }
    }

    /// Adds the labels or annotations of a manifest, without Helm's own. Returns whether these are all.
    fn add_texts(
        &self,
        fields: &DeclaredFields,
        map: &str,
        release: &ReleaseId,
        texts: &mut BTreeMap<String, Value>,
    ) -> bool {
        let mut is_whole = true;
        let helms = helms(release);
        for (name, value) in fields.entries(&["metadata", map]) {
            if helms.iter().any(|(of, key, text)| *of == map && *key == name && value == *text) {
                continue;
            }
            let path = Path(["metadata", map, name].map(|it| Segment::Field(it.to_owned())).into());
            match shown::whole(self.object, &path, &value, TEXT).filter(|_| texts.len() < TEXTS) {
                Some(value) => drop(texts.insert(name.to_owned(), value)),
                None => is_whole = false,
            }
        }
        is_whole
    }

    fn change(&self, facts: &ChangedField) -> RecordedChange {
        let ChangedField { change: FieldChange { path, declared, old, new, agreement }, kind, .. } = facts;
        let mut cut = false;
        let mut keep = |value: &Option<Value>| {
            let value = value.as_ref()?;
            let kept = shown::whole(self.object, path, value, VALUE);
            cut |= kept.is_none();
            Some(kept.unwrap_or(Value::Null))
        };
        let [declared, old, new] = [keep(declared), keep(old), keep(new)];
        RecordedChange {
            path: path.pointer().to_owned(),
            is: *agreement,
            kind: *kind,
            declared,
            old,
            new,
            cut,
        }
    }
}

/// Helm's label and annotations, which every object of a release has.
fn helms(release: &ReleaseId) -> [(&'static str, &'static str, &str); 3] {
    [
        ("labels", MANAGED_BY.0, MANAGED_BY.1),
        ("annotations", RELEASE_NAME, &release.name),
        ("annotations", RELEASE_NAMESPACE, &release.namespace),
    ]
}
