//! The resource types `DriftPolicy` and `DriftAllowance` (`kubemoor.dev/v1alpha1`). `kubemoor manifests crds` prints
//! their schemas; `compile` and `allowance` check the rest.
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use kubemoor_declare::model::{DriftMode, EditsMode};

/// The most rules of one list, subjects of one rule, and globs of one list.
pub const MAX_RULES: usize = 100;

/// The longest reason, in characters, as the API server counts the length of a text in a schema.
pub const MAX_REASON: usize = 1024;

/// The most paths of one rule.
pub const MAX_PATHS: usize = 64;

/// The most paths of all rules of one policy. They are compared with each other, and stored for each object.
pub const MAX_ALL_PATHS: usize = 1000;

/// The most different regular expressions of one policy: each takes a quarter of a MiB, and milliseconds to compile.
pub const MAX_REGEXES: usize = 100;

/// The longest part of a target that is a regular expression, the longest selector and the longest cron expression, in
/// bytes.
pub const MAX_REGEX: usize = 256;
pub const MAX_SELECTOR: usize = 4096;
pub const MAX_CRON: usize = 256;

/// A regular expression for the paths of rules, as far as a schema can check them.
const PATH: &str = r"^(\*|(/[^/]+)+)$";

/// The same for paths that include `delete`.
const GRANTED_PATH: &str = r"^(\*|delete|(/[^/]+)+)$";

/// A regular expression for the names of namespaces.
const NAMESPACE: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A regular expression for the globs of releases and namespaces.
const GLOB: &str = r"^[-a-z0-9.*?]+$";

/// Rules for changes to, and drift of, the releases that the policy matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "DriftPolicy",
    plural = "driftpolicies",
    doc = "Rules for changes to, and drift of, the Helm releases that the policy matches.",
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
    /// If several policies match a release, the one with the highest priority decides each
    /// single value; among equal priorities, the first by name.
    #[serde(default)]
    pub priority: i32,
    /// The releases that this policy applies to; all releases if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<ReleaseSelector>,
    /// The clusters in which this policy is in force, by the labels that are set with
    /// --cluster-label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// How to answer a change that causes drift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<EditsMode>,
    /// How to treat drift in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftMode>,
    /// Additional objects that repairs may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairSpec>,
    /// The autoscalers that may change the number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscalers: Option<AllowedAutoscalers>,
    /// Fields that are never compared, repaired or reverted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub ignore: Vec<IgnoreRule>,
    /// Standing exceptions: who may change which fields, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub allow: Vec<AllowRule>,
    /// Paths below which anything that the release does not declare counts as drift too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub seal: Vec<SealRule>,
    /// Users whose changes are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub exempt: Vec<SubjectSpec>,
    /// Users who may write the records of the release; if empty, everyone whom RBAC permits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub operators: Vec<SubjectSpec>,
    /// The names of the notifiers that get messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 63)))]
    pub notify: Vec<String>,
    /// Namespaces that may hold the records of releases in other namespaces, as with
    /// storageNamespace of Flux. Everyone who may write Secrets in such a namespace can
    /// act as Helm in the others. Applies whatever `releases` selects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub storage: Vec<StoragePair>,
}

/// Selects releases; all given conditions must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseSelector {
    /// Globs of release names: `*` matches any text, `?` any one character.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 253), regex(pattern = GLOB)))]
    pub names: Vec<String>,
    /// Globs of the namespaces of the releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES), inner(length(min = 1, max = 63), regex(pattern = GLOB)))]
    pub namespaces: Vec<String>,
    /// Selects releases by the labels of their namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// A Kubernetes label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that the labels must meet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelExpression>,
}

/// A requirement that a label must meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelExpression {
    /// The label key.
    pub key: String,
    /// How the label relates to the values.
    pub operator: SelectorOperator,
    /// The values; must be empty for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

/// How a label relates to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the words of the Kubernetes API")]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Additional objects that repairs may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepairSpec {
    /// Roles, role bindings, webhook configurations and CustomResourceDefinitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbac: Option<bool>,
    /// Cluster-scoped objects, and objects in namespaces other than the release's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_scoped: Option<bool>,
}

/// The autoscalers that may change the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllowedAutoscalers {
    /// Every autoscaler that targets the workload, whatever its range.
    Any,
    /// Only autoscalers that a release declares.
    Declared,
}

/// Fields that are never compared, repaired or reverted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IgnoreRule {
    /// The objects that the rule applies to; all objects if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// JSON Pointers, in which a segment may be [key=value] or *; a single * means
    /// every field.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = PATH)))]
    pub paths: Vec<String>,
}

/// Paths below which anything that the release does not declare counts as drift too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SealRule {
    /// The objects that the rule applies to; all objects if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Paths as in `ignore`. The status and most of the metadata cannot be sealed.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = PATH)))]
    pub paths: Vec<String>,
}

/// Selects objects as Flux does: by regular expressions that must match the whole value,
/// and by selectors over the labels and annotations of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSpec {
    /// The API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REGEX))]
    pub group: Option<String>,
    /// The API version in the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REGEX))]
    pub version: Option<String>,
    /// The kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REGEX))]
    pub kind: Option<String>,
    /// The object's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REGEX))]
    pub namespace: Option<String>,
    /// The object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REGEX))]
    pub name: Option<String>,
    /// A selector over the labels of the manifest, such as key=value,key in (a,b),!key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_SELECTOR))]
    pub label_selector: Option<String>,
    /// A selector over the annotations of the manifest, in the same syntax.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_SELECTOR))]
    pub annotation_selector: Option<String>,
}

impl TargetSpec {
    /// Its regular expressions by field name; empty if a field is not set.
    pub(crate) fn regexes(&self) -> [(&'static str, &str); 5] {
        [
            ("group", &self.group),
            ("version", &self.version),
            ("kind", &self.kind),
            ("namespace", &self.namespace),
            ("name", &self.name),
        ]
        .map(|(field, text)| (field, text.as_deref().unwrap_or_default()))
    }

    /// Its selectors by field name, in the same way.
    pub(crate) fn selectors(&self) -> [(&'static str, &str); 2] {
        [("labelSelector", &self.label_selector), ("annotationSelector", &self.annotation_selector)]
            .map(|(field, text)| (field, text.as_deref().unwrap_or_default()))
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.regexes().into_iter().chain(self.selectors())
    }
}

/// A standing exception.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowRule {
    /// The name of the exception in messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The objects that the rule applies to; all objects if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Paths as in `ignore`; `delete` allows the deletion of the object.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = GRANTED_PATH)))]
    pub paths: Vec<String>,
    /// When the exception applies; always if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// Users who may make the changes; if empty, everyone whom RBAC permits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RULES))]
    pub subjects: Vec<SubjectSpec>,
}

/// Recurring time windows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleSpec {
    /// When a window opens, in cron syntax: minute, hour, day of month, month, day of week.
    #[schemars(length(min = 9, max = MAX_CRON))]
    pub cron: String,
    /// How long the window stays open, such as 10h or 1h30m; at most 744h.
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"))]
    pub duration: String,
    /// The IANA name of the time zone of the cron expression; UTC if omitted.
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
    /// User, Group or ServiceAccount.
    pub kind: SubjectKind,
    /// The full name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the words of the Kubernetes API")]
pub enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

/// A namespace that may hold the records of releases in other namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoragePair {
    /// The namespace that holds the records.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAMESPACE))]
    pub records: String,
    /// The namespaces of the releases, as full names.
    #[schemars(length(min = 1, max = MAX_RULES), inner(length(min = 1, max = 63), regex(pattern = NAMESPACE)))]
    pub releases: Vec<String>,
}

/// The state of the policy, written by the guard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftPolicyStatus {
    /// The generation that the conditions describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted: whether this policy is in force as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

/// A Kubernetes condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// The aspect that the condition describes, such as Accepted.
    pub r#type: String,
    /// True, False or Unknown.
    pub status: String,
    /// The reason, as one word.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
    /// When the status last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Timestamp,
    /// The generation that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A temporary exception: these fields of one object may change until a given time.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "DriftAllowance",
    plural = "driftallowances",
    doc = "Allows changes to named fields of one object of a Helm release until a given time.",
    namespaced,
    shortname = "da",
    category = "kubemoor",
    derive = "PartialEq",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.object.kind"),
    printcolumn(name = "Object", type_ = "string", json_path = ".spec.object.name"),
    printcolumn(name = "Paths", type_ = "string", json_path = ".spec.paths"),
    printcolumn(name = "Until", type_ = "string", json_path = ".spec.until"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.requestedBy.user"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriftAllowanceSpec {
    /// The object.
    pub object: AllowedObject,
    /// JSON Pointers, in which a segment may be [key=value] or *; a single * means every
    /// field, `delete` the deletion of the object.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = GRANTED_PATH)))]
    pub paths: Vec<String>,
    /// When the exception ends (RFC 3339); at most 31 days after it was created.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// The reason for the exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REASON))]
    pub reason: Option<String>,
    /// The user who asked for the exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<Requester>,
}

/// The object that an exception applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedObject {
    /// The API group; empty for the core group.
    // No default in the schema: Kubernetes 1.20 treats an empty string as null.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace, which must be that of the allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The user who asked for an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requester {
    /// The user.
    pub user: String,
    /// The user's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}
