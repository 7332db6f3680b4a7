//! When the autoscalers of a workload went.
//!
//! Entry point: [`Departure::since`]. Invariant: a plain value. Must not decide
//! whether what they left behind stays.

use jiff::Timestamp;

use crate::model::ReleaseId;

/// When the autoscalers of a workload went, as far as this process saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The last of them all.
    pub(crate) last: Timestamp,
    /// The last one that a release declared, and which did.
    pub(crate) declared: Option<(Timestamp, Vec<ReleaseId>)>,
}

impl Departure {
    /// The releases that declared what went after `time`; nothing did where
    /// there is none.
    pub fn since(&self, time: Timestamp) -> Option<Vec<ReleaseId>> {
        let by = self.declared.as_ref().filter(|(at, _)| *at > time).map(|(_, by)| by.clone());
        (self.last > time).then(|| by.unwrap_or_default())
    }
}
