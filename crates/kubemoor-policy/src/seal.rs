//! Seals: the places of an object below which additions are drift too.
//!
//! Entry points: [`Seal::scope`] for the walk over an object; [`Seal::text`] and [`Seal::written`] tell one
//! seal from another. Invariant: an object that no policy seals has an empty seal, which costs nothing.
//! Must not decide what an addition is.

use super::mask::Mask;
use super::pattern::{Pattern, Step};
use kubemoor_declare::additions::Scope;
use kubemoor_declare::fields::Fields;
use kubemoor_declare::path::{Path, Segment};

/// The metadata of an object that can be sealed.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// The fields that only the API server sets.
const SERVERS: [&str; 3] = ["apiVersion", "kind", "status"];

/// The places of one object below which additions are drift too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seal {
    /// With keys in place of the positions of list elements.
    placed: Vec<Pattern>,
    /// As the policies have them.
    written: Vec<Pattern>,
}

/// The part of a seal that remains at one place of an object.
#[derive(Clone, Debug)]
pub struct SealScope<'s>(Vec<&'s [Step]>);

impl Seal {
    /// Whether nothing is sealed.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Whether what is at `path` is sealed.
    pub fn covers(&self, path: &Path) -> bool {
        self.placed.iter().any(|pattern| pattern.covers(path))
    }

    /// The scope at the root of an object.
    pub fn scope(&self) -> SealScope<'_> {
        SealScope(self.placed.iter().map(|pattern| &*pattern.0).collect())
    }

    /// A text that differs for another seal, or if other places below it are `ignored`; `None` if
    /// nothing is sealed.
    pub fn text(&self, ignored: &Mask) -> Option<String> {
        let but = if ignored.is_empty() { String::new() } else { format!("\nbut\n{}", texts(&ignored.0)) };
        (!self.is_empty()).then(|| texts(&self.placed) + &but)
    }

    /// The seal as the policies have it, as one text; `None` if nothing is sealed. Seals with equal texts
    /// are equal for one declaration, whether its fields are known or not.
    pub fn written(&self) -> Option<String> {
        (!self.is_empty()).then(|| texts(&self.written))
    }

    /// Adds a rule's seal for an object with these fields.
    pub fn add(&mut self, mask: &Mask, fields: &Fields) {
        self.placed.extend(mask.0.iter().map(|pattern| pattern.placed(fields)));
        self.written.extend(mask.0.iter().cloned());
    }
}

impl Scope for SealScope<'_> {
    fn step(&self, segment: &Segment) -> Option<Self> {
        let below = |steps: &&[Step]| match steps.split_first() {
            None => true,
            Some((step, _)) => step.matches(segment),
        };
        let rest = self.0.iter().copied().filter(below);
        let rest: Vec<_> = rest.map(|steps| steps.split_first().map_or(steps, |(_, rest)| rest)).collect();
        (!rest.is_empty()).then_some(Self(rest))
    }

    fn is_inside(&self) -> bool {
        self.0.iter().any(|steps| steps.is_empty())
    }
}

/// Whether anything at the pattern can be sealed.
pub(super) fn can_hold(pattern: &Pattern) -> bool {
    let name = |index: usize| match pattern.0.get(index) {
        Some(Step::Only(Segment::Field(name))) => Some(name.as_str()),
        _ => None,
    };
    match (name(0), name(1)) {
        (Some("metadata"), Some(below)) => METADATA.contains(&below),
        (Some(first), _) => !SERVERS.contains(&first),
        (None, _) => true,
    }
}

/// The reason why nothing at the pattern can be sealed.
pub(super) fn refusal(pattern: &Pattern) -> String {
    format!(
        "{pattern} cannot be sealed: the API server and controllers write there. Of the metadata, \
         seal /metadata/labels or /metadata/annotations"
    )
}

/// The patterns as one text, whatever their order.
fn texts(patterns: &[Pattern]) -> String {
    let mut texts: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.join("\n")
}

#[cfg(test)]
mod tests;
