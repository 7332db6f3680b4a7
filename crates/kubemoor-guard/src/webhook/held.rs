//! The records that a review's objects hold.
//!
//! Entry point: [`Held::read`]. Invariant: decoding is bounded in memory and happens once for a
//! review, however often it is judged. Must not show a payload.

use serde_json::Value;

use super::review::{self, Request};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::record::{Packed, RecordError};
use kubemoor_verdict::records::Stored;

/// The records that a review's objects hold, decoded once.
#[derive(Default)]
pub struct Held {
    /// The record before.
    pub(super) old: Option<Stored>,
    /// The record after.
    pub(super) new: Option<Stored>,
}

impl Held {
    /// Decodes the records in the review in `body`. This takes time, and no memory beyond that of
    /// the body.
    pub fn read(body: &[u8]) -> Self {
        match Request::parse(body) {
            Ok(request) => Self::of(request.old_object.as_ref(), request.object.as_ref()),
            Err(_) => Self::default(),
        }
    }

    pub(super) fn of(old: Option<&Excerpt<'_>>, new: Option<&Excerpt<'_>>) -> Self {
        // An object that cannot be read holds no record.
        let stored = |text: Option<&Excerpt<'_>>| {
            text.map(|text| review::object(text.get()).map_or_else(|_| no_record(), |value| stored(&value)))
        };
        Self { old: stored(old), new: stored(new) }
    }
}

/// The record that a Secret or ConfigMap holds.
fn stored(object: &Value) -> Stored {
    let label = |name: &str| object.pointer("/metadata/labels")?.get(name)?.as_str().map(str::to_owned);
    // Its digest tells whether a manifest changes.
    let payload = match Packed::of(object) {
        Some(packed) => packed.decode(0).map(|(record, _)| record),
        None => Err(RecordError::Missing { field: "release" }),
    };
    Stored {
        owner: label("owner"),
        name: label("name"),
        version: label("version"),
        status: label("status"),
        payload,
    }
}

fn no_record() -> Stored {
    let payload = Err(RecordError::Missing { field: "release" });
    Stored { owner: None, name: None, version: None, status: None, payload }
}
