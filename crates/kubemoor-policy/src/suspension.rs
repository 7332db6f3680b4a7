//! A suspension of repairs, as users write it in a GuardedRelease.
//!
//! Entry point: [`Suspension::of`]. Invariant: an end that cannot be read counts as no end, so
//! nothing is repaired until a person resumes repairs. Must not read a clock.

use std::collections::HashMap;

use jiff::Timestamp;

use super::guarded::GuardedReleaseSpec;
use kubemoor_declare::model::ReleaseId;

/// The longest reason, in characters.
pub const MAX_REASON: usize = 1024;

/// The releases whose repairs are suspended, including those whose suspension has ended.
pub type Suspended = HashMap<ReleaseId, Suspension>;

/// A suspension of the repairs of one release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// Its end; `None` if a person has to end it.
    pub until: Option<Timestamp>,
    /// The reason; empty if none was given.
    pub reason: String,
}

impl Suspension {
    /// The suspension in a GuardedRelease, even after its end.
    pub fn of(spec: &GuardedReleaseSpec) -> Option<Self> {
        let until = spec.suspend_until.as_deref().and_then(|until| until.parse().ok());
        let reason = spec.suspend_reason.clone().unwrap_or_default();
        spec.suspend.then_some(Self { until, reason })
    }

    /// Until when and why repairs are suspended, as the ledger has it; empty if neither is set.
    pub fn words(spec: &GuardedReleaseSpec) -> String {
        let until = spec.suspend_until.as_deref().map(|until| format!("until {until}"));
        let parts = [until.as_deref(), spec.suspend_reason.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    }

    /// Whether it has ended by `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn suspension_ends_at_its_end_and_never_without_one() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let check = |spec: Value, expected: Option<bool>| {
            let parsed: GuardedReleaseSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(Suspension::of(&parsed).map(|it| it.is_over(now)), expected, "{spec}");
        };
        check(json!({}), None);
        check(json!({"suspend": true}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T12:00:01Z"}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T12:00:00Z"}), Some(true));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T11:00:00-02:00"}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "soon"}), Some(false));
        check(json!({"suspendUntil": "2026-11-22T12:00:00Z"}), None);
    }
}
