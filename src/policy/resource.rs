//! The resource types `DriftPolicy` and `DriftAllowance`
//! (`kubemoor.dev/v1alpha1`), as people write them.
//!
//! Entry points: [`DriftPolicy`], [`DriftAllowance`]. Invariant: plain data;
//! what the types cannot say is checked by `compile`. Their schemas are what
//! `kubemoor manifests crds` prints.
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

mod allowance;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::allowance::{AllowedObject, DriftAllowance, DriftAllowanceSpec, Requester};
use crate::model::{DriftMode, EditsMode};

/// The most rules of one list, subjects of one rule, and globs of one list.
pub const MAX_RULES: usize = 100;

/// The most paths of one rule.
pub const MAX_PATHS: usize = 64;

/// What a path of a rule looks like, as far as a schema can say.
const PATH: &str = r"^(\*|(/[^/]+)+)$";

/// The same where the deletion may be named as well.
const GRANTED_PATH: &str = r"^(\*|delete|(/[^/]+)+)$";

/// What the name of a namespace looks like.
const NAMESPACE: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// What a glob of a release or a namespace looks like.
const GLOB: &str = r"^[-a-z0-9.*?]+$";

/// Decides what becomes of edits and drift of the releases that it matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "DriftPolicy",
    plural = "driftpolicies",
    doc = "Decides what becomes of edits and drift of the Helm releases that it matches.",
    category = "kubemoor",
    status = "DriftPolicyStatus",
    derive = "PartialEq",
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Edits", type_ = "string", json_path = ".spec.edits"),
    printcolumn(name = "Drift", type_ = "string", json_path = ".spec.drift"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriftPolicySpec {
    /// Which policy a single value comes from where several match a release:
    /// the highest; of equals, the first by name.
    #[serde(default)]
    pub priority: i32,
    /// Which releases this policy is for; all, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<ReleaseSelector>,
    /// In which clusters this policy is in force: those whose labels, as the
    /// guard is told by --cluster-label, match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// What becomes of an edit that drifts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<EditsMode>,
    /// What becomes of drift that the loop finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftMode>,
    /// What else a repair may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairSpec>,
    /// Which autoscalers may move replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscalers: Option<Autoscalers>,
    /// What is never compared and never touched by a repair or a revert.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub ignore: Vec<IgnoreRule>,
    /// What may be changed locally, by whom and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub allow: Vec<AllowRule>,
    /// Where additions that the release does not declare are drift as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub seal: Vec<SealRule>,
    /// Whose edits are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub exempt: Vec<SubjectSpec>,
    /// Who may write the release's records; anyone with the right, where
    /// nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub operators: Vec<SubjectSpec>,
    /// The notifiers that are told, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 63)))]
    pub notify: Vec<String>,
    /// Which namespaces may hold the records of releases in others, as Flux
    /// does with storageNamespace. Whoever may write Secrets in such a
    /// namespace can act as Helm in the others. Holds whatever releases says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub storage: Vec<StoragePair>,
}

/// Which releases; every part that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseSelector {
    /// Globs of release names: `*` is any text, `?` any letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 253), regex(pattern = GLOB)))]
    pub names: Vec<String>,
    /// Globs of the namespaces of releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 63), regex(pattern = GLOB)))]
    pub namespaces: Vec<String>,
    /// The labels of the namespaces of releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// A selector of labels, as everywhere in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements of labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelExpression>,
}

/// One requirement of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// How its value is held against the values.
    pub operator: SelectorOperator,
    /// The values; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

/// How a label is held against values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the words of the Kubernetes API")]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// What else a repair may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepairSpec {
    /// Roles, bindings, webhook configurations and definitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbac: Option<bool>,
    /// Objects without a namespace, and in other namespaces than the release's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_scoped: Option<bool>,
}

/// Which autoscalers may move replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Autoscalers {
    /// Any that targets the workload.
    #[default]
    Any,
    /// Those that a release declares.
    Declared,
}

/// What is never compared and never touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IgnoreRule {
    /// In which objects; in all, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Which paths: JSON Pointers whose segments may be [key=value] or *; or *
    /// alone for everything.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = PATH)))]
    pub paths: Vec<String>,
}

/// Where additions that the release does not declare are drift as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SealRule {
    /// In which objects; in all, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Below which paths, as in ignore. The status and most of the metadata cannot be sealed.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = PATH)))]
    pub paths: Vec<String>,
}

/// Objects, with the names and the meaning that Flux gives them: regular
/// expressions that match whole values, and selector expressions over the
/// manifest's labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSpec {
    /// The API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub group: Option<String>,
    /// The version in which the manifest spells the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub version: Option<String>,
    /// The kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub kind: Option<String>,
    /// The object's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub namespace: Option<String>,
    /// The object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub name: Option<String>,
    /// The manifest's labels: key=value, key in (a,b), !key, with commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub label_selector: Option<String>,
    /// The manifest's annotations, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub annotation_selector: Option<String>,
}

/// A standing allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowRule {
    /// What the allowance is called in messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// In which objects; in all, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Which paths, as in ignore; delete for the deletion of the object.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = GRANTED_PATH)))]
    pub paths: Vec<String>,
    /// When; always, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// By whom; by anyone with the right, where nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub subjects: Vec<SubjectSpec>,
}

/// Windows of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleSpec {
    /// When a window opens: minute, hour, day of month, month, day of week.
    #[schemars(length(min = 9, max = 256))]
    pub cron: String,
    /// How long it stays open, such as 10h or 1h30m; at most 744h.
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"))]
    pub duration: String,
    /// Whose clock the cron reads, by its IANA name; UTC, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// A user, a group or a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(self.kind == 'ServiceAccount') == (has(self.namespace) && self.namespace != '')",
    "message": "a ServiceAccount has a namespace; users and groups have none",
}]))]
pub struct SubjectSpec {
    /// Of which sort.
    pub kind: SubjectKind,
    /// The whole name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// Of which sort a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the words of the Kubernetes API")]
pub enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

/// Records in one namespace that speak for releases in others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoragePair {
    /// The namespace that holds the records.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub records: String,
    /// The namespaces that the releases are in, each by its whole name.
    #[schemars(length(min = 1, max = MAX_RULES), inner(length(min = 1, max = 63), regex(pattern = NAMESPACE)))]
    pub releases: Vec<String>,
}

/// What the guard says of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftPolicyStatus {
    /// The generation that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted: whether this policy is in force as it is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A condition, as everywhere in Kubernetes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said of.
    pub r#type: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for a person.
    pub message: String,
    /// Since when.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Timestamp,
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
