//! Turns a report into the status of a GuardedRelease. The same report with the same previous status gives an equal
//! status, so that nothing is written.

use jiff::Timestamp;
use serde::Serialize;

use crate::guard::number;
use kubemoor_declare::model::text::{one_line, shortened};
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId};
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::guarded::{
    DriftedField, DriftedObject, GuardedReleaseSpec, GuardedReleaseStatus, LeaseReference, ObjectReference,
    OrderAnswer, SeenObject, Suspension, hidden_digest,
};
use kubemoor_policy::resource::StatusCondition;
use kubemoor_policy::signing::{SigningKey, hex};
use kubemoor_reconcile::drifts::ObjectDrift;
use kubemoor_reconcile::report::LoopReport;
use kubemoor_verdict::health::{ReleaseHealth, RepairControl, named};

/// The maximum number of objects whose drift is shown, the oldest drift first.
const DRIFTS: usize = 10;

const FIELDS: usize = 10;

/// The maximum length of a text from another source, in characters.
const TEXT: usize = 300;

/// The maximum number of remembered objects that were seen alive; further ones are not re-created after a restart.
const SEEN: usize = 5000;

/// Their maximum size in bytes. The API server accepts requests of 3 MiB, etcd of 1.5 MiB.
const SEEN_BYTES: usize = 1 << 20;

pub(super) struct StatusContext<'a> {
    pub(super) spec: &'a GuardedReleaseSpec,
    pub(super) generation: Option<i64>,
    pub(super) edits: EditsMode,
    pub(super) drift: DriftMode,
    pub(super) open: bool,
    /// The spec.reconcileAt that was acted on last.
    pub(super) reconciled: Option<String>,
    /// The answer to the last order that was carried out.
    pub(super) order: Option<OrderAnswer>,
    pub(super) lease: Option<LeaseReference>,
    /// The key that hides the manifest's digest from others.
    pub(super) key: &'a SigningKey,
    pub(super) now: Timestamp,
}

pub(super) fn summary(
    report: &LoopReport,
    before: Option<&GuardedReleaseStatus>,
    context: StatusContext<'_>,
) -> GuardedReleaseStatus {
    let home = &report.release.namespace;
    let mut facts = report.facts();
    let suspension = Suspension::from_spec(context.spec).filter(|it| !it.is_over(context.now));
    let suspended = suspension.or_else(|| facts.control.suspended.take());
    facts.control = RepairControl {
        drift: context.drift,
        enforcement_disabled: context.open,
        suspended,
        ..facts.control
    };
    let health = ReleaseHealth::new(&facts);
    let conditions = StatusConditions {
        before: before.map(|before| before.conditions.as_slice()).unwrap_or_default(),
        generation: context.generation,
        now: context.now,
    };
    let record = (report.records.revision, report.record.as_deref());
    let digest = hidden_digest(context.key, &report.release, record, report.digest);
    let known: Vec<_> =
        before.iter().flat_map(|before| &before.drifts).map(|it| (it.object.id(home), it)).collect();
    let mut drifts: Vec<(Timestamp, &ObjectDrift)> =
        report.drifted.iter().map(|drifted| (since(drifted, &known), drifted)).collect();
    // Drifted objects come first, and of these the oldest drift.
    drifts.sort_by_key(|(since, drifted)| (!drifted.state().is_drift(), *since));
    GuardedReleaseStatus {
        observed_generation: context.generation,
        conditions: conditions.all(report, &health, facts.unwatched_clause()),
        revision: report.records.revision,
        record_uid: report.record.clone(),
        manifest_digest: hex(&digest),
        declared: number(health.counts.declared),
        confirmed: number(report.confirmed),
        field_manager: report.manager.as_ref().map(ToString::to_string),
        drifted: number(health.counts.drifted),
        counts: health.counts.kept(),
        edits: format!("{:?}", context.edits),
        drift: format!("{:?}", context.drift),
        last_reconcile_at: context.reconciled,
        order: context.order,
        lease: context.lease,
        drifts: drifts.into_iter().take(DRIFTS).map(|(since, drifted)| shown(drifted, home, since)).collect(),
        seen: remembered(&report.seen_alive, home),
    }
}

struct StatusConditions<'a> {
    before: &'a [StatusCondition],
    generation: Option<i64>,
    now: Timestamp,
}

impl StatusConditions<'_> {
    /// Ready, Stalled and further conditions that users should know of; `unwatched` names the
    /// objects that cannot be watched.
    fn all(
        &self,
        report: &LoopReport,
        health: &ReleaseHealth,
        unwatched: Option<String>,
    ) -> Vec<StatusCondition> {
        let ReleaseHealth { ready, stalled, reason, message, .. } = health;
        let is_stalled = if *stalled { "True" } else { "False" };
        let mut all = vec![
            self.one("Ready", ready.as_str(), reason.as_str(), message),
            self.one("Stalled", is_stalled, reason.as_str(), message),
        ];
        if let Some((_, flaw)) = report.flaws.first() {
            let told = report.flaws.iter().map(|(object, flaw)| format!("{object}: {flaw}"));
            let message = format!("the chart has invalid annotations, which have no effect: {}", named(told));
            all.push(self.one("AnnotationsAccepted", "False", flaw.reason.as_str(), &message));
        }
        if !report.foreign.is_empty() {
            let told = report.foreign.iter().map(|(object, owner)| format!("{object} of release {owner}"));
            let message =
                format!("declared here, but their annotations name another release: {}", named(told));
            all.push(self.one("ForeignOwned", "True", "ForeignOwned", &message));
        }
        all.extend(unwatched.map(|unwatched| self.one("Unwatched", "True", "Forbidden", &unwatched)));
        all
    }

    /// One condition, which keeps its transition time while its status is the same.
    fn one(&self, r#type: &str, status: &str, reason: &str, message: &str) -> StatusCondition {
        let known = self.before.iter().find(|known| known.r#type == r#type && known.status == status);
        StatusCondition {
            r#type: r#type.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: known.map_or(self.now, |known| known.last_transition_time),
            observed_generation: self.generation,
        }
    }
}

/// The remembered objects that were seen alive. If there is too little room, settled values are
/// dropped first: dry runs can find them again.
fn remembered(seen: &[ObservedObject], home: &str) -> Vec<SeenObject> {
    let mut seen: Vec<SeenObject> = seen.iter().take(SEEN).map(|it| SeenObject::new(it, home)).collect();
    if bytes(&seen) > SEEN_BYTES {
        seen.iter_mut().for_each(|it| it.settled = None);
        let mut left = SEEN_BYTES;
        seen.retain(|it| {
            let fits = left.checked_sub(bytes(it));
            left = fits.unwrap_or_default();
            fits.is_some()
        });
    }
    seen
}

fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

/// The start of a drift. A drift that was `known` before keeps its start, even if a restarted guard finds it again.
fn since(drifted: &ObjectDrift, known: &[(ObjectId, &DriftedObject)]) -> Timestamp {
    let r#type = drifted.state().as_str();
    let before = known.iter().find(|(object, it)| *object == *drifted.object && it.r#type == r#type);
    before.map_or(drifted.since, |(_, before)| before.since.min(drifted.since))
}

fn shown(drifted: &ObjectDrift, home: &str, since: Timestamp) -> DriftedObject {
    let message = match (&drifted.unrepaired_reason, &drifted.repaired) {
        (Some(kept), _) => Some(cut(kept)),
        (None, Some(Err(error))) => Some(format!("not repaired: {}", cut(error))),
        (None, _) => None,
    };
    DriftedObject {
        object: ObjectReference::new(&drifted.object, home),
        r#type: drifted.state().as_str().to_owned(),
        fields: drifted
            .findings
            .iter()
            .take(FIELDS)
            .map(|finding| DriftedField {
                path: cut(&finding.path.to_string()),
                declared: finding.declared.as_ref().map(ToString::to_string),
                live: finding.new.as_ref().map(ToString::to_string),
            })
            .collect(),
        more_fields: number(drifted.findings.len().saturating_sub(FIELDS)),
        by: drifted.by.as_deref().map(cut),
        since,
        message,
    }
}

fn cut(text: &str) -> String {
    shortened(one_line(text), TEXT).into_owned()
}

#[cfg(test)]
mod tests;
