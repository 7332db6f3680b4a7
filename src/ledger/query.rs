//! Queries of the ledger.
//!
//! Entry points: [`Filter`] and [`Page`]. Plain values.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::model::{NamedObject, Operation};

mod object;
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The rows.
    pub items: Vec<Entry>,
    /// The start of the next page; `None` after the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
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
