//! The health of a release in sentences.
//!
//! Entry points: [`message`] for the guard's status, `Counts::headline` for `diff`. Invariant:
//! every number comes from the counts. Must not count anything.

use super::{Counts, Facts, ObjectState, Reason};
use kubemoor_declare::model::DriftMode;
use kubemoor_declare::model::text::one_line;
use kubemoor_policy::suspension::Suspension;

/// Objects that a sentence names.
const NAMED: usize = 5;

/// The most characters of a text that comes from elsewhere.
const TEXT: usize = 300;

/// The message for a release in this state.
pub(super) fn message(reason: Reason, counts: &Counts, facts: &Facts) -> String {
    let sentence = sentence(reason, counts, facts);
    match facts.control.open {
        true => format!(
            "the emergency is open: no change is checked and nothing is repaired until `kubemoor emergency close`; {sentence}"
        ),
        false => sentence,
    }
}

impl Counts {
    /// The counts in few words.
    pub fn headline(&self) -> String {
        let Self { declared, drifted, in_doubt, not_created, allowed, unwatched, .. } = *self;
        let objects = counted(declared, "object");
        let mut parts = vec![match (drifted, in_doubt) {
            (0, 0) => format!("{objects}, no drift"),
            (0, _) => format!("{objects}, no certain drift"),
            (_, _) => format!("{drifted} of {objects} drifted"),
        }];
        for (count, what) in [
            (in_doubt, "in doubt"),
            (not_created, "not created"),
            (allowed, "allowed to differ"),
            (unwatched, "not read"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.join(", ")
    }

    /// The states of the objects, as a clause.
    fn clause(&self, facts: &Facts) -> String {
        let Self { declared, matching, drifted, ownership, .. } = *self;
        let manifest = match (facts.record.state, facts.record.deployed) {
            (super::RecordState::Failed, Some(deployed)) => {
                format!("revision {} or {deployed}", facts.record.revision)
            }
            _ => format!("revision {}", facts.record.revision),
        };
        let mut clauses = Vec::new();
        let changed = drifted.saturating_sub(ownership);
        if changed > 0 {
            let verb = if changed == 1 { "does" } else { "do" };
            clauses.push(format!("{changed} of {} {verb} not match {manifest}", counted(declared, "object")));
        }
        let held = facts.objects.iter().filter(|it| it.state == ObjectState::Changed);
        let held: Vec<_> =
            held.filter_map(|it| Some(format!("{}: {}", it.object, it.kept.as_ref()?))).collect();
        if !held.is_empty() {
            clauses.push(named(held.into_iter()));
        }
        if ownership > 0 {
            clauses.push(format!(
                "{ownership} of {} {} other owners of declared fields than Helm, so the next `helm upgrade` may fail with a conflict",
                counted(declared, "object"),
                if ownership == 1 { "has" } else { "have" },
            ));
        }
        if drifted == 0 {
            clauses.push(match matching == declared {
                true => format!("all {} match {manifest}", counted(declared, "object")),
                false => format!("{matching} of {} match {manifest}", counted(declared, "object")),
            });
        }
        clauses.extend(self.rest(facts));
        clauses.join("; ")
    }

    /// Those that neither match nor drifted.
    fn rest(&self, facts: &Facts) -> Vec<String> {
        let names = |state: ObjectState| {
            let meant: Vec<_> = facts.objects.iter().filter(|it| it.state == state).collect();
            named(meant.iter().map(|it| match &it.kept {
                Some(kept) => format!("{}: {kept}", it.object),
                None => it.object.to_string(),
            }))
        };
        let mut clauses = Vec::new();
        if self.in_doubt > 0 {
            clauses.push(format!(
                "{} may not match, and only a dry run could tell: {}",
                self.in_doubt,
                names(ObjectState::InDoubt)
            ));
        }
        if self.allowed > 0 {
            clauses.push(format!("{} allowed to differ: {}", are(self.allowed), names(ObjectState::Allowed)));
        }
        if self.deleting > 0 {
            clauses.push(format!("{} being deleted: {}", are(self.deleting), names(ObjectState::Deleting)));
        }
        if self.not_created > 0 {
            let what = if self.not_created == 1 { "was" } else { "were" };
            clauses.push(format!("{} {what} not created: {}", self.not_created, names(ObjectState::Awaited)));
        }
        if self.unjudged > self.outside {
            let others = self.unjudged - self.outside;
            clauses.push(format!("{} opted out or owned by another release", are(others)));
        }
        if self.outside > 0 {
            clauses.push(format!("{} outside of the namespace, not judged", are(self.outside)));
        }
        if let Some(unwatched) = unwatched(facts) {
            clauses.push(unwatched);
        }
        clauses
    }
}

/// The objects that are not watched, and why.
pub(super) fn unwatched(facts: &Facts) -> Option<String> {
    let objects: usize = facts.unwatched.iter().map(|it| it.objects).sum();
    let told = facts.unwatched.iter().map(|it| format!("{} of kind {}: {}", it.objects, it.kind, it.why));
    let unread: Vec<_> = facts.objects.iter().filter(|it| it.state == ObjectState::Unread).collect();
    let told: Vec<String> = told.chain(unread.iter().map(|it| it.object.to_string())).collect();
    let count = objects.saturating_add(unread.len());
    (count > 0).then(|| {
        format!(
            "{count} of {} {} not looked at: {}",
            counted(facts.declared, "object"),
            if count == 1 && facts.declared == 1 { "is" } else { "are" },
            named(told.into_iter())
        )
    })
}

/// The first of these texts, and the number of the others.
pub fn named(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let first: Vec<String> = all.take(NAMED).map(|text| cut(&text)).collect();
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    first.join("; ") + &rest
}

fn sentence(reason: Reason, counts: &Counts, facts: &Facts) -> String {
    let (name, namespace, revision) = (&facts.release.name, &facts.release.namespace, facts.record.revision);
    let stands = || counts.clause(facts);
    match reason {
        Reason::InSync | Reason::Unwatched | Reason::Unsettled => stands(),
        Reason::DriftIgnored => {
            "the policy says `drift: Ignore`, so the guard does not look at the objects".to_owned()
        }
        Reason::OperationUnderway => format!(
            "a Helm operation is under way at revision {revision}; the guard judges the objects when it ends"
        ),
        Reason::Suspended => {
            let Suspension { until, reason } = facts.control.suspended.clone().unwrap_or_default();
            let end = until.map(|until| format!(" until {until}")).unwrap_or_default();
            let why = if reason.is_empty() { String::new() } else { format!(" ({})", cut(&reason)) };
            format!(
                "suspended{end}{why}, so nothing is repaired until {}`kubemoor resume {name} -n {namespace}`; {}",
                if until.is_some() { "then or " } else { "" },
                stands()
            )
        }
        Reason::Drifted if facts.control.drift == DriftMode::Repair => stands(),
        Reason::Drifted => format!(
            "{}; the policy reports drift and does not repair it; `kubemoor reconcile {name} -n {namespace}` repairs it once",
            stands()
        ),
        Reason::Contested => {
            let others = facts.objects.iter().filter_map(|it| it.contested_by.as_deref());
            let other = others.filter(|it| !it.is_empty()).map(cut).next();
            format!(
                "{}; {} keeps changing it back, so repairs wait longer each time",
                stands(),
                other.as_deref().unwrap_or("somebody")
            )
        }
        Reason::Braked => format!(
            "{}; too many objects drift at once, so repairs have stopped until `kubemoor reconcile {name} -n {namespace}`",
            stands()
        ),
        Reason::Unconfirmed => {
            let open: Vec<_> = facts.objects.iter().filter(|it| it.unconfirmed).collect();
            let names = named(open.iter().map(|it| it.object.to_string()));
            format!(
                "{}; the guard has never seen these live objects as revision {revision} declares them and does not write them: {names}. To confirm the declared values, write them with Helm, or run `kubemoor reconcile {name} -n {namespace}` as a user who may update the objects",
                stands()
            )
        }
        Reason::ReleaseFailed => failed(counts, facts),
        Reason::PendingLocked => format!(
            "a Helm operation has been under way for too long at revision {revision}, so nothing is repaired; `helm rollback {name} -n {namespace}` ends it"
        ),
        Reason::RecordInvalid => format!(
            "the latest record cannot be read, so nothing is repaired; the guard uses the last valid revision, {revision}"
        ),
        Reason::ReleaseMissing => "the release has no record any more".to_owned(),
    }
}

/// The message after a failed Helm operation: the states of the objects, and the ways out.
fn failed(counts: &Counts, facts: &Facts) -> String {
    let (name, namespace, revision) = (&facts.release.name, &facts.release.namespace, facts.record.revision);
    let Some(deployed) = facts.record.deployed else {
        return format!(
            "the installation failed at revision {revision}; {}. Correct the cause and run `helm upgrade --install {name} CHART -n {namespace}`, or run `helm uninstall {name} -n {namespace}`",
            counts.clause(facts)
        );
    };
    let reconcile = match counts.drifted {
        0 => String::new(),
        _ => format!(
            " `kubemoor reconcile {name} -n {namespace}` sets drifted objects back to revision {deployed} and returns their fields to Helm."
        ),
    };
    format!(
        "Helm's last operation failed at revision {revision}; {}.{reconcile} To end this state, run `helm upgrade {name} CHART -n {namespace}` or `helm rollback {name} {deployed} -n {namespace}`; with `--force-conflicts` if Helm reports a conflict",
        counts.clause(facts)
    )
}

fn are(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn cut(text: &str) -> String {
    one_line(text).chars().take(TEXT).collect()
}
