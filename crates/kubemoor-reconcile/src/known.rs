//! The releases, their policies, and other knowledge about objects.
//!
//! Entry point: [`Known`]. Invariant: the loop's last news, all of one moment; a claim costs a
//! number, not a copy of a name. Must not judge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::departure::Departure;
use super::effort::note;
use super::event::{GovernedRelease, Surroundings};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::claims::{ClaimTable, Claims};
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::settled::{Settled, Settlements};
use kubemoor_verdict::circumstances::Circumstances;

/// The loop's knowledge about releases.
#[derive(Debug, Default)]
pub(crate) struct Known {
    releases: BTreeMap<ReleaseId, GovernedRelease>,
    claims: ClaimTable,
    surroundings: HashMap<ObjectId, Surroundings>,
    settled: Settlements,
}

impl Known {
    /// Sets the present state of a release.
    pub(crate) fn set(&mut self, id: &ReleaseId, ruled: Option<GovernedRelease>) {
        match ruled {
            Some(ruled) => {
                self.claims.set(id, &ruled.release);
                self.releases.insert(id.clone(), ruled);
            }
            None => {
                self.claims.remove(id);
                self.releases.remove(id);
            }
        }
    }

    /// Sets the policy of a release.
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
        self.claims.objects()
    }

    /// The releases that declare an object, in the order in which they came to do so.
    pub(crate) fn claims(&self, object: &ObjectId) -> Claims<'_> {
        self.claims.of(object)
    }

    /// Whether a release declares an object, in any of its records that count.
    pub(crate) fn declares(&self, id: &ReleaseId, object: &ObjectId) -> bool {
        self.release(id).is_some_and(|release| release.objects.contains_key(object))
    }

    /// Sets the other knowledge about an object.
    pub(crate) fn surround(&mut self, object: ObjectId, surroundings: Surroundings) {
        if surroundings == Surroundings::default() {
            self.surroundings.remove(&object);
        } else {
            self.surroundings.insert(object, surroundings);
        }
    }

    /// The circumstances of an object of a release.
    pub(crate) fn circumstances(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let known = self.surroundings.get(object).map(|it| it.of(release, object)).unwrap_or_default();
        Circumstances { settled: self.settled.of(object), ..known }
    }

    /// The values of an object that dry runs have settled.
    pub(crate) fn settled(&self, object: &ObjectId) -> Option<Arc<Settled>> {
        self.settled.of(object)
    }

    /// Records values of a declared object that a dry run has settled, here or in an earlier guard. Returns whether that
    /// is new.
    pub(crate) fn settle(&mut self, object: &ObjectId, settled: Settled) -> bool {
        !self.claims(object).is_empty() && self.settled.learn(object, settled)
    }

    /// Forgets the values of an object that dry runs have settled for a release.
    pub(crate) fn forget_settled(&mut self, release: &ReleaseId, object: &ObjectId) {
        self.settled.forget(release, object);
    }

    /// Forgets the replicas that an autoscaler left behind. Returns whether there were any.
    pub(crate) fn forget_departed(&mut self, object: &ObjectId) -> bool {
        let Some(mut known) = self.surroundings.remove(object) else { return false };
        let had = known.departed.take().is_some();
        self.surround(object.clone(), known);
        had
    }

    /// Whether an autoscaler scales the object, or is known to have scaled it before.
    pub(crate) fn is_scaled(&self, object: &ObjectId) -> bool {
        let known = self.surroundings.get(object);
        known.is_some_and(|it| it.departed.is_some() || !it.now.autoscalers.is_empty())
    }

    /// Records that an autoscaler scaled an object before the guard first saw it, and is gone.
    pub(crate) fn inherit_departed(&mut self, object: &ObjectId, now: Timestamp) {
        self.surroundings.entry(object.clone()).or_default().departed =
            Some(Departure { last: now, declared: None });
    }
}
