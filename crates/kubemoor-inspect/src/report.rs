//! Reports: what the rows of a period tell, bar charts as SVG, and sheets as CSV by RFC 4180. No input becomes markup or a
//! formula in any of them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use csv::{QuoteStyle, Terminator, WriterBuilder};
use jiff::Timestamp;
use plotters::prelude::*;

use super::failure::InspectError;
use super::ledger::RepeatFilter;
use kubemoor_declare::model::text::{is_unprintable, one_line};
use kubemoor_ledger::entry::{EntryObject, LedgerEntry};

#[rustfmt::skip]
pub const VERDICTS: [&str; 12] = [
    "Deny", "Revert", "Warn", "Record", "Opened", "Closed", "Recreated", "Restored", "TakenBack",
    "Failed", "Reported", "Ended",
];

/// Why an edit that drifts passes by an exception: an open one, or one for its user.
const EXCEPTIONS: [&str; 2] = ["allowed", "exempt"];

/// Exceptions that are kept; a report is for reading.
const MOST_EXCEPTIONS: usize = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Default)]
pub struct ReportBuilder {
    report: LedgerReport,
    spans: Spans,
    denied: BreakdownCounts,
    excepted: BreakdownCounts,
    repaired: BTreeMap<(ReportedRelease, String), u64>,
    repeats: RepeatFilter,
}

#[derive(Debug, Default)]
pub struct LedgerReport {
    pub period: Period,
    /// The one namespace; `None` for all.
    pub(crate) namespace: Option<String>,
    pub release: Option<String>,
    pub changes: BTreeMap<String, u64>,
    pub denied: Breakdown,
    pub excepted: Breakdown,
    pub exceptions: Vec<Exception>,
    pub(crate) more_exceptions: u64,
    pub repairs: Vec<(ReportedRelease, String, u64)>,
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

#[derive(Debug, PartialEq, Eq)]
pub struct Exception {
    pub opened: Timestamp,
    pub release: ReportedRelease,
    pub object: String,
    pub fields: Vec<String>,
    pub user: String,
    pub detail: String,
}

/// A [`Breakdown`] that grows.
#[derive(Default)]
struct BreakdownCounts {
    total: u64,
    releases: BTreeMap<String, u64>,
    users: BTreeMap<String, u64>,
    fields: BTreeMap<String, u64>,
}

impl ReportBuilder {
    pub fn new(period: Period, namespace: Option<String>, release: Option<String>) -> Self {
        let report = LedgerReport { period, namespace, release, ..LedgerReport::default() };
        Self { report, ..Self::default() }
    }

    /// Takes a row that is older than those before.
    pub fn add(&mut self, entry: &LedgerEntry) {
        self.spans.add(entry);
        match entry.kind.as_str() {
            "verdict" if self.repeats.note_first(entry) => self.add_change(entry),
            "allowance" if entry.verdict == "Opened" => self.add_exception(entry),
            "repair" if entry.verdict != "Ended" => {
                let counted =
                    self.repaired.entry((ReportedRelease::from_entry(entry), entry.verdict.clone()));
                *counted.or_default() += 1;
            }
            _ => {}
        }
    }

    pub fn finish(self) -> LedgerReport {
        let Self { mut report, spans, denied, excepted, repaired, repeats: _ } = self;
        report.denied = denied.ranked();
        report.excepted = excepted.ranked();
        report.repairs =
            repaired.into_iter().map(|((release, verdict), count)| (release, verdict, count)).collect();
        report.drift = spans.finish();
        report
    }

    fn add_change(&mut self, entry: &LedgerEntry) {
        let excepted = entry.verdict != "Deny" && EXCEPTIONS.contains(&entry.reason.as_str());
        let outcome = if excepted { "Exception" } else { entry.verdict.as_str() };
        *self.report.changes.entry(outcome.to_owned()).or_default() += 1;
        if excepted {
            self.excepted.add(entry);
        } else if entry.verdict == "Deny" {
            self.denied.add(entry);
        }
    }

    fn add_exception(&mut self, entry: &LedgerEntry) {
        if self.report.exceptions.len() >= MOST_EXCEPTIONS {
            self.report.more_exceptions += 1;
            return;
        }
        self.report.exceptions.push(Exception {
            opened: entry.time,
            release: ReportedRelease::from_entry(entry),
            object: entry.object.short(),
            fields: entry.fields.iter().map(|field| field.path.clone()).collect(),
            user: entry.user.clone(),
            detail: entry.detail.clone(),
        });
    }
}

impl BreakdownCounts {
    fn add(&mut self, entry: &LedgerEntry) {
        self.total += 1;
        *self.releases.entry(ReportedRelease::from_entry(entry).to_string()).or_default() += 1;
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

impl LedgerReport {
    pub fn scope(&self) -> String {
        let place =
            self.namespace.as_ref().map_or("all namespaces".to_owned(), |it| format!("namespace {it}"));
        match &self.release {
            Some(release) => format!("release {release} in {place}"),
            None => place,
        }
    }

    pub(crate) fn count(&self, outcome: &str) -> u64 {
        self.changes.get(outcome).copied().unwrap_or_default()
    }

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

fn user(entry: &LedgerEntry) -> String {
    if entry.user.is_empty() { "unknown".to_owned() } else { entry.user.clone() }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportedRelease {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Stay {
    pub release: ReportedRelease,
    pub drifts: u64,
    pub total: u64,
    pub longest: u64,
}

#[derive(Default)]
pub(crate) struct Spans {
    open: BTreeMap<(ReportedRelease, ObjectKey), DriftEnd>,
    ended: BTreeMap<ReportedRelease, Vec<u64>>,
}

type ObjectKey = (String, String, Option<String>, String);

struct DriftEnd {
    ended: Timestamp,
    began: Option<Timestamp>,
}

impl Spans {
    /// Takes a row that is older than those before.
    pub(crate) fn add(&mut self, entry: &LedgerEntry) {
        let EntryObject { group, kind, namespace, name } = entry.object.clone();
        let key = (ReportedRelease::from_entry(entry), (group, kind, namespace, name));
        match (entry.kind.as_str(), entry.verdict.as_str()) {
            ("repair", "Recreated" | "Restored" | "Ended") => {
                let open = DriftEnd { ended: entry.time, began: None };
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

    fn begin(&mut self, key: &(ReportedRelease, ObjectKey), time: Timestamp) {
        if let Some(open) = self.open.get_mut(key) {
            open.began = Some(time);
        }
    }

    fn end(&mut self, release: ReportedRelease, open: &DriftEnd) {
        if let Some(began) = open.began {
            let seconds = open.ended.as_second().saturating_sub(began.as_second());
            self.ended.entry(release).or_default().push(u64::try_from(seconds).unwrap_or_default());
        }
    }
}

impl ReportedRelease {
    fn from_entry(entry: &LedgerEntry) -> Self {
        Self { namespace: entry.namespace.clone(), name: entry.release.clone().unwrap_or_default() }
    }
}

impl std::fmt::Display for ReportedRelease {
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

const MOST: usize = 10;

/// The most characters of a label; the table beside the chart has it whole.
const LABEL: usize = 38;

/// The colour of bars: readable on paper, and beside red and green.
const COLOUR: RGBColor = RGBColor(0x2f, 0x5d, 0x8a);

/// The colours of what gets worse and of what gets better.
const WORSE: RGBColor = RGBColor(0xa3, 0x16, 0x21);
const BETTER: RGBColor = RGBColor(0x11, 0x63, 0x29);

const DAY_LABELS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayCounts {
    pub label: String,
    pub worse: u64,
    pub better: u64,
}

pub fn bars(counts: &[(String, u64)]) -> Result<Option<String>, InspectError> {
    let bars: Vec<_> = counts.iter().take(MOST).map(|(label, count)| (shortened(label), *count)).collect();
    if bars.iter().all(|(_, count)| *count == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw_bars(&mut picture, &bars)
        .map_err(|error| InspectError::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw_bars(picture: &mut String, bars: &[(String, u64)]) -> Result<(), Box<dyn std::error::Error>> {
    let rows = u32::try_from(bars.len())?;
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let area = SVGBackend::with_string(picture, (720, 26 * rows + 16)).into_drawing_area();
    // A little room for the number behind the longest bar.
    let width = most + most.div_ceil(8);
    let mut chart = ChartBuilder::on(&area)
        .margin(4)
        .y_label_area_size(290)
        .build_cartesian_2d(0..width, (0..rows).into_segmented())?;
    let label = |place: &SegmentValue<u32>| match place {
        // The first bar is the topmost.
        SegmentValue::CenterOf(place) => {
            let bar = bars.iter().rev().nth(usize::try_from(*place).unwrap_or(usize::MAX));
            bar.map(|(label, _)| label.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_x_axis()
        .axis_style(TRANSPARENT)
        .y_labels(bars.len())
        .y_label_style(("sans-serif", 13))
        .y_label_formatter(&label)
        .draw()?;
    let places = || (0..rows).zip(bars.iter().rev());
    chart.draw_series(places().map(|(place, (_, count))| {
        let corners = [(0, SegmentValue::Exact(place)), (*count, SegmentValue::Exact(place + 1))];
        let mut bar = Rectangle::new(corners, COLOUR.filled());
        bar.set_margin(4, 4, 0, 0);
        bar
    }))?;
    chart.draw_series(places().map(|(place, (_, count))| {
        let place = (*count, SegmentValue::CenterOf(place));
        EmptyElement::at(place) + Text::new(format!("{count}"), (5, -6), ("sans-serif", 13))
    }))?;
    area.present()?;
    Ok(())
}

/// A bar above the line for what gets worse on each day, and one below it for what gets better; `None` where there is
/// nothing to draw.
pub fn days(days: &[DayCounts]) -> Result<Option<String>, InspectError> {
    if days.iter().all(|day| day.worse == 0 && day.better == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw_days(&mut picture, days)
        .map_err(|error| InspectError::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw_days(picture: &mut String, days: &[DayCounts]) -> Result<(), Box<dyn std::error::Error>> {
    let number = u32::try_from(days.len())?;
    let highest =
        |count: fn(&DayCounts) -> u64| i64::try_from(days.iter().map(count).max().unwrap_or_default());
    let (worse, better) = (highest(|day| day.worse)?, highest(|day| day.better)?);
    let area = SVGBackend::with_string(picture, (420, 190)).into_drawing_area();
    let room = |count: i64| count.saturating_add(count / 10).saturating_add(1);
    let heights = if better == 0 { 0..room(worse) } else { -room(better)..room(worse) };
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(36)
        .build_cartesian_2d((0..number).into_segmented(), heights)?;
    let label = |place: &SegmentValue<u32>| match place {
        SegmentValue::CenterOf(place) => {
            let day = usize::try_from(*place).ok().and_then(|place| days.get(place));
            day.map(|day| day.label.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(TRANSPARENT)
        .light_line_style(TRANSPARENT)
        .bold_line_style(COLOUR.mix(0.2))
        .x_labels(days.len().min(DAY_LABELS))
        .x_label_style(("sans-serif", 12))
        .x_label_formatter(&label)
        .y_labels(5)
        .y_label_style(("sans-serif", 12))
        .y_label_formatter(&|count| count.unsigned_abs().to_string())
        .draw()?;
    for (colour, height) in [
        (WORSE, (|day| i64::try_from(day.worse)) as fn(&DayCounts) -> Result<i64, std::num::TryFromIntError>),
        (BETTER, |day| i64::try_from(day.better).map(|count| -count)),
    ] {
        for (place, day) in (0..number).zip(days) {
            let corners = [(SegmentValue::Exact(place), 0), (SegmentValue::Exact(place + 1), height(day)?)];
            let mut bar = Rectangle::new(corners, colour.filled());
            bar.set_margin(0, 0, 2, 2);
            chart.draw_series(std::iter::once(bar))?;
        }
    }
    area.present()?;
    Ok(())
}

/// The end of a label tells more than its beginning: the field of a path, the name of a service account.
fn shortened(label: &str) -> String {
    let length = label.chars().count();
    let plain = |letter: char| if is_unprintable(letter) { ' ' } else { letter };
    if length <= LABEL {
        return label.chars().map(plain).collect();
    }
    std::iter::once('…').chain(label.chars().skip(length - LABEL + 1)).map(plain).collect()
}

/// The characters that start a formula in a spreadsheet, also in their wide forms.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

pub struct Sheet(csv::Writer<Vec<u8>>);

impl Sheet {
    /// A table without rows. Every cell is quoted, so that a cell does not end where a spreadsheet
    /// takes another character for the separator.
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
    InspectError::Named(format!("cannot write CSV: {error}"))
}

/// A cell that every spreadsheet treats as text: an apostrophe goes before a possible formula, as OWASP
/// recommends, and a space replaces each unprintable character.
fn safe(cell: &str) -> Cow<'_, str> {
    let plain = one_line(cell);
    // Some drop the spaces before a cell.
    if plain.trim_start().starts_with(FORMULA) { Cow::Owned(format!("'{plain}")) } else { plain }
}

#[cfg(test)]
mod tests;
