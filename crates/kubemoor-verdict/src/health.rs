//! The health of a release as a whole: its state in one word, the counts of its objects, and the sentences about it.
//! The guard's statuses and metrics, `get releases`, `diff` and `explain` show these and count nothing themselves, so
//! state, counts and sentences never contradict each other. `InSync` means that no object drifts, possibly drifts or
//! could not be read.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use kubemoor_declare::model::text::{one_line, shortened};
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::Release;
use kubemoor_helm::state::is_locked;
use kubemoor_policy::guarded::{GuardedReleaseStatus, LeaseReference, ObjectCounts, Suspension};

#[derive(Clone, Debug, PartialEq)]
pub struct HealthFacts {
    pub release: ReleaseId,
    pub record: RecordHealth,
    pub control: RepairControl,
    pub declared: usize,
    /// The declared objects that do not plainly match, sorted by object.
    pub objects: Vec<ObjectFacts>,
    /// The declared objects that the guard may not read, by kind.
    pub unwatched: Vec<Unwatched>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHealth {
    /// The revision that the objects are compared with.
    pub revision: u64,
    /// The last deployed revision, if it is another one.
    pub deployed: Option<u64>,
    pub state: RecordState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    Deployed,
    Underway,
    /// A Helm operation has been under way for too long.
    Locked,
    Failed,
    /// The latest record cannot be read.
    Invalid,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairControl {
    pub drift: DriftMode,
    /// Enforcement is disabled (emergency): nothing is judged, nothing is repaired.
    pub enforcement_disabled: bool,
    /// A user has suspended repairs of the release.
    pub suspended: Option<Suspension>,
    /// Repairs have stopped because too many objects drift at once.
    pub braked: bool,
}

/// One object that does not plainly match its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    pub object: ObjectId,
    pub state: ObjectState,
    /// The reason why it stays in this state.
    pub kept: Option<String>,
    /// The field manager that keeps changing it back; empty if it has no name.
    pub contested_by: Option<String>,
    /// Its declared values were never seen in the live object, so the guard does not write them.
    pub unconfirmed: bool,
}

/// The state of an object that does not plainly match its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ObjectState {
    Missing,
    Changed,
    /// Its fields match, but another field manager owns some of them, so Helm's next upgrade conflicts with it.
    Ownership,
    /// It is nested too deep to be compared.
    Unreadable,
    /// Declared fields possibly differ; only a dry run could tell.
    InDoubt,
    #[strum(serialize = "terminating")]
    Deleting,
    /// It differs or is missing as an exception allows.
    Allowed,
    /// The operation that failed or is under way has not created it.
    #[strum(serialize = "not-created")]
    NotCreated,
    OptedOut,
    Foreign,
    /// It is outside of the release's namespace and is not known to name the release: the guard neither reads it nor
    /// reports anything about it.
    Outside,
    Unread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwatched {
    pub kind: String,
    pub objects: usize,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseHealth {
    pub ready: Ready,
    pub stalled: bool,
    pub reason: HealthReason,
    pub counts: HealthCounts,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Ready {
    True,
    False,
    Unknown,
}

impl ReleaseHealth {
    pub fn new(facts: &HealthFacts) -> Self {
        let counts = HealthCounts::count(facts);
        let reason = HealthReason::new(facts, &counts);
        let mut message = sentence(reason, &counts, facts);
        if facts.control.enforcement_disabled {
            message = format!(
                "the emergency is open: no change is checked and nothing is repaired until `kubemoor emergency close`; {message}"
            );
        }
        Self { ready: reason.ready(), stalled: reason.is_stalled(), reason, counts, message }
    }
}

impl RecordHealth {
    pub fn new(release: &Release, operation_timeout: Duration, now: Timestamp) -> Self {
        let status = release.state.status;
        let state = if release.invalid.is_some() {
            RecordState::Invalid
        } else if is_locked(release, operation_timeout, now) {
            RecordState::Locked
        } else if status.is_pending() || status == ReleaseStatus::Uninstalling {
            RecordState::Underway
        } else if status == ReleaseStatus::Failed {
            RecordState::Failed
        } else if status == ReleaseStatus::Uninstalled {
            RecordState::Gone
        } else {
            RecordState::Deployed
        };
        let deployed = release.baseline.as_ref().map(|baseline| baseline.revision);
        Self { revision: release.state.revision, deployed, state }
    }
}

impl RepairControl {
    /// A drift mode, with repairs neither suspended nor stopped.
    pub fn by_mode(drift: DriftMode) -> Self {
        Self { drift, enforcement_disabled: false, suspended: None, braked: false }
    }
}

impl ObjectState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a forced server-side apply of the manifest would change the object.
    pub fn is_drift(self) -> bool {
        matches!(self, Self::Missing | Self::Changed | Self::Ownership | Self::Unreadable)
    }
}

impl ObjectFacts {
    pub fn new(object: ObjectId, state: ObjectState) -> Self {
        Self { object, state, kept: None, contested_by: None, unconfirmed: false }
    }
}

impl Ready {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A status is stale if the guard's Lease has not been renewed for this long: five times the duration of a Lease. The
/// clocks of readers and guards must not differ by more.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// The reason of a stale status.
const STALE: &str = "Stale";

/// The state of the Lease of the guard that writes a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardLeaseState {
    Renewed(Timestamp),
    Gone,
    /// Unknown: the guard has no Lease, or the client may not read it.
    Unknown,
}

/// The state of a release by its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedHealth {
    /// `True`, `False` or `Unknown`.
    pub ready: String,
    /// The reason, as one word; null before the first check.
    pub reason: Option<String>,
    /// The revision that the objects are compared with.
    pub revision: u64,
    /// How many objects it declares.
    pub declared: u64,
    /// How many of them drifted.
    pub drifted: u64,
    /// The time of the oldest drift in the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_drift: Option<Timestamp>,
    /// The other objects, by state.
    pub counts: ObjectCounts,
    /// The mode in effect for changes that cause drift.
    pub edits: String,
    /// The mode in effect for drift in the cluster.
    pub drift: String,
    /// Since when no guard has updated the status, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    /// The state in a sentence or two.
    pub message: String,
}

impl ReportedHealth {
    /// The health at `now` according to `status` and to the guard's Lease.
    pub fn new(status: GuardedReleaseStatus, pulse: &GuardLeaseState, now: Timestamp) -> Self {
        let ready = status.conditions.into_iter().find(|condition| condition.r#type == "Ready");
        // Drifted objects come before objects that may differ.
        let in_front = usize::try_from(status.drifted).unwrap_or(usize::MAX);
        let oldest_drift = status.drifts.iter().take(in_front).map(|it| it.since).min();
        let (ready, reason, message) = match ready {
            Some(ready) => (ready.status, Some(ready.reason), ready.message),
            None => ("Unknown".to_owned(), None, "the guard has not checked it yet".to_owned()),
        };
        let told = Self {
            ready,
            reason,
            revision: status.revision,
            declared: status.declared,
            drifted: status.drifted,
            oldest_drift,
            counts: status.counts,
            edits: status.edits,
            drift: status.drift,
            stale_since: None,
            message,
        };
        match (pulse, status.lease) {
            (GuardLeaseState::Renewed(at), Some(lease)) if now.duration_since(*at) > STALE_AFTER => {
                told.stale(Some(*at), &lease)
            }
            (GuardLeaseState::Gone, Some(lease)) => told.stale(None, &lease),
            _ => told,
        }
    }

    pub fn is_stale(&self) -> bool {
        self.reason.as_deref() == Some(STALE)
    }

    fn stale(self, since: Option<Timestamp>, lease: &LeaseReference) -> Self {
        let LeaseReference { namespace, name } = lease;
        let last = self.reason.as_deref().unwrap_or(&self.ready);
        let since_when = since.map_or_else(String::new, |since| format!(" since {}", seconds(since)));
        let why = match since {
            Some(_) => "no guard has renewed it since",
            None => "it does not exist, so no guard runs",
        };
        let message = format!(
            "stale{since_when}: see Lease {name} in namespace {namespace}, {why}; the last state was {last}: {}",
            self.message
        );
        let (ready, reason) = ("Unknown".to_owned(), Some(STALE.to_owned()));
        Self { ready, reason, message, stale_since: since, ..self }
    }
}

/// A time without its fraction.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The state of a release in one word, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
pub enum HealthReason {
    RecordInvalid,
    /// A Helm operation has been under way for too long.
    PendingLocked,
    ReleaseFailed,
    /// It is uninstalled; only its history is left.
    ReleaseMissing,
    Suspended,
    OperationUnderway,
    Braked,
    /// Some object does not match, and the guard has never seen it match.
    Unconfirmed,
    /// Another writer reverts each repair.
    Contested,
    Drifted,
    /// Some object may not match, and no dry run could tell.
    Unsettled,
    /// All objects that the guard could read match, but it could not read all.
    Unwatched,
    DriftIgnored,
    /// All objects match, or differ as an exception allows.
    InSync,
}

impl HealthReason {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    fn new(facts: &HealthFacts, counts: &HealthCounts) -> Self {
        let any = |is: fn(&ObjectFacts) -> bool| facts.objects.iter().any(|it| it.state.is_drift() && is(it));
        match facts.record.state {
            RecordState::Invalid => return Self::RecordInvalid,
            RecordState::Locked => return Self::PendingLocked,
            RecordState::Failed => return Self::ReleaseFailed,
            RecordState::Gone => return Self::ReleaseMissing,
            RecordState::Deployed | RecordState::Underway => {}
        }
        if facts.control.suspended.is_some() {
            Self::Suspended
        } else if facts.record.state == RecordState::Underway {
            Self::OperationUnderway
        } else if facts.control.drift == DriftMode::Ignore {
            Self::DriftIgnored
        } else if counts.drifted == 0 {
            match (counts.in_doubt, counts.unwatched) {
                (0, 0) => Self::InSync,
                (0, _) => Self::Unwatched,
                (_, _) => Self::Unsettled,
            }
        } else if facts.control.braked {
            Self::Braked
        } else if any(|it| it.unconfirmed) {
            Self::Unconfirmed
        } else if any(|it| it.contested_by.is_some()) {
            Self::Contested
        } else {
            Self::Drifted
        }
    }

    pub fn ready(self) -> Ready {
        match self {
            Self::InSync => Ready::True,
            Self::Suspended
            | Self::OperationUnderway
            | Self::Unsettled
            | Self::Unwatched
            | Self::DriftIgnored => Ready::Unknown,
            Self::Drifted
            | Self::Contested
            | Self::ReleaseMissing
            | Self::Braked
            | Self::Unconfirmed
            | Self::ReleaseFailed
            | Self::PendingLocked
            | Self::RecordInvalid => Ready::False,
        }
    }

    pub fn is_stalled(self) -> bool {
        matches!(
            self,
            Self::Braked
                | Self::Unconfirmed
                | Self::ReleaseFailed
                | Self::PendingLocked
                | Self::RecordInvalid
        )
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    pub declared: usize,
    pub matching: usize,
    /// They do not match, or another manager owns some of their fields.
    pub drifted: usize,
    /// The drifted objects that match, but of which another manager owns some fields.
    pub ownership: usize,
    /// They may not match.
    pub in_doubt: usize,
    pub deleting: usize,
    pub allowed: usize,
    /// The operation that failed or is under way has not created them.
    pub not_created: usize,
    /// They are not judged: opted out, owned by another release, or outside of the release's namespace.
    pub unjudged: usize,
    /// The unjudged objects that are outside of the release's namespace and do not name the release.
    pub outside: usize,
    /// The guard may not, or could not, read them.
    pub unwatched: usize,
}

impl HealthCounts {
    fn count(facts: &HealthFacts) -> Self {
        let of = |meant: &[ObjectState]| facts.objects.iter().filter(|it| meant.contains(&it.state)).count();
        let drifted = facts.objects.iter().filter(|it| it.state.is_drift()).count();
        let forbidden: usize = facts.unwatched.iter().map(|it| it.objects).sum();
        let mut counts = Self {
            declared: facts.declared,
            matching: 0,
            drifted,
            ownership: of(&[ObjectState::Ownership]),
            in_doubt: of(&[ObjectState::InDoubt]),
            deleting: of(&[ObjectState::Deleting]),
            allowed: of(&[ObjectState::Allowed]),
            not_created: of(&[ObjectState::NotCreated]),
            unjudged: of(&[ObjectState::OptedOut, ObjectState::Foreign, ObjectState::Outside]),
            outside: of(&[ObjectState::Outside]),
            unwatched: of(&[ObjectState::Unread]).saturating_add(forbidden),
        };
        // A failed release also includes objects of the previous revision.
        counts.declared = counts.declared.max(counts.others());
        counts.matching = counts.declared - counts.others();
        counts
    }

    /// The counts as a status stores them.
    pub fn kept(&self) -> ObjectCounts {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        ObjectCounts {
            matching: number(self.matching),
            ownership: number(self.ownership),
            in_doubt: number(self.in_doubt),
            allowed: number(self.allowed),
            deleting: number(self.deleting),
            not_created: number(self.not_created),
            unjudged: number(self.unjudged),
            unwatched: number(self.unwatched),
        }
    }

    /// The number of objects that do not plainly match.
    fn others(&self) -> usize {
        let Self { drifted, in_doubt, deleting, allowed, not_created, unjudged, unwatched, .. } = *self;
        [drifted, in_doubt, deleting, allowed, not_created, unjudged, unwatched]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

/// The most objects that a sentence names.
const NAMED: usize = 5;

/// The most characters of a text from outside of this module.
const TEXT: usize = 300;

impl HealthCounts {
    /// The counts in a few words.
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

    fn clause(&self, facts: &HealthFacts) -> String {
        let Self { declared, matching, drifted, ownership, .. } = *self;
        let manifest = match (facts.record.state, facts.record.deployed) {
            (RecordState::Failed, Some(deployed)) => {
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

    fn rest(&self, facts: &HealthFacts) -> Vec<String> {
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
            clauses.push(format!(
                "{} {what} not created: {}",
                self.not_created,
                names(ObjectState::NotCreated)
            ));
        }
        if self.unjudged > self.outside {
            let others = self.unjudged - self.outside;
            clauses.push(format!("{} opted out or owned by another release", are(others)));
        }
        if self.outside > 0 {
            clauses.push(format!("{} outside the namespace, not checked", are(self.outside)));
        }
        clauses.extend(facts.unwatched_clause());
        clauses
    }
}

impl HealthFacts {
    /// The objects that the guard may not read and the reason, as a clause; `None` if there are none.
    pub fn unwatched_clause(&self) -> Option<String> {
        let objects: usize = self.unwatched.iter().map(|it| it.objects).sum();
        let told = self.unwatched.iter().map(|it| format!("{} of kind {}: {}", it.objects, it.kind, it.why));
        let unread: Vec<_> = self.objects.iter().filter(|it| it.state == ObjectState::Unread).collect();
        let told: Vec<String> = told.chain(unread.iter().map(|it| it.object.to_string())).collect();
        let count = objects.saturating_add(unread.len());
        (count > 0).then(|| {
            format!(
                "{count} of {} {} not checked: {}",
                counted(self.declared, "object"),
                if count == 1 && self.declared == 1 { "is" } else { "are" },
                named(told.into_iter())
            )
        })
    }
}

/// The first of these texts, and the number of the others.
pub fn named(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let first: Vec<String> = all.take(NAMED).map(|text| cut(&text)).collect();
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    first.join("; ") + &rest
}

fn sentence(reason: HealthReason, counts: &HealthCounts, facts: &HealthFacts) -> String {
    let (name, namespace, revision) = (&facts.release.name, &facts.release.namespace, facts.record.revision);
    let stands = || counts.clause(facts);
    match reason {
        HealthReason::InSync | HealthReason::Unwatched | HealthReason::Unsettled => stands(),
        HealthReason::DriftIgnored => {
            "the policy says `drift: Ignore`, so the guard does not check the objects".to_owned()
        }
        HealthReason::OperationUnderway => format!(
            "a Helm operation is under way at revision {revision}; the guard checks the objects when it ends"
        ),
        HealthReason::Suspended => {
            let Suspension { until, reason } = facts.control.suspended.clone().unwrap_or_default();
            let end = until.map(|until| format!(" until {until}")).unwrap_or_default();
            let why = if reason.is_empty() { String::new() } else { format!(" ({})", cut(&reason)) };
            format!(
                "suspended{end}{why}, so nothing is repaired until {}`kubemoor resume {name} -n {namespace}`; {}",
                if until.is_some() { "then or " } else { "" },
                stands()
            )
        }
        HealthReason::Drifted if facts.control.drift == DriftMode::Repair => stands(),
        HealthReason::Drifted => format!(
            "{}; the policy reports drift and does not repair it; `kubemoor reconcile {name} -n {namespace}` repairs it once",
            stands()
        ),
        HealthReason::Contested => {
            let others = facts.objects.iter().filter_map(|it| it.contested_by.as_deref());
            let other = others.filter(|it| !it.is_empty()).map(cut).next();
            format!(
                "{}; {} keeps changing it back, so repairs wait longer each time",
                stands(),
                other.as_deref().unwrap_or("somebody")
            )
        }
        HealthReason::Braked => format!(
            "{}; too many objects drift at once, so repairs have stopped until `kubemoor reconcile {name} -n {namespace}`",
            stands()
        ),
        HealthReason::Unconfirmed => {
            let open: Vec<_> = facts.objects.iter().filter(|it| it.unconfirmed).collect();
            let names = named(open.iter().map(|it| it.object.to_string()));
            format!(
                "{}; the guard has never seen these live objects as revision {revision} declares them and does not write them: {names}. To confirm the declared values, write them with Helm, or run `kubemoor reconcile {name} -n {namespace}` as a user who may update the objects",
                stands()
            )
        }
        HealthReason::ReleaseFailed => failed(counts, facts),
        HealthReason::PendingLocked => format!(
            "a Helm operation has been under way for too long at revision {revision}, so nothing is repaired; `helm rollback {name} -n {namespace}` ends it"
        ),
        HealthReason::RecordInvalid => format!(
            "the latest record cannot be read, so nothing is repaired; the guard uses the last valid revision, {revision}"
        ),
        HealthReason::ReleaseMissing => "the release no longer has a record".to_owned(),
    }
}

/// The message after a failed Helm operation: the states of the objects, and the ways out.
fn failed(counts: &HealthCounts, facts: &HealthFacts) -> String {
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
    shortened(one_line(text), TEXT).into_owned()
}

#[cfg(test)]
mod tests;
