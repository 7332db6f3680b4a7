//! The outcomes that rows can have.
//!
//! Entry points: [`parse`], [`verdicts`]. Invariant: every outcome that a row is made with is known
//! here; the documentation lists them, and a test holds it to this.

use kubemoor_helm::record::Status;
use kubemoor_verdict::edit::Outcome;

/// Of edits; `Error` where the webhook's `failurePolicy` decided.
const EDITS: [&str; 6] = [
    Outcome::Deny.as_str(),
    Outcome::Revert.as_str(),
    Outcome::Warn.as_str(),
    Outcome::Record.as_str(),
    Outcome::Allow.as_str(),
    "Error",
];

/// Of repairs, of exceptions and of acts.
const OTHERS: [&str; 28] = [
    "Recreated",
    "Restored",
    "TakenBack",
    "Failed",
    "Reported",
    "Ended",
    "Opened",
    "Closed",
    "Reconcile",
    "Suspend",
    "Resume",
    "Open",
    "Close",
    "CreatePolicy",
    "ChangePolicy",
    "DeletePolicy",
    "ChangeWebhooks",
    "DeleteWebhooks",
    "RenewCertificate",
    "LabelNamespace",
    "StartAutoscaling",
    "ChangeAutoscaling",
    "StopAutoscaling",
    "Start",
    "Stop",
    "EngageBrake",
    "ReleaseBrake",
    "HoldRepairs",
];

/// Of records.
const RECORDS: [&str; 11] = [
    Status::Deployed.as_str(),
    Status::Failed.as_str(),
    Status::PendingInstall.as_str(),
    Status::PendingUpgrade.as_str(),
    Status::PendingRollback.as_str(),
    Status::Superseded.as_str(),
    Status::Uninstalled.as_str(),
    Status::Uninstalling.as_str(),
    Status::Unknown.as_str(),
    "record-invalid",
    "gone",
];

/// Every outcome that a row can have.
pub fn verdicts() -> impl Iterator<Item = &'static str> {
    EDITS.into_iter().chain(OTHERS).chain(RECORDS)
}

/// The outcome of this name, in any case unless two names differ by it alone.
///
/// # Errors
/// There is no such outcome: the names that there are.
pub fn parse(text: &str) -> Result<&'static str, String> {
    let exact = verdicts().find(|verdict| *verdict == text);
    let alike: Vec<_> = verdicts().filter(|verdict| verdict.eq_ignore_ascii_case(text)).collect();
    match (exact, alike.as_slice()) {
        (Some(verdict), _) => Ok(verdict),
        (None, [verdict]) => Ok(*verdict),
        (None, _) => {
            let known: Vec<_> = verdicts().collect();
            Err(format!("there is no verdict {text:?}: use some of {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_parsing_ignores_case_unless_two_verdicts_collide() {
        for (text, verdict) in
            [("Deny", "Deny"), ("deny", "Deny"), ("failed", "failed"), ("Failed", "Failed"), ("GONE", "gone")]
        {
            assert_eq!(parse(text), Ok(verdict));
        }
        for text in ["FAILED", "Denied", "", "Deny,Warn"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("Deny, Revert") && error.ends_with("gone"), "{text}: {error}");
        }
    }

    #[test]
    fn no_verdict_is_named_twice() {
        let distinct: std::collections::BTreeSet<_> = verdicts().collect();
        assert_eq!(distinct.len(), verdicts().count());
    }
}
