//! Assembles a release from its records.
//!
//! Entry point: [`assemble`]. Invariant: the declarations of a release stay within [`MAX_OBJECTS`] and
//! [`MAX_WEIGHT`]; beyond these none of them is kept.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::documents::placed;
use super::{Declarations, Declared, Head, Invalid, Payload, Release, State, believe, gvk};
use crate::manifest::{self, Skipped};
use crate::record::{ApplyMethod, Record, RecordError};
use crate::storage::Storage;
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::document::fill_null_entries;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::packed::FieldsCache;

/// The most objects of one release.
pub const MAX_OBJECTS: usize = 10_000;

/// The most memory that the declared fields of one release may take, in bytes.
pub const MAX_WEIGHT: usize = 12 << 20;

/// A release declares more than is kept of one: it is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Too many objects.
    #[error("its manifest declares more than {MAX_OBJECTS} objects, so nothing of it is judged")]
    Objects,
    /// Too many or too long fields.
    #[error("its declared fields take more than {MAX_WEIGHT} bytes, so nothing of it is judged")]
    Weight,
}

/// The result of [`assemble`].
pub struct Assembled {
    /// The release.
    pub release: Release,
    /// The documents of the latest manifest that are no objects.
    pub skipped: Vec<Skipped>,
}

/// Records that a release is brought together from.
#[derive(Clone, Copy)]
pub struct StoredRecords<'a> {
    /// Where they lie.
    pub stored: &'a ReleaseId,
    /// The latest.
    pub latest: (&'a Arc<Head>, &'a Payload),
    /// The last deployed one before it.
    pub baseline: Option<(&'a Arc<Head>, &'a Payload)>,
}

/// A record that is believed.
struct Believed<'a> {
    head: &'a Head,
    payload: &'a Payload,
    record: &'a Record,
}

/// The records of a release whose namespace is known by now.
struct Assembly<'a> {
    id: ReleaseId,
    records: StoredRecords<'a>,
    /// The baseline, where it is believed.
    believed: Option<Believed<'a>>,
    catalog: &'a Catalog,
    cache: &'a Arc<FieldsCache>,
}

/// Why nothing is kept of a record that is believed.
#[derive(Debug, thiserror::Error)]
enum Unkept {
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The declarations of a manifest.
struct Found {
    objects: Vec<(Arc<ObjectId>, Arc<Declared>)>,
    skipped: Vec<Skipped>,
}

/// Assembles records.
///
/// They belong to a release with their own name, in the namespace of their payloads, if `storage` trusts them
/// for it. If the latest record is not valid, the release keeps its `previous` declarations while these are
/// trusted, else those of the baseline, and is marked invalid. Recently used fields go into `cache`.
pub fn assemble(
    records: StoredRecords<'_>,
    previous: Option<&Release>,
    storage: &Storage,
    catalog: &Catalog,
    cache: &Arc<FieldsCache>,
) -> Assembled {
    let StoredRecords { stored, latest, baseline } = records;
    let told = believe(stored, latest.0, latest.1, storage);
    let believed = baseline.and_then(|(head, payload)| {
        let record = believe(stored, head, payload, storage).ok()?;
        Some(Believed { head, payload, record })
    });
    // Earlier declarations are dropped where these records no longer speak for their release, and unknown
    // ones where there is a valid record.
    let previous = previous.filter(|previous| {
        storage.holds(&stored.namespace, &previous.id.namespace)
            && (previous.state.is_known() || believed.is_none())
    });
    let home =
        |record: &Record| ReleaseId { namespace: record.namespace.clone().into(), name: stored.name.clone() };
    let id = match (&told, previous, &believed) {
        (Ok(record), _, _) => home(record),
        (Err(_), Some(previous), _) => previous.id.clone(),
        (Err(_), None, Some(Believed { record, .. })) => home(record),
        (Err(_), None, None) => stored.clone(),
    };
    // One history is of one release.
    let believed = believed.filter(|Believed { record, .. }| record.namespace == id.namespace);
    let assembly = Assembly { id, records, believed, catalog, cache };
    match told {
        Ok(record) => assembly.by_latest(record),
        Err(disbelief) => {
            let release = assembly.by_earlier(previous, &disbelief.to_string());
            Assembled { release, skipped: Vec::new() }
        }
    }
}

impl Assembly<'_> {
    /// The release as its latest record says.
    fn by_latest(&self, record: &Record) -> Assembled {
        let (head, payload) = self.records.latest;
        let state = State::of(head, record);
        let found = match self.read(payload, record) {
            Ok(found) => found,
            Err(unkept) => {
                let release = self.release(state, HashMap::new(), Some(unkept.to_string()));
                return Assembled { release, skipped: Vec::new() };
            }
        };
        let mut objects = latest(found.objects);
        // A baseline that cannot be kept counts as unknown.
        let base = self.believed.as_ref().and_then(|it| self.read(it.payload, it.record).ok());
        for (object, declared) in base.into_iter().flat_map(|found| found.objects) {
            objects.entry(object).or_default().baseline = Some(declared);
        }
        objects.shrink_to_fit();
        Assembled { release: self.release(state, objects, None), skipped: found.skipped }
    }

    /// The release as it was known, or as its baseline says, where the latest record cannot be
    /// believed.
    fn by_earlier(&self, previous: Option<&Release>, disbelief: &str) -> Release {
        let invalid = Some(disbelief.to_owned());
        match (previous, &self.believed) {
            (Some(previous), _) => Release {
                objects: Arc::clone(&previous.objects),
                weight: previous.weight,
                ..self.release(previous.state.clone(), HashMap::new(), invalid)
            },
            (None, Some(Believed { head, payload, record })) => {
                let found = self.read(payload, record).map(|found| found.objects).unwrap_or_default();
                self.release(State::of(head, record), latest(found), invalid)
            }
            (None, None) => self.release(State::unknown(self.records.latest.0), HashMap::new(), invalid),
        }
    }

    fn read(&self, payload: &Payload, record: &Record) -> Result<Found, Unkept> {
        Ok(payload.with_text(record, |text| self.find(text, record.apply_method))??)
    }

    /// Reads a manifest, one document after the other.
    fn find(&self, manifest: &str, method: ApplyMethod) -> Result<Found, Excess> {
        let (mut objects, mut excess, mut weight) = (Vec::new(), None, 0_usize);
        let skipped = manifest::each(manifest, |written| {
            let (object, mut document) = placed(&self.id, written.value, self.catalog);
            let schema = self.catalog.schema(&gvk(&document));
            let digest = Digest::of(&document);
            // A client-side Helm removes such entries when it upgrades.
            if method == ApplyMethod::ServerSide {
                fill_null_entries(&mut document, schema.as_deref());
            }
            let declared =
                Declared::of((&document, digest), written.is_kept, schema, self.catalog, self.cache);
            weight = weight.saturating_add(declared.weight());
            objects.push((Arc::new(object), Arc::new(declared)));
            excess = match (objects.len() > MAX_OBJECTS, weight > MAX_WEIGHT) {
                (true, _) => Some(Excess::Objects),
                (false, true) => Some(Excess::Weight),
                (false, false) => return ControlFlow::Continue(()),
            };
            ControlFlow::Break(())
        });
        excess.map_or_else(|| Ok(Found { objects, skipped }), Err)
    }

    /// The release with these objects; `invalid` says why its latest record does not count.
    fn release(
        &self,
        state: State,
        objects: HashMap<Arc<ObjectId>, Declarations>,
        invalid: Option<String>,
    ) -> Release {
        let StoredRecords { stored, latest: (latest, _), baseline } = self.records;
        Release {
            id: self.id.clone(),
            storage: stored.namespace.to_string(),
            latest: Arc::clone(latest),
            baseline: baseline.map(|(head, _)| Arc::clone(head)),
            invalid: invalid.map(|reason| Invalid { secret: latest.secret.clone(), reason }),
            state,
            weight: weight(&objects),
            objects: Arc::new(objects),
        }
    }
}

/// The declarations of the record that a release is judged by.
fn latest(found: Vec<(Arc<ObjectId>, Arc<Declared>)>) -> HashMap<Arc<ObjectId>, Declarations> {
    let mut objects: HashMap<_, Declarations> = HashMap::with_capacity(found.len());
    for (object, declared) in found {
        let declarations = objects.entry(object).or_default();
        declarations.earlier.extend(declarations.latest.replace(declared));
    }
    objects
}

/// About what declarations take in memory.
fn weight(objects: &HashMap<Arc<ObjectId>, Declarations>) -> usize {
    objects.values().flat_map(Declarations::all).map(|declared| declared.memory()).sum()
}
