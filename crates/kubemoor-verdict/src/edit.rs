//! An edit, the known facts about its object, and the verdict on it: plain values, independent of the wire format.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exceptions::matching_exemption;
use crate::shown::{Difference, Shown};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Actor, Autoscaler, ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::DeclaredObject;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::signing::Declaration;

#[derive(Clone, Debug)]
pub struct Edit<'a> {
    pub operation: Operation,
    pub actor: &'a Actor,
    pub object: &'a ObjectId,
    /// The object before; for `scale`, an object with only the replicas, at the kind's own path.
    pub old: Option<&'a Value>,
    pub new: Option<&'a Value>,
    /// The version in which the objects are sent; `None` if that is not the version of the kind, as for `scale`.
    pub version: Option<&'a str>,
    pub scale: bool,
    pub owner: ObjectOwner,
    pub dry_run: bool,
    /// The field manager that the request names; clients can choose any name.
    pub field_manager: &'a str,
    pub circumstances: &'a ObjectContext,
}

/// The release that an object's Helm annotations name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// The object's metadata is not available, as for `scale`.
    Unknown,
    Nobody,
    Release(ReleaseId),
}

/// The rules by which edits are judged, besides the releases.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub resolver: &'a PolicyResolver,
    /// The user name under which Kubemoor itself writes, where it is known.
    pub own_account: Option<&'a str>,
}

/// The result of a dry run of the declared manifest; [`EvidenceKind`] is the same without the object.
#[derive(Clone, Copy, Debug, strum::EnumDiscriminants)]
#[strum_discriminants(name(EvidenceKind), derive(Default, Serialize, Deserialize))]
#[strum_discriminants(serde(rename_all = "kebab-case"))]
pub enum DryRunEvidence<'a> {
    /// No dry run was made.
    #[strum_discriminants(default)]
    None,
    /// The object as the API server would store the declared manifest.
    Canonical(&'a Value),
    /// A dry run was made and gave no answer.
    Unavailable,
    /// Dry runs are not possible: there is no cluster, or no permission to write anything.
    Nowhere,
}

/// The verdict on a change.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Verdict {
    /// The outcome.
    pub outcome: EditOutcome,
    /// The reason.
    pub reason: VerdictReason,
    /// The release and the fields that decide, shared with the ledger; omitted if nothing drifts.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Arc<Grounds>>,
    /// Whether a dry run may change the verdict: a denial depends on the format of a value, or a Helm
    /// operation is running.
    #[serde(skip)]
    pub arguable: bool,
}

/// The outcome of a change, from lenient to strict.
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
    /// The change passes and is not recorded.
    Allow,
    /// The change passes and is recorded.
    Record,
    /// The change passes and is recorded, and the user gets a warning.
    Warn,
    /// Fields that would drift are reverted, and the rest of the change passes. It is recorded, and
    /// the user gets a warning.
    Revert,
    /// The change is denied and recorded.
    Deny,
}

/// The reason for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Reason")]
#[strum(serialize_all = "kebab-case")]
pub enum VerdictReason {
    /// No release declares the object.
    NotDeclared,
    /// The request is the guard's own dry run.
    Probe,
    /// The object is in Kubemoor's own namespace, where only the reconcile loop finds drift.
    OwnNamespace,
    /// The object is being deleted already.
    BeingDeleted,
    /// A built-in identity, or the guard itself, does its job.
    Identity,
    /// The policy exempts the user.
    Exempt,
    /// The manifest opts the object out.
    OptedOut,
    /// No declared field changed.
    Unchanged,
    /// The changed fields match the manifest.
    AsDeclared,
    /// A policy ignores the changed fields.
    Ignored,
    /// An autoscaler changes the replicas within its range.
    Autoscaled,
    /// An exception allows the change.
    Allowed,
    /// The state of the release record permits the change.
    InBand,
    /// An annotation requests an allowance that is not granted.
    Request,
    /// A dry run gave no answer while a Helm operation is running, or dry runs are not possible.
    Unsettled,
    /// A declared or sealed field would differ from the manifest.
    Drift,
    /// A declared object would be deleted.
    Deletion,
    /// Declared objects would be deleted with it.
    Dependants,
    /// The change would falsify Helm's record.
    Record,
    /// The change leaves Helm's record correct.
    RecordIntact,
    /// The request is too large to be judged.
    TooLarge,
    /// The object is nested too deeply to be judged.
    TooDeep,
    /// Too many large requests arrived at once.
    Busy,
    /// The request did not arrive, or could not be read, in time.
    Late,
}

/// The release and the fields that decide a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Grounds {
    /// The release that declares the object.
    pub release: ReleaseId,
    /// The revision of its record.
    pub revision: u64,
    /// The fields that drift; empty for deletions.
    pub fields: Vec<FieldFinding>,
    /// The names of the exceptions and rules that allow the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<String>,
}

/// One field that drifts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Finding")]
pub struct FieldFinding {
    /// The field.
    #[schemars(with = "String")]
    pub path: Path,
    /// Its declared value; omitted if the manifest has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    /// Its value before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Shown>,
    /// Its value after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Shown>,
    /// For long or nested values, the first place where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    /// Whether the new value may be the declared one in another format.
    pub in_doubt: bool,
    /// Whether the manifest does not declare it, and a policy seals a path above it.
    #[serde(skip)]
    pub added: bool,
}

impl Grounds {
    pub(crate) fn new(release: &ReleaseId, revision: u64, fields: Vec<FieldFinding>) -> Self {
        Self { release: release.clone(), revision, fields, exceptions: Vec::new() }
    }
}

impl FieldFinding {
    /// A field with its declared, old and new values, as far as a user may see them.
    pub fn new(object: &ObjectId, path: &Path, [declared, old, new]: [Option<&Value>; 3]) -> Self {
        let shown = |value: Option<&Value>| value.map(|value| Shown::new(object, path, value));
        let said = shown(declared);
        // The old value is usually the declared one.
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

    /// A field that is listed without its values.
    pub fn untouched(path: Path) -> Self {
        Self { path, ..Self::default() }
    }

    pub fn of_change(object: &ObjectId, change: &FieldChange) -> Self {
        let FieldChange { path, declared, old, new, agreement } = change;
        let (in_doubt, added) = (*agreement == FieldAgreement::Doubt, agreement.is_addition());
        let values = [declared.as_ref(), old.as_ref(), new.as_ref()];
        Self { in_doubt, added, ..Self::new(object, path, values) }
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

    /// The verdict on an edit that drifts and is still allowed; it is recorded if the policy records drift.
    pub fn excused(policy: &Policy, reason: VerdictReason, grounds: Grounds) -> Self {
        Self { grounds: Some(Arc::new(grounds)), ..Self::unjudged(policy, reason) }
    }

    /// The verdict on an edit that could not be judged, although the user did nothing wrong: it is allowed, and
    /// recorded if the policy records drift.
    pub fn unjudged(policy: &Policy, reason: VerdictReason) -> Self {
        let verdict = Self::by_mode(policy, reason, None);
        Self { outcome: verdict.outcome.min(EditOutcome::Record), ..verdict }
    }

    /// The verdict of the strictest of these policies on an edit that drifts and is judged as a whole; allowed if all
    /// of them exempt the actor. `None` without policies.
    pub(crate) fn strictest(
        actor: &Actor,
        reason: VerdictReason,
        governed: impl Iterator<Item = (Grounds, Arc<Policy>)> + Clone,
    ) -> Option<Self> {
        let judging = governed.clone().filter(|(_, policy)| matching_exemption(policy, actor).is_none());
        if let Some((grounds, policy)) = judging.max_by_key(|(_, policy)| policy.edits) {
            return Some(Self::by_mode(&policy, reason, Some(grounds)));
        }
        governed.clone().next().map(|(grounds, policy)| {
            let exceptions = matching_exemption(&policy, actor).into_iter().collect();
            Self::excused(&policy, VerdictReason::Exempt, Grounds { exceptions, ..grounds })
        })
    }

    /// Whether the edit is allowed regardless of other releases.
    pub fn passes(&self) -> bool {
        self.grounds.is_none() || matches!(self.reason, VerdictReason::Exempt | VerdictReason::Allowed)
    }

    /// The verdict by the policy's mode on an edit that drifts and is judged as a whole. `Revert` denies it: a revert
    /// would leave nothing of it.
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

    /// Whether an edit is not stored as the user sent it.
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
    /// Its last range; `None` if no guard saw it.
    pub range: Option<(i32, i32)>,
}

/// The facts about one object at present, besides its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectContext {
    pub allowances: Vec<Arc<Allowance>>,
    /// The ranges of the autoscalers that scale it.
    pub autoscalers: Vec<Autoscaler>,
    /// An autoscaler of the object that disappeared after the last change of its release. Its removal was not meant to
    /// change the replicas, so a live object without another autoscaler may keep them.
    pub departed: Option<DepartedAutoscaler>,
    /// Values of the object that a dry run has settled.
    pub settled: Option<Arc<ObjectSettledValues>>,
}

impl ObjectDeclaration<'_> {
    /// Whether the new value of a field is among the values that a dry run has `settled` for this declaration.
    pub(crate) fn is_settled(&self, settled: Option<&ObjectSettledValues>, change: &FieldChange) -> bool {
        let Self { object, release, declared } = self;
        settled.zip(declared.digest.as_ref()).is_some_and(|(settled, digest)| {
            let declaration = Declaration { release, object, digest, seal: None };
            settled.holds(&declaration, &change.path, change.new.as_ref())
        })
    }
}
