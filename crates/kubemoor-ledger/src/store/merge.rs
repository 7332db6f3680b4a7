//! The newest rows of many clusters, by asking each for no more than it may have among them.
//!
//! Entry point: [`Merge`]. Invariant: what is found is what all rows of all clusters together would give; a cluster is
//! asked again only while it may have one more. Pure.

use std::collections::BTreeMap;

/// The fewest rows of a cluster that it is asked for at first.
const FEWEST: i64 = 8;

/// A cluster with more of the newest rows than was thought is asked for so many times as many.
const GROWTH: i64 = 4;

/// The places of the newest rows of many clusters, as far as they are known.
#[derive(Debug)]
pub(super) struct Merge {
    parts: BTreeMap<i16, Part>,
    limit: usize,
    most: i64,
}

/// Those of one cluster.
#[derive(Debug)]
struct Part {
    /// Newest first.
    ids: Vec<i64>,
    /// What is not known yet is older than this.
    end: i64,
    /// Whether all of them are known.
    is_whole: bool,
}

/// What is to be asked: of each of these clusters the newest rows before its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) clusters: Vec<i16>,
    pub(super) ends: Vec<i64>,
    /// The most rows of one cluster.
    pub(super) most: i64,
}

impl Merge {
    /// Of `clusters` the newest rows before `end`, as many as `limit`.
    pub(super) fn new(clusters: impl IntoIterator<Item = i16>, end: i64, limit: i64) -> Self {
        let part = |cluster| (cluster, Part { ids: Vec::new(), end, is_whole: false });
        let parts: BTreeMap<_, _> = clusters.into_iter().map(part).collect();
        // Twice the share of a cluster that has as many as others.
        let share = i64::try_from(parts.len()).map_or(0, |count| 2 * limit / count.max(1));
        Self {
            parts,
            limit: usize::try_from(limit).unwrap_or_default(),
            most: share.clamp(FEWEST, limit.max(FEWEST)),
        }
    }

    /// What has to be asked yet.
    pub(super) fn question(&self) -> Option<Question> {
        let last = self.last();
        let open =
            self.parts.iter().filter(|(_, part)| !part.is_whole && last.is_none_or(|last| part.end > last));
        let (clusters, ends): (Vec<_>, Vec<_>) = open.map(|(cluster, part)| (*cluster, part.end)).unzip();
        (!clusters.is_empty()).then_some(Question { clusters, ends, most: self.most })
    }

    /// Takes in what the clusters of the question have, in any order.
    pub(super) fn answer(&mut self, rows: Vec<(i16, i64)>) {
        let Some(Question { clusters, most, .. }) = self.question() else { return };
        let mut found: BTreeMap<i16, Vec<i64>> =
            clusters.into_iter().map(|cluster| (cluster, Vec::new())).collect();
        for (cluster, id) in rows {
            found.entry(cluster).or_default().push(id);
        }
        for (cluster, mut ids) in found {
            let Some(part) = self.parts.get_mut(&cluster) else { continue };
            ids.sort_unstable_by(|a, b| b.cmp(a));
            part.is_whole = i64::try_from(ids.len()).is_ok_and(|count| count < most);
            part.end = ids.last().copied().unwrap_or(part.end);
            part.ids.extend(ids);
        }
        self.most = most.saturating_mul(GROWTH);
    }

    /// The places of the newest rows, newest first.
    pub(super) fn newest(&self) -> Vec<(i16, i64)> {
        let each = self.parts.iter().flat_map(|(cluster, part)| part.ids.iter().map(|id| (*cluster, *id)));
        let mut all: Vec<_> = each.collect();
        all.sort_unstable_by(|(_, a), (_, b)| b.cmp(a));
        all.truncate(self.limit);
        all
    }

    /// The last one of a full page, by what is known.
    fn last(&self) -> Option<i64> {
        let newest = self.newest();
        newest.last().filter(|_| newest.len() == self.limit).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests;
