//! The facts of an edit as the ledger stores them, and the verdict of other policies on them.
//!
//! No stored text has more than [`MOST`] bytes, whatever an edit or a manifest contains, and none holds a Secret's
//! value. A replay does not guess: if a verdict depends on data that was not stored, there is no verdict.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::diff::{ChangeKind, ChangedField, ClaimFacts, Diff, EditFacts, JudgedFacts};
use crate::edit::{
    Edit, EditOutcome, EvidenceKind, ObjectContext, ObjectDeclaration, ObjectOwner, Verdict, VerdictReason,
};
use crate::exceptions::ObjectExceptions;
use crate::judge::{Claim, decide};
use crate::records::{self, RecordFacts, RecordViolation};
use crate::{identities, shown};
use kubemoor_declare::catalog::KindFacts;
use kubemoor_declare::declare::declare;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{
    Actor, Autoscaler, MANAGED_BY, ObjectId, Operation, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId,
};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::{AllowAnnotations, DeclaredObject};
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::{Allowance, Grant};
use kubemoor_policy::compile::CompiledPolicy;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::resource::{SubjectKind, SubjectSpec};

/// The most declarations, and the most policies of one cluster, that are cached.
const REMEMBERED: usize = 10_000;

/// The policies by which recorded edits are judged.
pub struct Replay {
    defaults: Policy,
    accepted: Vec<Arc<CompiledPolicy>>,
    clusters: HashMap<Labels, ClusterPolicies>,
    /// The recorded declarations of objects: policies cache their rules for each of them.
    declared: HashMap<(ReleaseId, ObjectId, RecordedDeclaration), Arc<DeclaredObject>>,
}

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
    /// The first recorded declaration of the object, by which rules select; `None` for a record.
    pub declared: Option<Arc<DeclaredObject>>,
    pub falsified: Option<RecordViolation>,
}

/// Why a recorded edit cannot be judged by other policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ReplayError {
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
    /// A policy seals a path, and additions below it were not recorded.
    Seal,
    /// Only a dry run could tell whether a value is as declared, and none was made.
    Unsettled,
    /// Another release or manifest would have to be compared.
    Unevaluated,
}

/// The verdict of one release that was consulted.
struct ReplayedClaim {
    judged: (Verdict, ClaimFacts),
    policy: Arc<Policy>,
    /// The object as its first manifest declares it.
    declared: Option<Arc<DeclaredObject>>,
    /// The policy seals paths, and additions below them were not recorded.
    is_unsealed: bool,
}

impl Replay {
    /// Creates a replay by these policies; `defaults` apply where none of them sets a value.
    pub fn new(defaults: Policy, accepted: Vec<Arc<CompiledPolicy>>) -> Self {
        Self { defaults, accepted, clusters: HashMap::new(), declared: HashMap::new() }
    }

    /// The verdict on a recorded edit.
    ///
    /// # Errors
    /// The reason why there is no verdict.
    pub fn verdict(&mut self, past: PastEdit<'_>) -> Result<Replayed, ReplayError> {
        match past.facts {
            RecordedFacts::Edit(recorded) => self.edit(past, recorded),
            RecordedFacts::Record(recorded) => self.record_edit(past, recorded),
            RecordedFacts::Cut => Err(ReplayError::Cut),
        }
    }

    fn record_edit(
        &mut self,
        past: PastEdit<'_>,
        recorded: &RecordedRecordEdit,
    ) -> Result<Replayed, ReplayError> {
        let releases = recorded.releases.iter().map(|it| (it.id(), it.labels()));
        let policies: Vec<_> =
            releases.map(|(id, labels)| self.policy(&recorded.cluster, &id, labels)).collect();
        let names_groups = |policy: &Arc<Policy>| are_groups(&policy.exempt) || are_groups(&policy.operators);
        if !past.has_all_groups && policies.iter().any(names_groups) {
            return Err(ReplayError::Groups);
        }
        let releases = recorded.releases.iter().map(RecordedRelease::id).collect();
        let facts = RecordFacts { revision: recorded.revision, releases, falsified: recorded.falsified };
        let known = |release: &ReleaseId| {
            let found = facts.releases.iter().zip(&policies).find(|(it, _)| *it == release);
            found.map_or_else(|| Arc::new(self.defaults.clone()), |(_, policy)| Arc::clone(policy))
        };
        let (verdict, falsified) = records::decide(past.actor, &facts, known);
        Ok(Replayed { verdict, policy: policies.into_iter().next(), declared: None, falsified })
    }

    fn edit(&mut self, past: PastEdit<'_>, recorded: &RecordedEdit) -> Result<Replayed, ReplayError> {
        let circumstances = recorded.circumstances(past.object).ok_or(ReplayError::Unknown)?;
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
            field_manager: &recorded.manager,
            circumstances: &circumstances,
        };
        let claims = recorded.claims.iter().map(|claim| self.claim(past, &edit, &recorded.cluster, claim));
        let (mut judged, mut others) = (Vec::new(), Vec::new());
        for claim in claims.collect::<Result<Vec<_>, _>>()? {
            judged.push(claim.judged);
            others.push((claim.policy, claim.declared, claim.is_unsealed));
        }
        let is_unsealed = others.iter().any(|(.., is_unsealed)| *is_unsealed);
        let decision = decide(judged.into_iter());
        let by = recorded.claims.get(decision.index).zip(others.into_iter().nth(decision.index));
        let (claim, (policy, declared, _)) = by.ok_or(ReplayError::Unknown)?;
        let is_whole =
            recorded.unevaluated_claims == 0 && recorded.claims.iter().all(|it| it.uncompared_manifests == 0);
        check(&decision.verdict, claim.evidence, is_whole, is_unsealed)?;
        Ok(Replayed { verdict: decision.verdict, policy: Some(policy), declared, falsified: None })
    }

    /// The verdict of one release, unless it depends on data that was not stored.
    fn claim(
        &mut self,
        past: PastEdit<'_>,
        edit: &Edit<'_>,
        cluster: &Labels,
        claim: &RecordedClaim,
    ) -> Result<ReplayedClaim, ReplayError> {
        let RecordedClaim { revision, pending, authorised, evidence, .. } = *claim;
        let (object, release) = (past.object, claim.release.id());
        let policy = self.policy(cluster, &release, claim.release.labels());
        let declared: Vec<_> =
            claim.alternatives.iter().map(|it| self.declared(&release, object, &it.declared)).collect();
        // Other edits are never searched for additions.
        let may_add = past.operation != Operation::Delete && !identities::is_built_in(past.actor);
        let (mut alternatives, mut is_unsealed) = (Vec::new(), false);
        for (recorded, declared) in claim.alternatives.iter().zip(&declared) {
            if recorded.declared.cut && policy.reads_metadata() {
                return Err(ReplayError::Metadata);
            }
            let mut diff = recorded.diff(declared);
            let seal = policy.rules(object, declared).sealed.written();
            if seal != diff.seal {
                diff.changes.retain(|change| change.kind != ChangeKind::Added);
                is_unsealed |= seal.is_some() && may_add;
            }
            let of = ObjectDeclaration { object, release: &release, declared };
            let exceptions =
                ObjectExceptions::new(of, &policy, edit.circumstances, Some(past.actor), past.time);
            if !past.has_all_groups && (are_groups(&policy.exempt) || exceptions.depends_on_groups()) {
                return Err(ReplayError::Groups);
            }
            if diff.changes.iter().any(|it| exceptions.depends_on_positions(&it.change.path)) {
                return Err(ReplayError::Place);
            }
            if recorded.changes.iter().any(|it| it.cut && exceptions.depends_on_values(&it.path)) {
                return Err(ReplayError::Value);
            }
            alternatives.push((diff, exceptions));
        }
        let facts = ClaimFacts {
            release: release.clone(),
            revision,
            pending,
            authorised,
            evidence,
            alternatives: Vec::new(),
            uncompared_manifests: 0,
        };
        let judged = Claim { facts, policy: &policy }.judge(edit, alternatives.into_iter());
        Ok(ReplayedClaim { judged, declared: declared.into_iter().next(), policy, is_unsealed })
    }

    /// The policy of a release in a namespace with these `labels`, in a cluster with the labels `cluster`.
    fn policy(&mut self, cluster: &Labels, release: &ReleaseId, labels: Labels) -> Arc<Policy> {
        let Self { defaults, accepted, clusters, .. } = self;
        let of_cluster = clusters.entry(cluster.clone()).or_insert_with(|| ClusterPolicies {
            policies: Policies::new(defaults.clone(), cluster, accepted.iter().cloned()),
            resolved: HashMap::new(),
        });
        of_cluster.policy(release, labels)
    }

    fn declared(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        recorded: &RecordedDeclaration,
    ) -> Arc<DeclaredObject> {
        if self.declared.len() >= REMEMBERED {
            self.declared.clear();
        }
        let key = (release.clone(), object.clone(), recorded.clone());
        let declared = self.declared.entry(key).or_insert_with(|| Arc::new(recorded.declared(release)));
        Arc::clone(declared)
    }
}

impl ClusterPolicies {
    fn policy(&mut self, release: &ReleaseId, labels: Labels) -> Arc<Policy> {
        match self.resolved.get(release) {
            Some((of, policy)) if *of == labels => return Arc::clone(policy),
            _ => {}
        }
        let policy = Arc::new(self.policies.resolve(release, &labels));
        if self.resolved.len() >= REMEMBERED {
            self.resolved.clear();
        }
        self.resolved.insert(release.clone(), (labels, Arc::clone(&policy)));
        policy
    }
}

/// Checks that more stored data could not have changed the verdict.
fn check(
    verdict: &Verdict,
    evidence: EvidenceKind,
    is_whole: bool,
    is_unsealed: bool,
) -> Result<(), ReplayError> {
    if verdict.passes() {
        return if is_unsealed { Err(ReplayError::Seal) } else { Ok(()) };
    }
    if !is_whole {
        return Err(ReplayError::Unevaluated);
    }
    if verdict.outcome == EditOutcome::Allow {
        return Ok(());
    }
    let fields = verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    let is_doubt = evidence != EvidenceKind::Canonical
        && fields.clone().count() > 0
        && fields.clone().all(|field| field.in_doubt);
    match verdict.arguable || (is_doubt && verdict.outcome.is_refusal()) {
        true => Err(ReplayError::Unsettled),
        false => Ok(()),
    }
}

fn are_groups(subjects: &[SubjectSpec]) -> bool {
    subjects.iter().any(|subject| subject.kind == SubjectKind::Group)
}

impl ReplayError {
    pub fn as_str(self) -> &'static str {
        self.into()
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
    claims: Vec<RecordedClaim>,
    #[serde(default, skip_serializing_if = "is_default")]
    unevaluated_claims: usize,
    /// It used the `scale` subresource.
    #[serde(default, skip_serializing_if = "is_default")]
    scale: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    manager: String,
    /// The exceptions that were open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allowances: Vec<RecordedAllowance>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    autoscalers: Vec<RecordedAutoscaler>,
    /// The labels of the cluster.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    cluster: Labels,
}

/// The facts of an edit of a Helm record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRecordEdit {
    revision: u64,
    /// The releases that the record may describe.
    releases: Vec<RecordedRelease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    falsified: Option<RecordViolation>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    cluster: Labels,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedRelease {
    namespace: String,
    name: String,
    /// The labels of its namespace, without the one that names it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
    /// The namespace is not known to have the label that names it: none has it before Kubernetes 1.21.
    #[serde(default, skip_serializing_if = "is_default")]
    unnamed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedClaim {
    release: RecordedRelease,
    revision: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pending: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    authorised: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    evidence: EvidenceKind,
    alternatives: Vec<RecordedAlternative>,
    #[serde(default, skip_serializing_if = "is_default")]
    uncompared_manifests: usize,
}

/// The changes of one edit, compared with one manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedAlternative {
    declared: RecordedDeclaration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<RecordedChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// The parts of a manifest's object by which rules select objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedDeclaration {
    version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, Value>,
    /// Some labels or annotations are not stored.
    #[serde(default, skip_serializing_if = "is_default")]
    cut: bool,
    /// The exceptions of the manifest itself, and their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The path of the replicas of an object that an autoscaler scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<Path>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedChange {
    path: Path,
    is: FieldAgreement,
    #[serde(default, skip_serializing_if = "is_default")]
    kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    declared: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    old: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    new: Option<Value>,
    /// Some values are not stored: null stands for them.
    #[serde(default, skip_serializing_if = "is_default")]
    cut: bool,
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
    #[serde(default, skip_serializing_if = "is_default")]
    keda: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    declared: Vec<(String, String)>,
}

/// Reads a value that is present as `Some`, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl RecordedEdit {
    /// The other facts about `object` at that time.
    fn circumstances(&self, object: &ObjectId) -> Option<ObjectContext> {
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
        Some(ObjectContext {
            allowances: allowances.collect::<Option<_>>()?,
            autoscalers: autoscalers.collect(),
            ..ObjectContext::default()
        })
    }
}

impl RecordedRelease {
    fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    /// The labels of its namespace.
    fn labels(&self) -> Labels {
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
    fn diff(&self, declared: &Arc<DeclaredObject>) -> Diff {
        let changes = self.changes.iter().map(RecordedChange::changed_field).collect();
        Diff { changes, ..Diff::empty(declared, VerdictReason::Unchanged, self.seal.clone()) }
    }
}

impl RecordedDeclaration {
    /// An object of `release` with nothing but the stored parts.
    fn declared(&self, release: &ReleaseId) -> DeclaredObject {
        let map = |name: &str, texts: &BTreeMap<String, Value>| -> Map<String, Value> {
            let own = helms(release).into_iter().filter(|(of, ..)| *of == name);
            let own = own.map(|(_, key, text)| (key.to_owned(), Value::from(text)));
            own.chain(texts.iter().map(|(name, value)| (name.clone(), value.clone()))).collect()
        };
        let (labels, annotations) = (map("labels", &self.labels), map("annotations", &self.annotations));
        let fields = declare(&json!({"metadata": {"labels": labels, "annotations": annotations}}), None);
        let allow = AllowAnnotations { allow: self.allow.clone(), until: self.until.clone(), reason: None };
        // Nothing else about the kind is recorded, and no verdict reads it.
        let facts = self
            .scale
            .clone()
            .map(|path| Arc::new(KindFacts { scale_replicas_path: Some(path), ..KindFacts::default() }));
        DeclaredObject {
            packed: fields.into(),
            allow: allow.allow.is_some().then(|| Box::new(allow)),
            version: self.version.as_str().into(),
            facts,
            keep: false,
            opted_out: false,
            weight: 0,
            digest: None,
        }
    }
}

impl RecordedChange {
    fn changed_field(&self) -> ChangedField {
        let Self { path, is, kind, declared, old, new, cut: _ } = self.clone();
        ChangedField { change: FieldChange { path, declared, old, new, agreement: is }, kind, element: None }
    }
}

/// The most bytes that are stored of one edit.
pub const MOST: usize = 4 << 10;

/// The most bytes of the JSON of a value that is kept.
const VALUE: usize = 120;

/// The most differences, and the most exceptions, that are kept of one edit.
const LIST: usize = 100;

/// The most labels, and the most annotations, that are kept.
const TEXTS: usize = 64;

/// The most bytes of the JSON of a label or an annotation that is kept.
const TEXT: usize = 256;

/// The label by which the API server names every namespace, since Kubernetes 1.21.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

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
    // Strings and numbers can always be serialized.
    let text = |facts: &RecordedFacts| serde_json::to_string(facts).unwrap_or_default();
    recorded.map(|it| text(&it)).filter(|it| it.len() <= MOST).unwrap_or_else(|| text(&RecordedFacts::Cut))
}

impl Recording<'_> {
    /// `None` if there is more than can be stored.
    fn edit(&self, facts: &EditFacts) -> Option<RecordedEdit> {
        let EditFacts { claims, unevaluated_claims, circumstances } = facts;
        let ObjectContext { allowances, autoscalers, .. } = circumstances;
        let counts = |allowance: &Allowance| {
            allowance.is_active(self.now)
                && claims.iter().any(|it| allowance.is_for(self.object, &it.release))
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
            unevaluated_claims: *unevaluated_claims,
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
        let ClaimFacts {
            release,
            revision,
            pending,
            authorised,
            evidence,
            alternatives,
            uncompared_manifests,
        } = claim;
        let of = |facts: &Diff| self.alternative(facts, release, is_scaled);
        RecordedClaim {
            release: self.release(release),
            revision: *revision,
            pending: *pending,
            authorised: *authorised,
            evidence: *evidence,
            alternatives: alternatives.iter().map(of).collect(),
            uncompared_manifests: *uncompared_manifests,
        }
    }

    fn release(&self, release: &ReleaseId) -> RecordedRelease {
        let [namespace, name] = [&release.namespace, &release.name].map(ToString::to_string);
        let mut labels = self.resolver.known_labels(&namespace).unwrap_or_default();
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
            scale: declared.scale().filter(|_| is_scaled).cloned(),
            ..RecordedDeclaration::default()
        };
        recorded.cut |= !self.add_texts(fields, "labels", release, &mut recorded.labels);
        recorded.cut |= !self.add_texts(fields, "annotations", release, &mut recorded.annotations);
        let changes = changes.iter().map(|change| self.change(change)).collect();
        RecordedAlternative { declared: recorded, changes, seal: seal.clone() }
    }

    /// Adds the labels or annotations of a manifest, without Helm's own. Returns whether all of them were added.
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
            let path = Path::from_names(["metadata", map, name]);
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
        RecordedChange { path: path.clone(), is: *agreement, kind: *kind, declared, old, new, cut }
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
