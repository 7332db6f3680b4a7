//! One review, prepared for judgement: its subject, the releases that claim the object, and the parts of its objects
//! that their declarations need.
//!
//! [`ReviewCase::judge`] is pure and runs again whenever the index has changed, so a case holds the text of the review
//! and no data of the index. A claim that does not count is not checked.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use smol_str::SmolStr;

use super::review::{AdmissionRequest, GroupVersionResource, ReviewHead};
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::{Actor, ObjectId, Operation, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_declare::prune::ObjectPruner;
use kubemoor_helm::index::Index;
use kubemoor_helm::record::{PackedRecord, RecordError, parse_record_name};
use kubemoor_helm::release::{ObjectDeclarations, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::Webhook;
use kubemoor_verdict::claims::{
    self, CascadeScope, counting, is_declared_in_version, is_local, retain_operators,
};
use kubemoor_verdict::diff::JudgedFacts;
use kubemoor_verdict::edit::{
    DryRunEvidence, Edit, EditOutcome, ObjectContext, ObjectOwner, Rules, Verdict, VerdictReason,
};
use kubemoor_verdict::judge::judge;
use kubemoor_verdict::message::{self, EditMessage, MessageContext};
use kubemoor_verdict::records::{self, RecordEdit, Stored};
use kubemoor_verdict::sealed;

#[derive(Clone, Debug, PartialEq)]
pub struct ReviewSubject {
    /// The object; for a subresource, its parent. It has no name for the items of a
    /// `deletecollection` until the old object is read.
    pub object: ObjectId,
    pub aspect: Aspect,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Aspect {
    Object,
    /// The `scale` subresource, with the path of the replicas.
    Scale(Path),
    /// One of Helm's records.
    Record,
    /// The objects that would be deleted along with it.
    Dependants(CascadeScope),
}

pub struct ReviewCase<'a> {
    pub subject: ReviewSubject,
    /// The uid of the request, which ledger and log contain.
    pub(super) review_uid: String,
    /// The resource of the object; for a subresource, its parent's.
    pub(super) resource: GroupVersionResource,
    pub operation: Operation,
    pub actor: Actor,
    pub dry_run: bool,
    pub(super) version: SmolStr,
    /// The field manager that the request names; empty if it names none.
    pub(super) field_manager: SmolStr,
    old: Option<Excerpt<'a>>,
    new: Option<Excerpt<'a>>,
    pub(super) granted: Option<Arc<Allowance>>,
    /// The release that owns an object whose metadata is not sent, as far as it is known.
    pub owner: ObjectOwner,
    /// The releases named, before and after, by labels that make a Secret or ConfigMap a record: Helm reads it as one,
    /// whatever its name.
    pub(super) labelled: Vec<String>,
    /// The records in the objects, if the subject is a record; decoded once for all judgements.
    pub(super) held: Option<HeldRecords>,
}

/// An object is nested too deeply to be judged. This must not become an error, which may let the edit pass.
struct TooDeep;

#[derive(Clone, Copy)]
pub struct JudgementInputs<'a> {
    pub index: &'a RwLock<Index>,
    pub circumstances: &'a ObjectContext,
    pub rules: &'a Rules<'a>,
    pub evidence: DryRunEvidence<'a>,
    pub now: Timestamp,
}

/// A verdict with its message, and the releases on whose records it depends.
pub struct Judgement {
    pub verdict: Verdict,
    pub message: EditMessage,
    /// The releases whose records must be read before a denial is sent, in order.
    pub required_releases: Vec<ReleaseId>,
    /// Another release whose records may be read, although it decides nothing yet.
    pub named: Option<ReleaseId>,
    /// The claims that count, the owner's first.
    pub claims: Vec<Arc<Release>>,
    /// The facts of the edit, by which other policies can judge it.
    pub facts: Option<JudgedFacts>,
    /// The uid of the present object; empty before it exists.
    pub uid: String,
    /// Values of the object that dry runs have settled.
    pub settled: Option<Arc<ObjectSettledValues>>,
    /// The reason why the request by annotations is denied; `None` if it is not.
    pub request_refused: Option<String>,
}

impl ReviewSubject {
    /// The subject in a review's head. `None` if such a subject is never judged.
    pub fn from_head(head: &ReviewHead, index: &Index, driver: RecordDriver) -> Option<Self> {
        let operation = head.operation?;
        match head.subresource.as_deref() {
            None => {}
            Some("scale") => {
                let (kind, scale) = index.kind_of_resource(&head.resource.group, &head.resource.resource)?;
                let object = head.object_of(&head.resource.group, kind);
                return Some(Self { object, aspect: Aspect::Scale(scale?.clone()) });
            }
            // These can change labels and annotations of some kinds.
            Some("status" | "finalize" | "approval") => {}
            Some(_) => return None,
        }
        let object = head.object();
        let aspect = if is_record(&object, driver) {
            Aspect::Record
        } else {
            match claims::cascade_scope(&object).filter(|_| operation == Operation::Delete) {
                Some(taken) => Aspect::Dependants(taken),
                None => Aspect::Object,
            }
        };
        Some(Self { object, aspect })
    }

    /// Whether a review of `version` about this subject can be denied: all other requests are allowed without reading
    /// the objects.
    pub fn can_be_denied(&self, version: &str, index: &Index) -> bool {
        let claims = || index.claims(&self.object);
        match self.aspect {
            Aspect::Record | Aspect::Dependants(_) => true,
            Aspect::Scale(_) => !claims().is_empty(),
            Aspect::Object => {
                let speaks =
                    |claim: &Arc<Release>| is_declared_in_version(claim, &self.object, Some(version));
                self.object.name.is_empty()
                    // With a new owner, the garbage collector could delete what depends on the object.
                    || claims::cascade_scope(&self.object).is_some()
                    || claims().into_iter().any(speaks)
            }
        }
    }

    /// Whether the labels of its object may make it a record: Helm finds the records of a release by them.
    pub(super) fn may_be_labelled(&self, driver: RecordDriver) -> bool {
        self.aspect == Aspect::Object && holds_records(&self.object, driver)
    }

    pub fn webhook(&self) -> Webhook {
        match self.aspect {
            Aspect::Object => Webhook::Edits,
            Aspect::Scale(_) => Webhook::Scale,
            Aspect::Record => Webhook::Records,
            Aspect::Dependants(_) => Webhook::Deletes,
        }
    }
}

impl<'a> ReviewCase<'a> {
    pub fn new(subject: ReviewSubject, request: AdmissionRequest<'a>, driver: RecordDriver) -> Self {
        let mut case = Self {
            subject,
            review_uid: request.head.uid.to_string(),
            resource: request.head.resource,
            operation: request.head.operation.unwrap_or(Operation::Update),
            actor: request.actor,
            dry_run: request.dry_run,
            version: request.head.kind.version,
            field_manager: request.field_manager.unwrap_or_default(),
            old: request.old_object,
            new: request.object,
            granted: None,
            owner: ObjectOwner::Unknown,
            labelled: Vec::new(),
            held: None,
        };
        if case.subject.object.name.is_empty()
            && let Some(name) = [&case.old, &case.new].into_iter().flatten().find_map(name)
        {
            case.subject.object.name = name.into();
            if is_record(&case.subject.object, driver) {
                case.subject.aspect = Aspect::Record;
            }
        }
        if holds_records(&case.subject.object, driver) {
            case.labelled = [&case.old, &case.new].into_iter().flatten().filter_map(labelled_for).collect();
        }
        case
    }

    /// Whether Helm reads the object as a record, by its name or by its labels.
    pub(super) fn is_record(&self) -> bool {
        self.subject.aspect == Aspect::Record || !self.labelled.is_empty()
    }

    pub(super) fn texts(&self) -> [Option<&Excerpt<'a>>; 2] {
        [self.old.as_ref(), self.new.as_ref()]
    }

    /// The objects before and after; null where one cannot be read.
    pub(super) fn values(&self) -> [Option<Value>; 2] {
        self.texts().map(|text| Some(text?.value().unwrap_or_default()))
    }

    /// Judges the review by the present index. No content of an object leads to an error.
    pub fn judge(&self, basis: JudgementInputs<'_>) -> Judgement {
        if self.subject.aspect == Aspect::Record {
            return self.judge_record(basis.index, basis.rules);
        }
        let judgement = self.judge_by(self.claims(basis.index, basis.rules.resolver), basis);
        if self.labelled.is_empty() {
            return judgement;
        }
        // A release may declare it too; the stricter verdict applies.
        let record = self.judge_record(basis.index, basis.rules);
        let is_stricter = record.verdict.outcome > judgement.verdict.outcome;
        if is_stricter || judgement.verdict.reason == VerdictReason::NotDeclared { record } else { judgement }
    }

    pub(super) fn judge_by(&self, claims: Vec<Arc<Release>>, basis: JudgementInputs<'_>) -> Judgement {
        let JudgementInputs { index, circumstances, rules, evidence, now } = basis;
        let taken = self.taken();
        let dependants = taken
            .as_ref()
            .map(|taken| claims::dependants(taken, &index.read(), rules, now))
            .unwrap_or_default();
        if claims.is_empty() && dependants.is_empty() {
            return Judgement::new(Verdict::allow(VerdictReason::NotDeclared));
        }
        let (old, new) = match self.objects(&claims, rules) {
            Ok(objects) => objects,
            Err(_) => {
                let policy = policy_for_object(rules.resolver, &self.subject.object, &claims);
                let verdict = Verdict::by_mode(&policy, VerdictReason::TooDeep, None);
                let message = message::of_beyond_judgement(&self.subject.object, false);
                return Judgement { message, claims, ..Judgement::new(verdict) };
            }
        };
        let edit = Edit {
            operation: self.operation,
            actor: &self.actor,
            object: &self.subject.object,
            old: old.as_ref(),
            new: new.as_ref(),
            version: self.version(),
            scale: matches!(self.subject.aspect, Aspect::Scale(_)),
            owner: owner_of(&claims, &self.subject.object),
            dry_run: self.dry_run,
            field_manager: &self.field_manager,
            circumstances,
        };
        if !dependants.is_empty() || matches!(self.subject.aspect, Aspect::Dependants(_)) {
            let verdict = claims::judge_deletion(&edit, &claims, &dependants, rules, now);
            let message = match verdict.reason {
                VerdictReason::Dependants => {
                    message::of_dependants(&self.subject.object, self.operation, &dependants)
                }
                _ => self.message(&verdict, &claims, rules),
            };
            let rests_on = verdict.grounds.iter().map(|grounds| grounds.release.clone());
            let rests_on = rests_on.chain(claims.iter().map(|claim| claim.id.clone())).collect();
            return Judgement { message, required_releases: rests_on, claims, ..Judgement::new(verdict) };
        }
        let (verdict, facts) = judge(&edit, &claims, rules, evidence, now);
        let message = self.message(&verdict, &claims, rules);
        let looks = verdict.outcome != EditOutcome::Allow;
        let rests_on = claims.iter().filter(|_| looks).map(|claim| claim.id.clone()).collect();
        let named = looks.then(|| self.newly_named(&claims)).flatten();
        let uid = old.as_ref().and_then(|old| old.get("metadata")?.get("uid")?.as_str()).unwrap_or_default();
        Judgement {
            message,
            required_releases: rests_on,
            named,
            claims,
            facts: facts.map(JudgedFacts::Edit),
            uid: uid.to_owned(),
            settled: circumstances.settled.clone(),
            ..Judgement::new(verdict)
        }
    }

    /// The objects that are deleted with this one by the request, or by the garbage collector after it.
    fn taken(&self) -> Option<CascadeScope> {
        match &self.subject.aspect {
            Aspect::Dependants(taken) => Some(taken.clone()),
            Aspect::Object if self.operation == Operation::Update => {
                claims::cascade_scope(&self.subject.object).filter(|_| self.adds_owner())
            }
            _ => None,
        }
    }

    /// Calls `say` with the sources of a verdict's message.
    pub(super) fn in_context(
        &self,
        verdict: &Verdict,
        claims: &[Arc<Release>],
        resolver: &PolicyResolver,
        say: impl FnOnce(&MessageContext<'_>) -> EditMessage,
    ) -> EditMessage {
        let object = &self.subject.object;
        let Some(grounds) = verdict.grounds.as_ref().filter(|_| verdict.outcome != EditOutcome::Allow) else {
            return EditMessage::default();
        };
        let release = claims.iter().map(|claim| &**claim).find(|claim| claim.id == grounds.release);
        let declared = release.and_then(|release| release.declared(object));
        let policy = resolver.policy(&grounds.release);
        let (policy, operation) = (Some(&*policy), self.operation);
        say(&MessageContext { object, operation, policy, declared, release, live: self.texts() })
    }

    /// The message about an edit of a declared object, with the flaws of the annotations by which
    /// the manifest would allow it.
    fn message(&self, verdict: &Verdict, claims: &[Arc<Release>], rules: &Rules<'_>) -> EditMessage {
        self.in_context(verdict, claims, rules.resolver, |context| {
            let mut message = context.of_edit(verdict);
            if let (Some(policy), Some(declared)) = (context.policy, context.declared) {
                message.add_flaws(&policy.rules(context.object, declared).flaws);
            }
            message
        })
    }

    /// Judges an edit of one of Helm's records. A denial depends on the known records only if the last deployed record
    /// would be deleted, also by the garbage collector.
    fn judge_record(&self, index: &RwLock<Index>, rules: &Rules<'_>) -> Judgement {
        let object = &self.subject.object;
        let read;
        let held = match &self.held {
            Some(held) => held,
            None => {
                read = HeldRecords::decode(self.values());
                &read
            }
        };
        let edit = RecordEdit {
            operation: self.operation,
            actor: &self.actor,
            object,
            old: held.old.as_ref(),
            new: held.new.as_ref(),
            labelled: &self.labelled,
            adds_owner: self.operation == Operation::Update && self.adds_owner(),
            being_deleted: self.is_unchanged_while_deleting(),
        };
        let index = index.read();
        let facts = match records::facts(&edit, &index, rules) {
            Ok(facts) => facts,
            Err(reason) => return Judgement::new(Verdict::allow(reason)),
        };
        let policy = |release: &ReleaseId| rules.resolver.policy(release);
        let (verdict, falsified) = records::decide(&self.actor, &facts, policy);
        let message = falsified.map(|falsified| message::of_record(object, falsified)).unwrap_or_default();
        let rests_on = match falsified {
            Some(records::RecordViolation::LastDeployed) => records::names(object)
                .map(|(stored, _)| index.release_stored_as(stored))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        Judgement {
            message,
            required_releases: rests_on,
            facts: Some(JudgedFacts::Record(facts)),
            ..Judgement::new(verdict)
        }
    }

    /// Whether the object is being deleted, and the edit does not change what Helm reads of it.
    fn is_unchanged_while_deleting(&self) -> bool {
        let [old, new] = self.texts();
        let Some(old) = old.and_then(Excerpt::value) else { return false };
        if old.pointer("/metadata/deletionTimestamp").is_none() {
            return false;
        }
        match new.and_then(Excerpt::value) {
            Some(new) => ["/metadata/labels", "/data"].iter().all(|it| old.pointer(it) == new.pointer(it)),
            None => self.operation == Operation::Delete,
        }
    }

    /// Reads the parts of the objects that the claims need: of an update, those that differ.
    fn objects(
        &self,
        claims: &[Arc<Release>],
        rules: &Rules<'_>,
    ) -> Result<(Option<Value>, Option<Value>), TooDeep> {
        if self.subject.aspect == Aspect::Object && is_sealed(rules.resolver, &self.subject.object, claims) {
            let read = |text: &Option<Excerpt<'_>>| {
                text.as_ref().map(|text| text.value().ok_or(TooDeep)).transpose()
            };
            return Ok((read(&self.old)?, read(&self.new)?));
        }
        let declarations = claims.iter().filter_map(|claim| claim.objects.get(&self.subject.object));
        let declared: Vec<Arc<DeclaredFields>> =
            declarations.flat_map(ObjectDeclarations::all).map(|declared| declared.fields()).collect();
        let declared: Vec<&DeclaredFields> = declared.iter().map(Arc::as_ref).collect();
        if let (Some(old), Some(new), Aspect::Object) = (&self.old, &self.new, &self.subject.aspect)
            && let Some((old, new)) = ObjectPruner::new(&declared).pair(old, new)
            // An object that a release may adopt is compared as a whole.
            && !claims::may_adopt(&old, &new)
        {
            return Ok((Some(old), Some(new)));
        }
        Ok((self.read(self.old.as_ref(), &declared)?, self.read(self.new.as_ref(), &declared)?))
    }

    /// Whether an update adds an owner reference to the object, or may do so.
    fn adds_owner(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return false };
        ObjectPruner::new(&[]).pair(old, new).is_none_or(|(old, new)| sealed::adds_owner(&old, &new))
    }

    fn read(
        &self,
        text: Option<&Excerpt<'_>>,
        declared: &[&DeclaredFields],
    ) -> Result<Option<Value>, TooDeep> {
        let Some(text) = text else { return Ok(None) };
        if let Aspect::Scale(replicas) = &self.subject.aspect {
            let scale = text.value().ok_or(TooDeep)?;
            // An absent number is zero: the API server leaves zeros out.
            let count = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| Value::from(0));
            return Ok(Some(nest(&replicas.0, count)));
        }
        ObjectPruner::new(declared).read(text).or_else(|| text.value()).ok_or(TooDeep).map(Some)
    }

    /// The claims that count, by the known owner of the object: the owner's first, the others in
    /// the order in which they appeared.
    pub(super) fn claims(&self, index: &RwLock<Index>, resolver: &PolicyResolver) -> Vec<Arc<Release>> {
        let mut claims = self.declaring_claims(index);
        if claims.len() > 1 || claims.iter().any(|claim| !is_local(claim, &self.subject.object)) {
            let owner = self.owner();
            claims = counting(&claims, &self.subject.object, &owner).cloned().collect();
            retain_operators(&mut claims, &owner, resolver);
            claims.sort_by_key(|claim| !matches!(&owner, ObjectOwner::Release(owner) if claim.id == *owner));
        }
        if claims.is_empty() { self.adopter(index) } else { claims }
    }

    /// If no claim counts, the claim of the release that only the new object names: the release adopts the object, as
    /// by a creation. The old object may name a release that does not declare it, since any user can write that.
    fn adopter(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let [Some(old), Some(new)] = self.texts() else { return Vec::new() };
        let Some(owner) = named_by(new).filter(|owner| named_by(old).as_ref() != Some(owner)) else {
            return Vec::new();
        };
        self.declaring_claims(index).into_iter().filter(|claim| claim.id == owner).collect()
    }

    /// The claims of other namespaces, which count only if the object names them.
    pub(super) fn foreign_claims(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let mut claims = self.declaring_claims(index);
        claims.retain(|claim| !is_local(claim, &self.subject.object));
        claims
    }

    /// The release that the old object names, or the created one. A Scale names none.
    fn owner(&self) -> ObjectOwner {
        if let Aspect::Scale(_) = self.subject.aspect {
            return self.owner.clone();
        }
        let [old, new] = self.texts();
        let Some(object) = old.or(new) else { return ObjectOwner::Nobody };
        named_by(object).map_or(ObjectOwner::Nobody, ObjectOwner::Release)
    }

    /// The release that the new object names besides those that count, if its claim would count: it
    /// may have taken over the object a moment ago.
    fn newly_named(&self, claims: &[Arc<Release>]) -> Option<ReleaseId> {
        let named = named_by(self.new.as_ref()?)?;
        let would_count = self.subject.object.namespace.as_ref() == Some(&named.namespace)
            || self.owner() == ObjectOwner::Release(named.clone());
        (would_count && claims.iter().all(|claim| claim.id != named)).then_some(named)
    }

    /// The version of the review, where it matters: a Scale is the same for all versions of a kind, and so is the
    /// effect of a deletion on other objects.
    pub(super) fn version(&self) -> Option<&str> {
        (self.subject.aspect == Aspect::Object).then_some(&*self.version)
    }

    /// All claims of releases that declare the object in the version of this review.
    fn declaring_claims(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let object = &self.subject.object;
        let index = index.read();
        let claims = index.claims(object).into_iter();
        claims.filter(|claim| is_declared_in_version(claim, object, self.version())).cloned().collect()
    }
}

impl Judgement {
    fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            message: EditMessage::default(),
            required_releases: Vec::new(),
            named: None,
            claims: Vec::new(),
            facts: None,
            uid: String::new(),
            settled: None,
            request_refused: None,
        }
    }
}

fn is_record(object: &ObjectId, driver: RecordDriver) -> bool {
    holds_records(object, driver) && parse_record_name(&object.name).is_some()
}

/// Whether the object is of the kind that holds Helm's records.
fn holds_records(object: &ObjectId, driver: RecordDriver) -> bool {
    let kind = match driver {
        RecordDriver::Secret => "Secret",
        RecordDriver::Configmap => "ConfigMap",
    };
    object.group.is_empty() && object.kind == kind
}

/// The release for whose records Helm finds the object by its labels.
fn labelled_for(object: &Excerpt<'_>) -> Option<String> {
    let [owner, name] = object.texts(&["metadata", "labels"], ["owner", "name"]);
    name.filter(|_| owner.as_deref() == Some("helm"))
}

fn name(text: &Excerpt<'_>) -> Option<String> {
    let [name] = text.texts(&["metadata"], ["name"]);
    name
}

/// The claims that count whatever the object contains: for an edit of which only the front is
/// known.
pub(super) fn local_claims(object: &ObjectId, version: Option<&str>, index: &Index) -> Vec<Arc<Release>> {
    let counts =
        |claim: &&Arc<Release>| is_local(claim, object) && is_declared_in_version(claim, object, version);
    index.claims(object).into_iter().filter(counts).cloned().collect()
}

fn owner_of(claims: &[Arc<Release>], object: &ObjectId) -> ObjectOwner {
    let foreign = claims.iter().find(|claim| !is_local(claim, object));
    foreign.map_or(ObjectOwner::Nobody, |claim| ObjectOwner::Release(claim.id.clone()))
}

/// Whether a policy seals a part of the object: then undeclared fields count too.
fn is_sealed(resolver: &PolicyResolver, object: &ObjectId, claims: &[Arc<Release>]) -> bool {
    claims.iter().any(|claim| {
        let policy = resolver.policy(&claim.id);
        let declarations = claim.objects.get(object).into_iter();
        declarations
            .flat_map(ObjectDeclarations::all)
            .any(|declared| !policy.rules(object, declared).sealed.is_empty())
    })
}

/// The policy of an object with these claims; without any claim, the policy of its namespace.
pub(super) fn policy_for_object(
    resolver: &PolicyResolver,
    object: &ObjectId,
    claims: &[Arc<Release>],
) -> Arc<Policy> {
    match claims.first() {
        Some(release) => resolver.policy(&release.id),
        None => {
            let namespace = object.namespace.clone().unwrap_or_default();
            resolver.policy(&ReleaseId { namespace, name: "".into() })
        }
    }
}

fn named_by(object: &Excerpt<'_>) -> Option<ReleaseId> {
    let [namespace, name] = object.texts(&["metadata", "annotations"], [RELEASE_NAMESPACE, RELEASE_NAME]);
    Some(ReleaseId { namespace: namespace?.into(), name: name?.into() })
}

fn nest(path: &[Segment], value: Value) -> Value {
    path.iter().rev().fold(value, |value, segment| match segment {
        Segment::Field(name) => Value::Object([(name.clone(), value)].into_iter().collect()),
        _ => value,
    })
}

#[derive(Default)]
pub(super) struct HeldRecords {
    old: Option<Stored>,
    new: Option<Stored>,
}

impl HeldRecords {
    /// Decodes the records in the objects of a review, before and after. This takes time, and for a
    /// moment some three times the memory of a record's text.
    pub(super) fn decode(objects: [Option<Value>; 2]) -> Self {
        let [old, new] = objects.map(|object| object.as_ref().map(stored));
        Self { old, new }
    }
}

fn stored(object: &Value) -> Stored {
    let label = |name: &str| object.pointer("/metadata/labels")?.get(name)?.as_str().map(str::to_owned);
    // Its digest tells whether a manifest changes.
    let payload = match PackedRecord::from_object(object) {
        Some(packed) => packed.decode(0).map(|(record, _)| record),
        None => Err(RecordError::Missing { field: "release" }),
    };
    Stored {
        owner: label("owner"),
        name: label("name"),
        version: label("version"),
        status: label("status"),
        payload,
    }
}

#[cfg(test)]
mod tests;
