//! Patterns of paths: JSON Pointers (RFC 6901) whose segments may also be `[key=value]` or `*`; and a trie that finds
//! the patterns that may match a path. The text of a pattern parses back to an equal pattern.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::path::{Path, PathError, Segment};

/// The longest text of a pattern, in bytes.
pub const MAX_LENGTH: usize = 1024;

/// The most segments of a pattern.
const MAX_SEGMENTS: usize = 64;

/// A pattern of paths: `/spec/replicas`, `/spec/template/spec/containers/[name=app]/image`,
/// `/metadata/annotations/*`, or `*` for everything. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(pub(crate) Arc<[PatternStep]>);

/// One step of a [`Pattern`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PatternStep {
    /// `*`: any one segment.
    Any,
    /// A field, or a list element by some of its keys.
    Only(Segment),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Path(#[from] PathError),
    /// It has an empty segment, such as `/spec//image` and `/spec/`.
    #[error(
        "the path {0:?} has an empty segment: write a pointer such as /spec/replicas, or * for everything"
    )]
    Empty(String),
    #[error("the path is longer than {MAX_LENGTH} bytes or {MAX_SEGMENTS} segments")]
    TooLong,
}

impl Pattern {
    /// Parses a pattern. A field with the name `*` cannot be matched alone.
    ///
    /// # Errors
    /// The text is not a valid pattern.
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
        let steps: Vec<PatternStep> = body
            .split('/')
            .map(|segment| match segment {
                "*" => Ok(PatternStep::Any),
                "" => Err(PatternError::Empty(text.to_owned())),
                segment => Ok(PatternStep::Only(segment.parse()?)),
            })
            .collect::<Result<_, _>>()?;
        if steps.len() > MAX_SEGMENTS {
            return Err(PatternError::TooLong);
        }
        Ok(Self(steps.into()))
    }

    /// Whether the pattern matches `path` or one of its parents.
    pub fn covers(&self, path: &Path) -> bool {
        self.below(path).is_some_and(<[PatternStep]>::is_empty)
    }

    /// Whether the pattern may match a path strictly below `path`.
    pub fn reaches_below(&self, path: &Path) -> bool {
        self.below(path).is_some_and(|rest| !rest.is_empty())
    }

    /// Whether a step may be the position of a list element.
    pub(crate) fn has_positions(&self) -> bool {
        self.0.iter().any(|step| step.index().is_some())
    }

    /// Whether it would match `path`, a parent or a path below it if its positions were those of the list elements in
    /// `path`.
    pub fn may_match_by_position(&self, path: &Path) -> bool {
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

    /// The pattern with keys in place of positions (as in `/containers/0/image`) in the manifest's lists.
    pub(crate) fn with_list_keys(&self, fields: &DeclaredFields) -> Self {
        if !self.has_positions() {
            return self.clone();
        }
        let mut above: Option<Vec<Segment>> = Some(Vec::new());
        let steps = self.0.iter().map(|step| {
            let place = above.as_ref().and_then(|above| fields.element_at(above, step.index()?));
            let step = place.map_or_else(|| step.clone(), PatternStep::Only);
            match (&step, &mut above) {
                (PatternStep::Only(segment), Some(above)) => above.push(segment.clone()),
                _ => above = None,
            }
            step
        });
        Self(steps.collect())
    }

    /// The steps that remain below `path`; empty if the pattern covers it, `None` if it does not match.
    pub(crate) fn below(&self, path: &Path) -> Option<&[PatternStep]> {
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

impl PatternStep {
    /// The position in a list, if the step is a number.
    pub(crate) fn index(&self) -> Option<usize> {
        match self {
            Self::Only(Segment::Field(name)) if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                name.parse().ok()
            }
            _ => None,
        }
    }

    pub(crate) fn matches(&self, segment: &Segment) -> bool {
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
            PatternStep::Any => f.write_str("/*"),
            PatternStep::Only(segment) => write!(f, "/{segment}"),
        })
    }
}

/// A trie of patterns with the indexes of their rules: it keeps lookups fast for many exceptions and many fields.
#[derive(Clone, Debug, Default)]
pub struct PatternTrie {
    /// The patterns that continue with a named step.
    named: HashMap<String, Self>,
    any: Option<Box<Self>>,
    /// Rules of patterns that end here.
    end: Vec<usize>,
    /// Rules of patterns that continue or end here.
    pass: Vec<usize>,
}

impl PatternTrie {
    /// The rules whose patterns may match `path`, a parent or a path below it, in order.
    pub fn at<'t>(&'t self, path: &Path) -> Vec<usize> {
        let mut found = Vec::new();
        let mut places = Vec::from_iter((!self.pass.is_empty()).then_some(self));
        for segment in path.0.iter() {
            if places.is_empty() {
                break;
            }
            found.extend(places.iter().flat_map(|place| &place.end));
            let names = names(segment);
            let next = |place: &'t Self| {
                let named = names.iter().filter_map(move |name| place.named.get(name));
                named.chain(place.any.as_deref())
            };
            places = places.into_iter().flat_map(next).collect();
        }
        found.extend(places.into_iter().flat_map(|place| &place.pass));
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl<'p> FromIterator<(usize, &'p Pattern)> for PatternTrie {
    fn from_iter<I: IntoIterator<Item = (usize, &'p Pattern)>>(patterns: I) -> Self {
        let mut root = Self::default();
        for (rule, pattern) in patterns {
            root.pass.push(rule);
            let mut place = &mut root;
            for step in &*pattern.0 {
                let name = match step {
                    PatternStep::Any => None,
                    PatternStep::Only(segment) => names(segment).into_iter().next(),
                };
                place = match name {
                    Some(name) => place.named.entry(name).or_default(),
                    None => place.any.get_or_insert_default().as_mut(),
                };
                place.pass.push(rule);
            }
            place.end.push(rule);
        }
        root
    }
}

/// The trie keys of a segment: a field's name, an element's value, or each of its keys. Values are written as text,
/// since `80` and `"80"` may be equal.
fn names(segment: &Segment) -> Vec<String> {
    match segment {
        Segment::Field(name) => vec![name.clone()],
        Segment::Element(value) => vec![format!("[={}]", Segment::spelled(value))],
        Segment::Key(keys) => {
            keys.iter().map(|(key, value)| format!("[{key}={}]", Segment::spelled(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests;
