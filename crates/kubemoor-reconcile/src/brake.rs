//! Stops repairs while so many objects drift at once that a person is probably changing more than
//! one object, or the guard is wrong. If one namespace alone has too many, only repairs of its
//! releases stop, otherwise all.
//!
//! Entry point: [`Brake`]. Invariant: once on, it stays on until a person orders a repair while
//! fewer objects drift, as long as this replica leads and the namespace has releases. A short peak,
//! such as before the news of an uninstallation arrives, does not turn it on. Pure state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::elapsed::elapsed;

/// Repairs stop if the number of drifting objects is above this and above [`SHARE`].
const MOST: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const SHARE: usize = 10;

/// How long there must be too much drift. Nothing is repaired meanwhile.
const LASTING: Duration = Duration::from_secs(3);

/// The places where repairs are stopped.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    everywhere: bool,
    namespaces: BTreeSet<String>,
    slipping: Option<Slipping>,
}

/// A time in which there is too much drift.
#[derive(Clone, Copy, Debug)]
struct Slipping {
    since: Timestamp,
    last: Timestamp,
}

/// Objects that drift and could be repaired.
#[derive(Clone, Debug, Default)]
pub struct Drifting {
    /// Their number, by the namespace of their release.
    pub(crate) by_namespace: BTreeMap<String, usize>,
    /// The number of objects that all releases declare.
    pub declared: usize,
}

/// The state of the brake before a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pull {
    /// Repairs go on.
    Free,
    /// There is too much drift, perhaps for a moment only: look again soon.
    Slipping,
    /// Repairs stop now.
    Sets(Reach),
    /// Repairs are stopped.
    On,
}

/// The extent of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of the namespace's releases.
    Namespace,
    /// All.
    Cluster,
}

impl Brake {
    /// The state of the brake; called before each repair of a release in `namespace`.
    pub(crate) fn pull(&mut self, namespace: &str, drifting: &Drifting, now: Timestamp) -> Pull {
        if self.is_on(namespace) {
            return Pull::On;
        }
        let (total, largest) = self.unbraked(drifting);
        if !drifting.is_too_much(total) {
            self.slipping = None;
            return Pull::Free;
        }
        let reach = match largest {
            Some((_, most)) if drifting.is_too_much(most) && !drifting.is_too_much(total - most) => {
                Reach::Namespace
            }
            _ => Reach::Cluster,
        };
        if reach == Reach::Namespace && largest.is_some_and(|(other, _)| other != namespace) {
            return Pull::Free;
        }
        // While too much drifts, the brake is pulled every second.
        let before = self.slipping.filter(|before| elapsed(before.last, now) < LASTING);
        let since = before.map_or(now, |before| before.since);
        if elapsed(since, now) < LASTING {
            self.slipping = Some(Slipping { since, last: now });
            return Pull::Slipping;
        }
        self.slipping = None;
        match reach {
            Reach::Namespace => drop(self.namespaces.insert(namespace.to_owned())),
            Reach::Cluster => self.everywhere = true,
        }
        Pull::Sets(reach)
    }

    /// A person asks for repairs in `namespace`, and besides what they ask for
    /// this is `drifting`. Gives where the brake goes off by that.
    pub(crate) fn ease(&mut self, namespace: &str, drifting: &Drifting) -> Vec<Reach> {
        let there = drifting.of(namespace);
        let off = !drifting.is_too_much(there) && self.namespaces.remove(namespace);
        let all_off = self.everywhere && !drifting.is_too_much(self.unbraked(drifting).0);
        if all_off {
            self.everywhere = false;
        }
        if off || all_off {
            self.slipping = None;
        }
        let eased = [off.then_some(Reach::Namespace), all_off.then_some(Reach::Cluster)];
        eased.into_iter().flatten().collect()
    }

    /// This replica leads no more: another one stops its own repairs, and this one stops them anew if there is still
    /// reason to when it leads again. Returns the namespaces where they were stopped; `None` for everywhere.
    pub(crate) fn release_all(&mut self) -> Vec<Option<String>> {
        let Self { everywhere, namespaces, slipping: _ } = std::mem::take(self);
        everywhere.then_some(None).into_iter().chain(namespaces.into_iter().map(Some)).collect()
    }

    /// The last release of a namespace is gone.
    pub(crate) fn forget(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    /// Whether repairs in this namespace alone are stopped.
    pub(crate) fn is_on_in(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    /// Whether repairs of a namespace's releases are stopped.
    pub(crate) fn is_on(&self, namespace: &str) -> bool {
        self.everywhere || self.namespaces.contains(namespace)
    }

    /// The drift outside of stopped namespaces, and the namespace that has most of it. The drift of
    /// a stopped namespace is no evidence about the others.
    fn unbraked<'d>(&self, drifting: &'d Drifting) -> (usize, Option<(&'d str, usize)>) {
        let counts = || drifting.by_namespace.iter().filter(|(name, _)| !self.namespaces.contains(*name));
        let largest = counts().max_by_key(|(_, count)| **count);
        (counts().map(|(_, count)| count).sum(), largest.map(|(name, count)| (name.as_str(), *count)))
    }
}

impl Drifting {
    /// The number of drifting objects.
    pub fn total(&self) -> usize {
        self.by_namespace.values().sum()
    }

    /// The number of drifting objects of one namespace's releases.
    pub fn of(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    /// Replaces the number `before` of drifting objects of one release in a namespace by `now`.
    pub(crate) fn replace(&mut self, namespace: &str, before: usize, now: usize) {
        let count = self.of(namespace) + now - before;
        if count == 0 {
            self.by_namespace.remove(namespace);
        } else if before != now {
            self.by_namespace.insert(namespace.to_owned(), count);
        }
    }

    fn is_too_much(&self, count: usize) -> bool {
        count > MOST && count.saturating_mul(SHARE) > self.declared
    }
}

#[cfg(test)]
mod tests;
