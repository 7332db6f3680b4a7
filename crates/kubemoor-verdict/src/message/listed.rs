//! The fields or objects that a message lists.
//!
//! Entry points: the constructors of [`Listed`], [`Listed::first`]. Invariant: the first are named
//! and the rest are counted. Fields of an edit are put into words only when a message is written.
//! Must not word a whole message.

use std::sync::Arc;

use super::field::FieldWords;
use crate::edit::Grounds;
use crate::revert::SetBack;

/// The most fields or objects that a message names.
const NAMED: usize = 8;

/// The list of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Listed {
    /// Nothing.
    #[default]
    Nothing,
    /// The fields that an edit overwrites.
    Fields(Arc<Grounds>),
    /// Fields that were reverted, and so many more.
    SetBack(Vec<SetBack>, usize),
    /// Objects, and so many more.
    Objects(Vec<String>, usize),
}

impl Listed {
    pub(super) fn set_back(fields: &[SetBack]) -> Self {
        Self::SetBack(fields.iter().take(NAMED).cloned().collect(), fields.len().saturating_sub(NAMED))
    }

    pub(super) fn objects(named: impl ExactSizeIterator<Item = String>) -> Self {
        let more = named.len().saturating_sub(NAMED);
        Self::Objects(named.take(NAMED).collect(), more)
    }

    /// The first of them in words.
    pub(super) fn first(&self) -> Vec<FieldWords<'_>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Fields(grounds) => grounds.fields.iter().take(NAMED).map(FieldWords::of_edit).collect(),
            Self::SetBack(fields, _) => fields.iter().map(FieldWords::of_revert).collect(),
            Self::Objects(named, _) => named.iter().map(|named| FieldWords::plain(named)).collect(),
        }
    }

    /// The first of them in words, without the values of the fields that an edit overwrites.
    pub(super) fn first_paths(&self) -> Vec<FieldWords<'_>> {
        match self {
            Self::Fields(grounds) => grounds.fields.iter().take(NAMED).map(FieldWords::of_path).collect(),
            Self::Nothing | Self::SetBack(..) | Self::Objects(..) => self.first(),
        }
    }

    /// The number of the others, in words.
    pub(super) fn others(&self) -> Option<String> {
        let fields = |more: usize| match more {
            1 => "and 1 more field".to_owned(),
            more => format!("and {more} more fields"),
        };
        match self {
            Self::Nothing => None,
            Self::Fields(grounds) => {
                Some(grounds.fields.len().saturating_sub(NAMED)).filter(|more| *more > 0).map(fields)
            }
            Self::SetBack(_, more) => Some(*more).filter(|more| *more > 0).map(fields),
            Self::Objects(_, more) => (*more > 0).then(|| format!("and {more} more")),
        }
    }
}
