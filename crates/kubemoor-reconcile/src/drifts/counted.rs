//! Counts the drifts of one release, and records which releases need a new count.
//!
//! Entry points: `Drifts::count`, `take_touched`. Invariant: whatever changes a count notes its
//! release. Must not decide which drifts count.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::effort::note;
use super::{Drifts, Life};
use kubemoor_declare::model::{ObjectId, ReleaseId};

impl Drifts {
    /// The number of objects of a release that drift, or are gone according to a watch, among those
    /// that `counts` selects.
    pub(crate) fn count(&self, release: &ReleaseId, counts: impl Fn(&ObjectId, &Life) -> bool) -> usize {
        let known = self.drifting.get(release);
        let suspects = self.suspects.get(release);
        note(known.map_or(0, HashMap::len) + suspects.map_or(0, HashMap::len));
        let is_known = |object: &Arc<ObjectId>| known.is_some_and(|all| all.contains_key(object));
        let drifting = known.into_iter().flatten().filter(|(_, drift)| drift.is_certain());
        let went = suspects.into_iter().flatten().filter(|(object, it)| it.went && !is_known(object));
        let counted =
            |object: &&Arc<ObjectId>| self.lives.get(*object).is_some_and(|life| counts(object, life));
        drifting.map(|(object, _)| object).chain(went.map(|(object, _)| object)).filter(counted).count()
    }

    /// The beginning of a release's oldest drift.
    pub(crate) fn oldest(&self, release: &ReleaseId) -> Option<Timestamp> {
        let all = self.drifting.get(release)?;
        note(all.len());
        all.values().filter(|drift| drift.is_certain()).map(|drift| drift.since).min()
    }

    /// Records that the count of a release's drifts may have changed.
    pub(crate) fn touch(&mut self, release: &ReleaseId) {
        if !self.touched.contains(release) {
            self.touched.insert(release.clone());
        }
    }

    /// Removes and returns the releases whose drifts have to be counted again.
    pub(crate) fn take_touched(&mut self) -> HashSet<ReleaseId> {
        std::mem::take(&mut self.touched)
    }

    /// The same after a change of a life; a release without drifts and suspects needs no new count.
    pub(super) fn touch_counted(&mut self, release: &ReleaseId) {
        if self.drifting.contains_key(release) || self.suspects.contains_key(release) {
            self.touch(release);
        }
    }
}
