//! The path to a place while a walk is under way.
//!
//! Entry point: [`Trail`]. Invariant: a list on the walker's own stack, so that nothing is allocated until a change is
//! found.

use serde_json::Value;
use smallvec::SmallVec;

use super::{Path, Segment};

/// Room for the steps of most paths.
const USUAL: usize = 12;

/// The path to a place while a walk is under way: a list on the walker's own
/// stack, so that nothing is allocated until a change is found.
#[derive(Clone, Copy)]
pub(crate) struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    /// `None` at the root.
    step: Option<Step<'a>>,
}

/// One step of a [`Trail`].
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Key(&'a [crate::schema::ListKey], &'a [Value]),
    Element(&'a Value),
}

impl<'a> Trail<'a> {
    pub(crate) const ROOT: Trail<'static> = Trail { above: None, step: None };

    pub(crate) fn then(&'a self, step: Step<'a>) -> Trail<'a> {
        Trail { above: Some(self), step: Some(step) }
    }

    /// The name of the field that holds this one; empty within a list element or at the root.
    pub(crate) fn holder(&self) -> &'a str {
        match self.above.and_then(|above| above.step) {
            Some(Step::Field(name)) => name,
            _ => "",
        }
    }

    /// The name of the field here, or of the list whose element is here; empty at the root.
    pub(crate) fn name(&self) -> &'a str {
        match (self.step, self.above) {
            (Some(Step::Field(name)), _) => name,
            (Some(Step::Key(..) | Step::Element(_)), Some(above)) => above.name(),
            _ => "",
        }
    }

    pub(crate) fn path(&self) -> Path {
        let above = std::iter::successors(Some(self), |trail| trail.above);
        let steps: SmallVec<[Step<'_>; USUAL]> = above.filter_map(|trail| trail.step).collect();
        Path(steps.iter().rev().map(Step::segment).collect())
    }
}

impl Step<'_> {
    fn segment(&self) -> Segment {
        match *self {
            Self::Field(name) => Segment::Field(name.to_owned()),
            Self::Key(keys, values) => {
                let keys = keys.iter().zip(values);
                Segment::Key(keys.map(|(key, value)| (key.name.to_string(), value.clone())).collect())
            }
            Self::Element(value) => Segment::Element(value.clone()),
        }
    }
}
