//! Counts the drifts of one release, and records which releases need a new count.
//!
//! Entry points: `Drifts::count`, `take_touched`. Invariant: whatever changes a count notes its
//! release. Must not decide which drifts count.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::effort::note;
use super::{Drifts, Life};
use crate::model::{ObjectId, ReleaseId};

impl Drifts {
    /// How many objects of a release drift, or went by the word of a watch, of those that `counts` says.
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

    /// Since when the oldest drift of a release lasts.
    pub(crate) fn oldest(&self, release: &ReleaseId) -> Option<Timestamp> {
        let all = self.drifting.get(release)?;
        note(all.len());
        all.values().filter(|drift| drift.is_certain()).map(|drift| drift.since).min()
    }

    /// Something has changed by which the drifts of a release count, or do not.
    pub(crate) fn touch(&mut self, release: &ReleaseId) {
        if !self.touched.contains(release) {
            self.touched.insert(release.clone());
        }
    }

    /// Takes the releases whose drifts are to be counted anew.
    pub(crate) fn take_touched(&mut self) -> HashSet<ReleaseId> {
        std::mem::take(&mut self.touched)
    }

    /// The same for a life: of what does not drift nothing counts.
    pub(super) fn touch_counted(&mut self, release: &ReleaseId) {
        if self.drifting.contains_key(release) || self.suspects.contains_key(release) {
            self.touch(release);
        }
    }
}
