//! Stops repairs while so much drifts at once that somebody is at work on more
//! than one object, or the guard is wrong: those of one namespace's releases if
//! it is by itself what is too much, else all.
//!
//! Entry point: [`Brake`]. Invariant: once on, it stays on until a person asks
//! for a repair while less drifts. What drifts for a moment, such as while news
//! of an uninstallation are on their way, does not set it. Pure state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::elapsed::elapsed;

/// More drifting objects than this, and than [`SHARE`], stop repairs.
const MOST: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const SHARE: usize = 10;

/// For how long so much has to drift. Nothing of it is repaired meanwhile.
const LASTING: Duration = Duration::from_secs(3);

/// For whom repairs are stopped.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    everywhere: bool,
    namespaces: BTreeSet<String>,
    slipping: Option<Slipping>,
}

/// Too much drifts.
#[derive(Clone, Copy, Debug)]
struct Slipping {
    since: Timestamp,
    last: Timestamp,
}

/// Objects that drift and could be repaired.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drifting {
    /// How many, by the namespace of their release.
    pub(crate) by_namespace: BTreeMap<String, usize>,
    /// How many objects all releases declare.
    pub(crate) declared: usize,
}

/// What the brake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pull {
    /// Go on.
    Free,
    /// Look again soon: it may be for a moment only.
    Slipping,
    /// Repairs stop now.
    Sets(Reach),
    /// Repairs are stopped.
    On,
}

/// Whose repairs stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of the namespace's releases.
    Namespace,
    /// All.
    Cluster,
}

impl Brake {
    /// Asked before a repair of a release of `namespace`.
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

    /// Whether repairs of a namespace's releases are stopped.
    pub(crate) fn is_on(&self, namespace: &str) -> bool {
        self.everywhere || self.namespaces.contains(namespace)
    }

    /// How much drifts where the brake is not on for the namespace alone, and
    /// where most of it does. What one namespace is stopped for already says
    /// nothing of the others.
    fn unbraked<'d>(&self, drifting: &'d Drifting) -> (usize, Option<(&'d str, usize)>) {
        let counts = || drifting.by_namespace.iter().filter(|(name, _)| !self.namespaces.contains(*name));
        let largest = counts().max_by_key(|(_, count)| **count);
        (counts().map(|(_, count)| count).sum(), largest.map(|(name, count)| (name.as_str(), *count)))
    }
}

impl Drifting {
    /// How many in all.
    pub(crate) fn total(&self) -> usize {
        self.by_namespace.values().sum()
    }

    /// How many of one namespace's releases.
    pub(crate) fn of(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    /// Of one namespace's releases so many drift by now, where so many did.
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
