//! The path to a place while a walk is under way.
//!
//! Entry point: [`Trail`]. Invariant: a list on the walker's own stack, so that nothing is allocated until a change is
//! found.

use serde_json::Value;

use super::{Path, Segment};

/// Room for the steps of most paths.
const USUAL: usize = 12;

/// The path to a place while a walk is under way: a list on the walker's own
/// stack, so that nothing is allocated until a change is found.
#[derive(Clone, Copy)]
pub(in crate::declaration) struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    step: Step<'a>,
}

/// One step of a [`Trail`].
#[derive(Clone, Copy)]
pub(in crate::declaration) enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a [crate::declaration::schema::ListKey], &'a [Value]),
    Element(&'a Value),
}

impl<'a> Trail<'a> {
    pub(in crate::declaration) const ROOT: Trail<'static> = Trail { above: None, step: Step::Root };

    pub(in crate::declaration) fn then(&'a self, step: Step<'a>) -> Trail<'a> {
        Trail { above: Some(self), step }
    }

    /// The name of the field that holds this one; empty within a list element or at the root.
    pub(in crate::declaration) fn holder(&self) -> &'a str {
        match self.above.map(|above| above.step) {
            Some(Step::Field(name)) => name,
            _ => "",
        }
    }

    pub(in crate::declaration) fn path(&self) -> Path {
        let mut segments = Vec::with_capacity(USUAL);
        let mut at = Some(self);
        while let Some(trail) = at {
            match trail.step {
                Step::Root => {}
                Step::Field(name) => segments.push(Segment::Field(name.to_owned())),
                Step::Key(keys, values) => segments.push(Segment::Key(
                    keys.iter()
                        .zip(values)
                        .map(|(key, value)| (key.name.to_string(), value.clone()))
                        .collect(),
                )),
                Step::Element(value) => segments.push(Segment::Element(value.clone())),
            }
            at = trail.above;
        }
        segments.reverse();
        Path(segments)
    }
}
