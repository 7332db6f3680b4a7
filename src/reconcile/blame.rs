//! Who changed an object, by its `managedFields`.
//!
//! Entry points: [`writer`] names who wrote what is not as declared, [`taken`]
//! finds declared fields that others hold, so that Helm's next upgrade would
//! fail, [`is_autoscaled`] tells what an autoscaler has left. Invariant: names are
//! what clients gave themselves: good for a message or to leave something alone, no
//! ground for a permission. Must not write.

use serde_json::Value;

use super::live::{Live, Manager};
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::record::ApplyMethod;
use crate::helm::release::Declared;
use crate::policy::mask::Mask;
pub(crate) use crate::verdict::ownership::Taken;
use crate::verdict::ownership::{self, Operation, Owners, is_controller};

/// The field manager of what HorizontalPodAutoscalers scale: the controllers of
/// Kubernetes itself, none of which but theirs sets the replicas of a workload.
const AUTOSCALERS: &str = "kube-controller-manager";

/// The manager that holds one of the changed fields, or wrote to the object
/// last; none where only `helms` did.
pub(crate) fn writer(live: &Live, changes: &[FieldChange], helms: &[Manager]) -> Option<String> {
    let is_helm = |name: &str| helms.iter().any(|manager| manager.name == name);
    let owners = live.whole().map(|whole| Owners::of(&whole)).unwrap_or_default();
    let holds = changes.iter().find_map(|change| {
        owners.of_path(&change.path).into_iter().map(|manager| &manager.name).find(|name| !is_helm(name))
    });
    let last = || live.sighting.updaters.iter().find(|name| !is_helm(name) && !is_controller(name));
    holds.or_else(last).cloned()
}

/// The declared fields that have their declared values and that somebody else than Helm
/// holds; see [`ownership::taken`].
pub(crate) fn taken(live: &Live, declared: &Declared, method: ApplyMethod, spared: &Mask) -> Option<Taken> {
    // Most objects nobody else has written to, and need not be read whole.
    if method != ApplyMethod::ServerSide || live.sighting.updaters.iter().all(|name| is_controller(name)) {
        return None;
    }
    ownership::taken(&declared.fields(), &live.whole()?, method, spared)
}

/// The merge patch that gives fields back to Helm if the object is unchanged;
/// none if there is nothing to give.
pub(crate) fn returned(whole: &Value, helm: &ownership::Manager, paths: &[Path]) -> Option<Value> {
    let managed = ownership::returned(whole, helm, paths)?;
    let version = whole.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Some(serde_json::json!({"metadata": {"managedFields": managed, "resourceVersion": version}}))
}

/// Whether an autoscaler of Kubernetes' own has set the replicas of a workload
/// last, and nobody owns them beside it. Before Kubernetes 1.22 the API
/// server does not tell who has scaled.
pub(crate) fn is_autoscaled(live: &Live, declared: &Declared) -> bool {
    if !live.sighting.updaters.iter().any(|name| name == AUTOSCALERS) {
        return false;
    }
    let (Some(replicas), Some(whole)) = (&declared.scale, live.whole()) else { return false };
    let owners = Owners::of(&whole);
    let by = owners.of_path(replicas);
    !by.is_empty()
        && by.iter().all(|manager| manager.name == AUTOSCALERS && manager.operation == Operation::Update)
}
