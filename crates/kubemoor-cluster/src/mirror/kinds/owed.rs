//! Kinds that releases declare and that are not completely known yet.
//!
//! Entry point: [`Owed`]. Invariant: kinds that no release declares any more are dropped whenever their number may have
//! doubled, so that records which come and go take no memory. Pure state.

use std::collections::HashSet;

use kubemoor_declare::model::Gvk;
use kubemoor_declare::sweep::Sweep;

/// The number of kinds below which nothing is dropped.
const MANY: usize = 1000;

/// The kinds that are owed.
#[derive(Debug)]
pub(super) struct Owed {
    kinds: HashSet<Gvk>,
    /// Of kinds that are not declared any more.
    sweep: Sweep,
}

impl Owed {
    /// All of them.
    pub(super) fn kinds(&self) -> &HashSet<Gvk> {
        &self.kinds
    }

    /// Adds kinds. Returns whether one of them is new.
    pub(super) fn add(&mut self, kinds: impl IntoIterator<Item = Gvk>) -> bool {
        let before = self.kinds.len();
        self.kinds.extend(kinds);
        self.kinds.len() > before
    }

    /// Drops these kinds.
    pub(super) fn drop_learned(&mut self, learned: &HashSet<Gvk>) {
        self.kinds.retain(|gvk| !learned.contains(gvk));
    }

    /// Whether so many are owed that it is time to drop those that nobody declares.
    pub(super) fn is_crowded(&self) -> bool {
        self.sweep.is_due(self.kinds.len())
    }

    /// Drops the kinds that are not declared any more.
    pub(super) fn drop_undeclared(&mut self, is_declared: impl Fn(&Gvk) -> bool) {
        self.kinds.retain(is_declared);
        self.sweep.note_left(self.kinds.len());
    }
}

impl Default for Owed {
    fn default() -> Self {
        Self { kinds: HashSet::new(), sweep: Sweep::above(MANY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvk(number: usize) -> Gvk {
        Gvk { group: "example.org".to_owned(), version: "v1".to_owned(), kind: format!("Kind{number}") }
    }

    #[test]
    fn undeclared_kinds_are_dropped_whenever_their_number_has_doubled() {
        let (mut owed, mut looks) = (Owed::default(), 0);
        let declared: HashSet<Gvk> = (0..10).map(gvk).collect();
        for number in 0..20 * MANY {
            owed.add([gvk(number)]);
            if owed.is_crowded() {
                looks += 1;
                owed.drop_undeclared(|gvk| declared.contains(gvk));
            }
            assert!(owed.kinds().len() <= MANY, "{number}");
        }
        assert!(declared.is_subset(owed.kinds()) && looks <= 21, "{looks}");
        assert!(!owed.add([gvk(0)]) && owed.add([gvk(usize::MAX)]));
        owed.drop_learned(&declared);
        assert!(owed.kinds().is_disjoint(&declared));
    }
}
