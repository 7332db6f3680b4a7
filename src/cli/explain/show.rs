//! An explanation in words.
//!
//! Entry point: [`text`].

use super::super::output::{BAD, GOOD, HEAD, NOTE, PLAIN, Table, Text};
use kubemoor_helm::values::Candidate;
use kubemoor_inspect::explanation::fields::{Field, FieldState};
use kubemoor_inspect::explanation::report::{GUARD, PolicyFacts, ReleaseFacts, Report};
use kubemoor_verdict::difference::Difference;
use kubemoor_verdict::health::reported::ReportedHealth;

/// The answer in words.
pub(super) fn text(report: &Report) -> Text {
    let mut text = facts(report).text();
    for field in &report.fields {
        add_field(&mut text, field);
    }
    text.line();
    for advice in &report.advice {
        text.add(PLAIN, advice).line();
    }
    for unread in &report.unread {
        text.add(NOTE, &format!("Not considered: {unread}")).line();
    }
    text
}

fn facts(report: &Report) -> Table {
    let mut rows = Table::new(["OBJECT", &report.object.to_string()]);
    rows.row(["STATE", report.state]);
    if let Some(ReleaseFacts { release, revision, status, invalid, chart, means }) = &report.release {
        rows.row(["RELEASE", &format!("{} in namespace {}", release.name, release.namespace)]);
        rows.row(["RECORD", &format!("revision {revision}, {status}: {means}")]);
        if let Some(chart) = chart {
            rows.row(["CHART", chart]);
        }
        if let Some(invalid) = invalid {
            rows.row(["INVALID", invalid]);
        }
    }
    if let Some(PolicyFacts { matched, edits, drift }) = &report.policy {
        let of_guard = || "the default of the guard".to_owned();
        let names = if matched.is_empty() { "none".to_owned() } else { matched.join(", ") };
        rows.row(["POLICIES", &names]);
        rows.row(["EDITS", &edits.clone().unwrap_or_else(of_guard)]);
        rows.row(["DRIFT", &drift.clone().unwrap_or_else(of_guard)]);
    }
    match &report.guard {
        Some(ReportedHealth { edits, drift, ready, reason, message, .. }) => {
            let reason = reason.as_ref().unwrap_or(ready);
            rows.row(["GUARD", &format!("edits {edits}, drift {drift}; {reason}: {message}")]);
        }
        None if report.release.is_some() && !report.unread.iter().any(|unread| unread.starts_with(GUARD)) => {
            rows.row(["GUARD", "has no status for this release yet: `kubectl moor get releases` says why"]);
        }
        None => {}
    }
    for exception in &report.exceptions {
        rows.row(["EXCEPTION", exception]);
    }
    for flaw in &report.flaws {
        rows.row(["INVALID ANNOTATION", flaw]);
    }
    rows
}

fn add_field(text: &mut Text, field: &Field) {
    let (style, state) = match field.state {
        FieldState::AsDeclared => (GOOD, "as declared"),
        FieldState::Drifted => (BAD, "drifted"),
        FieldState::InDoubt => (NOTE, "in doubt"),
        FieldState::Absent => (BAD, "absent with its object"),
    };
    text.line().add(HEAD, &field.path).add(PLAIN, ": ").add(style, state).line();
    let shown = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    let mut rows = Table::default();
    match field.difference.as_deref() {
        // Of long values the place at which they differ.
        Some(Difference { path, line, declared, new, .. }) => {
            let line = line.map_or_else(String::new, |line| format!(" line {line}"));
            rows.row(["  first difference", &format!("{path}{line}")]);
            rows.row(["  declared", &shown(declared)]);
            rows.row(["  live", &shown(new)]);
        }
        None => {
            rows.row(["  declared", &shown(&field.declared)]);
            rows.row(["  live", &shown(&field.live)]);
        }
    }
    let managers = field.managers.iter().map(|manager| format!("{} ({:?})", manager.name, manager.operation));
    let managers = managers.collect::<Vec<_>>().join(", ");
    rows.row(["  owned by", if managers.is_empty() { "nobody" } else { &managers }]);
    for Candidate { value, evidence, .. } in &field.values {
        let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
        rows.row(["  probable value", &format!("{value}: {}", evidence.join(", "))]);
    }
    for spared in &field.spared_by {
        rows.row(["  exception", spared]);
    }
    if let Some(does) = &field.next_upgrade {
        rows.row(["  next upgrade", does]);
    }
    text.append(&rows.text());
}
