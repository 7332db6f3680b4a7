//! A verdict as the answer to a review.
//!
//! Entry points: [`put`], or [`says`] and [`annotated`] separately. Invariant: every verdict other
//! than a plain allow is also written to the API server's audit log. Must not judge.

use crate::webhook::review::{Answer, AuditKey};
use kubemoor_runtime::metrics::Decision;
use kubemoor_verdict::edit::{Outcome, Verdict};
use kubemoor_verdict::message::Message;

/// Room for most fields' paths, in bytes.
const ROOM: usize = 128;

/// The answer for `verdict`, with annotations for the API server's audit log.
pub(super) fn put(verdict: &Verdict, message: &Message) -> Answer {
    annotated(says(verdict, message), verdict)
}

pub(super) fn says(verdict: &Verdict, message: &Message) -> Answer {
    match verdict.outcome {
        Outcome::Allow | Outcome::Record => Answer::allow(),
        Outcome::Warn => message.warnings().into_iter().fold(Answer::allow(), Answer::warn),
        // The mutating webhook has been asked already.
        Outcome::Revert | Outcome::Deny => Answer::deny(message.denial()),
    }
}

pub(super) fn annotated(answer: Answer, verdict: &Verdict) -> Answer {
    if verdict.outcome == Outcome::Allow {
        return answer;
    }
    let answer = answer
        .annotate(AuditKey::Decision, verdict.outcome.as_str())
        .annotate(AuditKey::Reason, verdict.reason.as_str());
    let Some(grounds) = &verdict.grounds else { return answer };
    let mut fields = String::with_capacity(grounds.fields.len() * ROOM);
    for (index, field) in grounds.fields.iter().enumerate() {
        fields.push_str(if index == 0 { "" } else { "," });
        fields.push_str(field.path.pointer());
    }
    answer
        .annotate(AuditKey::Release, grounds.release.to_string())
        .annotate(AuditKey::Revision, grounds.revision.to_string())
        .annotate(AuditKey::Fields, fields)
}

pub(super) fn decision(outcome: Outcome) -> Decision {
    match outcome {
        Outcome::Allow => Decision::Allow,
        Outcome::Record => Decision::Record,
        Outcome::Warn => Decision::Warn,
        Outcome::Revert => Decision::Revert,
        Outcome::Deny => Decision::Deny,
    }
}
