//! Declared fields with their declared values that a manager other than Helm holds.
//!
//! Entry point: [`taken`]. Invariant: clients choose the names of managers, so these may appear in
//! a message or be a reason to leave a field alone. Must not grant a permission by them.

use serde_json::Value;

use super::{Manager, Operation, Owners, conflicts, helms, returned};
use kubemoor_declare::fields::Fields;
use kubemoor_declare::lookup::Lookup;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_policy::mask::Mask;

/// The programs of Kubernetes itself, by their exact names, which write declared fields only where
/// that is their work.
const CONTROLLERS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Fields of one object that another manager holds besides Helm.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Helm's own manager.
    pub helm: Manager,
    /// The other manager.
    pub by: String,
    /// The fields.
    pub paths: Vec<Path>,
}

/// The declared fields of `live`, a matching object, that a manager that updates, such as kubectl,
/// holds alone or besides Helm, so that Helm's next upgrade may fail. `None` for client-side
/// releases, for Flux, which forces its applies, and for fields that `spared` covers. A field with
/// another spelling than in the manifest counts too: a dry run has shown that the API server turns
/// the manifest's value into it.
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
    // Fields that cannot be returned are not reported.
    by.filter(|_| returned(live, &helm, &paths).is_some()).map(|by| Taken { helm, by, paths })
}

/// Whether a field manager is a program of Kubernetes itself.
pub fn is_controller(name: &str) -> bool {
    CONTROLLERS.contains(&name)
}
