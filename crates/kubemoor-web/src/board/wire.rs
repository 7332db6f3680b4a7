//! A GuardedRelease as a watch brings it.
//!
//! Entry point: [`Wire`]. Invariant: an object that cannot be read is left out, and the watch goes on.

use serde_json::Value;

use super::known::Guarded;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::watch::Form;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::GuardedRelease;

/// An object of the watch.
pub(super) struct Wire {
    version: String,
    pub(super) object: Option<Box<GuardedRelease>>,
}

impl Form for Wire {
    type Wire = Value;
    const PAGE: u32 = 250;
    const METADATA: bool = false;

    fn read(wire: Value) -> Self {
        let version = wire.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Self { version: version.unwrap_or_default().to_owned(), object: guarded::typed(wire) }
    }

    fn version(&self) -> &str {
        &self.version
    }
}

impl Wire {
    /// The release, with what a page shows of it.
    pub(super) fn guarded(self) -> Option<(ReleaseId, Guarded)> {
        Guarded::new(*self.object?, self.version)
    }
}
