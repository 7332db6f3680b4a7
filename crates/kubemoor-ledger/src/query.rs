//! Ledger queries: filters, pages, and the names of operations, outcomes and kinds.

use super::entry::LedgerEntry;
use super::row::{Act, ExceptionEvent, Repaired};
use jiff::Timestamp;
use kubemoor_declare::model::{NamedObject, Operation};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_verdict::edit::EditOutcome;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

/// The maximum number of rows on a page.
pub const PAGE: u32 = 1000;

/// The filter on rows. `None` or an empty field matches all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub cluster: Option<String>,
    /// The release's namespace; without a release the object's.
    pub namespace: Option<String>,
    pub release: Option<String>,
    pub user: Option<String>,
    /// Only rows with one of these outcomes, such as `Deny`.
    pub verdicts: Vec<String>,
    pub operations: Vec<Operation>,
    pub object: Option<NamedObject>,
    /// No rows before this time.
    pub since: Option<Timestamp>,
    /// Only rows before this time.
    pub until: Option<Timestamp>,
    /// Only rows with a lower id than this: the last id of the previous page.
    pub before: Option<i64>,
    /// Whether to read the data that a replay needs.
    pub facts: bool,
    /// The maximum number of rows, at most [`PAGE`]; `None` means [`PAGE`].
    pub limit: Option<u32>,
}

/// Rows, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPage {
    pub items: Vec<LedgerEntry>,
    /// The start of the next page; `None` on the last page.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Sentences about ledgers whose rows are missing.
    #[serde(skip)]
    pub missing: Vec<String>,
}

impl EntryPage {
    /// Merges the pages that several ledgers returned for one filter. A row that several of them have appears once.
    #[must_use]
    pub fn merge(mut pages: Vec<Self>, filter: &Filter) -> Self {
        if pages.len() == 1 {
            return pages.remove(0);
        }
        let mut more = pages.iter().any(|page| page.next.is_some());
        let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
        // Ids order rows by time. All guards give the same id to an event that all see; the row with the user is kept.
        items.sort_by_key(|entry| (std::cmp::Reverse(entry.id), entry.user.is_empty()));
        items.dedup_by_key(|entry| entry.id);
        let size = usize::try_from(filter.size()).unwrap_or(usize::MAX);
        more |= items.len() > size;
        items.truncate(size);
        let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
        Self { items, next, missing: Vec::new() }
    }
}

impl Filter {
    pub(super) fn size(&self) -> u32 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE)
    }
}

/// The operation of this name, ignoring case.
pub fn parse_operation(text: &str) -> Result<Operation, String> {
    let is_meant = |operation: &Operation| operation.as_str().eq_ignore_ascii_case(text);
    Operation::ALL
        .into_iter()
        .find(is_meant)
        .ok_or_else(|| format!("unknown operation {text:?}: use CREATE, UPDATE or DELETE"))
}

/// The outcomes of edits; `Error` if the webhook's `failurePolicy` decided.
pub const EDITS: [&str; 6] = [
    EditOutcome::Deny.as_str(),
    EditOutcome::Revert.as_str(),
    EditOutcome::Warn.as_str(),
    EditOutcome::Record.as_str(),
    EditOutcome::Allow.as_str(),
    "Error",
];

/// Every outcome that a row can have.
pub fn verdicts() -> impl Iterator<Item = &'static str> {
    let others = [Repaired::VARIANTS, ExceptionEvent::VARIANTS, Act::VARIANTS, ReleaseStatus::VARIANTS];
    EDITS.into_iter().chain(others.into_iter().flatten().copied()).chain(["record-invalid", "gone"])
}

/// The outcome of this name. Case matters only if two names differ in nothing else.
pub fn parse_verdict(text: &str) -> Result<&'static str, String> {
    let exact = verdicts().find(|verdict| *verdict == text);
    let alike: Vec<_> = verdicts().filter(|verdict| verdict.eq_ignore_ascii_case(text)).collect();
    match (exact, alike.as_slice()) {
        (Some(verdict), _) => Ok(verdict),
        (None, [verdict]) => Ok(*verdict),
        (None, _) => {
            let known: Vec<_> = verdicts().collect();
            Err(format!("unknown verdict {text:?}: use some of {}", known.join(", ")))
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
mod tests;
