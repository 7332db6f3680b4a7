//! How many objects a page of a list has.
//!
//! Entry point: [`PageSize`]. Invariant: at least one and at most [`MOST`]. Must not know what is listed.

use crate::client::call::BODY_CAP;

/// The bytes that a page should have at most. For each page etcd counts all objects that are left, so small pages of many
/// objects cost it more than the objects do.
const ENOUGH: usize = 512 << 10;

/// The most bytes of a page with several objects: those that follow small ones may be large.
const CAP: usize = 4 << 20;

/// The most objects per page, as with kubectl.
const MOST: u32 = 500;

/// The objects per page, by the bytes of the pages before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSize(u32);

impl PageSize {
    /// Begins with pages of so many objects.
    pub(crate) const fn of(objects: u32) -> Self {
        Self(objects)
    }

    /// The number of objects to ask for.
    pub(crate) fn objects(self) -> u32 {
        self.0
    }

    /// The most bytes of the answer. A single object may be as long as any other answer.
    pub(crate) fn cap(self) -> usize {
        if self.0 > 1 { CAP } else { BODY_CAP }
    }

    /// Takes in that a page that was not the last had so many bytes.
    pub(super) fn adapt(&mut self, bytes: usize) {
        if bytes > ENOUGH {
            self.halve();
        } else if bytes <= ENOUGH / 2 {
            self.0 = self.0.saturating_mul(2).min(MOST.max(self.0));
        }
    }

    /// Asks for half as many. Returns whether that is fewer.
    pub(crate) fn halve(&mut self) -> bool {
        let before = self.0;
        self.0 = (before / 2).max(1);
        self.0 < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_they_are_small_and_shrink_when_they_are_large() {
        for (begins, pages, expected) in [
            (50, vec![1_000, 1_000, 1_000, 1_000, 1_000], vec![100, 200, 400, 500, 500]),
            (50, vec![ENOUGH / 2, ENOUGH / 2 + 1, ENOUGH, ENOUGH + 1], vec![100, 100, 100, 50]),
            (3, vec![ENOUGH * 2, ENOUGH * 2, ENOUGH * 2], vec![1, 1, 1]),
        ] {
            let mut size = PageSize::of(begins);
            let mut adapted = |bytes| {
                size.adapt(bytes);
                size.objects()
            };
            let adapted: Vec<u32> = pages.iter().map(|bytes| adapted(*bytes)).collect();
            assert_eq!(adapted, expected, "{begins}, then {pages:?} bytes");
        }
    }

    #[test]
    fn page_of_one_object_is_not_halved() {
        let mut size = PageSize::of(2);
        assert!(size.halve());
        assert_eq!((size.objects(), size.cap()), (1, BODY_CAP));
        assert!(!size.halve());
        assert_eq!(size.objects(), 1);
    }
}
