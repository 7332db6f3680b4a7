//! The facts of an edit as the ledger stores them: enough for other policies to judge it.
//!
//! Entry points: [`text`] writes the facts (`recording`), [`RecordedFacts`] reads them (`rebuild`). Invariant: no
//! stored text has more than [`MOST`] bytes, whatever an editor or a manifest contains. Must not store a Secret's
//! value: of long or secret values, only the presence is stored.

mod rebuild;
mod recording;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use self::recording::{MOST, Recording, text};
use super::facts::{ChangeKind, EvidenceKind};
use super::records::Falsified;
use kubemoor_declare::equality::Agreement;
use kubemoor_policy::resolver::Labels;

/// The facts of one edit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedFacts {
    /// To an object that a release declares.
    Edit(RecordedEdit),
    /// To a record of Helm.
    Record(RecordedRecordEdit),
    /// More than can be stored.
    Cut,
}

/// The facts of an edit of an object that a release declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEdit {
    pub(super) claims: Vec<RecordedClaim>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) unheard: usize,
    /// It used the `scale` subresource.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) scale: bool,
    /// The field manager that the request named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    manager: String,
    /// The exceptions that were open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allowances: Vec<RecordedAllowance>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    autoscalers: Vec<RecordedAutoscaler>,
    /// The labels of the cluster.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(super) cluster: Labels,
}

/// The facts of an edit of a Helm record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRecordEdit {
    revision: u64,
    /// The releases that the record may describe.
    pub(super) releases: Vec<RecordedRelease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    falsified: Option<Falsified>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(super) cluster: Labels,
}

/// A release, as policies select it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedRelease {
    namespace: String,
    name: String,
    /// The labels of its namespace, without the one that names it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
    /// The namespace is not known to have that one: no namespace has it before Kubernetes 1.21.
    #[serde(default, skip_serializing_if = "is_false")]
    unnamed: bool,
}

/// The facts of one edit, as one release saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedClaim {
    pub(super) release: RecordedRelease,
    pub(super) revision: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) pending: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) authorised: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) evidence: EvidenceKind,
    pub(super) alternatives: Vec<RecordedAlternative>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) unweighed: usize,
}

/// The changes of one edit, compared with one manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedAlternative {
    pub(super) declared: RecordedDeclaration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<RecordedChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seal: Option<String>,
}

/// The parts of a manifest's object by which rules select objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedDeclaration {
    version: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, Value>,
    /// Some of them are not kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) cut: bool,
    /// The exceptions of the manifest itself, and their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The path of the replicas of an object that an autoscaler scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedChange {
    path: String,
    is: Agreement,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    declared: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    old: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    new: Option<Value>,
    /// Some values are not stored: null stands for them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) cut: bool,
}

/// An exception that was open for the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAllowance {
    namespace: String,
    paths: Vec<String>,
}

/// An autoscaler of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedAutoscaler {
    minimum: i32,
    maximum: i32,
    #[serde(default, skip_serializing_if = "is_false")]
    keda: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    declared: Vec<(String, String)>,
}

/// A value that is present, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
