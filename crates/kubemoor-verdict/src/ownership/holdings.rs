//! The owners of the places of one object.
//!
//! Entry point: [`Holdings::of`], which visits each entry once. Invariant: an owner of an empty
//! value, such as Helm where a manifest declares one, does not own the fields of others below it.
//! Must not judge.

use std::collections::{HashMap, HashSet};

use super::fieldset::Held;
use super::owners::{Entry, Manager, Operation, Owners};
use super::prefixes;
use kubemoor_declare::model::{MANAGED_BY, RELEASE_NAME};
use kubemoor_declare::path::{Path, Segment};

/// The owners of the places of one object.
pub(crate) struct Holdings<'o> {
    by_path: HashMap<u64, Vec<(&'o Entry, Held)>>,
    /// The entries that own a place as one value.
    whole: HashMap<u64, Vec<&'o Entry>>,
    /// The names of the managers that have set Helm's label or annotations.
    helms: HashSet<&'o str>,
    is_complete: bool,
}

/// How a manager owns a place.
#[derive(Clone, Copy)]
pub(crate) struct Holding<'o> {
    pub(crate) manager: &'o Manager,
    /// Whether it owns parts of the place alone.
    pub(crate) is_in_parts: bool,
    /// Whether it is Helm's.
    pub(crate) is_helms: bool,
}

impl<'o> Holdings<'o> {
    pub(crate) fn of(owners: &'o Owners) -> Self {
        let mut by_path: HashMap<u64, Vec<(&Entry, Held)>> = HashMap::new();
        let mut whole: HashMap<u64, Vec<&Entry>> = HashMap::new();
        for entry in owners.read() {
            entry.owned.each(&mut |path, held| {
                by_path.entry(path).or_default().push((entry, held));
                if held == Held::Whole {
                    whole.entry(path).or_default().push(entry);
                }
            });
        }
        let marks = [["metadata", "annotations", RELEASE_NAME], ["metadata", "labels", MANAGED_BY.0]];
        let marks = marks.map(|names| Path(names.map(|name| Segment::Field(name.to_owned())).into()));
        let marked = marks.iter().filter_map(|mark| by_path.get(&prefixes(mark).last()?));
        let helms = marked.flatten().map(|(entry, _)| entry.manager.name.as_str()).collect();
        let is_complete = !owners.is_empty() && owners.skipped().is_empty();
        Self { by_path, whole, helms, is_complete }
    }

    /// Whether all managers are known, so that a place without an owner is certain to have none.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The owners of the value at `path` or of its parts; if there are none, the owners other than
    /// Helm of a parent as one value.
    pub(crate) fn at(&self, path: &Path) -> Vec<Holding<'o>> {
        let prefixes: Vec<u64> = prefixes(path).collect();
        let Some((last, above)) = prefixes.split_last() else { return Vec::new() };
        let own = self.by_path.get(last).into_iter().flatten();
        let own: Vec<_> = own.map(|(entry, held)| self.holding(entry, *held)).collect();
        if !own.is_empty() {
            return own;
        }
        let above = above.iter().flat_map(|prefix| self.whole.get(prefix).into_iter().flatten());
        above.map(|entry| self.holding(entry, Held::Whole)).filter(|it| !it.is_helms).collect()
    }

    /// The highest places below `path` that managers other than Helm own by updates.
    pub(crate) fn parts(&self, path: &Path) -> Vec<(Path, &'o Manager)> {
        let entries = prefixes(path).last().and_then(|it| self.by_path.get(&it)).into_iter().flatten();
        let others = entries.filter(|(entry, held)| {
            entry.manager.operation == Operation::Update && !self.holding(entry, *held).is_helms
        });
        others
            .flat_map(|(entry, _)| entry.owned.below(path).into_iter().map(|it| (it, &entry.manager)))
            .collect()
    }

    fn holding(&self, entry: &'o Entry, held: Held) -> Holding<'o> {
        let manager = &entry.manager;
        let is_helms = self.helms.contains(manager.name.as_str());
        Holding { manager, is_in_parts: held == Held::Parts, is_helms }
    }
}
