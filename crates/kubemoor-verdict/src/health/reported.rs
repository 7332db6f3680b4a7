//! The health of a release according to the status of its GuardedRelease, as clients show it.
//!
//! Entry point: [`ReportedHealth::of`]. Invariant: repeats the status and derives nothing again; a stale
//! status is never shown as the present state. Must not read a cluster.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use kubemoor_policy::guarded::{GuardedReleaseStatus, LeaseReference, ObjectCounts};

/// A status is stale when the guard's Lease has not been renewed for that long: five
/// times the life of a Lease. Clocks of readers and guards may differ by less.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// The reason of a stale status.
const STALE: &str = "Stale";

/// The state of the Lease of the guard that keeps a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// It was renewed last at this time.
    Renewed(Timestamp),
    /// There is no such Lease any more.
    Gone,
    /// Unknown: the guard has no Lease, or the client may not read it.
    Unknown,
}

/// How a release stands by its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedHealth {
    /// `True`, `False` or `Unknown`.
    pub ready: String,
    /// The reason in one word; none before the guard has looked.
    pub reason: Option<String>,
    /// The revision that the release is held to.
    pub revision: u64,
    /// How many objects it declares.
    pub declared: u64,
    /// How many of them drifted.
    pub drifted: u64,
    /// Since when the oldest drift lasts that the status names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_drift: Option<Timestamp>,
    /// How the others stand.
    pub counts: ObjectCounts,
    /// What becomes of edits that drift.
    pub edits: String,
    /// What becomes of drift.
    pub drift: String,
    /// Since when nobody keeps the status, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    /// The state in a sentence or two.
    pub message: String,
}

impl ReportedHealth {
    /// The health according to `status` at `now`, where the guard's Lease has this pulse.
    pub fn of(status: GuardedReleaseStatus, pulse: &Pulse, now: Timestamp) -> Self {
        let ready = status.conditions.into_iter().find(|condition| condition.r#type == "Ready");
        // Drifted objects come before objects that may differ.
        let in_front = usize::try_from(status.drifted).unwrap_or(usize::MAX);
        let oldest_drift = status.drifts.iter().take(in_front).map(|it| it.since).min();
        let (ready, reason, message) = match ready {
            Some(ready) => (ready.status, Some(ready.reason), ready.message),
            None => ("Unknown".to_owned(), None, "the guard has not looked at it yet".to_owned()),
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
            (Pulse::Renewed(at), Some(lease)) if now.duration_since(*at) > STALE_AFTER => {
                told.stale(Some(*at), &lease)
            }
            (Pulse::Gone, Some(lease)) => told.stale(None, &lease),
            _ => told,
        }
    }

    /// Whether the status is stale: no guard keeps it any more.
    pub fn is_stale(&self) -> bool {
        self.reason.as_deref() == Some(STALE)
    }

    /// The same for a stale status.
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
