//! The fields that drift, and in how many releases, as statuses name them.
//!
//! Entry point: [`Fields::add`], then [`Fields::ranked`]. Invariant: a number counts the releases that the list of
//! releases shows for the field; where a status names only a part of the drift, the number is a lower bound. Must not
//! read a cluster.

use std::collections::{BTreeMap, BTreeSet};

use kubemoor_policy::guarded::GuardedReleaseStatus;

/// The fields that drift in some releases.
#[derive(Debug, Default)]
pub(super) struct Fields {
    counts: BTreeMap<String, Count>,
    /// The releases whose statuses name only a part of their drift.
    cut: usize,
}

/// A field that drifts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its kind and path.
    pub(super) name: String,
    /// The releases that have such drift.
    pub(super) releases: usize,
    /// Whether further ones may have it.
    pub(super) is_least: bool,
}

#[derive(Debug, Default)]
struct Count {
    releases: usize,
    /// Those among them whose statuses name only a part of their drift.
    cut: usize,
}

impl Fields {
    /// Adds the drift of a release.
    pub(super) fn add(&mut self, status: &GuardedReleaseStatus) {
        let is_cut = is_cut(status);
        self.cut += usize::from(is_cut);
        for field in named(status) {
            let count = self.counts.entry(field).or_default();
            count.releases += 1;
            count.cut += usize::from(is_cut);
        }
    }

    /// The fields, those of most releases first.
    pub(super) fn ranked(self) -> Vec<Field> {
        let Self { counts, cut } = self;
        let of = |(name, count): (String, Count)| Field {
            name,
            releases: count.releases,
            is_least: cut > count.cut,
        };
        let mut fields: Vec<_> = counts.into_iter().map(of).collect();
        fields.sort_by(|left, right| {
            right.releases.cmp(&left.releases).then_with(|| left.name.cmp(&right.name))
        });
        fields
    }
}

/// The fields that drift in a release, by kind and path.
pub(super) fn named(status: &GuardedReleaseStatus) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for drift in status.drifts.iter().take(drifted(status)) {
        let kind = &drift.object.kind;
        if drift.fields.is_empty() {
            names.insert(format!("{kind} ({})", drift.r#type.to_lowercase()));
        }
        names.extend(drift.fields.iter().map(|field| format!("{kind} {}", field.path)));
    }
    names
}

/// Whether a status names only a part of the drift.
fn is_cut(status: &GuardedReleaseStatus) -> bool {
    let drifted = drifted(status);
    drifted > status.drifts.len() || status.drifts.iter().take(drifted).any(|it| it.more_fields > 0)
}

/// The number of drifted objects. They come before objects that may differ.
fn drifted(status: &GuardedReleaseStatus) -> usize {
    usize::try_from(status.drifted).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
