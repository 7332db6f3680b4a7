//! One release, assembled from its records.
//!
//! Entry points: [`latest`] and [`baseline`] select the records that count, [`assemble()`] makes a
//! [`Release`] of them. Invariant: the declarations of a release come from a record whose name, labels and
//! payload agree. A record that contradicts itself only marks the release invalid. Of a record only its
//! compressed manifest is kept.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

pub use self::allow::AllowAnnotations;
pub use self::assemble::{Assembled, Excess, MAX_OBJECTS, MAX_WEIGHT, StoredRecords, assemble};
pub use self::belief::{Disbelief, believe};
pub use self::declared::Declared;
pub use self::documents::{document, documents, gvk};
pub use self::head::{Appearance, Head, Writer};
pub use self::payload::Payload;
use super::record::{ApplyMethod, ChartVersion, Record, Status};
use kubemoor_declare::model::{ObjectId, ReleaseId};

mod allow;
mod assemble;
mod belief;
mod declared;
mod documents;
mod head;
mod payload;

/// One release as its records say.
#[derive(Clone, Debug)]
pub struct Release {
    /// The release, as the annotations of its objects name it.
    pub id: ReleaseId,
    /// The namespace that holds its records.
    pub storage: String,
    /// The latest record's metadata, for telling whether this is still true.
    pub latest: Arc<Head>,
    /// The baseline's metadata, where it is another record than the latest.
    pub baseline: Option<Arc<Head>>,
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
    /// In the latest record's manifest. Of several documents about the object it is the last one: Helm applies
    /// each, and a server-side apply of the last one removes what only those before it set.
    pub latest: Option<Arc<Declared>>,
    /// In the documents before that one, which Helm writes while its operation is under way.
    pub earlier: Vec<Arc<Declared>>,
    /// In the baseline's, where that is another record.
    pub baseline: Option<Arc<Declared>>,
}

/// The latest record: Helm knows only the highest revision.
pub fn latest(heads: &[Arc<Head>]) -> Option<&Arc<Head>> {
    heads.iter().max_by_key(|head| head.revision)
}

/// The record that Helm compares with in its next operation: the last
/// `deployed`, else the highest `superseded`. None if that is the latest.
pub fn baseline(heads: &[Arc<Head>]) -> Option<&Arc<Head>> {
    let highest = |status| heads.iter().filter(|head| head.status == status).max_by_key(|head| head.revision);
    let chosen = highest(Status::Deployed).or_else(|| highest(Status::Superseded))?;
    (latest(heads)?.revision != chosen.revision).then_some(chosen)
}

/// SHA-256 of a manifest: what tells whether a revision still declares what it
/// declared.
pub fn digest(manifest: &str) -> [u8; 32] {
    Sha256::digest(manifest.as_bytes()).into()
}

impl Release {
    /// The place of its records: their namespace, and its name.
    pub fn stored(&self) -> ReleaseId {
        ReleaseId { namespace: self.storage.clone().into(), name: self.id.name.clone() }
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
                (Arc::clone(object), Declarations { latest: Some(declared), ..Declarations::default() })
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

impl Declarations {
    /// Every declaration of the object.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Declared>> {
        self.latest.iter().chain(&self.earlier).chain(&self.baseline)
    }
}

impl State {
    /// Whether it comes from a trusted record.
    pub(super) fn is_known(&self) -> bool {
        self.digest != [0; 32]
    }

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

#[cfg(test)]
pub(crate) mod tests;
