//! The releases that declare an object.
//!
//! Entry point: [`ClaimTable`]. Invariant: a claim costs a number and no copy of a name. If several releases
//! claim one object, the first claim remains first, also when its release changes. Must not know the declared
//! fields.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use smallvec::SmallVec;

use super::release::Release;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The releases that declare one object, the one seen first in front.
pub type Claims<'t> = SmallVec<[&'t Arc<Release>; 2]>;

/// The releases by number, and their claims.
#[derive(Debug, Default)]
pub struct ClaimTable {
    releases: HashMap<u32, Arc<Release>>,
    numbers: HashMap<ReleaseId, u32>,
    next: u32,
    /// By an object's hash, the number of the first release that may declare it.
    first: HashMap<u64, u32>,
    /// The same for all others, where there are any: few objects have several claims.
    others: HashMap<u64, Vec<u32>>,
    hasher: RandomState,
}

impl ClaimTable {
    /// The releases that declare an object.
    pub fn of(&self, object: &ObjectId) -> Claims<'_> {
        let hash = self.hasher.hash_one(object);
        let Some(first) = self.first.get(&hash) else { return Claims::new() };
        let others = self.others.get(&hash).into_iter().flatten();
        let releases = [first].into_iter().chain(others).filter_map(|number| self.releases.get(number));
        // Another object may have the same hash.
        releases.filter(|release| release.objects.contains_key(object)).collect()
    }

    /// How many objects are declared.
    pub fn objects(&self) -> usize {
        self.first.len()
    }

    /// Replaces the claims of what has this name.
    pub fn set(&mut self, name: &ReleaseId, release: &Arc<Release>) {
        let number = self.number(name);
        let before = self.releases.insert(number, Arc::clone(release));
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(&before.objects, &release.objects)) {
            return;
        }
        let before = before.as_deref().map(|before| &before.objects);
        let dropped = before.into_iter().flat_map(|before| before.keys());
        for object in dropped.filter(|object| !release.objects.contains_key(*object)) {
            self.drop_claim(object, number);
        }
        let is_new = |object: &&Arc<ObjectId>| before.is_none_or(|before| !before.contains_key(*object));
        for object in release.objects.keys().filter(is_new) {
            self.add_claim(object, number);
        }
    }

    /// Removes the claims of what had this name.
    pub fn remove(&mut self, name: &ReleaseId) {
        let Some(number) = self.numbers.remove(name) else { return };
        let Some(release) = self.releases.remove(&number) else { return };
        release.objects.keys().for_each(|object| self.drop_claim(object, number));
    }

    fn number(&mut self, name: &ReleaseId) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        while self.releases.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.numbers.insert(name.clone(), self.next);
        self.next
    }

    fn add_claim(&mut self, object: &ObjectId, number: u32) {
        match self.first.entry(self.hasher.hash_one(object)) {
            Entry::Vacant(first) => drop(first.insert(number)),
            Entry::Occupied(first) => self.others.entry(*first.key()).or_default().push(number),
        }
    }

    fn drop_claim(&mut self, object: &ObjectId, number: u32) {
        let Entry::Occupied(mut first) = self.first.entry(self.hasher.hash_one(object)) else { return };
        let Entry::Occupied(mut others) = self.others.entry(*first.key()) else {
            if *first.get() == number {
                first.remove();
            }
            return;
        };
        if *first.get() == number {
            *first.get_mut() = others.get_mut().remove(0);
        } else if let Some(place) = others.get().iter().position(|it| *it == number) {
            others.get_mut().remove(place);
        }
        if others.get().is_empty() {
            others.remove();
        }
    }
}

#[cfg(test)]
mod tests;
