//! Patterns of paths: JSON Pointers (RFC 6901) whose segments may also be
//! `[key=value]` or `*`.
//!
//! Entry points: [`Pattern::parse`], [`Pattern::covers`]. Invariant: what a
//! pattern displays parses back to an equal pattern. Must not know a schema:
//! paths come with the keys of list elements already.

use std::fmt;
use std::sync::Arc;

use kubemoor_declare::fields::Fields;
use kubemoor_declare::path::{Path, PathError, Segment};

/// The longest text of a pattern, in bytes.
pub const MAX_LENGTH: usize = 1024;

/// The most segments of a pattern.
const MAX_SEGMENTS: usize = 64;

/// A pattern of paths: `/spec/replicas`,
/// `/spec/template/spec/containers/[name=app]/image`,
/// `/metadata/annotations/*`, or `*` for everything. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(pub(super) Arc<[Step]>);

/// One step of a [`Pattern`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// `*`: any one segment.
    Any,
    /// A field, or a list element by some of its keys.
    Only(Segment),
}

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not follow the grammar.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It names nothing, as `/spec//image` and `/spec/` do.
    #[error(
        "the path {0:?} has an empty segment: write a pointer such as /spec/replicas, or * for everything"
    )]
    Empty(String),
    /// It is longer than any path.
    #[error("the path is longer than {MAX_LENGTH} bytes or {MAX_SEGMENTS} segments")]
    TooLong,
}

impl Pattern {
    /// Reads a pattern. A field that is itself called `*` cannot be named
    /// alone.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_LENGTH {
            return Err(PatternError::TooLong);
        }
        if text == "*" {
            return Ok(Self(Arc::default()));
        }
        if text.is_empty() {
            return Err(PatternError::Empty(String::new()));
        }
        let Some(body) = text.strip_prefix('/') else {
            return Err(PathError::NoSlash(text.to_owned()).into());
        };
        let steps: Vec<Step> = body
            .split('/')
            .map(|segment| match segment {
                "*" => Ok(Step::Any),
                "" => Err(PatternError::Empty(text.to_owned())),
                segment => Ok(Step::Only(segment.parse()?)),
            })
            .collect::<Result<_, _>>()?;
        if steps.len() > MAX_SEGMENTS {
            return Err(PatternError::TooLong);
        }
        Ok(Self(steps.into()))
    }

    /// Whether the pattern matches `path` or one of its parents.
    pub fn covers(&self, path: &Path) -> bool {
        self.below(path).is_some_and(<[Step]>::is_empty)
    }

    /// Whether this pattern matches something strictly below `path`.
    pub fn reaches_below(&self, path: &Path) -> bool {
        self.below(path).is_some_and(|rest| !rest.is_empty())
    }

    /// Whether a step may be the position of an element.
    pub(super) fn has_places(&self) -> bool {
        self.0.iter().any(|step| step.index().is_some())
    }

    /// Whether it would match `path`, a parent or something below it if its positions are those of
    /// the path's elements.
    pub fn meets_by_place(&self, path: &Path) -> bool {
        let mut by_place = false;
        for (step, segment) in self.0.iter().zip(path.0.iter()) {
            match (step.matches(segment), segment) {
                (true, _) => {}
                (false, Segment::Key(_) | Segment::Element(_)) if step.index().is_some() => by_place = true,
                _ => return false,
            }
        }
        by_place
    }

    /// The pattern with keys in place of positions in the manifest's lists, as in
    /// `/containers/0/image`.
    pub(super) fn placed(&self, fields: &Fields) -> Self {
        let mut above: Option<Vec<Segment>> = Some(Vec::new());
        let steps = self.0.iter().map(|step| {
            let place = above.as_ref().and_then(|above| fields.element_at(above, step.index()?));
            let step = place.map_or_else(|| step.clone(), Step::Only);
            match (&step, &mut above) {
                (Step::Only(segment), Some(above)) => above.push(segment.clone()),
                _ => above = None,
            }
            step
        });
        Self(steps.collect())
    }

    /// The steps that remain at `path`; empty if it is covered.
    pub(super) fn below(&self, path: &Path) -> Option<&[Step]> {
        let mut steps = &*self.0;
        for segment in path.0.iter() {
            let Some((step, rest)) = steps.split_first() else { return Some(&[]) };
            if !step.matches(segment) {
                return None;
            }
            steps = rest;
        }
        Some(steps)
    }
}

impl Step {
    /// The position in a list, if the step is a number.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Only(Segment::Field(name)) if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                name.parse().ok()
            }
            _ => None,
        }
    }

    /// Whether a path's segment is one of those that this step names.
    pub(super) fn matches(&self, segment: &Segment) -> bool {
        match (self, segment) {
            (Self::Any, _) => true,
            (Self::Only(Segment::Key(wanted)), Segment::Key(keys)) => wanted
                .iter()
                .all(|(name, value)| keys.iter().any(|(key, v)| key == name && Segment::alike(value, v))),
            (Self::Only(Segment::Element(wanted)), Segment::Element(value)) => Segment::alike(wanted, value),
            (Self::Only(wanted), segment) => wanted == segment,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("*");
        }
        self.0.iter().try_for_each(|step| match step {
            Step::Any => f.write_str("/*"),
            Step::Only(segment) => write!(f, "/{segment}"),
        })
    }
}

#[cfg(test)]
mod tests;
