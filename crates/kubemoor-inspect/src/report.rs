//! Reports: a summary of the rows of a period, a chart of days as SVG, and tables as CSV (RFC 4180). No input can
//! become markup or a formula in them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use csv::{QuoteStyle, Terminator, WriterBuilder};
use jiff::Timestamp;
use jiff::civil::Date;

use super::failure::InspectError;
use super::ledger::RepeatFilter;
use kubemoor_declare::model::text::one_line;
use kubemoor_ledger::entry::{EntryObject, LedgerEntry};

#[rustfmt::skip]
pub const VERDICTS: [&str; 12] = [
    "Deny", "Revert", "Warn", "Record", "Opened", "Closed", "Recreated", "Restored", "TakenBack",
    "Failed", "Reported", "Ended",
];

/// The reasons by which an edit with drift passes: an open exception, or an exempt user.
const EXCEPTIONS: [&str; 2] = ["allowed", "exempt"];

/// Maximum number of exceptions in a report.
const MOST_EXCEPTIONS: usize = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Debug, Default)]
pub struct LedgerReport {
    pub period: Period,
    /// The one namespace; `None` for all.
    namespace: Option<String>,
    release: Option<String>,
    changes: BTreeMap<String, u64>,
    pub denied: Breakdown,
    pub excepted: Breakdown,
    pub exceptions: Vec<Exception>,
    more_exceptions: u64,
    /// By release and outcome.
    pub repairs: BTreeMap<(String, String), u64>,
    /// By release and object, the drift that a later row ends.
    open: HashMap<(String, EntryObject), DriftEnd>,
    stays: BTreeMap<String, DriftDuration>,
    repeats: RepeatFilter,
}

/// Changes by release, by user and by field.
#[derive(Debug, Default)]
pub struct Breakdown {
    pub total: u64,
    releases: BTreeMap<String, u64>,
    users: BTreeMap<String, u64>,
    fields: BTreeMap<String, u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Exception {
    pub opened: Timestamp,
    pub release: String,
    pub object: String,
    pub fields: Vec<String>,
    pub user: String,
    pub detail: String,
}

/// The time that a release was in drift, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftDuration {
    pub release: String,
    pub drifts: u64,
    pub total: u64,
    pub longest: u64,
}

#[derive(Debug)]
struct DriftEnd {
    ended: Timestamp,
    began: Option<Timestamp>,
}

impl LedgerReport {
    pub fn new(period: Period, namespace: Option<String>, release: Option<String>) -> Self {
        Self { period, namespace, release, ..Self::default() }
    }

    /// Adds a row, which must be older than those before.
    pub fn add(&mut self, entry: &LedgerEntry) {
        self.add_drift(entry);
        match entry.kind.as_str() {
            "verdict" if self.repeats.insert_if_new(entry) => self.add_change(entry),
            "allowance" if entry.verdict == "Opened" => self.add_exception(entry),
            "repair" if entry.verdict != "Ended" => {
                *self.repairs.entry((release_of(entry), entry.verdict.clone())).or_default() += 1;
            }
            _ => {}
        }
    }

    fn add_change(&mut self, entry: &LedgerEntry) {
        let excepted = entry.verdict != "Deny" && EXCEPTIONS.contains(&entry.reason.as_str());
        let outcome = if excepted { "Exception" } else { entry.verdict.as_str() };
        *self.changes.entry(outcome.to_owned()).or_default() += 1;
        if excepted {
            self.excepted.add(entry);
        } else if entry.verdict == "Deny" {
            self.denied.add(entry);
        }
    }

    fn add_exception(&mut self, entry: &LedgerEntry) {
        if self.exceptions.len() >= MOST_EXCEPTIONS {
            self.more_exceptions += 1;
            return;
        }
        self.exceptions.push(Exception {
            opened: entry.time,
            release: release_of(entry),
            object: entry.object.short(),
            fields: entry.fields.iter().map(|field| field.path.clone()).collect(),
            user: entry.user.clone(),
            detail: entry.detail.clone(),
        });
    }

    fn add_drift(&mut self, entry: &LedgerEntry) {
        let key = (release_of(entry), entry.object.clone());
        let is_drift = match (entry.kind.as_str(), entry.verdict.as_str()) {
            ("repair", "Recreated" | "Restored" | "Ended") => {
                let open = DriftEnd { ended: entry.time, began: None };
                if let Some(later) = self.open.insert(key.clone(), open) {
                    add_stay(&mut self.stays, key.0, &later);
                }
                return;
            }
            ("repair", "Reported" | "Failed") => true,
            // A later edit of the same object is part of the same drift.
            (_, verdict) => entry.would_be_denied() && verdict != "Revert",
        };
        if let Some(open) = self.open.get_mut(&key).filter(|_| is_drift) {
            open.began = Some(entry.time);
        }
    }

    /// The time in drift of each release that had any, the longest first.
    pub fn drift(&self) -> Vec<DriftDuration> {
        let mut stays = self.stays.clone();
        for ((release, _), open) in &self.open {
            add_stay(&mut stays, release.clone(), open);
        }
        let mut stays: Vec<_> = stays.into_values().collect();
        stays.sort_by_key(|stay| std::cmp::Reverse(stay.total));
        stays
    }

    pub fn scope(&self) -> String {
        let place =
            self.namespace.as_ref().map_or("all namespaces".to_owned(), |it| format!("namespace {it}"));
        match &self.release {
            Some(release) => format!("release {release} in {place}"),
            None => place,
        }
    }

    pub fn summary(&self) -> [(&'static str, u64); 7] {
        let count = |outcome: &str| self.changes.get(outcome).copied().unwrap_or_default();
        let repaired = self.repairs.iter().filter(|((_, it), _)| it == "Recreated" || it == "Restored");
        let exceptions = u64::try_from(self.exceptions.len()).unwrap_or(u64::MAX);
        [
            ("Changes denied", count("Deny")),
            ("Changes reverted", count("Revert")),
            ("Changes that passed with a warning", count("Warn")),
            ("Changes that passed and were recorded", count("Record")),
            ("Changes that passed by an exception", count("Exception")),
            ("Exceptions opened", exceptions.saturating_add(self.more_exceptions)),
            ("Objects repaired", repaired.map(|(_, count)| *count).sum()),
        ]
    }
}

fn add_stay(stays: &mut BTreeMap<String, DriftDuration>, release: String, open: &DriftEnd) {
    let Some(began) = open.began else { return };
    let seconds = u64::try_from(open.ended.as_second().saturating_sub(began.as_second())).unwrap_or_default();
    let stay =
        stays.entry(release.clone()).or_insert_with(|| DriftDuration { release, ..DriftDuration::default() });
    stay.drifts += 1;
    stay.total = stay.total.saturating_add(seconds);
    stay.longest = stay.longest.max(seconds);
}

impl Breakdown {
    fn add(&mut self, entry: &LedgerEntry) {
        self.total += 1;
        *self.releases.entry(release_of(entry)).or_default() += 1;
        let user = if entry.user.is_empty() { "unknown" } else { &entry.user };
        *self.users.entry(user.to_owned()).or_default() += 1;
        let kind = &entry.object.kind;
        for field in &entry.fields {
            *self.fields.entry(format!("{kind} {}", field.path)).or_default() += 1;
        }
        if entry.fields.is_empty() {
            let operation = entry.operation.as_deref().unwrap_or("UPDATE");
            *self.fields.entry(format!("{kind} ({operation})")).or_default() += 1;
        }
    }

    /// The counts by release, by user and by field, the most frequent first.
    pub fn ranked(&self) -> [(&'static str, Vec<(&str, u64)>); 3] {
        let sets = [("Release", &self.releases), ("User", &self.users), ("Field", &self.fields)];
        sets.map(|(by, counts)| {
            let mut ranked: Vec<_> = counts.iter().map(|(label, count)| (label.as_str(), *count)).collect();
            ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            (by, ranked)
        })
    }
}

fn release_of(entry: &LedgerEntry) -> String {
    match (entry.namespace.as_str(), entry.release.as_deref().unwrap_or_default()) {
        ("", "") => "no release".to_owned(),
        (namespace, "") => format!("{namespace}, no release"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Seconds as `1d 2h` or `3m 20s`.
pub fn format_seconds(seconds: u64) -> String {
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

/// Maximum number of labels below the chart.
const DAY_LABELS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayCounts {
    pub day: Date,
    pub worse: u64,
    pub better: u64,
}

/// A chart as SVG: for each day a red bar above the line for `worse`, and a green one below it for `better`; `None` if
/// there is nothing to draw.
pub fn days(days: &[DayCounts]) -> Option<String> {
    let highest = |count: fn(&DayCounts) -> u64| days.iter().map(count).max().unwrap_or_default();
    let (worse, better) = (highest(|day| day.worse), highest(|day| day.better));
    if worse + better == 0 {
        return None;
    }
    let height = |count: u64| 150.0 * count as f64 / (worse + better) as f64;
    let (line, width) = (12.0 + height(worse), 376.0 / days.len() as f64);
    let mut bars = String::new();
    for (place, DayCounts { day, worse, better }) in days.iter().enumerate() {
        let left = 40.0 + width * place as f64;
        for (colour, count, top) in [("#A31621", *worse, line - height(*worse)), ("#116329", *better, line)] {
            if count > 0 {
                let (left, width, height) = (left + 1.0, width - 2.0, height(count));
                // Writing to a String cannot fail.
                let _ = write!(
                    bars,
                    r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
                );
            }
        }
        if place.is_multiple_of(days.len().div_ceil(DAY_LABELS)) {
            let (middle, day) = (left + width / 2.0, day.strftime("%m-%d"));
            let _ = write!(bars, r#"<text x="{middle:.1}" y="184" text-anchor="middle">{day}</text>"#);
        }
    }
    let ends = [(worse, 16.0), (better, line + height(better) + 4.0)].into_iter();
    for (count, y) in ends.filter(|(count, _)| *count > 0).chain([(0, line + 4.0)]) {
        let _ = write!(bars, r#"<text x="34" y="{y:.1}" text-anchor="end">{count}</text>"#);
    }
    Some(format!(
        r#"<svg width="420" height="190" viewBox="0 0 420 190" font-family="sans-serif" font-size="12" fill="currentColor" xmlns="http://www.w3.org/2000/svg">{bars}<line x1="40" x2="416" y1="{line:.1}" y2="{line:.1}" stroke="currentColor"/></svg>"#
    ))
}

/// The characters that start a formula in a spreadsheet, also in their wide forms.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

pub struct Sheet(csv::Writer<Vec<u8>>);

impl Sheet {
    /// An empty table. Every cell is quoted, so that a spreadsheet with another separator does not split it.
    #[allow(clippy::new_without_default, reason = "an empty sheet is no default of anything")]
    pub fn new() -> Self {
        let mut form = WriterBuilder::new();
        form.terminator(Terminator::CRLF).quote_style(QuoteStyle::Always);
        Self(form.from_writer(Vec::new()))
    }

    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) -> Result<(), InspectError> {
        let cells = cells.into_iter().map(|cell| safe(cell.as_ref()).into_owned());
        self.0.write_record(cells).map_err(|error| unwritten(&error))
    }

    pub fn text(self) -> Result<String, InspectError> {
        let bytes = self.0.into_inner().map_err(|error| unwritten(&error))?;
        String::from_utf8(bytes).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &dyn std::error::Error) -> InspectError {
    InspectError::InvalidInput(format!("cannot write CSV: {error}"))
}

/// A cell that every spreadsheet treats as text: an apostrophe goes before a possible formula, as OWASP
/// recommends, and a space replaces each unprintable character.
fn safe(cell: &str) -> Cow<'_, str> {
    let plain = one_line(cell);
    // Some spreadsheets drop the spaces before a cell.
    if plain.trim_start().starts_with(FORMULA) { Cow::Owned(format!("'{plain}")) } else { plain }
}

#[cfg(test)]
mod tests;
