//! What may be changed locally: paths, and whether the object may be deleted.
//!
//! Entry point: [`Grant`]. Invariant: `*` is every field and not the deletion,
//! which is granted by its own word alone.

use super::flaw::{FlawReason, Flaws};
use super::mask::Mask;
use super::pattern::Pattern;

/// The word that grants the deletion.
pub const DELETE: &str = "delete";

/// What may be changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    /// The fields.
    pub mask: Mask,
    /// Whether the object may be deleted, and stays so.
    pub deletes: bool,
}

impl Grant {
    /// Reads paths, with `delete` among them where that can be granted.
    pub(super) fn read<'t>(
        texts: impl Iterator<Item = &'t str>,
        at: impl Fn(usize) -> String,
        flaws: &mut Flaws,
    ) -> Self {
        let mut grant = Self::default();
        for (index, text) in texts.enumerate() {
            match text {
                DELETE => grant.deletes = true,
                text => grant.mask.0.extend(pattern(text, &at(index), flaws)),
            }
        }
        grant
    }

    /// The grant of these texts; none where one of them is not understood.
    pub fn parse<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Self> {
        let mut flaws = Flaws::default();
        let grant = Self::read(texts, |_| String::new(), &mut flaws);
        flaws.or(grant).ok()
    }

    /// The texts of everything that may be changed.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let fields = self.mask.0.iter().map(ToString::to_string);
        fields.chain(self.deletes.then(|| DELETE.to_owned()))
    }
}

pub(super) fn pattern(text: &str, at: &str, flaws: &mut Flaws) -> Option<Pattern> {
    flaws.take(at, FlawReason::InvalidPath, Pattern::parse(text))
}
