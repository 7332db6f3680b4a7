//! Counts the repairable drift, and knows the beginning of the oldest drift.
//!
//! Entry point: [`Tally`]. Invariant: only changed releases are counted again, so that the cost of
//! an event depends on its releases and not on all drift. Pure state. Must not decide which drifts
//! count.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::brake::Drifting;
use kubemoor_declare::model::ReleaseId;

/// Counts of drifting objects, by release and in all.
#[derive(Default)]
pub(crate) struct Tally {
    shares: HashMap<ReleaseId, Share>,
    drifting: Drifting,
    /// The releases with a drift, by their oldest.
    oldest: BTreeSet<(Timestamp, ReleaseId)>,
}

/// The counts of one release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// The number of drifting objects that could be repaired.
    pub(crate) drifting: usize,
    /// The beginning of its oldest drift of any kind.
    pub(crate) oldest: Option<Timestamp>,
}

impl Tally {
    /// Sets the counts of a release.
    pub(crate) fn set(&mut self, release: &ReleaseId, share: Share) {
        let before = match share == Share::default() {
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

    /// The beginning of the oldest drift.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.oldest.first().map(|(at, _)| *at)
    }

    /// The drifting objects in all, of this number of declared ones.
    pub(crate) fn drifting(&mut self, declared: usize) -> &Drifting {
        self.drifting.declared = declared;
        &self.drifting
    }

    /// The same but for one release.
    pub(crate) fn drifting_besides(&mut self, release: &ReleaseId, declared: usize) -> Drifting {
        let mut others = self.drifting(declared).clone();
        let share = self.shares.get(release).copied().unwrap_or_default();
        others.replace(&release.namespace, share.drifting, 0);
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_counts_by_namespace_and_knows_the_oldest() {
        let release =
            |namespace: &str, name: &str| ReleaseId { namespace: namespace.into(), name: name.into() };
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let mut tally = Tally::default();
        for (namespace, name, drifting, oldest) in
            [("a", "x", 2, at(5)), ("a", "y", 1, at(3)), ("b", "z", 0, at(4)), ("a", "y", 3, at(9))]
        {
            tally.set(&release(namespace, name), Share { drifting, oldest });
        }
        assert_eq!(tally.oldest(), at(4));
        let drifting = tally.drifting(10);
        assert_eq!((drifting.of("a"), drifting.of("b"), drifting.total(), drifting.declared), (5, 0, 5, 10));
        assert_eq!(tally.drifting_besides(&release("a", "x"), 10).total(), 3);
        for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "z")] {
            tally.set(&release(namespace, name), Share::default());
        }
        assert!(tally.oldest().is_none() && tally.drifting(10).by_namespace.is_empty());
    }
}
