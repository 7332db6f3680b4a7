//! The time at which a workload lost its autoscalers.
//!
//! Entry point: [`Departure::since`]. Invariant: a plain value. Must not decide whether the
//! replicas that they set stay.

use jiff::Timestamp;

use kubemoor_declare::model::ReleaseId;

/// The times at which this process saw the autoscalers of a workload disappear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The time at which the last one disappeared.
    pub last: Timestamp,
    /// The time of the last one that a release declared, and the releases that declared it.
    pub declared: Option<(Timestamp, Vec<ReleaseId>)>,
}

impl Departure {
    /// The releases that declared an autoscaler that disappeared after `time`; `None` if none
    /// disappeared since.
    pub fn since(&self, time: Timestamp) -> Option<Vec<ReleaseId>> {
        let by = self.declared.as_ref().filter(|(at, _)| *at > time).map(|(_, by)| by.clone());
        (self.last > time).then(|| by.unwrap_or_default())
    }
}
