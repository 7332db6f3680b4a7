//! Ledger rows about the autoscalers of guarded workloads: from watch events, without a user, and from reviews of
//! undeclared autoscalers, with the user. The webhook for these denies nothing.

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;

use super::review::AdmissionRequest;
use kubemoor_cluster::mirror::autoscalers::{self, Scaling};
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::edit::ObjectDeclaration;
use kubemoor_verdict::exceptions::may_scale;

/// One change: what happened, the autoscaler now or last, and its range before.
pub type ScalingChange = (Act, Scaling, Option<(i32, i32)>);

/// The rows for a review of an autoscaler; none for a declared one, whose changes are judged instead.
pub(super) fn rows(
    request: &AdmissionRequest<'_>,
    index: &RwLock<Index>,
    resolver: &PolicyResolver,
) -> Vec<LedgerRow> {
    let parse = |text: &Option<Excerpt<'_>>| text.as_ref()?.value();
    let (old, new) = (parse(&request.old_object), parse(&request.object));
    let index = &index.read();
    let read = |object: Option<Value>| {
        let (id, workload, scaling) = autoscalers::scaling(&object?, index)?;
        index.claims(&id).is_empty().then_some((workload, scaling))
    };
    let changes = match (read(old), read(new)) {
        (Some((before, old)), Some((workload, new))) if before == workload => {
            let changed = (old.range != new.range).then_some((Act::ChangeAutoscaling, new, Some(old.range)));
            changed.map(|change| (workload, change)).into_iter().collect()
        }
        (old, new) => {
            let ended = old.map(|(workload, old)| (workload, (Act::StopAutoscaling, old, None)));
            let begun = new.map(|(workload, new)| (workload, (Act::StartAutoscaling, new, None)));
            ended.into_iter().chain(begun).collect::<Vec<_>>()
        }
    };
    let row = |(workload, change): (ObjectId, ScalingChange)| {
        let (release, declared, replicas) = declaring_release(index, &workload)?;
        let counts =
            may_scale(&resolver.policy(&release.id), declared, &change.1.declared_by, change.1.range);
        let (actor, uid) = (request.actor.clone(), request.head.uid.to_string());
        let edit = ReviewedEdit { actor, uid, ..ReviewedEdit::watched(workload.clone(), None) };
        let row = scaling_row(edit, Some((release.id.clone(), release.state.revision)), replicas, change);
        let row = LedgerRow { is_low_priority: true, ..row };
        // If it takes effect later, that is another row.
        let detail = format!("without effect: {}", row.detail);
        Some(if counts { row } else { LedgerRow { same: None, detail, ..row } })
    };
    changes.into_iter().filter_map(row).collect()
}

/// The release that declares the replicas of a workload, its declaration of the workload, and the path of the replicas.
pub fn declaring_release<'i>(
    index: &'i Index,
    workload: &'i ObjectId,
) -> Option<(&'i Release, ObjectDeclaration<'i>, &'i Path)> {
    index.claims(workload).into_iter().find_map(|release| {
        let declared = release.declared(workload)?;
        let replicas = declared.scale()?;
        let is_declared = declared.fields().leaves().iter().any(|(leaf, _)| leaf == replicas);
        let declaration = ObjectDeclaration { object: workload, release: &release.id, declared };
        is_declared.then_some((&**release, declaration, replicas))
    })
}

/// The row about a change of an autoscaler of a workload. A review and a watch event of the same state give one row.
pub fn scaling_row(
    workload: ReviewedEdit,
    release: Option<(ReleaseId, u64)>,
    replicas: &Path,
    (act, scaling, before): ScalingChange,
) -> LedgerRow {
    let Scaling { kind, name, uid, range, written: (manager, time), .. } = scaling;
    let (from, to) = range;
    let what = match (act, before) {
        (Act::StopAutoscaling, _) => format!("{kind} {name:?} no longer sets {replicas}"),
        (_, Some((least, most))) => {
            format!("{kind} {name:?} sets {replicas} from {from} to {to} (before: from {least} to {most})")
        }
        _ => format!("{kind} {name:?} sets {replicas} from {from} to {to}"),
    };
    let is_known = act != Act::StopAutoscaling && !manager.is_empty();
    let by = is_known.then(|| format!("by field manager {manager:?}"));
    let detail = [Some(what), by].into_iter().flatten().collect::<Vec<_>>().join("; ");
    // A guard that starts cannot tell a changed autoscaler from a new one.
    let state = match act {
        // An autoscaler that returns may stop again.
        Act::StopAutoscaling => format!("until {time}"),
        _ => format!("{from} {to} {time}"),
    };
    let same = Some(format!("{uid} scales {} {state}", workload.object));
    LedgerRow { same, detail, ..LedgerRow::act(Timestamp::now(), workload, release, act) }
}

#[cfg(test)]
mod tests;
