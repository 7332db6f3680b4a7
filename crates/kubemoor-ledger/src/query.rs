//! Queries of the ledger.
//!
//! Entry points: [`Filter`] and [`Page`]. Plain values.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use kubemoor_declare::model::{NamedObject, Operation};

pub(crate) mod object;
mod verdict;

pub use self::verdict::{parse as parse_verdict, verdicts};

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
}
