//! The fields of a row.
//!
//! Entry points: [`Changes`] and [`Change`]. Invariant: no more fields are held than are kept. Pure.

use std::sync::Arc;

use kubemoor_declare::model::ObjectId;
use kubemoor_verdict::difference::{Difference, Values};
use kubemoor_verdict::edit::{Finding, Grounds};
use kubemoor_verdict::facts::ChangeFacts;
use kubemoor_verdict::shown::Shown;

/// The most fields of a verdict that are kept; a queue of rows must not be a
/// way to fill the memory.
pub(super) const FIELDS: usize = 100;

/// The fields of a row.
#[derive(Clone, Debug)]
pub enum Changes {
    /// Those of a verdict, which are put into words when the row is sealed.
    Of(Arc<Grounds>),
    /// These, and so many more that are not kept.
    Listed(Vec<Change>, usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The field.
    pub path: String,
    /// Its declared value; `None` where the manifest has none.
    pub declared: Option<Shown>,
    /// Its value before.
    pub old: Option<Shown>,
    /// Its value after.
    pub new: Option<Shown>,
    /// The first place at which long or nested values differ.
    pub difference: Option<Box<Difference>>,
}

impl Changes {
    /// The changes of a passing edit of `object`; only the first of many are kept.
    pub fn passing(object: &ObjectId, changes: &[ChangeFacts]) -> Self {
        let of = |ChangeFacts { change, .. }: &ChangeFacts| {
            let values = [&change.declared, &change.old, &change.new].map(Option::as_ref);
            Change::of(&Finding::of(change.path.clone(), Values::of(object, &change.path, values)))
        };
        Self::Listed(changes.iter().take(FIELDS).map(of).collect(), changes.len().saturating_sub(FIELDS))
    }

    /// The fields of a verdict. Of many only the first are kept.
    pub(super) fn of(grounds: &Arc<Grounds>) -> Self {
        match grounds.fields.len().checked_sub(FIELDS) {
            Some(more) => Self::Listed(grounds.fields.iter().take(FIELDS).map(Change::of).collect(), more),
            None => Self::Of(Arc::clone(grounds)),
        }
    }

    /// The fields in words, and the number of further ones.
    pub(crate) fn into_listed(self) -> (Vec<Change>, usize) {
        match self {
            Self::Of(grounds) => (grounds.fields.iter().map(Change::of).collect(), 0),
            Self::Listed(changes, more) => (changes, more),
        }
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self::Listed(Vec::new(), 0)
    }
}

impl Change {
    /// The change that an edit makes to a field.
    pub fn of(finding: &Finding) -> Self {
        let Finding { path, declared, old, new, difference, doubt: _, added: _ } = finding;
        let (declared, old, new) = (declared.clone(), old.clone(), new.clone());
        Self { path: path.pointer().to_owned(), declared, old, new, difference: difference.clone() }
    }
}
