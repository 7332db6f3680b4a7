//! Declared fields with their declared values that somebody else than Helm holds.
//!
//! Entry point: [`taken`]. Invariant: names of managers are what clients gave themselves:
//! good for a message or to leave something alone, no ground for a permission.

use serde_json::Value;

use super::{Manager, Operation, Owners, conflicts, helms, returned};
use crate::declaration::fields::Fields;
use crate::declaration::lookup::Lookup;
use crate::declaration::path::Path;
use crate::helm::record::ApplyMethod;
use crate::policy::mask::Mask;

/// The programs of Kubernetes itself, which write declared fields only where
/// that is their work.
const CONTROLLERS: &str = "kube-";

/// Fields of one object that somebody holds beside Helm.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Helm's own manager.
    pub helm: Manager,
    /// Who holds them.
    pub by: String,
    /// The fields.
    pub paths: Vec<Path>,
}

/// The declared fields of `live`, an object that is as declared, that a manager which
/// updates, as kubectl does, holds alone or beside Helm, so that Helm's next upgrade may
/// fail. None for client-side releases, for Flux, which forces, and for what `spared`
/// covers. A field with another value than the manifest spells is one of which a dry run
/// has shown that the API server makes it of the manifest.
pub fn taken(fields: &Fields, live: &Value, method: ApplyMethod, spared: &Mask) -> Option<Taken> {
    if method != ApplyMethod::ServerSide {
        return None;
    }
    let owners = Owners::of(live);
    let helm = helms([&owners], method)?;
    let (mut paths, mut by, mut lookup) = (Vec::new(), None, Lookup::new(live));
    for conflict in conflicts(fields, live, &owners, Some(&helm), method) {
        let manager = &conflict.manager;
        if manager.operation == Operation::Update
            && conflict.moved_to.is_none()
            && !is_controller(&manager.name)
            && !spared.covers(&conflict.path)
            && !lookup.get(&conflict.path).is_empty()
        {
            paths.push(conflict.path);
            by.get_or_insert(conflict.manager.name);
        }
    }
    paths.dedup();
    // What cannot be given back is not worth a word.
    by.filter(|_| returned(live, &helm, &paths).is_some()).map(|by| Taken { helm, by, paths })
}

/// Whether a field manager is a program of Kubernetes itself.
pub fn is_controller(name: &str) -> bool {
    name.starts_with(CONTROLLERS)
}
