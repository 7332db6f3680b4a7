//! Objects with Helm's label that are not records.
//!
//! Entry points: [`Strays::note`], [`Strays::forget`]; [`Strays::begin`] and [`Strays::end`] around a full
//! listing. Invariant: each version of a stray is reported once. At most [`MAX_STRAYS`] are known, and none
//! that was deleted.

use std::collections::HashMap;

/// The strays that are known; what comes beyond is no news.
const MAX_STRAYS: usize = 256;

/// The namespace and name of an object.
type Place = (String, String);

/// Objects that carry Helm's label and are no records.
#[derive(Default)]
pub(super) struct Strays {
    /// The reported version of each, and whether the current listing contains it.
    known: HashMap<Place, (String, bool)>,
}

impl Strays {
    /// Notes a stray in this version; says whether it is to be logged.
    pub(super) fn note(&mut self, place: Place, version: &str) -> bool {
        if let Some((known, listed)) = self.known.get_mut(&place) {
            *listed = true;
            return std::mem::replace(known, version.to_owned()) != version;
        }
        let has_room = self.known.len() < MAX_STRAYS;
        if has_room {
            self.known.insert(place, (version.to_owned(), true));
        }
        has_room
    }

    /// It is gone, or has become a record.
    pub(super) fn forget(&mut self, place: &Place) {
        self.known.remove(place);
    }

    /// A full listing begins.
    pub(super) fn begin(&mut self) {
        self.known.values_mut().for_each(|(_, listed)| *listed = false);
    }

    /// Ends a full listing: forgets the strays that it did not contain.
    pub(super) fn end(&mut self) {
        self.known.retain(|_, (_, listed)| *listed);
        self.known.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: usize) -> Place {
        ("shop".to_owned(), number.to_string())
    }

    #[test]
    fn strays_are_bounded_told_once_and_forgotten() {
        let mut strays = Strays::default();
        assert!(strays.note(place(0), "1"));
        assert!(!strays.note(place(0), "1"));
        assert!(strays.note(place(0), "2"));
        strays.forget(&place(0));
        assert!(strays.note(place(0), "2"));
        let told = (0..10 * MAX_STRAYS).filter(|number| strays.note(place(*number), "2")).count();
        assert_eq!((told, strays.known.len()), (MAX_STRAYS - 1, MAX_STRAYS));
        strays.begin();
        assert!(!strays.note(place(1), "2"));
        strays.end();
        assert_eq!(strays.known.len(), 1);
        assert!(strays.note(place(2), "2"));
    }
}
