//! Who changed an object, by its `managedFields`.
//!
//! Entry points: [`writer`] names the field manager that wrote a difference, [`taken`] finds
//! declared fields of other managers, at which Helm's next upgrade would fail, [`is_autoscaled`]
//! tells whether an autoscaler set the replicas. Invariant: clients choose these names themselves,
//! so they may appear in a message or be a reason to leave a field alone, and never grant a
//! permission. Must not write.

use serde_json::Value;

use super::live::{Live, Manager};
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Declared;
use kubemoor_policy::mask::Mask;
pub(crate) use kubemoor_verdict::ownership::Taken;
use kubemoor_verdict::ownership::{self, Operation, Owners, is_controller};

/// The field manager of HorizontalPodAutoscalers: the controllers of Kubernetes itself. Among
/// these, only the autoscaler sets the replicas of a workload.
const AUTOSCALERS: &str = "kube-controller-manager";

/// The manager that holds one of the changed fields, or else wrote to the object last; `None` where
/// only `helms` wrote.
pub(crate) fn writer(live: &Live, changes: &[FieldChange], helms: &[Manager]) -> Option<String> {
    let is_helm = |name: &str| helms.iter().any(|manager| manager.name == name);
    let owners = live.whole().map(|whole| Owners::of(&whole)).unwrap_or_default();
    let holds = changes.iter().find_map(|change| {
        owners.of_path(&change.path).into_iter().map(|manager| &manager.name).find(|name| !is_helm(name))
    });
    let last = || live.sighting.updaters.iter().find(|name| !is_helm(name) && !is_controller(name));
    holds.or_else(last).cloned()
}

/// Whether a person or a program other than Helm set one of these fields last.
pub(crate) fn is_set_by_another<'p>(
    live: &Live,
    mut paths: impl Iterator<Item = &'p Path>,
    is_helm: impl Fn(&str) -> bool,
) -> bool {
    let owners = live.whole().map(|whole| Owners::of(&whole)).unwrap_or_default();
    let is_other = |manager: &&ownership::Manager| {
        manager.operation == Operation::Update && !is_helm(&manager.name) && !is_controller(&manager.name)
    };
    paths.any(|path| owners.of_path(path).iter().any(is_other))
}

/// The declared fields that have their declared values and belong to a manager other than Helm; see
/// [`ownership::taken`].
pub(crate) fn taken(live: &Live, declared: &Declared, method: ApplyMethod, spared: &Mask) -> Option<Taken> {
    // Most objects have no other writer, so the whole object is not read.
    if method != ApplyMethod::ServerSide || live.sighting.updaters.iter().all(|name| is_controller(name)) {
        return None;
    }
    ownership::taken(&declared.fields(), &live.whole()?, method, spared)
}

/// The merge patch that returns fields to Helm if the object is unchanged; `None` if there is
/// nothing to return.
pub(crate) fn returned(whole: &Value, helm: &ownership::Manager, paths: &[Path]) -> Option<Value> {
    let managed = ownership::returned(whole, helm, paths)?;
    let version = whole.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Some(serde_json::json!({"metadata": {"managedFields": managed, "resourceVersion": version}}))
}

/// Whether an autoscaler of Kubernetes set the replicas of a workload last, and no other manager
/// owns them. Before Kubernetes 1.22, the API server does not record who scaled the workload.
pub(crate) fn is_autoscaled(live: &Live, declared: &Declared) -> bool {
    if !live.sighting.updaters.iter().any(|name| name == AUTOSCALERS) {
        return false;
    }
    let (Some(replicas), Some(whole)) = (declared.scale(), live.whole()) else { return false };
    let owners = Owners::of(&whole);
    let by = owners.of_path(replicas);
    !by.is_empty()
        && by.iter().all(|manager| manager.name == AUTOSCALERS && manager.operation == Operation::Update)
}
