//! The report as Markdown.
//!
//! Entry point: [`text`]. Invariant: whatever users wrote stays the text of its cell: no markup, no
//! link, no HTML.

use std::fmt::Write as _;

use crate::inspect::ledger::facts::{Breakdown, Report, time};
use crate::inspect::ledger::spans::lasting;

/// The rows of a table that people read; a spreadsheet has them all.
const MOST: usize = 25;

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let (since, until) = (time(report.period.since), time(report.period.until));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# Audit report\n\n{}, {since} to {until}\n", plain(&report.scope()));
    let summary = report.summary();
    let rows = summary.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]);
    table(&mut text, &["", "Count"], summary.len(), rows);
    text.push_str("\n## Denied changes\n");
    add(&mut text, &report.denied, "No change was denied.");
    text.push_str("\n## Changes that passed by an exception\n");
    add(&mut text, &report.excepted, "No change passed by an exception.");
    exceptions(&mut text, report);
    repairs(&mut text, report);
    drift(&mut text, report);
    text
}

fn add(text: &mut String, breakdown: &Breakdown, none: &str) {
    if breakdown.total == 0 {
        let _ = writeln!(text, "\n{none}");
        return;
    }
    for (head, counts) in
        [("Release", &breakdown.releases), ("User", &breakdown.users), ("Field", &breakdown.fields)]
    {
        text.push('\n');
        let rows = counts.iter().map(|(label, count)| vec![label.clone(), count.to_string()]);
        table(text, &[head, "Changes"], counts.len(), rows);
    }
}

fn exceptions(text: &mut String, report: &Report) {
    text.push_str("\n## Exceptions\n\n");
    if report.exceptions.is_empty() {
        text.push_str("No exception was opened.\n");
        return;
    }
    let rows = report.exceptions.iter().map(|it| {
        vec![
            time(it.opened),
            it.user.clone(),
            it.release.to_string(),
            it.object.clone(),
            it.fields.join(", "),
            it.detail.clone(),
        ]
    });
    let head = ["Opened", "By", "Release", "Object", "Fields", "Until, and why"];
    table(text, &head, report.exceptions.len(), rows);
}

fn repairs(text: &mut String, report: &Report) {
    text.push_str("\n## Repairs\n\n");
    if report.repairs.is_empty() {
        text.push_str("The guard repaired nothing.\n");
        return;
    }
    let rows = report
        .repairs
        .iter()
        .map(|(release, verdict, count)| vec![release.to_string(), verdict.clone(), count.to_string()]);
    table(text, &["Release", "Outcome", "Count"], report.repairs.len(), rows);
}

fn drift(text: &mut String, report: &Report) {
    text.push_str("\n## Time in drift\n\n");
    let note = "Only drift whose beginning and repair are both in the ledger is counted.";
    if report.drift.is_empty() {
        let _ = writeln!(text, "No such drift was repaired. {note}");
        return;
    }
    let _ = writeln!(text, "{note}\n");
    let rows = report.drift.iter().map(|stay| {
        vec![stay.release.to_string(), stay.drifts.to_string(), lasting(stay.total), lasting(stay.longest)]
    });
    table(text, &["Release", "Drifts", "In total", "Longest"], report.drift.len(), rows);
}

/// The first rows of a table, and how many there are beyond them.
fn table(text: &mut String, head: &[&str], count: usize, rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in rows.take(MOST) {
        let cells: Vec<_> = row.iter().map(|cell| plain(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if count > MOST {
        let _ = writeln!(text, "\nand {} more: `-o csv` has all", count - MOST);
    }
}

/// Text that no reader of Markdown takes for anything else.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (place, letter) in text.char_indices() {
        let (before, after) = text.split_at_checked(place).unwrap_or_default();
        let follows = |scheme: &str| before.to_ascii_lowercase().ends_with(scheme);
        match letter {
            letter if letter.is_control() => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '&' => plain.push_str("&amp;"),
            // What makes an address a link without any other mark.
            '@' => plain.push_str("&#64;"),
            ':' if after.starts_with("://") || follows("mailto") || follows("xmpp") => {
                plain.push_str("&#58;")
            }
            '.' if follows("www") => plain.push_str("&#46;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '!' | '|' | '~' | '$' => {
                plain.push('\\');
                plain.push(letter);
            }
            letter => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn no_text_is_markup() {
        for (text, expected) in [
            ("alice", "alice"),
            ("a|b", "a\\|b"),
            ("<script>", "&lt;script&gt;"),
            ("![x](javascript:y)", "\\!\\[x\\]\\(javascript:y\\)"),
            ("https://evil.example", "https&#58;//evil.example"),
            ("WWW.evil.example", "WWW&#46;evil.example"),
            ("MailTo:a@evil.example", "MailTo&#58;a&#64;evil.example"),
            ("system:serviceaccount:ci:deployer 05:00:00Z", "system:serviceaccount:ci:deployer 05:00:00Z"),
            ("a\n\n# b", "a  \\# b"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }
}
