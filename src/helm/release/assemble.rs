//! A release's records, brought together.
//!
//! Entry point: [`assemble`]. Invariant: a release is kept within [`MAX_OBJECTS`] and [`MAX_WEIGHT`], or nothing of
//! what it declares is.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Declarations, Declared, Head, Invalid, Payload, Release, State, believe, placed};
use crate::declaration::catalog::Catalog;
use crate::helm::manifest::{self, Skipped};
use crate::helm::record::{Record, RecordError};
use crate::helm::storage::Storage;
use crate::model::{ObjectId, ReleaseId};

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

/// What [`assemble`] makes of a release's records.
pub struct Assembled {
    /// The release.
    pub release: Release,
    /// The documents of the latest manifest that are no objects.
    pub skipped: Vec<Skipped>,
}

/// Brings together the records that lie at `stored`.
///
/// The release is the one that they speak for: of the same name, in the
/// namespace that their payloads give, where `storage` trusts them for it. If
/// the latest cannot be believed, the release keeps what `previous` says, as
/// long as that is trusted, else what the baseline says, and is marked invalid.
pub fn assemble(
    stored: &ReleaseId,
    latest: (&Head, &Payload),
    baseline: Option<(&Head, &Payload)>,
    previous: Option<&Release>,
    storage: &Storage,
    catalog: &Catalog,
) -> Assembled {
    let told = believe(stored, latest.0, latest.1, storage);
    let believed =
        baseline.and_then(|(head, payload)| Some((head, believe(stored, head, payload, storage).ok()?)));
    // What was said of a release for which these records count no more is
    // nobody's word; what was never known is none.
    let previous = previous.filter(|previous| {
        storage.holds(&stored.namespace, &previous.id.namespace)
            && (previous.state.is_known() || believed.is_none())
    });
    let home = |record: &Record| ReleaseId { namespace: record.namespace.clone(), name: stored.name.clone() };
    let id = match (&told, previous, &believed) {
        (Ok(record), _, _) => home(record),
        (Err(_), Some(previous), _) => previous.id.clone(),
        (Err(_), None, Some((_, record))) => home(record),
        (Err(_), None, None) => stored.clone(),
    };
    // One history is of one release.
    let believed = believed.filter(|(_, record)| record.namespace == id.namespace);
    let read = |payload: &Payload, record: &Record| -> Result<Found, Unkept> {
        Ok(payload.with_text(record, |text| Found::of(&id, text, catalog))??)
    };
    let release = |state, objects: HashMap<ObjectId, Declarations>, invalid| Release {
        id: id.clone(),
        storage: stored.namespace.clone(),
        latest: latest.0.clone(),
        baseline: baseline.map(|(head, _)| head.clone()),
        invalid,
        state,
        weight: weight(&objects),
        objects: Arc::new(objects),
    };
    let invalid = |reason: String| Some(Invalid { secret: latest.0.secret.clone(), reason });
    match told {
        Ok(record) => {
            let state = State::of(latest.0, record);
            let found = match read(latest.1, record) {
                Ok(found) => found,
                Err(unkept) => {
                    let release = release(state, HashMap::new(), invalid(unkept.to_string()));
                    return Assembled { release, skipped: Vec::new() };
                }
            };
            let mut objects = HashMap::with_capacity(found.objects.len());
            for (object, declared) in found.objects {
                objects.entry(object).or_insert_with(Declarations::default).latest = Some(declared);
            }
            // What cannot be kept of the baseline is as if it were unknown.
            let base =
                baseline.zip(believed).and_then(|((_, payload), (_, record))| read(payload, record).ok());
            for (object, declared) in base.into_iter().flat_map(|found| found.objects) {
                objects.entry(object).or_default().baseline = Some(declared);
            }
            objects.shrink_to_fit();
            Assembled { release: release(state, objects, None), skipped: found.skipped }
        }
        Err(disbelief) => {
            let invalid = invalid(disbelief.to_string());
            let release = match (previous, believed.zip(baseline)) {
                (Some(previous), _) => Release {
                    objects: Arc::clone(&previous.objects),
                    weight: previous.weight,
                    ..release(previous.state.clone(), HashMap::new(), invalid)
                },
                (None, Some(((head, record), (_, payload)))) => {
                    let mut objects = HashMap::new();
                    for (object, declared) in
                        read(payload, record).into_iter().flat_map(|found| found.objects)
                    {
                        objects.entry(object).or_insert_with(Declarations::default).latest = Some(declared);
                    }
                    release(State::of(head, record), objects, invalid)
                }
                (None, None) => release(State::unknown(latest.0), HashMap::new(), invalid),
            };
            Assembled { release, skipped: Vec::new() }
        }
    }
}

/// About what declarations take in memory.
fn weight(objects: &HashMap<ObjectId, Declarations>) -> usize {
    let declared = objects.values().flat_map(|it| it.latest.iter().chain(&it.baseline));
    declared.map(|declared| declared.weight).sum()
}

/// Why nothing is kept of a record that is believed.
#[derive(Debug, thiserror::Error)]
enum Unkept {
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What a manifest declares.
struct Found {
    objects: Vec<(ObjectId, Arc<Declared>)>,
    skipped: Vec<Skipped>,
}

impl Found {
    /// Reads a manifest, one document after the other.
    fn of(id: &ReleaseId, manifest: &str, catalog: &Catalog) -> Result<Self, Excess> {
        let (mut objects, mut excess, mut weight) = (Vec::new(), None, 0_usize);
        let skipped = manifest::each(manifest, |object| {
            let (object, document) = placed(id, object, catalog);
            let declared = Declared::of(&document, catalog);
            weight = weight.saturating_add(declared.weight);
            objects.push((object, Arc::new(declared)));
            excess = match (objects.len() > MAX_OBJECTS, weight > MAX_WEIGHT) {
                (true, _) => Some(Excess::Objects),
                (false, true) => Some(Excess::Weight),
                (false, false) => return ControlFlow::Continue(()),
            };
            ControlFlow::Break(())
        });
        excess.map_or(Ok(Self { objects, skipped }), Err)
    }
}
