//! The facts of a report, collected from rows.
//!
//! Entry point: [`Facts`], which takes rows newest first and becomes a [`Report`]. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::repeats::Repeats;
use super::spans::{Release, Spans, Stay};
use kubemoor_ledger::entry::Entry;

/// The verdicts of the rows that a report needs.
pub const VERDICTS: [&str; 12] = [
    "Deny",
    "Revert",
    "Warn",
    "Record",
    "Opened",
    "Closed",
    "Recreated",
    "Restored",
    "TakenBack",
    "Failed",
    "Reported",
    "Ended",
];

/// Why an edit that drifts passes by an exception: an open one, or one for its user.
const EXCEPTIONS: [&str; 2] = ["allowed", "exempt"];

/// Exceptions that are kept; a report is for reading.
const MOST_EXCEPTIONS: usize = 10_000;

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub since: Timestamp,
    pub until: Timestamp,
}

/// The facts so far.
pub struct Facts {
    report: Report,
    spans: Spans,
    denied: Counts,
    excepted: Counts,
    repaired: BTreeMap<(Release, String), u64>,
    repeats: Repeats,
}

/// What a report tells.
#[derive(Debug)]
pub struct Report {
    pub period: Period,
    /// The one namespace; `None` for all.
    pub(crate) namespace: Option<String>,
    /// The one release.
    pub release: Option<String>,
    /// Changes, by outcome.
    pub changes: BTreeMap<String, u64>,
    pub denied: Breakdown,
    pub excepted: Breakdown,
    /// Newest first.
    pub exceptions: Vec<Exception>,
    /// Exceptions that are not in the list.
    pub(crate) more_exceptions: u64,
    /// Repairs by release and outcome.
    pub repairs: Vec<(Release, String, u64)>,
    pub drift: Vec<Stay>,
}

/// Changes by release, by user and by field, the most frequent first.
#[derive(Debug, Default)]
pub struct Breakdown {
    pub total: u64,
    pub releases: Vec<(String, u64)>,
    pub users: Vec<(String, u64)>,
    pub fields: Vec<(String, u64)>,
}

/// An exception that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Exception {
    pub opened: Timestamp,
    pub release: Release,
    pub object: String,
    pub fields: Vec<String>,
    pub user: String,
    /// Until when, and why.
    pub detail: String,
}

/// A [`Breakdown`] that grows.
#[derive(Default)]
struct Counts {
    total: u64,
    releases: BTreeMap<String, u64>,
    users: BTreeMap<String, u64>,
    fields: BTreeMap<String, u64>,
}

impl Facts {
    pub fn new(period: Period, namespace: Option<String>, release: Option<String>) -> Self {
        let report = Report {
            period,
            namespace,
            release,
            changes: BTreeMap::new(),
            denied: Breakdown::default(),
            excepted: Breakdown::default(),
            exceptions: Vec::new(),
            more_exceptions: 0,
            repairs: Vec::new(),
            drift: Vec::new(),
        };
        Self {
            report,
            spans: Spans::default(),
            denied: Counts::default(),
            excepted: Counts::default(),
            repaired: BTreeMap::new(),
            repeats: Repeats::default(),
        }
    }

    /// Takes a row that is older than those before.
    pub fn add(&mut self, entry: &Entry) {
        self.spans.add(entry);
        match entry.kind.as_str() {
            "verdict" if self.repeats.note_first(entry) => self.add_change(entry),
            "allowance" if entry.verdict == "Opened" => self.add_exception(entry),
            "repair" if entry.verdict != "Ended" => {
                let counted = self.repaired.entry((Release::of(entry), entry.verdict.clone()));
                *counted.or_default() += 1;
            }
            _ => {}
        }
    }

    /// The report of the rows.
    pub fn finish(self) -> Report {
        let Self { mut report, spans, denied, excepted, repaired, repeats: _ } = self;
        report.denied = denied.ranked();
        report.excepted = excepted.ranked();
        report.repairs =
            repaired.into_iter().map(|((release, verdict), count)| (release, verdict, count)).collect();
        report.drift = spans.finish();
        report
    }

    fn add_change(&mut self, entry: &Entry) {
        let excepted = entry.verdict != "Deny" && EXCEPTIONS.contains(&entry.reason.as_str());
        let outcome = if excepted { "Exception" } else { entry.verdict.as_str() };
        *self.report.changes.entry(outcome.to_owned()).or_default() += 1;
        if excepted {
            self.excepted.add(entry);
        } else if entry.verdict == "Deny" {
            self.denied.add(entry);
        }
    }

    fn add_exception(&mut self, entry: &Entry) {
        if self.report.exceptions.len() >= MOST_EXCEPTIONS {
            self.report.more_exceptions += 1;
            return;
        }
        self.report.exceptions.push(Exception {
            opened: entry.time,
            release: Release::of(entry),
            object: entry.object.short(),
            fields: entry.fields.iter().map(|field| field.path.clone()).collect(),
            user: entry.user.clone(),
            detail: entry.detail.clone(),
        });
    }
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        self.total += 1;
        *self.releases.entry(Release::of(entry).to_string()).or_default() += 1;
        *self.users.entry(user(entry)).or_default() += 1;
        let kind = &entry.object.kind;
        for field in &entry.fields {
            *self.fields.entry(format!("{kind} {}", field.path)).or_default() += 1;
        }
        if entry.fields.is_empty() {
            let operation = entry.operation.as_deref().unwrap_or("UPDATE");
            *self.fields.entry(format!("{kind} ({operation})")).or_default() += 1;
        }
    }

    fn ranked(self) -> Breakdown {
        let ranked = |counts: BTreeMap<String, u64>| {
            let mut ranked: Vec<_> = counts.into_iter().collect();
            ranked.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
            ranked
        };
        Breakdown {
            total: self.total,
            releases: ranked(self.releases),
            users: ranked(self.users),
            fields: ranked(self.fields),
        }
    }
}

impl Report {
    /// The scope of the report in words.
    pub fn scope(&self) -> String {
        let place =
            self.namespace.as_ref().map_or("all namespaces".to_owned(), |it| format!("namespace {it}"));
        match &self.release {
            Some(release) => format!("release {release} in {place}"),
            None => place,
        }
    }

    /// The changes of one outcome.
    pub(crate) fn count(&self, outcome: &str) -> u64 {
        self.changes.get(outcome).copied().unwrap_or_default()
    }

    /// The headline numbers.
    pub fn summary(&self) -> [(&'static str, u64); 7] {
        let repaired = |verdict: &str| {
            let repairs = self.repairs.iter().filter(|(_, found, _)| found == verdict);
            repairs.map(|(_, _, count)| *count).sum::<u64>()
        };
        let exceptions = u64::try_from(self.exceptions.len()).unwrap_or(u64::MAX);
        [
            ("Changes denied", self.count("Deny")),
            ("Changes reverted", self.count("Revert")),
            ("Changes that passed with a warning", self.count("Warn")),
            ("Changes that passed and were recorded", self.count("Record")),
            ("Changes that passed by an exception", self.count("Exception")),
            ("Exceptions opened", exceptions.saturating_add(self.more_exceptions)),
            ("Objects repaired", repaired("Recreated") + repaired("Restored")),
        ]
    }
}

/// A time to the second, in UTC.
pub fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn user(entry: &Entry) -> String {
    if entry.user.is_empty() { "unknown".to_owned() } else { entry.user.clone() }
}
