//! The namespaces that may hold the records of releases in others. Helm keeps a release's records in the release's own
//! namespace; Flux may keep them elsewhere (`storageNamespace`). Only namespaces that a policy names are trusted:
//! otherwise a user who may write Secrets in one namespace could declare the objects of all.

use std::collections::{BTreeMap, BTreeSet};

use kubemoor_declare::model::ReleaseId;

/// Namespaces that are trusted to hold records of releases in other ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedRecordNamespaces {
    /// The other namespaces that may hold records, by the namespace of the releases.
    pairs: BTreeMap<String, BTreeSet<String>>,
}

impl TrustedRecordNamespaces {
    /// Whether the namespace `records` may hold records of releases in the namespace `releases`: a release's own
    /// namespace always may.
    pub fn can_store(&self, records: &str, releases: &str) -> bool {
        records == releases || self.pairs.get(releases).is_some_and(|others| others.contains(records))
    }

    /// Where records of `release` may be, each with its name: its own namespace first.
    pub fn places(&self, release: &ReleaseId) -> Vec<ReleaseId> {
        let place = |namespace: &str| ReleaseId { namespace: namespace.into(), name: release.name.clone() };
        let others = self.namespaces_for(&release.namespace);
        std::iter::once(release.namespace.as_str()).chain(others).map(place).collect()
    }

    /// The other namespaces that may hold records of releases in `releases`.
    pub fn namespaces_for(&self, releases: &str) -> impl Iterator<Item = &str> {
        self.pairs.get(releases).into_iter().flatten().map(String::as_str)
    }

    /// The other namespaces whose releases may have records in `records`.
    pub fn namespaces_in(&self, records: &str) -> impl Iterator<Item = &str> {
        let trusting = self.pairs.iter().filter(move |(_, others)| others.contains(records));
        trusting.map(|(releases, _)| releases.as_str())
    }

    /// Whether the namespace `records` may hold records of releases in others.
    pub fn is_shared(&self, records: &str) -> bool {
        self.namespaces_in(records).next().is_some()
    }

    /// Keeps the pairs whose namespaces are both among `namespaces` (empty: all).
    #[must_use]
    pub fn within(mut self, namespaces: &[String]) -> Self {
        let is_among = |namespace: &String| namespaces.is_empty() || namespaces.contains(namespace);
        self.pairs.retain(|releases, others| {
            others.retain(is_among);
            is_among(releases) && !others.is_empty()
        });
        self
    }

    /// The namespaces that only one of the two trusts to hold records of others.
    pub fn changed(&self, other: &Self) -> BTreeSet<String> {
        let only = |one: &Self, other: &Self| -> Vec<String> {
            let pairs = one.pairs.iter().flat_map(|(releases, all)| all.iter().map(move |it| (releases, it)));
            pairs.filter(|(releases, it)| !other.can_store(it, releases)).map(|(_, it)| it.clone()).collect()
        };
        only(self, other).into_iter().chain(only(other, self)).collect()
    }
}

impl<'n> FromIterator<(&'n str, &'n str)> for TrustedRecordNamespaces {
    /// From pairs of the namespace of the records and that of the releases.
    fn from_iter<I: IntoIterator<Item = (&'n str, &'n str)>>(pairs: I) -> Self {
        let mut storage = Self::default();
        for (records, releases) in pairs.into_iter().filter(|(records, releases)| records != releases) {
            storage.pairs.entry(releases.to_owned()).or_default().insert(records.to_owned());
        }
        storage
    }
}

#[cfg(test)]
mod tests;
