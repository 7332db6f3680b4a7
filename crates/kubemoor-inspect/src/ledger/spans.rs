//! How long objects stood in drift, as far as rows tell.
//!
//! Entry point: [`Spans`]. Invariant: a span begins with a row that shows the drift and ends with the
//! row of its repair, or with the row that says that it ended otherwise; what begins or ends outside of the
//! period is not counted.

use std::collections::BTreeMap;

use jiff::Timestamp;

use kubemoor_ledger::entry::{Entry, Object};

/// A release, or the namespace of objects that no release declares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// How long one release's objects were in drift.
#[derive(Debug, PartialEq, Eq)]
pub struct Stay {
    pub release: Release,
    /// Drifts that ended.
    pub drifts: u64,
    /// The seconds of all of them.
    pub total: u64,
    /// The seconds of the longest.
    pub longest: u64,
}

/// The state between rows, newest first.
#[derive(Default)]
pub(crate) struct Spans {
    open: BTreeMap<(Release, ObjectKey), Open>,
    ended: BTreeMap<Release, Vec<u64>>,
}

type ObjectKey = (String, String, Option<String>, String);

/// The end of a drift, and the earliest row before it that shows the drift.
struct Open {
    ended: Timestamp,
    began: Option<Timestamp>,
}

impl Spans {
    /// Takes a row that is older than those before.
    pub(crate) fn add(&mut self, entry: &Entry) {
        let Object { group, kind, namespace, name } = entry.object.clone();
        let key = (Release::of(entry), (group, kind, namespace, name));
        match (entry.kind.as_str(), entry.verdict.as_str()) {
            ("repair", "Recreated" | "Restored" | "Ended") => {
                let open = Open { ended: entry.time, began: None };
                if let Some(later) = self.open.insert(key.clone(), open) {
                    self.end(key.0, &later);
                }
            }
            ("repair", "Reported" | "Failed") => self.begin(&key, entry.time),
            // A later edit of the same object is part of the same drift.
            _ if entry.would_be_denied() && entry.verdict != "Revert" => self.begin(&key, entry.time),
            _ => {}
        }
    }

    /// One stay for each release that has any, the longest first.
    pub(crate) fn finish(mut self) -> Vec<Stay> {
        for ((release, _), open) in std::mem::take(&mut self.open) {
            self.end(release, &open);
        }
        let stays = self.ended.into_iter().map(|(release, spans)| Stay {
            release,
            drifts: u64::try_from(spans.len()).unwrap_or(u64::MAX),
            total: spans.iter().fold(0, |sum: u64, span| sum.saturating_add(*span)),
            longest: spans.iter().copied().max().unwrap_or_default(),
        });
        let mut stays: Vec<_> = stays.collect();
        stays.sort_by_key(|stay| std::cmp::Reverse(stay.total));
        stays
    }

    fn begin(&mut self, key: &(Release, ObjectKey), time: Timestamp) {
        if let Some(open) = self.open.get_mut(key) {
            open.began = Some(time);
        }
    }

    fn end(&mut self, release: Release, open: &Open) {
        if let Some(began) = open.began {
            let seconds = open.ended.as_second().saturating_sub(began.as_second());
            self.ended.entry(release).or_default().push(u64::try_from(seconds).unwrap_or_default());
        }
    }
}

impl Release {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self { namespace: entry.namespace.clone(), name: entry.release.clone().unwrap_or_default() }
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => f.write_str("no release"),
            (namespace, "") => write!(f, "{namespace}, no release"),
            (namespace, name) => write!(f, "{namespace}/{name}"),
        }
    }
}

/// Seconds, as people read them: `1d 2h`, `3m 20s`.
pub fn lasting(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let first = units.iter().position(|(_, size)| seconds >= *size).unwrap_or(3);
    let parts = units.iter().skip(first).take(2).scan(seconds, |left, (unit, size)| {
        let count = *left / size;
        *left %= size;
        Some((count, unit))
    });
    let parts: Vec<_> = parts.enumerate().filter(|(place, (count, _))| *place == 0 || *count > 0).collect();
    parts.iter().map(|(_, (count, unit))| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}
