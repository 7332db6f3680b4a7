//! A comparison as a unified diff: from the live objects to their declarations.
//!
//! Entry point: [`text`]. Invariant: every line outside a hunk starts with `#`, so that diff tools skip it. A
//! Secret's values appear in no hunk.

use super::super::output::{BAD, GOOD, HEAD, NOTE, PLAIN, Text};
use super::Report;
use super::show::{of_many, state};
use kubemoor_inspect::comparison::{ObjectReport, ReleaseReport};

/// The comparison of releases.
pub(super) fn text(report: &Report) -> Text {
    let mut text = Text::default();
    for release in &report.releases {
        for object in &release.objects {
            add_object(&mut text, release, object);
        }
        for left in &release.left_behind {
            text.add(NOTE, &format!("# Left behind: {}", left.text())).line();
        }
        for unread in &release.not_considered {
            text.add(NOTE, &format!("# Not considered: {unread}")).line();
        }
    }
    if report.releases.len() > 1 {
        let (style, line) = of_many(report);
        text.add(style, &format!("# {line}")).line();
    }
    text
}

fn add_object(text: &mut Text, release: &ReleaseReport, object: &ObjectReport) {
    let (style, state) = state(object.state);
    let reason = object.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    text.add(style, &format!("# {}: {state}{reason}", object.object)).line();
    if let Some(why) = &object.not_repaired {
        text.add(NOTE, &format!("# not repaired: {why}")).line();
    }
    let Some(hunks) = &object.hunks else {
        for field in &object.fields {
            text.add(NOTE, &format!("# {}", field.path)).line();
        }
        return;
    };
    let revision = release.revision.unwrap_or_default();
    text.add(HEAD, &format!("--- live {}", object.object)).line();
    text.add(HEAD, &format!("+++ revision {revision} {}", object.object)).line();
    for line in hunks.lines() {
        let style = match line.chars().next() {
            Some('-') => BAD,
            Some('+') => GOOD,
            Some('@') => NOTE,
            _ => PLAIN,
        };
        text.add(style, line).line();
    }
}
