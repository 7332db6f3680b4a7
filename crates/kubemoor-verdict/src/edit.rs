//! An edit under judgement, what is known about its object, and the verdict: plain values, without the wire format
//! that brought them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exceptions::exempting;
use crate::shown::{Difference, Shown};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Actor, Autoscaler, ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::DeclaredObject;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::Settled;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::signing::Declaration;

#[derive(Clone, Debug)]
pub struct Edit<'a> {
    pub operation: Operation,
    pub actor: &'a Actor,
    pub object: &'a ObjectId,
    /// The object before; for `scale`, an object with nothing but the replicas where the kind keeps them.
    pub old: Option<&'a Value>,
    pub new: Option<&'a Value>,
    /// The version in which the objects are sent; `None` where it says nothing about them, as for `scale`.
    pub version: Option<&'a str>,
    pub scale: bool,
    pub owner: ObjectOwner,
    pub dry_run: bool,
    /// The field manager that the request names; clients can choose any name.
    pub field_manager: &'a str,
    pub circumstances: &'a Circumstances,
}

/// The release that an object's Helm annotations name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// The object's metadata is not available, as for `scale`.
    Unknown,
    Nobody,
    Release(ReleaseId),
}

/// The rules for the judgement of an edit, besides the releases.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub resolver: &'a PolicyResolver,
    /// The user name under which Kubemoor itself writes, where it is known.
    pub own_account: Option<&'a str>,
}

/// The arbiter's answer about the object under judgement; [`EvidenceKind`] is the same without the object.
#[derive(Clone, Copy, Debug, strum::EnumDiscriminants)]
#[strum_discriminants(name(EvidenceKind), derive(Default, Serialize, Deserialize))]
#[strum_discriminants(serde(rename_all = "kebab-case"))]
pub enum DryRunEvidence<'a> {
    /// It was not asked.
    #[strum_discriminants(default)]
    None,
    /// The object as the API server would store the declared manifest.
    Canonical(&'a Value),
    /// It was asked and could not tell.
    Unavailable,
    /// There is no arbiter: no cluster, or no permission to write anything.
    Nowhere,
}

/// What becomes of an edit, and why.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Verdict {
    /// What becomes of it.
    pub outcome: EditOutcome,
    /// Why.
    pub reason: VerdictReason,
    /// What it hangs on, shared with the ledger; none where nothing drifts.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Arc<Grounds>>,
    /// The arbiter may turn this: a refusal hangs on how a value is spelled, or
    /// meets an operation that is under way.
    #[serde(skip)]
    pub arguable: bool,
}

/// What becomes of an edit. Ordered from lenient to strict.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
)]
#[schemars(rename = "Outcome")]
#[strum(const_into_str)]
pub enum EditOutcome {
    /// It passes, unrecorded.
    Allow,
    /// It passes and is recorded.
    Record,
    /// It passes, is recorded, and the editor is warned.
    Warn,
    /// It passes once what drifts is set back; it is recorded, and the editor
    /// is warned.
    Revert,
    /// It is refused and recorded.
    Deny,
}

/// Why an edit is judged as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Reason")]
#[strum(serialize_all = "kebab-case")]
pub enum VerdictReason {
    /// No release declares the object.
    NotDeclared,
    /// A dry run of the arbiter.
    Probe,
    /// The object is in Kubemoor's own namespace, which only the loop guards.
    OwnNamespace,
    /// The object is being deleted already.
    BeingDeleted,
    /// A built-in identity does its work.
    Identity,
    /// The policy exempts the editor.
    Exempt,
    /// The manifest opts the object out.
    OptedOut,
    /// No declared field changed.
    Unchanged,
    /// What changed is as the manifest declares it.
    AsDeclared,
    /// A policy ignores what changed.
    Ignored,
    /// An autoscaler moves the replicas within its range.
    Autoscaled,
    /// An allowance is open.
    Allowed,
    /// The state of the record authorises it.
    InBand,
    /// An annotation asks for an allowance that is not granted.
    Request,
    /// The arbiter could not tell, and an operation is under way; or there is
    /// no arbiter.
    Unsettled,
    /// A declared field would not be as declared.
    Drift,
    /// A declared object would be deleted.
    Deletion,
    /// Declared objects would be deleted along.
    Dependants,
    /// Helm's record would be falsified.
    Record,
    /// Helm's record stays true.
    RecordIntact,
    /// The request is larger than what is judged.
    TooLarge,
    /// The object is nested deeper than what is judged.
    TooDeep,
    /// Too many large requests at once.
    Busy,
    /// The request did not arrive, or could not be read, in time.
    Late,
}

/// What a verdict hangs on.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Grounds {
    /// The release that declares the object.
    pub release: ReleaseId,
    /// The revision of its record.
    pub revision: u64,
    /// The fields that drift; empty for deletions.
    pub fields: Vec<FieldFinding>,
    /// What lets the edit pass all the same: exceptions and rules, as people name them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<String>,
}

/// One field that drifts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Finding")]
pub struct FieldFinding {
    /// The field.
    #[schemars(with = "String")]
    pub path: Path,
    /// Its declared value; none where the manifest has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    /// Its value before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Shown>,
    /// Its value after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Shown>,
    /// Where the values first differ, of long or nested ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    /// Whether another spelling of the declared value is not ruled out.
    pub doubt: bool,
    /// Whether nobody declares it, and a policy seals what it lies below.
    #[serde(skip)]
    pub added: bool,
}

impl Grounds {
    pub(crate) fn new(release: &ReleaseId, revision: u64, fields: Vec<FieldFinding>) -> Self {
        Self { release: release.clone(), revision, fields, exceptions: Vec::new() }
    }
}

impl FieldFinding {
    /// A field with the declared value, the one before and the one after, as far as a person may see them.
    pub fn new(object: &ObjectId, path: &Path, [declared, old, new]: [Option<&Value>; 3]) -> Self {
        let shown = |value: Option<&Value>| value.map(|value| Shown::new(object, path, value));
        let said = shown(declared);
        // An edit usually starts from what is declared.
        let was = if old == declared { said.clone() } else { shown(old) };
        let is = shown(new);
        let is_masked = [&said, &was, &is].into_iter().flatten().any(Shown::is_masked);
        let difference = match new {
            Some(new) if !is_masked => Difference::find(object, path, [declared, old], new),
            _ => None,
        };
        let difference = difference.map(Box::new);
        Self { declared: said, old: was, new: is, difference, ..Self::untouched(path.clone()) }
    }

    /// A field with its declared value that is named for another reason.
    pub fn untouched(path: Path) -> Self {
        Self { path, ..Self::default() }
    }

    pub fn of_change(object: &ObjectId, change: &FieldChange) -> Self {
        let FieldChange { path, declared, old, new, agreement } = change;
        let (doubt, added) = (*agreement == FieldAgreement::Doubt, agreement.is_addition());
        let values = [declared.as_ref(), old.as_ref(), new.as_ref()];
        Self { doubt, added, ..Self::new(object, path, values) }
    }
}

impl ObjectOwner {
    pub fn named_by(object: &Value) -> Self {
        ReleaseId::named_by(object).map_or(Self::Nobody, Self::Release)
    }

    pub fn release(self) -> Option<ReleaseId> {
        if let Self::Release(release) = self { Some(release) } else { None }
    }
}

impl Verdict {
    pub fn allow(reason: VerdictReason) -> Self {
        Self { outcome: EditOutcome::Allow, reason, grounds: None, arguable: false }
    }

    /// The verdict on an edit that drifts and is allowed all the same; it is recorded where drift is.
    pub fn excused(policy: &Policy, reason: VerdictReason, grounds: Grounds) -> Self {
        Self { grounds: Some(Arc::new(grounds)), ..Self::unjudged(policy, reason) }
    }

    /// The verdict on an edit that could not be judged through no fault of its author: it is allowed, and recorded
    /// where drift is.
    pub fn unjudged(policy: &Policy, reason: VerdictReason) -> Self {
        let verdict = Self::by_mode(policy, reason, None);
        Self { outcome: verdict.outcome.min(EditOutcome::Record), ..verdict }
    }

    /// The verdict of the strictest of these policies on an edit that drifts and is judged as a whole; allowed where all
    /// of them exempt the actor. `None` where there are none.
    pub(crate) fn strictest(
        actor: &Actor,
        reason: VerdictReason,
        governed: impl Iterator<Item = (Grounds, Arc<Policy>)> + Clone,
    ) -> Option<Self> {
        let judging = governed.clone().filter(|(_, policy)| exempting(policy, actor).is_none());
        if let Some((grounds, policy)) = judging.max_by_key(|(_, policy)| policy.edits) {
            return Some(Self::by_mode(&policy, reason, Some(grounds)));
        }
        governed.clone().next().map(|(grounds, policy)| {
            let exceptions = exempting(&policy, actor).into_iter().collect();
            Self::excused(&policy, VerdictReason::Exempt, Grounds { exceptions, ..grounds })
        })
    }

    /// Whether the edit is allowed regardless of other releases.
    pub fn passes(&self) -> bool {
        self.grounds.is_none() || matches!(self.reason, VerdictReason::Exempt | VerdictReason::Allowed)
    }

    /// The verdict of the policy's mode on an edit that drifts and is judged as a whole: a revert would leave nothing
    /// of it.
    pub fn by_mode(policy: &Policy, reason: VerdictReason, grounds: Option<Grounds>) -> Self {
        use kubemoor_declare::model::EditsMode;
        let outcome = match policy.edits {
            EditsMode::Allow => EditOutcome::Allow,
            EditsMode::Record => EditOutcome::Record,
            EditsMode::Warn => EditOutcome::Warn,
            EditsMode::Revert | EditsMode::Deny => EditOutcome::Deny,
        };
        Self { outcome, reason, grounds: grounds.map(Arc::new), arguable: false }
    }
}

impl EditOutcome {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Whether an edit is not stored as the user wants it.
    pub fn is_refusal(self) -> bool {
        self >= Self::Revert
    }
}

impl VerdictReason {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One object, as a manifest of its release declares it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectDeclaration<'a> {
    pub object: &'a ObjectId,
    pub release: &'a ReleaseId,
    pub declared: &'a Arc<DeclaredObject>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepartedAutoscaler {
    /// The releases that declared it.
    pub declared_by: Vec<ReleaseId>,
    /// The last range; `None` of one that no guard saw.
    pub range: Option<(i32, i32)>,
}

/// The present knowledge about one object, besides its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circumstances {
    pub allowances: Vec<Arc<Allowance>>,
    /// The ranges of the autoscalers that scale it.
    pub autoscalers: Vec<Autoscaler>,
    /// An autoscaler that scaled it has disappeared since its release last changed: its removal was not meant to change
    /// the replicas, so a live object that nothing else scales keeps them.
    pub departed: Option<DepartedAutoscaler>,
    /// Values of it that a dry run has settled.
    pub settled: Option<Arc<Settled>>,
}

impl ObjectDeclaration<'_> {
    /// Whether the new value of a field is among the values that a dry run has `settled` for this declaration.
    pub(crate) fn is_settled(&self, settled: Option<&Settled>, change: &FieldChange) -> bool {
        let Self { object, release, declared } = self;
        settled.zip(declared.digest.as_ref()).is_some_and(|(settled, digest)| {
            let declaration = Declaration { release, object, digest, seal: None };
            settled.holds(&declaration, &change.path, change.new.as_ref())
        })
    }
}
