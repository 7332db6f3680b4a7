//! The verdicts that are served with 0 before the first one.
//!
//! Entry point: [`expected`]. Invariant: only verdicts that an alert or a person waits for, and few of them: edits that
//! drift, and reviews that were not judged. Allowed edits are counted from their first one.

use super::{Decision, VerdictLabels, Webhook};
use kubemoor_verdict::edit::Reason;

/// The webhooks at which an edit is refused, and why.
const REFUSING: [(Webhook, Reason); 5] = [
    (Webhook::Edits, Reason::Drift),
    (Webhook::Edits, Reason::Deletion),
    (Webhook::Scale, Reason::Drift),
    (Webhook::Deletes, Reason::Dependants),
    (Webhook::Records, Reason::Record),
];

/// The webhooks whose reviews may remain unjudged.
const JUDGING: [Webhook; 4] = [Webhook::Edits, Webhook::Scale, Webhook::Deletes, Webhook::Records];

/// Why they remain so: the guard is overloaded.
const OVERLOADED: [Reason; 2] = [Reason::Busy, Reason::Late];

/// The reason of a verdict that the webhook's `failurePolicy` makes.
pub const UNREACHED: &str = "unreached";

/// The labels of these verdicts.
pub(super) fn expected() -> impl Iterator<Item = VerdictLabels> {
    let labels = |webhook, decision, reason| VerdictLabels { webhook, decision, reason };
    let by_mode = [Decision::Record, Decision::Warn, Decision::Deny];
    let refused = REFUSING.into_iter().flat_map(move |(webhook, reason)| {
        by_mode.into_iter().map(move |decision| labels(webhook, decision, reason.as_str()))
    });
    let reverted = labels(Webhook::Reverts, Decision::Revert, Reason::Drift.as_str());
    let unjudged = JUDGING.into_iter().flat_map(move |webhook| {
        let decisions = [Decision::Allow].into_iter().chain(by_mode);
        decisions.flat_map(move |decision| {
            OVERLOADED.into_iter().map(move |reason| labels(webhook, decision, reason.as_str()))
        })
    });
    let passed =
        OVERLOADED.into_iter().map(move |reason| labels(Webhook::Reverts, Decision::Allow, reason.as_str()));
    let unreached = JUDGING.into_iter().map(move |webhook| labels(webhook, Decision::Error, UNREACHED));
    refused.chain([reverted]).chain(unjudged).chain(passed).chain(unreached)
}
