//! The resource type `DriftAllowance`, as people and the guard write it.
//!
//! Entry point: [`DriftAllowance`]. Invariant: plain data; what the type cannot
//! say is checked by [`crate::allowance`].
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GRANTED_PATH, MAX_PATHS};

/// A temporary exception: these fields of one object may change until a given time.
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
    /// JSON Pointers, in which a segment may be [key=value] or *; a single * means every
    /// field, `delete` the deletion of the object.
    #[schemars(length(min = 1, max = MAX_PATHS), inner(length(min = 1, max = 1024), regex(pattern = GRANTED_PATH)))]
    pub paths: Vec<String>,
    /// When the exception ends (RFC 3339); at most 31 days after it was created.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// The reason for the exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
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
    // No default in the schema: Kubernetes 1.20 takes an empty text for null.
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
