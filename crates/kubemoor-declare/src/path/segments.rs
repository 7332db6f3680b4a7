//! The segments of a path.
//!
//! Entry point: [`Segments`]. Invariant: immutable, so that clones share them together with the text that they spell.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::Segment;

/// The segments of a [`super::Path`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Segments(Arc<Shared>);

#[derive(Default)]
struct Shared {
    segments: Vec<Segment>,
    /// Written when it is first asked for: a denial needs it several times.
    text: OnceLock<Box<str>>,
}

impl Segments {
    /// Their text; `write` writes it, once.
    pub(super) fn text(&self, write: impl FnOnce(&[Segment]) -> String) -> &str {
        self.0.text.get_or_init(|| write(self).into())
    }
}

impl Deref for Segments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.0.segments
    }
}

impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl From<Vec<Segment>> for Segments {
    fn from(segments: Vec<Segment>) -> Self {
        Self(Arc::new(Shared { segments, text: OnceLock::new() }))
    }
}

impl<const N: usize> From<[Segment; N]> for Segments {
    fn from(segments: [Segment; N]) -> Self {
        Self::from(Vec::from(segments))
    }
}

impl From<&[Segment]> for Segments {
    fn from(segments: &[Segment]) -> Self {
        Self::from(segments.to_vec())
    }
}

impl FromIterator<Segment> for Segments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self::from(Vec::from_iter(segments))
    }
}
