//! Stops repairs while too many objects drift at once: probably a user is changing many objects on purpose, or the
//! guard is wrong. If only one namespace has too much drift, only repairs of its releases stop, otherwise all.
//!
//! Once on, the brake stays on until a user orders a repair while fewer objects drift, this replica loses leadership,
//! or the namespace has no releases. A short peak, such as during an uninstall, does not turn it on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use crate::waits::elapsed;
use kubemoor_declare::model::ReleaseId;

/// Repairs stop if the number of drifting objects is above this and above [`SHARE`].
const MOST: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const SHARE: usize = 10;

/// How long there must be too much drift until repairs stop. Nothing is repaired in that time.
const LASTING: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Brake {
    /// The namespaces where repairs are stopped; `None` for everywhere.
    stopped: BTreeSet<Option<String>>,
    slipping: Option<Slipping>,
}

#[derive(Clone, Copy, Debug)]
struct Slipping {
    since: Timestamp,
    last: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub struct Drifting {
    pub(crate) by_namespace: BTreeMap<String, usize>,
    pub declared: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrakeState {
    Free,
    /// There is too much drift, perhaps only for a moment: check again soon.
    Pending,
    /// Repairs stop now, in this namespace or (`None`) everywhere.
    JustEngaged(Option<String>),
    On,
}

impl Brake {
    /// Updates and returns the state of the brake; called before each repair of a release in `namespace`.
    pub(crate) fn update_state(
        &mut self,
        namespace: &str,
        drifting: &Drifting,
        now: Timestamp,
    ) -> BrakeState {
        if self.is_on(namespace) {
            return BrakeState::On;
        }
        let (total, largest) = self.unbraked(drifting);
        if !drifting.is_too_much(total) {
            self.slipping = None;
            return BrakeState::Free;
        }
        let alone =
            largest.filter(|(_, most)| drifting.is_too_much(*most) && !drifting.is_too_much(total - most));
        if alone.is_some_and(|(other, _)| other != namespace) {
            return BrakeState::Free;
        }
        // While there is too much drift, this is called every second.
        let before = self.slipping.filter(|before| elapsed(before.last, now) < LASTING);
        let since = before.map_or(now, |before| before.since);
        if elapsed(since, now) < LASTING {
            self.slipping = Some(Slipping { since, last: now });
            return BrakeState::Pending;
        }
        self.slipping = None;
        let place = alone.map(|_| namespace.to_owned());
        self.stopped.insert(place.clone());
        BrakeState::JustEngaged(place)
    }

    /// Releases the brake for a user's repair order in `namespace` unless there is too much drift outside of the
    /// ordered release (`drifting`). Returns where it was released: in the namespace, and (`None`) everywhere.
    pub(crate) fn release_by_order(&mut self, namespace: &str, drifting: &Drifting) -> Vec<Option<String>> {
        let own = Some(namespace.to_owned());
        let mut eased = Vec::new();
        if !drifting.is_too_much(drifting.in_namespace(namespace)) {
            eased.extend(self.stopped.take(&own));
        }
        if !drifting.is_too_much(self.unbraked(drifting).0) {
            eased.extend(self.stopped.take(&None));
        }
        if !eased.is_empty() {
            self.slipping = None;
        }
        eased
    }

    /// Releases the brake everywhere, because this replica lost leadership: each leader decides anew. Returns the
    /// namespaces where repairs were stopped; `None` for everywhere.
    pub(crate) fn release_all(&mut self) -> Vec<Option<String>> {
        std::mem::take(self).stopped.into_iter().collect()
    }

    pub(crate) fn forget(&mut self, namespace: &str) {
        self.stopped.remove(&Some(namespace.to_owned()));
    }

    pub(crate) fn is_on_in(&self, namespace: &str) -> bool {
        self.stopped.contains(&Some(namespace.to_owned()))
    }

    pub(crate) fn is_on(&self, namespace: &str) -> bool {
        self.stopped.contains(&None) || self.is_on_in(namespace)
    }

    /// The drift outside of stopped namespaces, and the namespace that has most of it. The drift of a stopped namespace
    /// says nothing about the others.
    fn unbraked<'d>(&self, drifting: &'d Drifting) -> (usize, Option<(&'d str, usize)>) {
        let counts = || drifting.by_namespace.iter().filter(|(name, _)| !self.is_on_in(name));
        let largest = counts().max_by_key(|(_, count)| **count);
        (counts().map(|(_, count)| count).sum(), largest.map(|(name, count)| (name.as_str(), *count)))
    }
}

impl Drifting {
    pub fn total(&self) -> usize {
        self.by_namespace.values().sum()
    }

    pub fn in_namespace(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    fn is_too_much(&self, count: usize) -> bool {
        count > MOST && count.saturating_mul(SHARE) > self.declared
    }
}

#[derive(Default)]
pub(crate) struct DriftTally {
    shares: HashMap<ReleaseId, ReleaseTally>,
    oldest: BTreeSet<(Timestamp, ReleaseId)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleaseTally {
    pub(crate) drifting: usize,
    pub(crate) oldest: Option<Timestamp>,
}

impl DriftTally {
    pub(crate) fn set(&mut self, release: &ReleaseId, share: ReleaseTally) {
        let before = match share == ReleaseTally::default() {
            true => self.shares.remove(release),
            false => self.shares.insert(release.clone(), share),
        };
        let before = before.unwrap_or_default();
        if before.oldest != share.oldest {
            if let Some(at) = before.oldest {
                self.oldest.remove(&(at, release.clone()));
            }
            self.oldest.extend(share.oldest.map(|at| (at, release.clone())));
        }
    }

    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.oldest.first().map(|(at, _)| *at)
    }

    /// The drift of all releases except `besides`, and the number of all declared objects.
    pub(crate) fn drifting(&self, declared: usize, besides: Option<&ReleaseId>) -> Drifting {
        let mut by_namespace = BTreeMap::new();
        for (release, share) in self.shares.iter().filter(|(release, _)| Some(*release) != besides) {
            *by_namespace.entry(release.namespace.to_string()).or_default() += share.drifting;
        }
        Drifting { by_namespace, declared }
    }
}

#[cfg(test)]
mod tests;
