//! A report as the status of a GuardedRelease.
//!
//! Entry point: [`summary`]. Invariant: values only; the same report over the
//! same status gives the same status again, so that nothing is written.

use jiff::Timestamp;

use crate::guard::state::{Drifted, Reason, ReleaseReport};
use crate::model::{DriftMode, EditsMode};
use crate::policy::guarded::{
    DriftedField, DriftedObject, GuardedReleaseSpec, GuardedReleaseStatus, ObjectReference, SeenObject,
};
use crate::policy::resource::Condition;

/// Objects whose drift is shown.
const DRIFTS: usize = 10;

/// Fields of one object that are shown.
const FIELDS: usize = 10;

/// The most characters of a text that comes from elsewhere.
const TEXT: usize = 300;

/// Objects that a condition names.
const NAMED: usize = 5;

/// Objects seen alive that are remembered; further ones are not re-created
/// after a restart.
const SEEN: usize = 5000;

/// What else a status says, besides the report.
pub(super) struct Context<'a> {
    pub(super) spec: &'a GuardedReleaseSpec,
    pub(super) generation: Option<i64>,
    pub(super) edits: EditsMode,
    pub(super) drift: DriftMode,
    /// The spec.reconcileAt that was acted on last.
    pub(super) reconciled: Option<String>,
    pub(super) now: Timestamp,
}

/// The status that `report` amounts to, where `before` is the one that stands.
pub(super) fn summary(
    report: &ReleaseReport,
    before: Option<&GuardedReleaseStatus>,
    context: Context<'_>,
) -> GuardedReleaseStatus {
    let Context { spec, generation, edits, drift, reconciled, now } = context;
    let home = &report.release.namespace;
    let reason = if spec.suspend { Reason::Suspended } else { report.reason };
    let (ready, stalled) = standing(reason);
    let message = message(reason, report, drift);
    let conditions = before.map(|before| before.conditions.as_slice()).unwrap_or_default();
    let condition = |r#type: &str, status: &str, reason: &str, message: &str| {
        let known = conditions.iter().find(|known| known.r#type == r#type && known.status == status);
        Condition {
            r#type: r#type.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: known.map_or(now, |known| known.last_transition_time),
            observed_generation: generation,
        }
    };
    let is_stalled = if stalled { "True" } else { "False" };
    let mut all = vec![
        condition("Ready", ready, reason.as_str(), &message),
        condition("Stalled", is_stalled, reason.as_str(), &message),
    ];
    if let Some((_, flaw)) = report.flaws.first() {
        let told = report.flaws.iter().map(|(object, flaw)| format!("{object}: {flaw}"));
        let message = format!("the chart's own annotations allow nothing: {}", named(told));
        all.push(condition("AnnotationsAccepted", "False", flaw.reason.as_str(), &message));
    }
    if !report.foreign.is_empty() {
        let told = report.foreign.iter().map(|(object, owner)| format!("{object} of release {owner}"));
        let message =
            format!("declared here, and held to another release by their annotations: {}", named(told));
        all.push(condition("ForeignOwned", "True", "ForeignOwned", &message));
    }
    if !report.unwatched.is_empty() {
        all.push(condition("Unwatched", "True", "Forbidden", &unwatched(report)));
    }
    GuardedReleaseStatus {
        observed_generation: generation,
        conditions: all,
        revision: report.revision,
        record_uid: report.record.clone(),
        manifest_digest: report.digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        declared: number(report.declared),
        confirmed: number(report.confirmed),
        drifted: number(report.drifted.len()),
        edits: format!("{edits:?}"),
        drift: format!("{drift:?}"),
        last_reconcile_at: reconciled,
        drifts: report.drifted.iter().take(DRIFTS).map(|drifted| shown(drifted, home)).collect(),
        seen: report.seen_alive.iter().take(SEEN).map(|seen| SeenObject::of(seen, home)).collect(),
    }
}

/// `Ready`, and whether nothing goes on before a person acts.
fn standing(reason: Reason) -> (&'static str, bool) {
    match reason {
        Reason::InSync => ("True", false),
        Reason::Suspended | Reason::Unsettled | Reason::Unwatched => ("Unknown", false),
        Reason::Drifted | Reason::Contested | Reason::ReleaseMissing => ("False", false),
        Reason::Braked
        | Reason::Unconfirmed
        | Reason::ReleaseFailed
        | Reason::PendingLocked
        | Reason::RecordInvalid => ("False", true),
    }
}

fn message(reason: Reason, report: &ReleaseReport, mode: DriftMode) -> String {
    let ReleaseReport { release, revision, drifted, declared, .. } = report;
    let count = match drifted.len() {
        1 => format!("1 of {declared} objects is not as declared"),
        many => format!("{many} of {declared} objects are not as declared"),
    };
    match reason {
        Reason::InSync => format!("all {declared} objects are as revision {revision} declares them"),
        Reason::Unwatched => {
            format!("what may be looked at is as revision {revision} declares it; {}", unwatched(report))
        }
        Reason::Unsettled => {
            let told = drifted.iter().map(|it| {
                let why = it.kept.as_deref().unwrap_or("it was not asked yet");
                format!("{}: {why}", it.object)
            });
            let count = drifted.len();
            format!(
                "{count} of {declared} objects may not be as declared, and only a dry run could tell: {}",
                named(told)
            )
        }
        Reason::Suspended => format!("suspended: nothing is repaired; {count}; `kubemoor resume` goes on"),
        Reason::Drifted if mode == DriftMode::Repair => count,
        Reason::Drifted => {
            format!("{count}; the policy reports and does not repair; `kubemoor reconcile` repairs once")
        }
        Reason::Contested => {
            let others: Vec<_> = drifted
                .iter()
                .filter_map(|drifted| drifted.contested_by.as_deref())
                .filter(|it| !it.is_empty())
                .collect();
            match others.first() {
                Some(other) => format!(
                    "{count}; {} keeps changing it back, so repairs wait longer each time",
                    cut(other)
                ),
                None => format!("{count}; somebody keeps changing it back, so repairs wait longer each time"),
            }
        }
        Reason::Braked => {
            format!("{count}; so much drifts at once that repairs have stopped until `kubemoor reconcile`")
        }
        Reason::Unconfirmed => {
            let open: Vec<_> = drifted.iter().filter(|it| it.unconfirmed).collect();
            let names = named(open.iter().map(|it| it.object.to_string()));
            format!(
                "{count}; the guard has never seen these live objects as revision {revision} declares them and does not write them: {names}. To confirm the declared values, write them with Helm, or run `kubemoor reconcile {} -n {}` as a user who may update the objects",
                release.name, release.namespace
            )
        }
        Reason::ReleaseFailed => format!(
            "Helm's last operation failed at revision {revision}; nothing is repaired until the next; {count}"
        ),
        Reason::PendingLocked => format!(
            "a Helm operation has been under way for too long at revision {revision}; nothing is repaired; `helm rollback {} -n {}` ends it",
            release.name, release.namespace
        ),
        Reason::RecordInvalid => {
            format!(
                "the latest record cannot be believed; nothing is repaired; revision {revision} is held to by its last good record"
            )
        }
        Reason::ReleaseMissing => "the release has no record any more".to_owned(),
    }
}

/// What is not looked at, and why.
fn unwatched(report: &ReleaseReport) -> String {
    let objects: usize = report.unwatched.iter().map(|it| it.objects).sum();
    let told = report.unwatched.iter().map(|it| format!("{} of kind {}: {}", it.objects, it.kind, it.why));
    format!("{objects} of {} objects are not looked at: {}", report.declared, named(told))
}

fn shown(drifted: &Drifted, home: &str) -> DriftedObject {
    let message = match (&drifted.kept, &drifted.repaired) {
        (Some(kept), _) => Some(cut(kept)),
        (None, Some(Err(error))) => Some(format!("not repaired: {}", cut(error))),
        (None, _) => None,
    };
    DriftedObject {
        object: ObjectReference::of(&drifted.object, home),
        r#type: drifted.kind.as_str().to_owned(),
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
        since: drifted.since,
        message,
    }
}

/// The first of these, and how many more there are.
fn named(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let first: Vec<String> = all.take(NAMED).map(|text| cut(&text)).collect();
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    first.join("; ") + &rest
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
