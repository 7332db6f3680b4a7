//! A live object of the cluster as the loop receives it.
//!
//! Entry point: [`Live`]. Invariant: its `managedFields`, which are large for many objects, are
//! parsed only when they are needed. Must not be kept: the loop judges an object and drops it.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The metadata of an object that identifies its life and its release.
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

/// A live object of the cluster. May hold secrets: its `Debug` shows only the metadata.
pub struct Live {
    /// Its metadata.
    pub sighting: Sighting,
    /// The object without its `managedFields`; `None` if it is nested too deeply to be judged.
    pub object: Option<Value>,
    /// Its `managedFields`, not parsed.
    pub managed: Option<Box<RawValue>>,
}

impl Live {
    /// The object with its `managedFields`; `None` if it cannot be read.
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
