//! The span of a review.
//!
//! Entry point: [`Span`]. Invariant: holds names and the verdict's own words, and nothing if spans
//! are disabled. Must not hold values.

use http::{HeaderMap, StatusCode};

use super::super::door::Stage;
use super::super::review::Head;
use kubemoor_runtime::telemetry::traces::Arrival;
use kubemoor_verdict::edit::Verdict;

/// The span of a review, from its arrival on.
pub(super) struct Span(Option<Arrival>);

impl Span {
    pub(super) fn begin(headers: &HeaderMap) -> Self {
        Self(Arrival::now(headers))
    }

    /// Records the identity of the review.
    pub(super) fn note(&mut self, head: &Head<'_>) {
        let Some(arrival) = &mut self.0 else { return };
        arrival.note("kubemoor.review.uid", head.uid.to_string());
        arrival.note_object(&head.object());
        if let Some(subresource) = &head.subresource {
            arrival.note("kubemoor.object.subresource", subresource.to_string());
        }
        if let Some(operation) = head.operation {
            arrival.note("kubemoor.operation", operation.as_str());
        }
    }

    /// Ends the span of a review that was answered by this verdict.
    pub(super) fn judged(mut self, stage: Stage, code: StatusCode, verdict: &Verdict) {
        if let Some(arrival) = &mut self.0 {
            arrival.note("kubemoor.decision", verdict.outcome.as_str());
            arrival.note("kubemoor.reason", verdict.reason.as_str());
            if let Some(grounds) = &verdict.grounds {
                arrival.note_release(&grounds.release, grounds.revision);
            }
        }
        self.answered(stage, code);
    }

    /// Ends the span of a review that was answered without a verdict.
    pub(super) fn answered(self, stage: Stage, code: StatusCode) {
        let route = match stage {
            Stage::Validate => "/validate/{token}",
            Stage::Mutate => "/mutate/{token}",
        };
        self.0.into_iter().for_each(|arrival| arrival.answered(route, code.as_u16()));
    }
}
