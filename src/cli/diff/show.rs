//! A comparison in words, for people.
//!
//! Entry points: `text`, `of_many`, `state`. Must not compare anything.

use anstyle::Style;

use super::super::output::{BAD, GOOD, HEAD, NOTE, PLAIN, Table, Text, counted};
use super::Report;
use kubemoor_inspect::comparison::object::{FieldReport, State, What};
use kubemoor_inspect::comparison::{ObjectReport, ReleaseReport};
use kubemoor_verdict::difference::Difference;
use kubemoor_verdict::health::reported::ReportedHealth;
use kubemoor_verdict::health::{Health, Reason};

/// The reasons for which the guard holds repairs of a whole release; its message says which and for how long.
const HOLDING: [Reason; 4] = [Reason::Unconfirmed, Reason::Contested, Reason::Braked, Reason::Suspended];

/// The comparison: every object that is not in sync, with its fields. For many releases only those with such
/// objects are shown, and a line of counts.
pub(super) fn text(report: &Report) -> Text {
    let mut text = Text::default();
    for release in &report.releases {
        if report.releases.len() == 1 || release.error.is_some() || !release.objects.is_empty() {
            add_release(&mut text, release);
        }
    }
    if report.releases.len() > 1 {
        let (style, line) = of_many(report);
        text.add(style, &line).line();
    }
    text
}

/// The counts of many releases.
pub(super) fn of_many(report: &Report) -> (Style, String) {
    let drifted = report.releases.iter().filter(|release| release.drifted > 0).count();
    let compared: usize = report.releases.iter().map(|release| release.compared).sum();
    let (releases, objects) = (counted(report.releases.len(), "release"), counted(compared, "object"));
    (if drifted > 0 { BAD } else { GOOD }, format!("{releases}, {objects}; {drifted} drifted"))
}

/// The state of an object in words.
pub(super) fn state(state: State) -> (Style, &'static str) {
    match state {
        State::Drifted => (BAD, "drifted"),
        State::Missing => (BAD, "missing"),
        State::InDoubt => (NOTE, "in doubt"),
        State::Ownership => (BAD, "matches, but the next `helm upgrade` may fail with a conflict"),
        State::Awaited => (PLAIN, "not there yet: a Helm operation is under way"),
        State::NotCreated => (NOTE, "not created: the Helm operation failed"),
        State::Allowed => (PLAIN, "missing, as an exception allows"),
        State::AllowedToDiffer => (PLAIN, "differs, as an exception allows"),
        State::Foreign => (NOTE, "owned by another release"),
        State::OptedOut => (PLAIN, "opted out by its manifest"),
        State::BeingDeleted => (NOTE, "being deleted"),
        State::NotServed => (NOTE, "not served"),
        State::Unread => (NOTE, "not read"),
    }
}

fn add_release(text: &mut Text, release: &ReleaseReport) {
    text.add(HEAD, &format!("{} in namespace {}", release.release.name, release.release.namespace));
    if let (Some(revision), Some(status)) = (release.revision, &release.status) {
        text.add(PLAIN, &format!(" (revision {revision}, {status})"));
    }
    text.add(PLAIN, ": ");
    match &release.health {
        None => text.add(NOTE, "could not be compared"),
        Some(Health { counts, .. }) => {
            let style = match (counts.drifted, counts.in_doubt) {
                (0, 0) => GOOD,
                (0, _) => NOTE,
                (_, _) => BAD,
            };
            text.add(style, &counts.headline())
        }
    };
    text.line();
    if let Some(health) = release.health.as_ref().filter(|health| is_of_record(health.reason)) {
        text.add(NOTE, &format!("  {}", health.message)).line();
    }
    if let Some(invalid) = &release.invalid {
        text.add(NOTE, &format!("  the latest record does not count: {invalid}")).line();
    }
    for object in &release.objects {
        add_object(text, object);
    }
    // The reason why the guard holds repairs, in the guard's words.
    let guard = release.guard.as_ref().filter(|it| !release.objects.is_empty() || it.is_stale());
    if let Some(ReportedHealth { reason: Some(reason), message, .. }) = guard
        && (HOLDING.iter().any(|held| reason == held.as_str()) || guard.is_some_and(ReportedHealth::is_stale))
    {
        text.line().add(NOTE, &format!("  {reason}: {message}")).line();
    }
    for left in &release.left_behind {
        text.line().add(NOTE, &format!("  Left behind: {}", left.text())).line();
    }
    for unread in &release.not_considered {
        text.line().add(NOTE, &format!("  Not considered: {unread}")).line();
    }
}

/// Whether the state of a release comes from its record rather than its objects.
fn is_of_record(reason: Reason) -> bool {
    matches!(reason, Reason::ReleaseFailed | Reason::PendingLocked | Reason::OperationUnderway)
}

fn add_object(text: &mut Text, object: &ObjectReport) {
    let (style, state) = state(object.state);
    text.line().add(HEAD, &format!("  {}", object.object)).add(PLAIN, ": ").add(style, state);
    if let Some(reason) = &object.reason {
        text.add(PLAIN, &format!(" ({reason})"));
    }
    text.line();
    if let Some(why) = &object.not_repaired {
        text.add(NOTE, &format!("    not repaired: {why}")).line();
    }
    if object.fields.is_empty() {
        return;
    }
    let mut table = Table::new(["   ", "FIELD", "DECLARED", "LIVE"]);
    for field in &object.fields {
        add_field(&mut table, field, style);
    }
    text.append(&table.text());
}

fn add_field(table: &mut Table, field: &FieldReport, style: Style) {
    let shown = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    // Of long values the place at which they differ.
    let at = field.difference.as_deref().filter(|_| field.what == What::Changed);
    let path = match at {
        Some(Difference { path, line: Some(line), .. }) => format!("{path} line {line}"),
        Some(Difference { path, line: None, .. }) => path.clone(),
        None => field.path.clone(),
    };
    let (declared, live) = match (field.what, at) {
        (_, Some(at)) => (shown(&at.declared), shown(&at.new)),
        (What::Changed | What::Removed, None) => (shown(&field.declared), shown(&field.live)),
        (What::ElementRemoved, None) => ("one element".to_owned(), "removed".to_owned()),
        (What::ElementMoved, None) => ("one element".to_owned(), format!("moved: {}", shown(&field.live))),
        (What::ElementRepeated, None) => {
            ("one element".to_owned(), format!("several: {}", shown(&field.live)))
        }
    };
    let (mark, style) = if field.doubt { ("   ?", NOTE) } else { ("   ~", style) };
    table.styled([(mark.to_owned(), style), (path, PLAIN), (declared, GOOD), (live, style)]);
}
