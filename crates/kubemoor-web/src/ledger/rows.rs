//! Rows of the ledger as a table; each opens to all that is kept of it.
//!
//! Entry point: [`table`]. Invariant: values come as the ledger keeps them, which masks those of Secrets. Must not read.

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::html as write;
use kubemoor_inspect::ledger::columns::{COLUMNS, changes, columns};
use kubemoor_ledger::entry::{Entry, Field};

/// Fields that a row names before it is opened.
const FIELDS: usize = 2;

/// Rows, each with the name of its cluster where several are shown.
pub(super) fn table<'e>(
    entries: impl IntoIterator<Item = (Option<&'e str>, &'e Entry)>,
    has_clusters: bool,
    now: Timestamp,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Rows of the ledger" {
            table {
                thead { tr {
                    @if has_clusters { th scope="col" { "Cluster" } }
                    @for head in ["Time", "Verdict", "Release", "Object", "User", "What"] { th scope="col" { (head) } }
                } }
                tbody { @for (cluster, entry) in entries { (row(cluster, entry, now)) } }
            }
        }
    }
}

fn row(cluster: Option<&str>, entry: &Entry, now: Timestamp) -> Markup {
    let mut what = changes(entry, FIELDS);
    if !entry.detail.is_empty() {
        what.push(entry.detail.clone());
    }
    let place = format!("{}-{}", entry.id, cluster.unwrap_or(&entry.cluster));
    html! {
        tr {
            @if let Some(cluster) = cluster { td { (cluster) } }
            td { (write::time(entry.time, now)) }
            td { (verdict(entry)) @if !entry.reason.is_empty() { span.quiet.below { (entry.reason) } } }
            td.name { (entry.release.as_deref().unwrap_or_default()) span.quiet.below { (entry.namespace) } }
            td { (entry.object.short()) span.quiet.below { (entry.operation.as_deref().unwrap_or_default()) } }
            td { (entry.user) }
            td.message {
                details id=(format!("row-{place}")) {
                    summary { @if what.is_empty() { "Details" } @else { (what.join("; ")) } }
                    (whole(entry, &place))
                }
            }
        }
    }
}

/// Everything that is kept of a row.
fn whole(entry: &Entry, place: &str) -> Markup {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let line = |field: &Field| {
        html! {
            tr {
                th scope="row" { code { (field.path) } @if let Some(line) = field.line { " line " (line) } }
                td { code { (value(&field.declared)) } }
                td { code { (value(&field.old)) } }
                td { code { (value(&field.new)) } }
            }
        }
    };
    html! {
        dl.kept {
            @for (name, value) in COLUMNS.iter().zip(columns(entry)) {
                @if !value.is_empty() && *name != "changes" { div { dt { (name) } dd { (value) } } }
            }
        }
        @if !entry.fields.is_empty() {
            table {
                thead { tr { @for head in ["Field", "Declared", "Before", "After"] { th scope="col" { (head) } } } }
                tbody { @for field in &entry.fields {
                    (line(field))
                    @if let Some(difference) = &field.difference { (line(difference)) }
                } }
            }
        }
        @if let Some(facts) = &entry.facts {
            details id=(format!("facts-{place}")) {
                summary { "By what a replay judges it" }
                code { (facts) }
            }
        }
    }
}

/// What a verdict looks like.
fn verdict(entry: &Entry) -> Markup {
    let class = match entry.verdict.as_str() {
        "Deny" | "Failed" | "Error" | "failed" | "record-invalid" => "badge bad",
        "Warn" | "Revert" | "Record" | "Reported" => "badge doubt",
        "Allow" | "Recreated" | "Restored" | "Ended" | "deployed" => "badge good",
        _ => "badge",
    };
    html! { span class=(class) { (entry.verdict) } }
}
