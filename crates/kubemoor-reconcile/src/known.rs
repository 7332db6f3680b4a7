//! The releases, their policies, the circumstances of objects, and objects that were seen just before their record.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::event::{AutoscalerRemoval, GovernedRelease, WatchedContext};
use crate::note_effort;
use crate::waits::elapsed;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::index::{ClaimTable, ClaimingReleases};
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::{ObjectSettledValues, SettledValueIndex};
use kubemoor_verdict::edit::ObjectContext;

#[derive(Debug, Default)]
pub(crate) struct LoopKnowledge {
    releases: BTreeMap<ReleaseId, GovernedRelease>,
    claims: ClaimTable,
    surroundings: HashMap<ObjectId, WatchedContext>,
    pub(crate) settled: SettledValueIndex,
}

impl LoopKnowledge {
    pub(crate) fn set(&mut self, id: &ReleaseId, governed: Option<GovernedRelease>) {
        let after = governed.as_ref().and_then(declaring).cloned();
        let before = match governed {
            Some(governed) => self.releases.insert(id.clone(), governed),
            None => self.releases.remove(id),
        };
        self.claims.replace(before.as_ref().and_then(declaring), after.as_ref());
    }

    pub(crate) fn set_policy(&mut self, id: &ReleaseId, policy: Arc<Policy>) {
        if let Some(governed) = self.releases.get_mut(id) {
            governed.policy = policy;
        }
    }

    pub(crate) fn release(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.releases.get(id).map(|governed| &governed.release)
    }

    pub(crate) fn policy(&self, id: &ReleaseId) -> Option<&Arc<Policy>> {
        self.releases.get(id).map(|governed| &governed.policy)
    }

    pub(crate) fn releases(&self) -> impl Iterator<Item = &Arc<Release>> {
        note_effort(self.releases.len());
        self.releases.values().map(|governed| &governed.release)
    }

    pub(crate) fn objects(&self) -> usize {
        self.claims.objects()
    }

    /// The releases that declare an object, in the order in which they began to.
    pub(crate) fn claims(&self, object: &ObjectId) -> ClaimingReleases<'_> {
        self.claims.get(object)
    }

    /// Whether a release declares an object, in its latest record or its baseline.
    pub(crate) fn declares(&self, id: &ReleaseId, object: &ObjectId) -> bool {
        let declaring = self.releases.get(id).and_then(declaring);
        declaring.is_some_and(|release| release.objects.contains_key(object))
    }

    pub(crate) fn set_context(&mut self, object: ObjectId, surroundings: WatchedContext) {
        if surroundings == WatchedContext::default() {
            self.surroundings.remove(&object);
        } else {
            self.surroundings.insert(object, surroundings);
        }
    }

    pub(crate) fn circumstances(&self, release: &Release, object: &ObjectId) -> ObjectContext {
        let known =
            self.surroundings.get(object).map(|it| it.circumstances(release, object)).unwrap_or_default();
        ObjectContext { settled: self.settled.get(object), ..known }
    }

    /// Records values of a declared object that a dry run has settled, in this process or an earlier one. Returns
    /// whether that is new.
    pub(crate) fn settle(&mut self, object: &ObjectId, settled: ObjectSettledValues) -> bool {
        !self.claims(object).is_empty() && self.settled.record(object, settled)
    }

    /// Forgets the replicas that an autoscaler left behind. Returns whether there were any.
    pub(crate) fn forget_departed(&mut self, object: &ObjectId) -> bool {
        let Some(mut known) = self.surroundings.remove(object) else { return false };
        let had = known.departed.take().is_some();
        self.set_context(object.clone(), known);
        had
    }

    pub(crate) fn is_scaled(&self, object: &ObjectId) -> bool {
        let known = self.surroundings.get(object);
        known.is_some_and(|it| it.departed.is_some() || !it.now.autoscalers.is_empty())
    }

    /// Records that an autoscaler scaled an object before the guard first saw it, and is gone.
    pub(crate) fn inherit_departed(&mut self, object: &ObjectId, now: Timestamp) {
        self.surroundings.entry(object.clone()).or_default().departed =
            Some(AutoscalerRemoval { last: now, range: None, declared: None });
    }
}

/// The release, unless it is uninstalled.
fn declaring(governed: &GovernedRelease) -> Option<&Arc<Release>> {
    Some(&governed.release).filter(|release| !release.is_uninstalled())
}

/// How long an object is kept until its record arrives.
const AGE: Duration = Duration::from_secs(10);

/// The most bytes that are kept in all, and of one object.
const BYTES: usize = 4 << 20;
const OBJECT: usize = 512 << 10;

#[derive(Default)]
pub(crate) struct RecentObjects {
    seen: VecDeque<RecentObject>,
    bytes: usize,
}

/// The state of an object in an API version.
struct RecentObject {
    release: ReleaseId,
    object: ObjectId,
    version: String,
    text: Vec<u8>,
    at: Timestamp,
}

impl RecentObjects {
    /// Keeps the seen state of an object of a release.
    pub(crate) fn keep(
        &mut self,
        (release, object): (&ReleaseId, &ObjectId),
        version: &str,
        value: &Value,
        now: Timestamp,
    ) {
        let Ok(text) = serde_json::to_vec(value) else { return };
        if text.len() > OBJECT {
            return;
        }
        self.bytes += text.len();
        let (release, object, version) = (release.clone(), object.clone(), version.to_owned());
        self.seen.push_back(RecentObject { release, object, version, text, at: now });
        while self.bytes > BYTES || self.seen.front().is_some_and(|it| elapsed(it.at, now) > AGE) {
            let Some(oldest) = self.seen.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// Removes and returns the recently seen objects of a release: each with its API version, oldest first.
    pub(crate) fn take(&mut self, release: &ReleaseId, now: Timestamp) -> Vec<(ObjectId, String, Value)> {
        if self.seen.iter().all(|it| it.release != *release) {
            return Vec::new();
        }
        let (own, others): (VecDeque<RecentObject>, _) =
            std::mem::take(&mut self.seen).into_iter().partition(|it| it.release == *release);
        self.seen = others;
        self.bytes = self.seen.iter().map(|it| it.text.len()).sum();
        let fresh = own.into_iter().filter(|it| elapsed(it.at, now) <= AGE);
        fresh.filter_map(|it| Some((it.object, it.version, serde_json::from_slice(&it.text).ok()?))).collect()
    }
}

#[cfg(test)]
mod tests;
