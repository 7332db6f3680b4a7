//! One release, assembled from its records.
//!
//! Entry points: [`latest`] and [`baseline`] select the records that count, [`assemble()`] makes a
//! [`Release`] of them. Invariant: the declarations of a release come from a record whose name, labels and
//! payload agree. A record that contradicts itself only marks the release invalid. Of a record only its
//! compressed manifest is kept.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::allow::AllowAnnotations;
pub use self::assemble::{Assembled, Excess, MAX_OBJECTS, MAX_WEIGHT, StoredRecords, assemble};
pub use self::head::{Appearance, Head, Writer};
pub use self::payload::Payload;
use super::manifest::{self, Skipped};
use super::record::{ApplyMethod, ChartVersion, Record, Status};
use super::storage::Storage;
use crate::declaration::catalog::Catalog;
use crate::declaration::declare::declare;
use crate::declaration::digest::Digest;
use crate::declaration::fields::Fields;
use crate::declaration::names::shared;
use crate::declaration::packed::Packed;
use crate::declaration::path::Path;
use crate::declaration::schema::KindSchema;
use crate::model::{Gvk, ObjectId, RESOURCE_POLICY, ReleaseId};

mod allow;
mod assemble;
mod head;
mod packing;
mod payload;

/// The annotations that opt an object out, with the value that does.
const OPT_OUTS: [(&str, &str); 2] =
    [("kubemoor.dev/guard", "disabled"), ("helm.toolkit.fluxcd.io/driftDetection", "disabled")];

/// One release as its records say.
#[derive(Clone, Debug)]
pub struct Release {
    /// The release, as the annotations of its objects name it.
    pub id: ReleaseId,
    /// The namespace that holds its records.
    pub storage: String,
    /// The latest record's metadata, for telling whether this is still true.
    pub latest: Head,
    /// The baseline's metadata, where it is another record than the latest.
    pub baseline: Option<Head>,
    /// Set while the latest record cannot be believed; then everything below
    /// comes from the last good one.
    pub invalid: Option<Invalid>,
    /// The record that is believed.
    pub state: State,
    /// What the records declare. Shared: a release that turns invalid keeps it.
    pub objects: Arc<HashMap<Arc<ObjectId>, Declarations>>,
    /// The approximate memory of this in bytes, without cached fields.
    pub weight: usize,
}

/// The record that a release is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its revision.
    pub revision: u64,
    /// Its status.
    pub status: Status,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last written.
    pub touched: Timestamp,
    /// How it came into sight.
    pub appearance: Appearance,
    /// How Helm writes the release's objects.
    pub apply_method: ApplyMethod,
    /// The chart that it was made from, where that is known.
    pub chart: Option<ChartVersion>,
    /// SHA-256 of its manifest.
    pub digest: [u8; 32],
    /// SHA-256 of the values that the user gave, zeros where they are not known. It must not be shown as it is.
    pub values: [u8; 32],
}

/// Why a release's latest record cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The Secret or ConfigMap.
    pub secret: String,
    /// The reason, as one clause.
    pub reason: String,
}

/// The declarations of one object in the two records that count.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    /// In the latest record's manifest.
    pub latest: Option<Arc<Declared>>,
    /// In the baseline's, where that is another record.
    pub baseline: Option<Arc<Declared>>,
}

/// An object as one manifest declares it.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The declared fields, cached or to be read.
    pub packed: Packed,
    /// The exception in the manifest's annotations; usually none.
    pub allow: Option<Box<AllowAnnotations>>,
    /// The version in which the manifest spells the object.
    pub version: Arc<str>,
    /// The version in which the API server reports the object: the manifest's, or the preferred one where
    /// that is not served any more.
    pub served: Arc<str>,
    /// The resource's plural; none while the kind is unknown.
    pub plural: Option<Arc<str>>,
    /// Where its `scale` subresource keeps the replicas.
    pub scale: Option<Path>,
    /// The manifest says `helm.sh/resource-policy: keep`.
    pub keep: bool,
    /// The manifest opts the object out.
    pub opted_out: bool,
    /// The approximate memory of its fields in the cache, in bytes.
    pub weight: usize,
    /// The digest of this declaration; `None` where it nests too deep to be compared whole.
    pub digest: Option<Digest>,
}

/// Why a record cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    /// It does not decode.
    #[error("{0}")]
    Decode(String),
    /// Its name or labels say something else than its payload.
    #[error("its {what} is {metadata} by its metadata and {payload} by its payload")]
    Disagree {
        /// The duplicate part.
        what: &'static str,
        /// As the metadata tells it.
        metadata: String,
        /// As the payload tells it.
        payload: String,
    },
}

/// The latest record: Helm knows only the highest revision.
pub fn latest(heads: &[Head]) -> Option<&Head> {
    heads.iter().max_by_key(|head| head.revision)
}

/// The record that Helm compares with in its next operation: the last
/// `deployed`, else the highest `superseded`. None if that is the latest.
pub fn baseline(heads: &[Head]) -> Option<&Head> {
    let highest = |status| heads.iter().filter(|head| head.status == status).max_by_key(|head| head.revision);
    let chosen = highest(Status::Deployed).or_else(|| highest(Status::Superseded))?;
    (latest(heads)?.revision != chosen.revision).then_some(chosen)
}

/// The objects of a manifest as Helm sends them: in its order, owned by the
/// release and placed in their namespaces.
pub fn documents(
    id: &ReleaseId,
    manifest: &str,
    catalog: &Catalog,
) -> (Vec<(ObjectId, Value)>, Vec<Skipped>) {
    let parsed = manifest::parse(manifest);
    (parsed.objects.into_iter().map(|object| placed(id, object, catalog)).collect(), parsed.skipped)
}

/// Of the objects of a manifest the last of that name, as Helm sends it: of
/// several it applies the last one last.
pub fn document(id: &ReleaseId, manifest: &str, object: &ObjectId, catalog: &Catalog) -> Option<Value> {
    let mut found = None;
    manifest::each(manifest, |value| {
        let (name, value) = placed(id, value, catalog);
        if name == *object {
            found = Some(value);
        }
        ControlFlow::Continue(())
    });
    found
}

/// An object as Helm sends it.
fn placed(id: &ReleaseId, mut object: Value, catalog: &Catalog) -> (ObjectId, Value) {
    let gvk = gvk(&object);
    let namespaced = catalog.facts(&gvk.group, &gvk.kind).map(|facts| facts.namespaced);
    let name = manifest::identify(&object, id, namespaced);
    manifest::own(&mut object, id);
    manifest::place(&mut object, &name);
    (name, object)
}

/// The group, version and kind that an object spells.
pub fn gvk(object: &Value) -> Gvk {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    Gvk::from_api_version(text("apiVersion"), text("kind"))
}

/// The record at `stored`, if its name, its labels and its payload agree and
/// `storage` trusts it for the namespace that its payload gives.
///
/// # Errors
/// Why it cannot be believed.
pub fn believe<'p>(
    stored: &ReleaseId,
    head: &Head,
    payload: &'p Payload,
    storage: &Storage,
) -> Result<&'p Record, Disbelief> {
    let record = payload.record.as_ref().map_err(|error| Disbelief::Decode(error.to_string()))?;
    // A namespace that is trusted counts as the record's own.
    let namespace = match storage.holds(&stored.namespace, &record.namespace) {
        true => &record.namespace,
        false => &stored.namespace,
    };
    let told = [
        ("release", stored.name.clone(), record.name.clone()),
        ("namespace", namespace.clone(), record.namespace.clone()),
        ("revision", head.revision.to_string(), record.revision.to_string()),
        ("status", head.status.to_string(), record.status.to_string()),
    ];
    match told.into_iter().find(|(_, metadata, payload)| metadata != payload) {
        Some((what, metadata, payload)) => Err(Disbelief::Disagree { what, metadata, payload }),
        None => Ok(record),
    }
}

/// SHA-256 of a manifest: what tells whether a revision still declares what it
/// declared.
pub fn digest(manifest: &str) -> [u8; 32] {
    Sha256::digest(manifest.as_bytes()).into()
}

impl Release {
    /// The place of its records: their namespace, and its name.
    pub fn stored(&self) -> ReleaseId {
        ReleaseId { namespace: self.storage.clone(), name: self.id.name.clone() }
    }

    /// Leaves out what it declares, for this reason.
    pub fn leave_out(&mut self, reason: String) {
        self.invalid = Some(Invalid { secret: self.latest.secret.clone(), reason });
        (self.objects, self.weight) = (Arc::default(), 0);
    }

    /// The release at its baseline, which `apply_method` wrote from a manifest with this digest, without any
    /// later record. `None` without a baseline.
    pub fn before(&self, apply_method: ApplyMethod, digest: [u8; 32]) -> Option<Self> {
        let head = self.baseline.clone()?;
        let declared = self.objects.iter().filter_map(|(object, it)| Some((object, it.baseline.clone()?)));
        let objects = declared
            .map(|(object, declared)| {
                (Arc::clone(object), Declarations { latest: Some(declared), baseline: None })
            })
            .collect();
        let state = State {
            revision: head.revision,
            status: Status::Deployed,
            created: head.created,
            touched: head.touched,
            appearance: head.appearance,
            apply_method,
            chart: None,
            digest,
            values: [0; 32],
        };
        Some(Self { latest: head, baseline: None, state, objects: Arc::new(objects), ..self.clone() })
    }

    /// Whether its records lie there.
    pub fn is_stored_as(&self, stored: &ReleaseId) -> bool {
        self.storage == stored.namespace && self.id.name == stored.name
    }

    /// The object as the record in force declares it: the latest's manifest,
    /// else the baseline's.
    pub fn declared(&self, object: &ObjectId) -> Option<&Arc<Declared>> {
        let declarations = self.objects.get(object)?;
        declarations.latest.as_ref().or(declarations.baseline.as_ref())
    }
}

impl State {
    fn of(head: &Head, record: &Record) -> Self {
        Self {
            revision: record.revision,
            status: record.status,
            created: head.created,
            touched: head.touched,
            appearance: head.appearance,
            apply_method: record.apply_method,
            chart: record.chart.clone(),
            digest: record.digest,
            values: record.values,
        }
    }

    /// Whether it comes from a trusted record.
    pub(super) fn is_known(&self) -> bool {
        self.digest != [0; 32]
    }

    fn unknown(head: &Head) -> Self {
        Self {
            revision: head.revision,
            status: Status::Unknown,
            created: head.created,
            touched: head.touched,
            appearance: head.appearance,
            apply_method: ApplyMethod::ClientSide,
            chart: None,
            digest: [0; 32],
            values: [0; 32],
        }
    }
}

impl Declared {
    /// The declared fields, read unless they are cached.
    pub fn fields(&self) -> Arc<Fields> {
        self.packed.fields()
    }

    /// The approximate memory of this without cached fields, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<(Arc<ObjectId>, Declarations, ObjectId)>() + size_of::<Self>() + self.packed.weight()
    }

    fn of(document: &Value, schema: Option<&KindSchema>, catalog: &Catalog) -> Self {
        let gvk = gvk(document);
        let facts = catalog.facts(&gvk.group, &gvk.kind);
        let annotation = |name: &str| document.pointer("/metadata/annotations")?.get(name)?.as_str();
        let fields = declare(document, schema);
        let version = shared(&gvk.version);
        let served = facts.and_then(|facts| facts.served(&version)).filter(|served| **served != *version);
        Self {
            weight: size_of::<(Arc<ObjectId>, Declarations, ObjectId)>()
                + size_of::<Self>()
                + fields.weight(),
            allow: AllowAnnotations::of(document).map(Box::new),
            keep: annotation(RESOURCE_POLICY)
                .is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep")),
            opted_out: OPT_OUTS.iter().any(|(name, value)| annotation(name) == Some(value)),
            packed: fields.into(),
            served: served.map_or_else(|| Arc::clone(&version), shared),
            version,
            plural: facts.map(|facts| shared(&facts.plural)),
            scale: facts.and_then(|facts| facts.scale_replicas_path.clone()),
            digest: Digest::of(document),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
