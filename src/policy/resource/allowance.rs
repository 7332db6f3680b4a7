//! The resource type `DriftAllowance`, as people and the guard write it.
//!
//! Entry point: [`DriftAllowance`]. Invariant: plain data; what the type cannot
//! say is checked by [`crate::policy::allowance`].
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GRANTED_PATH, MAX_PATHS};

/// Lets named fields of one object change until a time.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "DriftAllowance",
    plural = "driftallowances",
    doc = "Lets named fields of one object of a Helm release be changed until a time.",
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
    /// Which paths: JSON Pointers whose segments may be [key=value] or *; *
    /// alone for everything; delete for the deletion of the object.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = GRANTED_PATH)))]
    pub paths: Vec<String>,
    /// Until when (RFC 3339); at most 31 days after the allowance was made.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<Requester>,
}

/// One object, as an allowance names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedObject {
    /// The API group; empty for the core group.
    // No default in the schema: Kubernetes 1.20 takes an empty text for null.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace, which is that of the allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Who asked for an allowance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requester {
    /// The user.
    pub user: String,
    /// The user's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}
