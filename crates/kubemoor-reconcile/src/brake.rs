//! Stops repairs while so many objects drift at once that a person is probably changing more than one object, or the
//! guard is wrong. If one namespace alone has too many, only repairs of its releases stop, otherwise all.
//!
//! Once on, it stays on until a person orders a repair while fewer objects drift, as long as this replica leads and the
//! namespace has releases. A short peak, such as before the news of an uninstallation arrives, does not turn it on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use crate::waits::elapsed;
use kubemoor_declare::model::ReleaseId;

/// Repairs stop if the number of drifting objects is above this and above [`SHARE`].
const MOST: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const SHARE: usize = 10;

/// How long there must be too much drift. Nothing is repaired meanwhile.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pull {
    Free,
    /// There is too much drift, perhaps for a moment only: look again soon.
    Slipping,
    /// Repairs stop now.
    Sets(Reach),
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Namespace,
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
            Reach::Namespace => self.stopped.insert(Some(namespace.to_owned())),
            Reach::Cluster => self.stopped.insert(None),
        };
        Pull::Sets(reach)
    }

    /// A person asks for repairs in `namespace`, and besides what they ask for this is `drifting`. Gives where the
    /// brake goes off by that.
    pub(crate) fn ease(&mut self, namespace: &str, drifting: &Drifting) -> Vec<Reach> {
        let is_over = !drifting.is_too_much(drifting.of(namespace));
        let off = is_over && self.stopped.remove(&Some(namespace.to_owned()));
        let all_off = !drifting.is_too_much(self.unbraked(drifting).0) && self.stopped.remove(&None);
        if off || all_off {
            self.slipping = None;
        }
        let eased = [off.then_some(Reach::Namespace), all_off.then_some(Reach::Cluster)];
        eased.into_iter().flatten().collect()
    }

    /// This replica leads no more: another one stops its own repairs, and this one stops them anew if there is still
    /// reason to when it leads again. Returns the namespaces where they were stopped; `None` for everywhere.
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
    /// is no evidence about the others.
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

    pub fn of(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

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

#[derive(Default)]
pub(crate) struct DriftTally {
    shares: HashMap<ReleaseId, ReleaseTally>,
    drifting: Drifting,
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
        self.drifting.replace(&release.namespace, before.drifting, share.drifting);
    }

    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.oldest.first().map(|(at, _)| *at)
    }

    pub(crate) fn drifting(&mut self, declared: usize) -> &Drifting {
        self.drifting.declared = declared;
        &self.drifting
    }

    pub(crate) fn drifting_besides(&mut self, release: &ReleaseId, declared: usize) -> Drifting {
        let mut others = self.drifting(declared).clone();
        let share = self.shares.get(release).copied().unwrap_or_default();
        others.replace(&release.namespace, share.drifting, 0);
        others
    }
}

#[cfg(test)]
mod tests;
