//! Compares a live object with its release, and records the result. The object is dropped afterwards; only [`Drifts`]
//! keeps the result.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::body;
use crate::drifts::{Drifts, ObjectDrift};
use crate::event::{HelmManager, LiveObject};
use crate::report::{DriftKind, SHOWN_FIELDS};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::{DeclaredObject, ObjectDeclarations, Release};
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::mask::Mask;
use kubemoor_verdict::drift::{self, DriftContext, LiveVerdict, MatchedDeclaration};
use kubemoor_verdict::edit::{DryRunEvidence, FieldFinding, ObjectContext};
use kubemoor_verdict::owners::{self, ManagerOperation, Owners};
use kubemoor_verdict::ownership::{self, TakenFields, is_controller};
use kubemoor_verdict::{diff, sealed};

pub(crate) enum LiveComparison {
    /// The state of the release's record declares no such object.
    Undeclared,
    /// It matches; `agreed` is set if it was compared. `for_now`: other managers have taken fields from Helm, so it is
    /// compared again in the next state of its release.
    AsDeclared {
        agreed: Option<MatchedDeclaration>,
        for_now: bool,
    },
    /// It differs, and a running operation may change it.
    Underway,
    Drifts(DriftKind, Vec<FieldChange>),
    /// It matches, but Helm's next upgrade would conflict with other field managers.
    Taken(TakenFields, Option<MatchedDeclaration>),
}

impl LiveComparison {
    /// Whether the object's values are the declared ones.
    pub(crate) fn agrees(&self) -> bool {
        matches!(self, Self::AsDeclared { agreed: Some(_), .. } | Self::Taken(..))
    }

    pub(crate) fn changes(&self) -> &[FieldChange] {
        if let Self::Drifts(_, changes) = self { changes } else { &[] }
    }
}

/// Compares a live object with the release's declarations of it.
pub(crate) fn compare_live(
    release: &Release,
    live: &LiveObject,
    policy: &Policy,
    circumstances: &ObjectContext,
    now: Timestamp,
    evidence: DryRunEvidence<'_>,
) -> LiveComparison {
    let object = &live.sighting.id;
    if policy.drift == DriftMode::Ignore {
        return LiveComparison::Undeclared;
    }
    let Some(standing) = state::current_claim(release, object, policy.operation_timeout, now) else {
        return LiveComparison::Undeclared;
    };
    let off = |kind, changes| {
        if standing.pending { LiveComparison::Underway } else { LiveComparison::Drifts(kind, changes) }
    };
    let Some(value) = &live.object else {
        return match standing.alternatives.iter().any(|declared| declared.opted_out) {
            true => LiveComparison::AsDeclared { agreed: None, for_now: false },
            false if live.sighting.deleting => off(DriftKind::Terminating, Vec::new()),
            false => off(DriftKind::Unreadable, Vec::new()),
        };
    };
    let subject = DriftContext { object, claim: &standing, policy, circumstances, now };
    // The managers of sealed fields are in `managedFields`.
    let is_sealed = standing.alternatives.iter().any(|it| !policy.rules(object, it).sealed.is_empty());
    let whole = if is_sealed || sealed::is_set(object, value) { live.whole() } else { None };
    let value = whole.as_ref().unwrap_or(value);
    let mut found = drift::compare(&subject, Some(value), evidence);
    if let (LiveVerdict::Drifted(drift), None) = (&found, &whole)
        && drift.depends_on_managed_fields()
        && let Some(whole) = live.whole()
    {
        found = drift::compare(&subject, Some(&whole), evidence);
    }
    let agreed = match found {
        LiveVerdict::OptedOut => return LiveComparison::AsDeclared { agreed: None, for_now: false },
        LiveVerdict::BeingDeleted => return off(DriftKind::Terminating, Vec::new()),
        LiveVerdict::MatchesPrevious => return LiveComparison::Underway,
        // The guard does not write to an object that is being deleted.
        LiveVerdict::Drifted(drift) if live.sighting.deleting => {
            return off(DriftKind::Terminating, drift.changes);
        }
        LiveVerdict::Drifted(drift) => return off(DriftKind::Changed, drift.changes),
        LiveVerdict::AsDeclared(agreed) => agreed,
        LiveVerdict::NotCreated
        | LiveVerdict::Dropped
        | LiveVerdict::Allowed
        | LiveVerdict::Expired
        | LiveVerdict::Missing => None,
    };
    if policy.drift != DriftMode::Repair {
        return LiveComparison::AsDeclared { agreed, for_now: false };
    }
    let Some(declared) = release.declared(object) else {
        return LiveComparison::AsDeclared { agreed, for_now: false };
    };
    let spared = subject.exceptions(declared).mask(value);
    match taken(live, declared, release.state.apply_method, &spared) {
        // A running operation may take the fields back, and a failed one will be followed by another.
        Some(_) if release.state.status != ReleaseStatus::Deployed => {
            LiveComparison::AsDeclared { agreed, for_now: true }
        }
        Some(taken) => LiveComparison::Taken(taken, agreed),
        None => LiveComparison::AsDeclared { agreed, for_now: false },
    }
}

/// Records the result for an object. Returns whether its drift began, changed or ended, and whether it has a new
/// agreement.
pub(crate) fn record(
    drifts: &mut Drifts,
    release: &Release,
    live: &LiveObject,
    standing: LiveComparison,
    now: Timestamp,
) -> (bool, bool) {
    let (id, object) = (&release.id, &live.sighting.id);
    let agreed = match &standing {
        LiveComparison::AsDeclared { agreed, .. } | LiveComparison::Taken(_, agreed) => agreed.as_ref(),
        _ => None,
    };
    let agrees = agreed.is_some_and(|agreed| drifts.record_agreement(release, object, agreed));
    let allowed = agreed.is_some_and(|agreed| !agreed.permitted.is_empty());
    // This is published too.
    let agrees = drifts.allow(object, allowed) || agrees;
    let has_changed = match standing {
        LiveComparison::Undeclared => drifts.clear(id, object),
        LiveComparison::AsDeclared { agreed, for_now } => {
            let by = agreed.as_ref().map(|agreed| &agreed.declared);
            let is_news = drifts.record_in_sync(release, object);
            if for_now || !is_settled(release, object, by) {
                drifts.mark_unsettled(object);
            }
            is_news
        }
        LiveComparison::Underway => {
            drifts.mark_unsettled(object);
            false
        }
        LiveComparison::Taken(taken, _) => {
            let mut drift = ObjectDrift::new(object.clone(), DriftKind::Ownership, now);
            drift.findings =
                taken.paths.into_iter().map(FieldFinding::untouched).take(SHOWN_FIELDS).collect();
            drift.by = Some(taken.by);
            drifts.record_drift(id, drift)
        }
        LiveComparison::Drifts(kind, changes) => {
            let is_doubt = |change: &FieldChange| change.agreement == FieldAgreement::Doubt;
            let doubt = !changes.is_empty() && changes.iter().all(is_doubt);
            let helms = drifts.last_seen_state(object).map(|life| life.managers.clone()).unwrap_or_default();
            let drift = ObjectDrift { needs_dry_run: doubt, ..ObjectDrift::new(object.clone(), kind, now) };
            drifts.record_drift(id, seen(live, &changes, &helms, drift))
        }
    };
    (has_changed, agrees)
}

/// The agreement of an object with additions below sealed paths; `None` where an exception lets a declared field
/// differ, because the guard has not seen that field's declared value then.
pub(crate) fn as_declared_beside(
    declared: &Arc<DeclaredObject>,
    value: &Value,
) -> Option<MatchedDeclaration> {
    let is_whole = diff::of_fields(&declared.fields(), value, false).is_empty();
    is_whole.then(|| MatchedDeclaration { has_additions: true, ..MatchedDeclaration::new(declared) })
}

pub(crate) fn are_additions(changes: &[FieldChange]) -> bool {
    !changes.is_empty() && changes.iter().all(|change| change.agreement.is_addition())
}

/// Completes a drift with the fields that differ and the manager that wrote them.
pub(crate) fn seen(
    live: &LiveObject,
    changes: &[FieldChange],
    helms: &[HelmManager],
    drift: ObjectDrift,
) -> ObjectDrift {
    let finding = |change| FieldFinding::of_change(&live.sighting.id, change);
    let findings = changes.iter().take(SHOWN_FIELDS).map(finding).collect();
    let by = writer(live, changes, helms);
    ObjectDrift { findings, by, ..drift }
}

/// Whether an object that matches the declaration `by` also matches the release's latest one. After a failed operation
/// it may match the revision before: then it has to be compared with the next revision again.
fn is_settled(release: &Release, object: &ObjectId, by: Option<&Arc<DeclaredObject>>) -> bool {
    let Some(ObjectDeclarations { latest: Some(latest), baseline: Some(baseline), .. }) =
        release.objects.get(object)
    else {
        return true;
    };
    latest.is_alike(by.unwrap_or(baseline))
}

/// The field manager of HorizontalPodAutoscalers, shared by all built-in controllers. Of these, only the autoscaler
/// sets the replicas of a workload.
const AUTOSCALERS: &str = "kube-controller-manager";

/// The manager other than `helms` that owns one of the changed fields, or else wrote to the object last.
pub(crate) fn writer(live: &LiveObject, changes: &[FieldChange], helms: &[HelmManager]) -> Option<String> {
    let is_helm = |name: &str| helms.iter().any(|manager| manager.name == name);
    let owners = live.whole().map(|whole| Owners::from_object(&whole)).unwrap_or_default();
    let holds = changes.iter().find_map(|change| {
        owners.of_path(&change.path).into_iter().map(|manager| &manager.name).find(|name| !is_helm(name))
    });
    let last = || live.sighting.updaters.iter().find(|name| !is_helm(name) && !is_controller(name));
    holds.or_else(last).cloned()
}

/// Whether a manager other than Helm and the built-in controllers owns one of these fields by an update.
pub(crate) fn is_set_by_another<'p>(
    live: &LiveObject,
    mut paths: impl Iterator<Item = &'p Path>,
    is_helm: impl Fn(&str) -> bool,
) -> bool {
    let owners = live.whole().map(|whole| Owners::from_object(&whole)).unwrap_or_default();
    let is_other = |manager: &&owners::FieldManager| {
        manager.operation == ManagerOperation::Update
            && !is_helm(&manager.name)
            && !is_controller(&manager.name)
    };
    paths.any(|path| owners.of_path(path).iter().any(is_other))
}

/// The declared fields that have their declared values and belong to a manager other than Helm; see
/// [`ownership::find_taken_fields`].
pub(crate) fn taken(
    live: &LiveObject,
    declared: &DeclaredObject,
    method: ApplyMethod,
    spared: &Mask,
) -> Option<TakenFields> {
    // Most objects have no other writer, so `managedFields` need not be parsed.
    if method != ApplyMethod::ServerSide || live.sighting.updaters.iter().all(|name| is_controller(name)) {
        return None;
    }
    ownership::find_taken_fields(&declared.fields(), &live.whole()?, method, spared)
}

/// The merge patch that returns fields to Helm if the object is unchanged; `None` if there is nothing to return.
pub(crate) fn returned(whole: &Value, helm: &owners::FieldManager, paths: &[Path]) -> Option<Value> {
    let managed = ownership::managed_fields_for_helm(whole, helm, paths)?;
    let mut patch = serde_json::json!({"metadata": {"managedFields": managed}});
    body::set_version(&mut patch, whole);
    Some(patch)
}

/// Whether a HorizontalPodAutoscaler set the replicas of a workload last, and no other manager owns them. Before
/// Kubernetes 1.22, the API server does not record who scaled the workload.
pub(crate) fn is_autoscaled(live: &LiveObject, declared: &DeclaredObject) -> bool {
    if !live.sighting.updaters.iter().any(|name| name == AUTOSCALERS) {
        return false;
    }
    let (Some(replicas), Some(whole)) = (declared.scale(), live.whole()) else { return false };
    let owners = Owners::from_object(&whole);
    let by = owners.of_path(replicas);
    !by.is_empty()
        && by
            .iter()
            .all(|manager| manager.name == AUTOSCALERS && manager.operation == ManagerOperation::Update)
}
