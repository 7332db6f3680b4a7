//! Holds a live object against its release, and notes how it stands.
//!
//! Entry points: [`Weighing::weigh`] says how it stands, [`record`] notes it. Invariant:
//! the object is dropped afterwards; only [`Drifts`] learns what came of it. Must
//! not decide what is done about it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::blame::{Taken, taken, writer};
use super::drifts::{Agreed, Drift, Drifts};
use super::live::{Live, Manager};
use super::report::{DriftKind, SHOWN_FIELDS};
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::helm::record::Status;
use crate::helm::release::{Declared, Release};
use crate::helm::state;
use crate::model::DriftMode;
use crate::policy::Policy;
use crate::verdict::circumstances::Circumstances;
use crate::verdict::drift::{self, Subject, findings};
use crate::verdict::edit::{Evidence, Finding};
use crate::verdict::sealed;

/// How an object stands.
pub(crate) enum Standing {
    /// The state of the release's record declares no such object.
    Undeclared,
    /// It is as declared; with what it was compared with, if it was.
    AsDeclared(Option<Agreed>),
    /// It is not, and an operation is under way that may change it.
    Underway,
    /// It is not, with the declared paths that are not.
    Drifts(DriftKind, Vec<FieldChange>),
    /// It is as declared, and Helm's next upgrade would fail.
    Taken(Taken, Option<Agreed>),
}

/// What is new of an object.
pub(crate) struct News {
    /// It drifts now, or otherwise, or no more.
    pub(crate) stands: bool,
    /// It agrees with what it was not seen to agree with before.
    pub(crate) agrees: bool,
}

/// A live object, and the release that it is held against.
pub(crate) struct Weighing<'a> {
    pub(crate) release: &'a Release,
    pub(crate) live: &'a Live,
    /// The policy of the release.
    pub(crate) policy: &'a Policy,
    /// What else is known of the object.
    pub(crate) circumstances: &'a Circumstances,
    pub(crate) now: Timestamp,
}

impl Weighing<'_> {
    /// How the object stands against what the release declares of it.
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
        // Who has set what is sealed its managers tell.
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
            drift::Live::Drifted(drift) => return off(DriftKind::Changed, drift.changes),
            drift::Live::AsDeclared(agreed) => agreed,
            drift::Live::Awaited | drift::Live::Allowed | drift::Live::Missing => None,
        };
        let agreed = agreed.map(Agreed::of);
        if policy.drift != DriftMode::Repair || release.state.status != Status::Deployed {
            return Standing::AsDeclared(agreed);
        }
        let Some(declared) = release.declared(object) else { return Standing::AsDeclared(agreed) };
        let spared = subject.exceptions(declared).mask(value);
        match taken(live, declared, release.state.apply_method, &spared) {
            Some(taken) => Standing::Taken(taken, agreed),
            None => Standing::AsDeclared(agreed),
        }
    }
}

/// Notes how an object stands. Gives what of that is new.
pub(crate) fn record(
    drifts: &mut Drifts,
    release: &Release,
    live: &Live,
    standing: Standing,
    now: Timestamp,
) -> News {
    let (id, object) = (&release.id, &live.sighting.id);
    let agrees = match &standing {
        Standing::AsDeclared(Some(agreed)) | Standing::Taken(_, Some(agreed)) => {
            drifts.record_agreement(release, object, agreed)
        }
        _ => false,
    };
    let allowed = match &standing {
        Standing::AsDeclared(Some(agreed)) | Standing::Taken(_, Some(agreed)) => agreed.allowed,
        _ => false,
    };
    // That is told on as well.
    let agrees = drifts.allow(object, allowed) || agrees;
    let stands = match standing {
        Standing::Undeclared => drifts.record_undeclared(id, object),
        Standing::AsDeclared(_) => drifts.record_in_sync(release, object),
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

/// What an object agrees with that holds more below sealed paths; none where an exception lets a
/// declared field differ, which nobody has seen then.
pub(crate) fn as_declared_beside(declared: &Arc<Declared>, value: &Value) -> Option<Agreed> {
    let is_whole = drift::of_fields(&declared.fields(), value, false).is_empty();
    is_whole.then(|| Agreed::but_for_additions(declared))
}

/// Whether all that differs is what somebody added below sealed paths.
pub(crate) fn are_additions(changes: &[FieldChange]) -> bool {
    !changes.is_empty() && changes.iter().all(|change| change.agreement.is_addition())
}

/// A drift as it was seen: with the fields that differ, and who wrote them.
pub(crate) fn seen(live: &Live, changes: &[FieldChange], helms: &[Manager], drift: Drift) -> Drift {
    let mut findings = findings(&live.sighting.id, changes);
    findings.truncate(SHOWN_FIELDS);
    let by = writer(live, changes, helms);
    Drift { findings, by, ..drift }
}
