//! Queries of the ledger, and the words that they are made of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use kubemoor_declare::model::{NamedObject, Operation};
use kubemoor_helm::record::Status;
use kubemoor_verdict::edit::Outcome;

/// The most rows of one page.
pub const PAGE: u32 = 1000;

/// The filter on rows. `None` or an empty field matches all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// The release's namespace; without a release the object's.
    pub namespace: Option<String>,
    /// The release's name.
    pub release: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The outcomes, such as `Deny`: one of them.
    pub verdicts: Vec<String>,
    /// The operations: one of them.
    pub operations: Vec<Operation>,
    /// The object.
    pub object: Option<NamedObject>,
    /// No rows before this time.
    pub since: Option<Timestamp>,
    /// Only rows before this time.
    pub until: Option<Timestamp>,
    /// Only rows before this one: the last one of the page before.
    pub before: Option<i64>,
    /// Only verdicts on edits, with what a replay judges them by.
    pub facts: bool,
    /// The maximum number of rows, at most [`PAGE`]; `None` means [`PAGE`].
    pub limit: Option<u32>,
}

/// Rows, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The rows.
    pub items: Vec<Entry>,
    /// The start of the next page; `None` after the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Sentences about ledgers whose rows are missing.
    #[serde(skip)]
    pub missing: Vec<String>,
}

impl Page {
    /// One page of several ledgers, each of which was asked by the same filter. A row that is in several of them is shown
    /// once.
    #[must_use]
    pub fn merge(mut pages: Vec<Self>, filter: &Filter) -> Self {
        if pages.len() == 1 {
            return pages.remove(0);
        }
        let mut more = pages.iter().any(|page| page.next.is_some());
        let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
        // Ids order rows by time, and every guard gives the same one to what all of them see.
        items.sort_by_key(|entry| std::cmp::Reverse(entry.id));
        items.dedup_by_key(|entry| entry.id);
        let size = usize::try_from(filter.size()).unwrap_or(usize::MAX);
        more |= items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Self { items, next, missing: Vec::new() }
    }
}

impl Filter {
    /// How many rows a page has.
    pub(super) fn size(&self) -> u32 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE)
    }
}

/// An operation by its name, in any case.
///
/// # Errors
/// There is no such operation: the names that there are.
pub fn parse_operation(text: &str) -> Result<Operation, String> {
    let is_meant = |operation: &Operation| operation.as_str().eq_ignore_ascii_case(text);
    Operation::ALL
        .into_iter()
        .find(is_meant)
        .ok_or_else(|| format!("there is no operation {text:?}: use CREATE, UPDATE or DELETE"))
}

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
pub fn parse_verdict(text: &str) -> Result<&'static str, String> {
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

/// The short names that kubectl users write, and what they mean.
const SHORT: [(&str, &str); 20] = [
    ("cj", "cronjob"),
    ("cm", "configmap"),
    ("crd", "customresourcedefinition"),
    ("deploy", "deployment"),
    ("ds", "daemonset"),
    ("ep", "endpoints"),
    ("hpa", "horizontalpodautoscaler"),
    ("ing", "ingress"),
    ("limits", "limitrange"),
    ("netpol", "networkpolicy"),
    ("ns", "namespace"),
    ("pc", "priorityclass"),
    ("pdb", "poddisruptionbudget"),
    ("po", "pod"),
    ("pv", "persistentvolume"),
    ("pvc", "persistentvolumeclaim"),
    ("quota", "resourcequota"),
    ("sa", "serviceaccount"),
    ("sts", "statefulset"),
    ("svc", "service"),
];

/// The possible kinds of the named object, in lower case: a plural does not determine its singular.
pub(crate) fn possible_kinds(object: &NamedObject) -> Vec<String> {
    let kind = object.kind.as_str();
    let mut kinds = vec![kind.to_owned()];
    kinds.extend(SHORT.iter().filter(|(short, _)| *short == kind).map(|(_, long)| (*long).to_owned()));
    for (plural, singular) in [("ies", "y"), ("es", ""), ("s", "")] {
        kinds.extend(kind.strip_suffix(plural).map(|stem| format!("{stem}{singular}")));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(ids: &[i64], next: Option<i64>) -> Page {
        let entry = |id: &i64| {
            json!({
                "id": id.to_string(), "time": "2026-11-21T08:00:00Z", "kind": "act", "cluster": "", "namespace": "",
                "release": null, "revision": null, "operation": null, "user": "", "groups": [], "verdict": "",
                "object": {"group": "", "kind": "", "namespace": null, "name": ""},
                "reason": "", "detail": "", "fields": [], "moreFields": 0, "uid": "",
            })
        };
        let items: Vec<_> = ids.iter().map(entry).collect();
        serde_json::from_value(json!({"items": items, "continue": next.map(|next| next.to_string())}))
            .unwrap()
    }

    #[test]
    fn pages_of_several_ledgers_become_one_in_the_order_of_time() {
        let filter = Filter { limit: Some(3), ..Filter::default() };
        for (pages, ids, next) in [
            (vec![page(&[9, 5], None)], vec![9, 5], None),
            (vec![page(&[9, 5], None), page(&[7], None)], vec![9, 7, 5], None),
            // Each of them has seen 7.
            (vec![page(&[9, 7], None), page(&[7, 5], None)], vec![9, 7, 5], None),
            (vec![page(&[9, 5, 4], Some(4)), page(&[7], None)], vec![9, 7, 5], Some(5)),
            (vec![page(&[9, 5], None), page(&[7, 2], None)], vec![9, 7, 5], Some(5)),
            (vec![page(&[9, 5, 4], Some(4)), page(&[9, 5, 4], Some(4))], vec![9, 5, 4], Some(4)),
            (vec![page(&[], None), page(&[], None)], vec![], None),
        ] {
            let merged = Page::merge(pages, &filter);
            assert_eq!(merged.items.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
            assert_eq!(merged.next, next.map(|next: i64| next.to_string()));
        }
    }

    #[test]
    fn an_object_is_named_as_kubectl_users_name_it() {
        for (text, kind) in [
            ("Deployment/web", "deployment"),
            ("deployments.apps/web", "deployment"),
            ("deploy/web", "deployment"),
            ("ingresses/web", "ingress"),
            ("NetworkPolicies/web", "networkpolicy"),
            ("svc/web", "service"),
        ] {
            let filter: NamedObject = text.parse().unwrap();
            assert!(possible_kinds(&filter).iter().any(|found| found == kind), "{text}: {filter:?}");
            assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
        }
        for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
            assert!(text.parse::<NamedObject>().is_err(), "{text}");
        }
    }

    #[test]
    fn verdict_parsing_ignores_case_unless_two_verdicts_collide() {
        for (text, verdict) in
            [("Deny", "Deny"), ("deny", "Deny"), ("failed", "failed"), ("Failed", "Failed"), ("GONE", "gone")]
        {
            assert_eq!(parse_verdict(text), Ok(verdict));
        }
        for text in ["FAILED", "Denied", "", "Deny,Warn"] {
            let error = parse_verdict(text).unwrap_err();
            assert!(error.contains("Deny, Revert") && error.ends_with("gone"), "{text}: {error}");
        }
    }

    #[test]
    fn no_verdict_is_named_twice() {
        let distinct: std::collections::BTreeSet<_> = verdicts().collect();
        assert_eq!(distinct.len(), verdicts().count());
    }
}
