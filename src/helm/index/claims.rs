//! The releases that declare an object, by numbers.
//!
//! Entry point: [`ClaimTable`]. Invariant: a claim costs a number and no copy of a name. If several releases
//! claim one object, the first claim remains first, also when its release changes. Must not know the declared
//! fields.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Release;
use crate::model::{ObjectId, ReleaseId};

/// The releases that declare one object, the one seen first in front.
pub type Claims<'i> = SmallVec<[&'i Arc<Release>; 2]>;

/// The releases by number, and their claims.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    releases: HashMap<u32, Arc<Release>>,
    /// By where their records lie.
    numbers: HashMap<ReleaseId, u32>,
    next: u32,
    /// By an object's hash, the numbers of the releases that may declare it.
    claims: HashMap<u64, SmallVec<[u32; 2]>>,
    hasher: RandomState,
}

impl ClaimTable {
    /// The releases that declare an object.
    pub(super) fn of(&self, object: &ObjectId) -> Claims<'_> {
        let numbers = self.claims.get(&self.hasher.hash_one(object)).into_iter().flatten();
        let releases = numbers.filter_map(|number| self.releases.get(number));
        // Another object may have the same hash.
        releases.filter(|release| release.objects.contains_key(object)).collect()
    }

    /// How many objects are declared.
    pub(super) fn objects(&self) -> usize {
        self.claims.len()
    }

    /// Replaces the claims of the records at `stored`.
    pub(super) fn set(&mut self, stored: &ReleaseId, before: Option<&Release>, release: &Arc<Release>) {
        let number = self.number(stored);
        self.releases.insert(number, Arc::clone(release));
        let before = before.map(|before| &before.objects);
        let dropped = before.into_iter().flat_map(|before| before.keys());
        for object in dropped.filter(|object| !release.objects.contains_key(*object)) {
            self.drop_claim(object, number);
        }
        let is_new = |object: &&Arc<ObjectId>| before.is_none_or(|before| !before.contains_key(*object));
        for object in release.objects.keys().filter(is_new) {
            self.claims.entry(self.hasher.hash_one(object)).or_default().push(number);
        }
    }

    /// Removes the claims of the deleted records at `stored`.
    pub(super) fn remove(&mut self, stored: &ReleaseId, release: &Release) {
        let Some(number) = self.numbers.remove(stored) else { return };
        self.releases.remove(&number);
        release.objects.keys().for_each(|object| self.drop_claim(object, number));
    }

    fn number(&mut self, stored: &ReleaseId) -> u32 {
        if let Some(number) = self.numbers.get(stored) {
            return *number;
        }
        while self.releases.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.numbers.insert(stored.clone(), self.next);
        self.next
    }

    fn drop_claim(&mut self, object: &ObjectId, number: u32) {
        let Entry::Occupied(mut claims) = self.claims.entry(self.hasher.hash_one(object)) else { return };
        let place = claims.get().iter().position(|it| *it == number);
        if let Some(place) = place {
            claims.get_mut().remove(place);
        }
        if claims.get().is_empty() {
            claims.remove();
        }
    }
}
