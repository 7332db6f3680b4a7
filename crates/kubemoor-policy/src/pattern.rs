//! Patterns of paths: JSON Pointers (RFC 6901) whose segments may also be `[key=value]` or `*`; and a trie that finds
//! the patterns about one path among many. What a pattern displays parses back to an equal pattern.

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

    /// Whether this pattern matches something strictly below `path`.
    pub fn reaches_below(&self, path: &Path) -> bool {
        self.below(path).is_some_and(|rest| !rest.is_empty())
    }

    /// Whether a step may be the position of an element.
    pub(crate) fn has_places(&self) -> bool {
        self.0.iter().any(|step| step.index().is_some())
    }

    /// Whether it would match `path`, a parent or something below it if its positions are those of the path's
    /// elements.
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

    /// The pattern with keys in place of positions in the manifest's lists, as in `/containers/0/image`.
    pub(crate) fn placed(&self, fields: &DeclaredFields) -> Self {
        if !self.has_places() {
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

    /// The steps that remain at `path`; empty if it is covered.
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

    /// Whether a path's segment is one of those that this step names.
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

/// Patterns by their steps, each under the number of its rule.
#[derive(Clone, Debug, Default)]
pub struct PatternTrie {
    /// The first is the root; it is absent where there is no pattern.
    places: Vec<TrieNode>,
}

/// The patterns after some steps.
#[derive(Clone, Debug, Default)]
struct TrieNode {
    /// The next places by a named step.
    named: HashMap<String, usize>,
    any: Option<usize>,
    /// Rules of patterns that end here.
    end: Vec<usize>,
    /// Rules of patterns that pass through or end here.
    pass: Vec<usize>,
}

impl PatternTrie {
    /// Adds a pattern of the rule with this number. Rules are added in order.
    pub fn add(&mut self, pattern: &Pattern, rule: usize) {
        let mut at = 0;
        self.pass(at, rule);
        for step in &*pattern.0 {
            let next = self.places.len();
            let Some(place) = self.places.get_mut(at) else { return };
            let name = match step {
                PatternStep::Any => None,
                PatternStep::Only(segment) => names(segment).into_iter().next(),
            };
            at = match name {
                Some(name) => *place.named.entry(name).or_insert(next),
                None => *place.any.get_or_insert(next),
            };
            self.pass(at, rule);
        }
        if let Some(place) = self.places.get_mut(at) {
            note(&mut place.end, rule);
        }
    }

    /// The rules that may apply to `path`, in order.
    pub fn at(&self, path: &Path) -> Vec<usize> {
        let mut found = Vec::new();
        let mut places: Vec<&TrieNode> = self.places.first().into_iter().collect();
        for segment in path.0.iter() {
            if places.is_empty() {
                break;
            }
            let (names, mut next) = (names(segment), Vec::<&usize>::new());
            for place in places {
                found.extend(&place.end);
                next.extend(names.iter().filter_map(|name| place.named.get(name)).chain(&place.any));
            }
            places = next.into_iter().filter_map(|at| self.places.get(*at)).collect();
        }
        found.extend(places.into_iter().flat_map(|place| &place.pass));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Records that a rule's pattern passes through a place, which may be a new one.
    fn pass(&mut self, at: usize, rule: usize) {
        if at == self.places.len() {
            self.places.push(TrieNode::default());
        }
        if let Some(place) = self.places.get_mut(at) {
            note(&mut place.pass, rule);
        }
    }
}

/// The texts by which places are found for a segment: a field's name, an element's value, or each of its keys. Values are
/// spelled as text, since `80` and `"80"` may name the same.
fn names(segment: &Segment) -> Vec<String> {
    match segment {
        Segment::Field(name) => vec![name.clone()],
        Segment::Element(value) => vec![format!("[={}]", Segment::spelled(value))],
        Segment::Key(keys) => {
            keys.iter().map(|(key, value)| format!("[{key}={}]", Segment::spelled(value))).collect()
        }
    }
}

/// Rules come in their order, so the same one stands at the end.
fn note(rules: &mut Vec<usize>, rule: usize) {
    if rules.last() != Some(&rule) {
        rules.push(rule);
    }
}

#[cfg(test)]
mod tests;
