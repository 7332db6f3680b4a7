//! An object as it lives in the cluster, as the loop is told of it.
//!
//! Entry point: [`Live`]. Invariant: its `managedFields`, most of many objects,
//! are read only when somebody asks for them. Must not be kept: the loop judges
//! an object as it comes by and drops it.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::{ObjectId, ReleaseId};

/// What an object's metadata tells of its life and its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The object.
    pub id: ObjectId,
    /// The uid of this life of it.
    pub uid: String,
    /// The version of its state.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The release that its `meta.helm.sh/*` annotations name.
    pub release: Option<ReleaseId>,
    /// The field managers that wrote the annotation `meta.helm.sh/release-name`:
    /// Helm, under whatever name it ran. Server-side appliers first.
    pub managers: Vec<Manager>,
    /// The field managers that wrote anything but the status by create, update
    /// or patch, the last one first.
    pub updaters: Vec<String>,
    /// When any field but the status was last written.
    pub touched: Option<Timestamp>,
}

/// A field manager of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manager {
    /// Its name, such as `helm`.
    pub name: String,
    /// Whether it wrote by server-side apply, else by create or update.
    pub applies: bool,
}

/// An object as it lives in the cluster. May hold secrets: its `Debug` shows
/// the metadata alone.
pub struct Live {
    /// What its metadata tells.
    pub sighting: Sighting,
    /// The object without its `managedFields`; none if it is nested deeper than
    /// what is judged.
    pub object: Option<Value>,
    /// Its `managedFields` as they came.
    pub(crate) managed: Option<Box<RawValue>>,
}

impl Live {
    /// The object with its `managedFields`; none if it cannot be read.
    pub fn whole(&self) -> Option<Value> {
        let mut object = self.object.clone()?;
        let managed = self.managed.as_ref().and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        if let (Some(managed), Some(Value::Object(metadata))) = (managed, object.get_mut("metadata")) {
            metadata.insert("managedFields".to_owned(), managed);
        }
        Some(object)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("sighting", &self.sighting).finish_non_exhaustive()
    }
}
