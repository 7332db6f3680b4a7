//! The changes that are allowed locally: paths, and the deletion of the object.
//!
//! Entry point: [`Grant`]. Invariant: `*` means every field and not the deletion, which only its
//! own word grants. Must not decide when or for which users a grant applies.

use super::flaw::{FlawReason, Flaws};
use super::mask::Mask;
use super::pattern::Pattern;

/// The word that grants the deletion.
pub const DELETE: &str = "delete";

/// The changes that are allowed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    /// The fields.
    pub mask: Mask,
    /// Whether the object may be deleted, and is not re-created.
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

    /// The grant of these texts; `None` if one of them is invalid.
    pub fn parse<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Self> {
        let mut flaws = Flaws::default();
        let grant = Self::read(texts, |_| String::new(), &mut flaws);
        flaws.or(grant).ok()
    }

    /// The texts of all allowed changes.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let fields = self.mask.0.iter().map(ToString::to_string);
        fields.chain(self.deletes.then(|| DELETE.to_owned()))
    }
}

pub(super) fn pattern(text: &str, at: &str, flaws: &mut Flaws) -> Option<Pattern> {
    flaws.take(at, FlawReason::InvalidPath, Pattern::parse(text))
}
