//! What is asked of the ledger.
//!
//! Entry points: [`Filter`] and [`Page`]. Plain values.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Entry;

/// The most rows of one page.
pub const PAGE: u32 = 1000;

/// Which rows are wanted. What is `None` does not matter.
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
    /// The outcome, such as `Deny`.
    pub verdict: Option<String>,
    /// No rows before this time.
    pub since: Option<Timestamp>,
    /// Only rows before this one: the last one of the page before.
    pub before: Option<i64>,
    /// The most rows; at most [`PAGE`], none for that many.
    pub limit: Option<u32>,
}

/// Rows, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The rows.
    pub items: Vec<Entry>,
    /// Where the next page begins; none after the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

impl Filter {
    /// How many rows a page has.
    pub(super) fn size(&self) -> u32 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE)
    }
}
