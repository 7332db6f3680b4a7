//! Values that changed together with a field, from one revision to the next.
//!
//! Entry points: [`together`], [`changed`]. Invariant: compares texts alone.

use super::tree::{self, Leaf};

/// One revision, as far as a field is concerned.
pub(super) struct Past<'a> {
    pub(super) revision: u64,
    /// All values of the revision.
    pub(super) values: &'a serde_json::Value,
    /// The field's value; none where the revision had no such field.
    pub(super) field: Option<String>,
}

/// What the revisions say of a value and a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// They changed from one revision to the other.
    Changed { from: u64, to: u64 },
    /// One changed, and the other did not.
    Apart,
    /// Neither changed.
    Unknown,
}

/// What the revisions, newest first, say of the value at `path`.
pub(super) fn together(past: &[Past<'_>], path: &[String]) -> Together {
    let mut found = Together::Unknown;
    for (newer, older) in past.iter().zip(past.iter().skip(1)) {
        let (Some(new), Some(old)) = (&newer.field, &older.field) else { continue };
        let is_same = tree::find(newer.values, path) == tree::find(older.values, path);
        match (new == old, is_same) {
            (false, false) => return Together::Changed { from: older.revision, to: newer.revision },
            (true, false) => found = Together::Apart,
            (true, true) | (false, true) => {}
        }
    }
    found
}

/// The values that were the field's text before and after a change of it.
pub(super) fn changed(past: &[Past<'_>]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (newer, older) in past.iter().zip(past.iter().skip(1)) {
        let (Some(new), Some(old)) = (&newer.field, &older.field) else { continue };
        if new == old {
            continue;
        }
        for Leaf { path, text } in tree::leaves(newer.values, &[]) {
            let before = tree::find(older.values, &path).and_then(tree::text);
            if text == *new && before.as_ref() == Some(old) && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}
