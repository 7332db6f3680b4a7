//! The report as Markdown.
//!
//! Entry point: [`text`]. Invariant: user input stays the text of its cell: no markup, no link, no HTML.

use std::fmt::Write as _;

use super::section::{MOST, Section, Table, sections};
use kubemoor_declare::model::text::is_unprintable;
use kubemoor_inspect::ledger::facts::{Report, time};

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let (since, until) = (time(report.period.since), time(report.period.until));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# Audit report\n\n{}, {since} to {until}\n", plain(&report.scope()));
    let summary = report.summary();
    let rows = summary.iter().map(|(what, count)| vec![(*what).to_owned(), count.to_string()]);
    add(&mut text, &Table { head: vec!["", "Count"], rows: rows.collect(), counts: None });
    for Section { title, note, tables } in sections(report) {
        let _ = writeln!(text, "\n## {title}");
        if !note.is_empty() {
            let _ = writeln!(text, "\n{note}");
        }
        for table in &tables {
            text.push('\n');
            add(&mut text, table);
        }
    }
    text
}

/// Adds the first rows of a table and the number of rows left out.
fn add(text: &mut String, Table { head, rows, counts: _ }: &Table<'_>) {
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in rows.iter().take(MOST) {
        let cells: Vec<_> = row.iter().map(|cell| plain(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if rows.len() > MOST {
        let _ = writeln!(text, "\nand {} more: `-o csv` has all", rows.len() - MOST);
    }
}

/// Text that no reader of Markdown takes for anything else.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (place, letter) in text.char_indices() {
        let (before, after) = text.split_at_checked(place).unwrap_or_default();
        let follows = |scheme: &str| before.to_ascii_lowercase().ends_with(scheme);
        match letter {
            letter if is_unprintable(letter) => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '&' => plain.push_str("&amp;"),
            // `@` turns an address into a link without any other markup.
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
