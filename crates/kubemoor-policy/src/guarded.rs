//! The resource type `GuardedRelease` (`kubemoor.dev/v1alpha1`): the guard's status of a release, and the few fields
//! that users set, such as a suspension of repairs. It contains object values only in the form that users may see.
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agreement::{LastAgreement, ObjectSettledValues, ObservedObject};
use crate::resource::{MAX_REASON, StatusCondition};
use crate::signing::SigningKey;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The user's settings for the release.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "GuardedRelease",
    plural = "guardedreleases",
    doc = "The state of the Helm release with the same name and namespace. The guard creates and deletes it.",
    namespaced,
    shortname = "gr",
    category = "kubemoor",
    status = "GuardedReleaseStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.revision"),
    printcolumn(name = "Drifted", type_ = "integer", json_path = ".status.drifted"),
    printcolumn(name = "Edits", type_ = "string", json_path = ".status.edits"),
    printcolumn(name = "Drift", type_ = "string", json_path = ".status.drift"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GuardedReleaseSpec {
    /// Whether repairs are suspended. Changes are still judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// When the suspension ends (RFC 3339); if omitted, when `suspend` is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    pub suspend_until: Option<String>,
    /// Why the release is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_REASON))]
    pub suspend_reason: Option<String>,
    /// A new time (RFC 3339) orders a repair now, whatever the policy says, and resumes repairs
    /// that stopped because too many objects drifted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reconcile_at: Option<String>,
}

/// The state of the release, written by the guard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardedReleaseStatus {
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: whether all objects match. Stalled: whether a user has to act.
    /// AnnotationsAccepted, only if False: annotations of the chart that allow changes are
    /// invalid. ForeignOwned, only if True: other releases own objects that it declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
    /// The revision that the objects are compared with.
    #[serde(default)]
    pub revision: u64,
    /// The uid of that revision's record. A record that is deleted and created
    /// again has another uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_uid: Option<String>,
    /// A keyed hash, in hexadecimal, of that revision's manifest as the guard first saw it.
    /// Only the guard can use it: a manifest may hold a password, and guesses could be
    /// tried against a plain hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest_digest: String,
    /// The number of objects that the revision declares.
    #[serde(default)]
    pub declared: u64,
    /// The number of objects that the guard has seen in the cluster as declared. Repairs write
    /// only values that it has seen.
    #[serde(default)]
    pub confirmed: u64,
    /// Helm's field manager, as last seen on the objects. Repairs write as this manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub field_manager: Option<String>,
    /// The number of objects that do not match, or that have fields owned by a field manager
    /// other than Helm's.
    #[serde(default)]
    pub drifted: u64,
    /// The other objects, by state.
    #[serde(default)]
    pub counts: ObjectCounts,
    /// The mode in effect for changes that cause drift.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub edits: String,
    /// The mode in effect for drift in the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub drift: String,
    /// The last spec.reconcileAt that the guard carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_at: Option<String>,
    /// The answer to the last order that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderAnswer>,
    /// The Lease that the guard renews while it maintains this status. If it is not renewed, the
    /// status is stale. Absent if the guard has no Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseReference>,
    /// The first objects that do not match, then those in doubt and those that are being
    /// deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<DriftedObject>,
    /// The objects that the guard saw with the release's annotations. Only these are
    /// repaired, and only to values that the guard saw in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenObject>,
}

/// The number of objects in each state, besides those that drifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCounts {
    /// Objects that match.
    #[serde(default)]
    pub matching: u64,
    /// Drifted objects that match, but have fields owned by another field manager, so Helm's next
    /// upgrade may fail with a conflict.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ownership: u64,
    /// Objects that may not match; only a dry run could tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_doubt: u64,
    /// Objects that an exception allows to differ or to be missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub allowed: u64,
    /// Objects that are being deleted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deleting: u64,
    /// Objects that the failed Helm operation did not create.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_created: u64,
    /// Objects that the manifest opts out, or that another release owns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unjudged: u64,
    /// Objects that the guard has no permission to read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unwatched: u64,
}

/// A Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The answer to an order (`spec.reconcileAt`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderAnswer {
    /// The spec.reconcileAt that this answers.
    pub at: String,
    /// The result.
    pub result: OrderResult,
    /// The result, as a sentence or two.
    pub message: String,
}

/// The result of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrderResult {
    /// Nothing had to be repaired.
    NothingToDo,
    /// Everything that drifted is repaired.
    Repaired,
    /// Something has to wait, for example for a Helm operation; the guard continues.
    Waiting,
    /// Something is not repaired; the message says why.
    Refused,
}

/// An object that the guard saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeenObject {
    /// The object.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// The declaration that it last matched, as a hash with the guard's key; absent if it
    /// never matched one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agreed: Option<String>,
    /// The paths at which it did not match that declaration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// The paths whose values differ from the manifest only because the API server changes them,
    /// as a dry run showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledFields>,
}

/// Values that a dry run confirmed, as hashes with the guard's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledFields {
    /// The declaration.
    pub declaration: String,
    /// The fields.
    pub fields: Vec<SettledField>,
}

/// A confirmed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledField {
    /// The field.
    pub path: String,
    /// The hash of the value.
    pub mark: String,
}

/// An object that does not match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedObject {
    /// The object.
    pub object: ObjectReference,
    /// The kind of drift, as one word.
    pub r#type: String,
    /// The first fields that do not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<DriftedField>,
    /// The number of further fields.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: u64,
    /// The field manager that wrote these fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the guard found the drift.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Timestamp,
    /// Why the guard does not repair it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A field that does not match. Values of Secrets are masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedField {
    /// The field.
    pub path: String,
    /// Its declared value, as JSON; absent if nothing is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// Its live value, as JSON; absent if the object does not have the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The API group; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; absent if it is the release's own, and for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the object is cluster-scoped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster_scoped: bool,
    /// The name.
    pub name: String,
}

impl GuardedRelease {
    pub fn release(&self) -> Option<ReleaseId> {
        Some(ReleaseId {
            namespace: self.metadata.namespace.clone()?.into(),
            name: self.metadata.name.clone()?.into(),
        })
    }
}

/// Converts the plain digest of a manifest to the one in the status, and back. The revision and the uid of its record
/// are part of the mask, so that equal manifests have different digests in the status.
pub fn hidden_digest(
    key: &SigningKey,
    release: &ReleaseId,
    (revision, record): (u64, Option<&str>),
    digest: [u8; 32],
) -> [u8; 32] {
    let ReleaseId { namespace, name } = release;
    let record = record.unwrap_or_default().as_bytes();
    let parts = [namespace.as_bytes(), name.as_bytes(), &revision.to_le_bytes(), record];
    key.hide("manifest digest", &parts, digest)
}

impl ObjectReference {
    /// The reference to `object` from a release in the namespace `home`.
    pub fn new(object: &ObjectId, home: &str) -> Self {
        Self {
            group: object.group.to_string(),
            kind: object.kind.to_string(),
            namespace: object.namespace.as_deref().filter(|namespace| *namespace != home).map(str::to_owned),
            cluster_scoped: object.namespace.is_none(),
            name: object.name.to_string(),
        }
    }

    /// The object that this refers to, for a release in the namespace `home`.
    pub fn id(&self, home: &str) -> ObjectId {
        let namespace = self.namespace.clone().unwrap_or_else(|| home.to_owned());
        ObjectId {
            group: self.group.clone().into(),
            kind: self.kind.clone().into(),
            namespace: (!self.cluster_scoped).then_some(namespace.into()),
            name: self.name.clone().into(),
        }
    }
}

impl SeenObject {
    /// The stored form of `seen`, for a release in the namespace `home`.
    pub fn new(seen: &ObservedObject, home: &str) -> Self {
        let agreement = seen.agreement.as_ref();
        Self {
            object: ObjectReference::new(&seen.object, home),
            agreed: agreement.map(LastAgreement::seal),
            unseen: agreement.map(|agreement| agreement.open_paths().to_vec()).unwrap_or_default(),
            settled: seen.settled.as_ref().map(|settled| {
                let (declaration, values) = settled.texts();
                let field = |(path, mark)| SettledField { path, mark };
                SettledFields { declaration, fields: values.into_iter().map(field).collect() }
            }),
        }
    }

    /// The values that a dry run confirmed.
    pub fn settled(&self, key: &SigningKey, release: &ReleaseId) -> Option<ObjectSettledValues> {
        let SettledFields { declaration, fields } = self.settled.as_ref()?;
        let values = fields.iter().map(|field| (field.path.as_str(), field.mark.as_str()));
        ObjectSettledValues::read(key, release, declaration, values)
    }

    /// Restores what a guard with this key stored of an object of this release.
    pub fn seen(&self, key: &SigningKey, release: &ReleaseId) -> ObservedObject {
        let settled = self.settled(key, release).map(Arc::new);
        let agreement = self.agreed.as_deref().and_then(|seal| LastAgreement::read(seal, &self.unseen));
        ObservedObject { object: Arc::new(self.object.id(&release.namespace)), agreement, settled }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The suspension of each release that has one, including expired suspensions.
pub type SuspendedReleases = HashMap<ReleaseId, Suspension>;

/// A suspension of the repairs of one release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// Its end; `None` if a user has to end it.
    pub until: Option<Timestamp>,
    /// The reason; empty if none was given.
    pub reason: String,
}

impl Suspension {
    /// The suspension in a GuardedRelease, even if it has expired.
    pub fn from_spec(spec: &GuardedReleaseSpec) -> Option<Self> {
        let until = spec.suspend_until.as_deref().and_then(|until| until.parse().ok());
        let reason = spec.suspend_reason.clone().unwrap_or_default();
        spec.suspend.then_some(Self { until, reason })
    }

    /// The end and the reason of a suspension, as recorded in the ledger; empty if neither is set.
    pub fn describe(spec: &GuardedReleaseSpec) -> String {
        let until = spec.suspend_until.as_deref().map(|until| format!("until {until}"));
        let parts = [until.as_deref(), spec.suspend_reason.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    }

    /// Whether it has ended by `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

#[cfg(test)]
mod tests;
