//! Compares a live object with its release, and records the result.
//!
//! Entry points: [`Weighing::weigh`] compares, [`record`] records. Invariant: the object is dropped
//! afterwards; only [`Drifts`] keeps the result. Must not decide about repairs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::blame::{Taken, taken, writer};
use super::drifts::{Agreed, Drift, Drifts};
use super::live::{Live, Manager};
use super::report::{DriftKind, SHOWN_FIELDS};
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::{Declarations, Declared, Release};
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_verdict::circumstances::Circumstances;
use kubemoor_verdict::drift::{self, Subject, findings};
use kubemoor_verdict::edit::{Evidence, Finding};
use kubemoor_verdict::sealed;

/// The result of a comparison of an object with its release.
pub(crate) enum Standing {
    /// The state of the release's record declares no such object.
    Undeclared,
    /// It matches; with its agreement, if it was compared.
    AsDeclared(Option<Agreed>),
    /// It differs, and a running operation may change it.
    Underway,
    /// It drifts, with the changed fields.
    Drifts(DriftKind, Vec<FieldChange>),
    /// It matches, and Helm's next upgrade would fail because of its field managers.
    Taken(Taken, Option<Agreed>),
    /// It matches, and other managers have taken fields from Helm. They are judged once its release is deployed.
    TakenBeforeDeployed(Option<Agreed>),
}

/// The news about an object.
pub(crate) struct News {
    /// Its drift began, changed or ended.
    pub(crate) stands: bool,
    /// It has a new agreement.
    pub(crate) agrees: bool,
}

/// A live object, and the release that it is compared with.
pub(crate) struct Weighing<'a> {
    pub(crate) release: &'a Release,
    pub(crate) live: &'a Live,
    /// The policy of the release.
    pub(crate) policy: &'a Policy,
    /// Other knowledge about the object.
    pub(crate) circumstances: &'a Circumstances,
    pub(crate) now: Timestamp,
}

impl Standing {
    /// Whether the object's values are the declared ones.
    pub(crate) fn agrees(&self) -> bool {
        matches!(self, Self::AsDeclared(Some(_)) | Self::Taken(..) | Self::TakenBeforeDeployed(_))
    }
}

impl Weighing<'_> {
    /// Compares the object with the release's declaration of it.
    pub(crate) fn weigh(&self, evidence: Evidence<'_>) -> Standing {
        let Self { release, live, policy, circumstances, now } = *self;
        let object = &live.sighting.id;
        if policy.drift == DriftMode::Ignore {
            return Standing::Undeclared;
        }
        let Some(standing) = state::standing(release, object, policy.operation_timeout, now) else {
            return Standing::Undeclared;
        };
        let off = |kind, changes| {
            if standing.pending { Standing::Underway } else { Standing::Drifts(kind, changes) }
        };
        let Some(value) = &live.object else {
            return match standing.alternatives.iter().any(|declared| declared.opted_out) {
                true => Standing::AsDeclared(None),
                false if live.sighting.deleting => off(DriftKind::Terminating, Vec::new()),
                false => off(DriftKind::Unreadable, Vec::new()),
            };
        };
        let subject = Subject { object, standing: &standing, policy, circumstances, now };
        // The managers of sealed fields are in `managedFields`.
        let is_sealed = standing.alternatives.iter().any(|it| !policy.rules(object, it).sealed.is_empty());
        let whole = if is_sealed || sealed::is_set(object, value) { live.whole() } else { None };
        let value = whole.as_ref().unwrap_or(value);
        let mut found = drift::compare(&subject, Some(value), evidence);
        if let (drift::Live::Drifted(drift), None) = (&found, &whole)
            && drift.hangs_on_managers()
            && let Some(whole) = live.whole()
        {
            found = drift::compare(&subject, Some(&whole), evidence);
        }
        let agreed = match found {
            drift::Live::OptedOut => return Standing::AsDeclared(None),
            drift::Live::BeingDeleted => return off(DriftKind::Terminating, Vec::new()),
            drift::Live::AsBefore => return Standing::Underway,
            // The guard does not write to it, whatever differs.
            drift::Live::Drifted(drift) if live.sighting.deleting => {
                return off(DriftKind::Terminating, drift.changes);
            }
            drift::Live::Drifted(drift) => return off(DriftKind::Changed, drift.changes),
            drift::Live::AsDeclared(agreed) => agreed,
            drift::Live::Awaited
            | drift::Live::Dropped
            | drift::Live::Allowed
            | drift::Live::Expired
            | drift::Live::Missing => None,
        };
        let agreed = agreed.map(Agreed::of);
        if policy.drift != DriftMode::Repair {
            return Standing::AsDeclared(agreed);
        }
        let Some(declared) = release.declared(object) else { return Standing::AsDeclared(agreed) };
        let spared = subject.exceptions(declared).mask(value);
        match taken(live, declared, release.state.apply_method, &spared) {
            // An operation under way may take the fields back, and a failed one is followed by another.
            Some(_) if release.state.status != Status::Deployed => Standing::TakenBeforeDeployed(agreed),
            Some(taken) => Standing::Taken(taken, agreed),
            None => Standing::AsDeclared(agreed),
        }
    }
}

/// Records the result for an object. Returns what is new.
pub(crate) fn record(
    drifts: &mut Drifts,
    release: &Release,
    live: &Live,
    standing: Standing,
    now: Timestamp,
) -> News {
    let (id, object) = (&release.id, &live.sighting.id);
    let agreed = match &standing {
        Standing::AsDeclared(agreed) | Standing::TakenBeforeDeployed(agreed) | Standing::Taken(_, agreed) => {
            agreed.as_ref()
        }
        _ => None,
    };
    let agrees = agreed.is_some_and(|agreed| drifts.record_agreement(release, object, agreed));
    let allowed = agreed.is_some_and(|agreed| agreed.allowed);
    // This is published too.
    let agrees = drifts.allow(object, allowed) || agrees;
    let stands = match standing {
        Standing::Undeclared => drifts.record_undeclared(id, object),
        Standing::AsDeclared(agreed) => {
            let by = agreed.as_ref().map(|agreed| &agreed.declared);
            let is_news = drifts.record_in_sync(release, object);
            if !is_settled(release, object, by) {
                drifts.mark_unsettled(object);
            }
            is_news
        }
        Standing::TakenBeforeDeployed(_) => {
            let is_news = drifts.record_in_sync(release, object);
            drifts.mark_unsettled(object);
            is_news
        }
        Standing::Underway => {
            drifts.mark_unsettled(object);
            false
        }
        Standing::Taken(taken, _) => {
            let mut drift = Drift::new(DriftKind::Ownership, now);
            drift.findings = taken.paths.into_iter().map(Finding::untouched).take(SHOWN_FIELDS).collect();
            drift.by = Some(taken.by);
            drifts.record_drift(id, object, drift)
        }
        Standing::Drifts(kind, changes) => {
            let is_doubt = |change: &FieldChange| change.agreement == Agreement::Doubt;
            let doubt = !changes.is_empty() && changes.iter().all(is_doubt);
            let helms = drifts.life(object).map(|life| life.managers.clone()).unwrap_or_default();
            let drift = Drift { doubt, ..Drift::new(kind, now) };
            drifts.record_drift(id, object, seen(live, &changes, &helms, drift))
        }
    };
    News { stands, agrees }
}

/// The agreement of an object with additions below sealed paths; `None` where an exception lets a
/// declared field differ, because the guard has not seen that field's declared value then.
pub(crate) fn as_declared_beside(declared: &Arc<Declared>, value: &Value) -> Option<Agreed> {
    let is_whole = drift::of_fields(&declared.fields(), value, false).is_empty();
    is_whole.then(|| Agreed::but_for_additions(declared))
}

/// Whether all changes are additions below sealed paths.
pub(crate) fn are_additions(changes: &[FieldChange]) -> bool {
    !changes.is_empty() && changes.iter().all(|change| change.agreement.is_addition())
}

/// Completes a drift with the fields that differ and the manager that wrote them.
pub(crate) fn seen(live: &Live, changes: &[FieldChange], helms: &[Manager], drift: Drift) -> Drift {
    let mut findings = findings(&live.sighting.id, changes);
    findings.truncate(SHOWN_FIELDS);
    let by = writer(live, changes, helms);
    Drift { findings, by, ..drift }
}

/// Whether an object that is as declared, `by` this declaration, is so by the release's latest one. After a failed
/// operation it may be as the revision before declares it: then the next revision has to judge it again.
fn is_settled(release: &Release, object: &ObjectId, by: Option<&Arc<Declared>>) -> bool {
    let Some(Declarations { latest: Some(latest), baseline: Some(baseline), .. }) =
        release.objects.get(object)
    else {
        return true;
    };
    latest.is_alike(by.unwrap_or(baseline))
}
