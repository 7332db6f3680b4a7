//! The releases, their policies, and what is known of objects beside them.
//!
//! Entry point: [`Known`]. Invariant: as the loop was told last, all of one
//! moment; a claim costs a number, no copy of a name. Must not judge.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::Timestamp;
use smallvec::SmallVec;

use super::departure::Departure;
use super::effort::note;
use super::event::{Ruled, Surroundings};
use crate::helm::release::Release;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::settled::{Settled, Settlements};
use crate::verdict::circumstances::Circumstances;

/// What the loop was told of releases.
#[derive(Debug, Default)]
pub(crate) struct Known {
    releases: BTreeMap<ReleaseId, Ruled>,
    /// By an object's hash, the numbers of the releases that may declare it.
    claims: HashMap<u64, SmallVec<[u32; 2]>>,
    numbers: BTreeMap<u32, ReleaseId>,
    numbered: HashMap<ReleaseId, u32>,
    next: u32,
    surroundings: HashMap<ObjectId, Surroundings>,
    settled: Settlements,
    hasher: RandomState,
}

impl Known {
    /// A release says this by now.
    pub(crate) fn set(&mut self, id: &ReleaseId, ruled: Option<Ruled>) {
        let before = self.releases.get(id).map(|ruled| Arc::clone(&ruled.release));
        let after = ruled.as_ref().map(|ruled| Arc::clone(&ruled.release));
        let is_same = |a: &Arc<Release>, b: &Arc<Release>| Arc::ptr_eq(&a.objects, &b.objects);
        if !before.as_ref().zip(after.as_ref()).is_some_and(|(a, b)| is_same(a, b)) {
            let number = self.number(id);
            let has = |release: &Option<Arc<Release>>, object: &ObjectId| {
                release.as_ref().is_some_and(|release| release.objects.contains_key(object))
            };
            // Who was the first to declare an object stays the first.
            for object in
                before.iter().flat_map(|release| release.objects.keys()).filter(|it| !has(&after, it))
            {
                self.unclaim(object, number);
            }
            for object in
                after.iter().flat_map(|release| release.objects.keys()).filter(|it| !has(&before, it))
            {
                self.claims.entry(self.hasher.hash_one(object)).or_default().push(number);
            }
        }
        match ruled {
            Some(ruled) => drop(self.releases.insert(id.clone(), ruled)),
            None => {
                self.releases.remove(id);
                self.settled.forget(id);
                if let Some(number) = self.numbered.remove(id) {
                    self.numbers.remove(&number);
                }
            }
        }
    }

    /// The policy of a release is this by now. Gives whether that is new.
    pub(crate) fn rule(&mut self, id: &ReleaseId, policy: Arc<Policy>) {
        if let Some(ruled) = self.releases.get_mut(id) {
            ruled.policy = policy;
        }
    }

    /// A release.
    pub(crate) fn release(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.releases.get(id).map(|ruled| &ruled.release)
    }

    /// The policy of a release.
    pub(crate) fn policy(&self, id: &ReleaseId) -> Option<&Arc<Policy>> {
        self.releases.get(id).map(|ruled| &ruled.policy)
    }

    /// All releases, in order.
    pub(crate) fn releases(&self) -> impl Iterator<Item = &Arc<Release>> {
        note(self.releases.len());
        self.releases.values().map(|ruled| &ruled.release)
    }

    /// How many objects all releases declare.
    pub(crate) fn objects(&self) -> usize {
        self.claims.len()
    }

    /// The releases that declare an object, in the order in which they came to do so.
    pub(crate) fn claims(&self, object: &ObjectId) -> Vec<&Arc<Release>> {
        let numbers = self.claims.get(&self.hasher.hash_one(object)).into_iter().flatten();
        let releases = numbers.filter_map(|number| self.release(self.numbers.get(number)?));
        releases.filter(|it| it.objects.contains_key(object)).collect()
    }

    /// Whether a release declares an object, in any of its records that count.
    pub(crate) fn declares(&self, id: &ReleaseId, object: &ObjectId) -> bool {
        self.release(id).is_some_and(|release| release.objects.contains_key(object))
    }

    /// What is known of an object beside its releases is this by now.
    pub(crate) fn surround(&mut self, object: ObjectId, surroundings: Surroundings) {
        if surroundings == Surroundings::default() {
            self.surroundings.remove(&object);
        } else {
            self.surroundings.insert(object, surroundings);
        }
    }

    /// What holds for an object of a release.
    pub(crate) fn circumstances(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let known = self.surroundings.get(object).map(|it| it.of(release, object)).unwrap_or_default();
        Circumstances { settled: self.settled.of(object), ..known }
    }

    /// The values of an object that dry runs have settled.
    pub(crate) fn settled(&self, object: &ObjectId) -> Option<Arc<Settled>> {
        self.settled.of(object)
    }

    /// A dry run has settled this, or an earlier guard says so. Gives whether that is new.
    pub(crate) fn settle(&mut self, object: &ObjectId, settled: Settled) -> bool {
        self.settled.learn(object, settled)
    }

    /// What an autoscaler left behind of an object counts no more. Gives whether
    /// there was any.
    pub(crate) fn forget_departed(&mut self, object: &ObjectId) -> bool {
        self.surroundings.get_mut(object).is_some_and(|it| it.departed.take().is_some())
    }

    /// Whether it is known when the object's last autoscaler went, or one scales it.
    pub(crate) fn is_scaled(&self, object: &ObjectId) -> bool {
        let known = self.surroundings.get(object);
        known.is_some_and(|it| it.departed.is_some() || !it.now.autoscalers.is_empty())
    }

    /// An autoscaler scaled an object before anybody looked, and went.
    pub(crate) fn inherit_departed(&mut self, object: &ObjectId, now: Timestamp) {
        self.surroundings.entry(object.clone()).or_default().departed =
            Some(Departure { last: now, declared: None });
    }

    fn number(&mut self, id: &ReleaseId) -> u32 {
        if let Some(number) = self.numbered.get(id) {
            return *number;
        }
        while self.numbers.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(number, id.clone());
        self.numbered.insert(id.clone(), number);
        number
    }

    fn unclaim(&mut self, object: &ObjectId, number: u32) {
        if let Entry::Occupied(mut claims) = self.claims.entry(self.hasher.hash_one(object)) {
            let place = claims.get().iter().position(|it| *it == number);
            if let Some(place) = place {
                claims.get_mut().remove(place);
            }
            if claims.get().is_empty() {
                claims.remove();
            }
        }
    }
}
