//! The resource type `GuardedRelease` (`kubemoor.dev/v1alpha1`): what the guard
//! says of a release, and the little that people say to it there.
//!
//! Entry point: [`GuardedRelease`]. Invariant: plain data; values of objects
//! stand in it only as a person may see them. Must not decide anything.
#![allow(clippy::duplicated_attributes, reason = "each printed column has a type and a path of its own")]

use std::sync::Arc;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agreement::{Agreement, SeenAlive};
use super::resource::Condition;
use super::settled::Settled;
use super::signing::SigningKey;
use crate::model::{ObjectId, ReleaseId};

/// What people say of a guarded release.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubemoor.dev",
    version = "v1alpha1",
    kind = "GuardedRelease",
    plural = "guardedreleases",
    doc = "What the guard knows of the Helm release of the same name and namespace. Made and removed by the guard.",
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
    /// Whether the loop leaves the release alone: nothing is repaired. Edits
    /// are judged all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// When the suspension ends (RFC 3339); without it, when `suspend` is set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    pub suspend_until: Option<String>,
    /// Why the release is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub suspend_reason: Option<String>,
    /// Repairs the release now when this time is set anew (RFC 3339), whatever
    /// its policy says, and lets go of the brake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reconcile_at: Option<String>,
}

/// What the guard says of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardedReleaseStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: whether all is as declared. Stalled: whether a person has to act.
    /// Only while it is so, AnnotationsAccepted: what the chart allows by its own
    /// annotations counts for nothing; and ForeignOwned: other releases own
    /// objects that it declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The revision that the release is held to.
    #[serde(default)]
    pub revision: u64,
    /// The uid of that revision's record. One that was deleted and made anew
    /// has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_uid: Option<String>,
    /// Tells the guard that revision's manifest as it was first seen, in hexadecimal. To
    /// others it tells nothing: a manifest may hold a password, and guesses could be tried
    /// against a plain hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest_digest: String,
    /// How many objects the revision declares.
    #[serde(default)]
    pub declared: u64,
    /// How many of them were seen in the cluster as they are declared. Only to what
    /// was seen are objects repaired.
    #[serde(default)]
    pub confirmed: u64,
    /// How many of them do not match, or belong in part to another field manager than
    /// Helm's.
    #[serde(default)]
    pub drifted: u64,
    /// How the others stand.
    #[serde(default)]
    pub counts: ObjectCounts,
    /// What becomes of edits that drift.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub edits: String,
    /// What becomes of drift.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub drift: String,
    /// The last spec.reconcileAt that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile_at: Option<String>,
    /// The answer to the last order that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderAnswer>,
    /// The Lease that the guard renews while it keeps this status. When it is not renewed,
    /// the status is stale. None where the guard has no Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseReference>,
    /// The first objects that do not match, then those that may not or are being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<DriftedObject>,
    /// The objects that were seen alive with the release's annotations. Only
    /// these are ever repaired, towards what they were seen to agree with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenObject>,
}

/// How many objects stand how, besides those that drifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCounts {
    /// They match.
    #[serde(default)]
    pub matching: u64,
    /// Of those that drifted: they match, and another field manager owns some of their
    /// fields, so that Helm's next upgrade may fail with a conflict.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ownership: u64,
    /// They may not match; only a dry run could tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_doubt: u64,
    /// They differ or are missing as an exception allows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub allowed: u64,
    /// They are being deleted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deleting: u64,
    /// The operation that failed has not created them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_created: u64,
    /// The manifest opts them out, or another release owns them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unjudged: u64,
    /// The guard may not look at them.
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
    /// What came of it.
    pub result: OrderResult,
    /// The same in a sentence or two.
    pub message: String,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrderResult {
    /// Nothing had to be repaired.
    NothingToDo,
    /// Everything that drifted is repaired.
    Repaired,
    /// Something has to wait, such as for a Helm operation; the guard goes on.
    Waiting,
    /// Something stays as it is; the message says why.
    Refused,
}

/// One object that was seen alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeenObject {
    /// The object.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// Which declaration it was last seen to agree with, under the guard's own key;
    /// none if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agreed: Option<String>,
    /// Where it was not seen to agree with that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// Where it holds other values than the manifest spells, and a dry run has shown that
    /// the API server makes them of the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledFields>,
}

/// Values that a dry run has settled, under the guard's own key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledFields {
    /// Of which declaration.
    pub declaration: String,
    /// The fields.
    pub fields: Vec<SettledField>,
}

/// One of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledField {
    /// The field.
    pub path: String,
    /// What its value is known by.
    pub mark: String,
}

/// One object that is not as declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedObject {
    /// The object.
    pub object: ObjectReference,
    /// What is wrong with it, in one word.
    pub r#type: String,
    /// Its first fields that are not as declared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<DriftedField>,
    /// How many more fields there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: u64,
    /// The field manager that wrote what is not as declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when the guard knows.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Timestamp,
    /// Why it is not repaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One field that is not as declared. Values of Secrets are masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedField {
    /// The field.
    pub path: String,
    /// Its declared value, as JSON; none where nothing is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// Its live value, as JSON; none where it is absent.
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
    /// The namespace; absent where it is the release's own, and for
    /// cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the object has no namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster_scoped: bool,
    /// The name.
    pub name: String,
}

impl GuardedRelease {
    /// The release that this is about.
    pub fn release(&self) -> Option<ReleaseId> {
        Some(ReleaseId { namespace: self.metadata.namespace.clone()?, name: self.metadata.name.clone()? })
    }
}

/// The digest of a manifest as a status holds it, from the plain one; or the plain one, from that of a status. The
/// revision and the uid of its record are part of the mask, so equal manifests do not show as equal.
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
    /// `object` as a release of the namespace `home` names it.
    pub fn of(object: &ObjectId, home: &str) -> Self {
        Self {
            group: object.group.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone().filter(|namespace| namespace != home),
            cluster_scoped: object.namespace.is_none(),
            name: object.name.clone(),
        }
    }

    /// The object that a release of the namespace `home` names like this.
    pub fn id(&self, home: &str) -> ObjectId {
        let namespace = self.namespace.clone().unwrap_or_else(|| home.to_owned());
        ObjectId {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: (!self.cluster_scoped).then_some(namespace),
            name: self.name.clone(),
        }
    }
}

impl SeenObject {
    /// What is kept of an object of a release of the namespace `home`.
    pub fn of(seen: &SeenAlive, home: &str) -> Self {
        let agreement = seen.agreement.as_ref();
        Self {
            object: ObjectReference::of(&seen.object, home),
            agreed: agreement.map(Agreement::seal),
            unseen: agreement.map(|agreement| agreement.open().to_vec()).unwrap_or_default(),
            settled: seen.settled.as_ref().map(|settled| {
                let (declaration, values) = settled.texts();
                let field = |(path, mark)| SettledField { path, mark };
                SettledFields { declaration, fields: values.into_iter().map(field).collect() }
            }),
        }
    }

    /// The part of that which a dry run has settled.
    pub fn settled(&self, key: &SigningKey, release: &ReleaseId) -> Option<Settled> {
        let SettledFields { declaration, fields } = self.settled.as_ref()?;
        let values = fields.iter().map(|field| (field.path.as_str(), field.mark.as_str()));
        Settled::read(key, release, declaration, values)
    }

    /// What a guard with this key has kept of an object of this release.
    pub fn seen(&self, key: &SigningKey, release: &ReleaseId) -> SeenAlive {
        let settled = self.settled(key, release).map(Arc::new);
        let agreement = self.agreed.as_deref().and_then(|seal| Agreement::read(seal, &self.unseen));
        SeenAlive { object: Arc::new(self.object.id(&release.namespace)), agreement, settled }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
