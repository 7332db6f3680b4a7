//! Clusters at a glance, as a table.
//!
//! Entry point: [`table`]. Invariant: every number links to the rows behind it, and to no others.

use jiff::Timestamp;
use maud::{Markup, html};

use super::address::Place;
use super::html as write;
use kubemoor_inspect::fleet::{ClusterRow, DRIFTED, states};

const HEADS: [&str; 8] = [
    "Cluster",
    "Releases",
    "Drifted",
    "Oldest drift",
    "States",
    "Guard",
    "Certificate ends",
    "Last sign of life",
];

/// The clusters, each with the namespace that is shown of it.
pub(super) fn table(rows: &[(&ClusterRow, Option<&str>)], now: Timestamp) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Clusters" {
            table {
                thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                tbody { @for (row, namespace) in rows { (line(row, *namespace, now)) } }
            }
        }
    }
}

fn line(row: &ClusterRow, namespace: Option<&str>, now: Timestamp) -> Markup {
    let place = Place { cluster: Some(&row.cluster), namespace };
    let releases = place.link("releases");
    let of_state = |state: &str| releases.clone().with("state", state).text();
    html! {
        tr {
            th scope="row" { a href=(place.link("").text()) { (row.cluster) } }
            @if let Some(error) = &row.error { td.message colspan="7" { (error) } } @else {
                td.number { a href=(releases.text()) { (row.releases) } }
                td.number {
                    @if row.drifted == 0 { "0" } @else { a href=(of_state(DRIFTED)) { (row.drifted) } }
                }
                td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
                td {
                    @for (state, count) in states([row]) {
                        a.below href=(of_state(state)) { (write::words(state)) " " (count) }
                    }
                }
                td { (row.version.as_deref().unwrap_or_default()) }
                td { @if let Some(until) = row.certificate_until { (certificate(until, now)) } }
                td { (heard(row, now)) }
            }
        }
    }
}

/// When the guard's certificate ends. Only a shared ledger knows.
fn certificate(until: Timestamp, now: Timestamp) -> Markup {
    html! {
        @if until <= now { span.badge.bad { "Ended" } " " }
        (write::time(until, now))
    }
}

fn heard(row: &ClusterRow, now: Timestamp) -> Markup {
    html! {
        @match (row.stale_since, row.last_heard) {
            (Some(since), _) => span.badge.bad { "Stale since " (since.strftime("%Y-%m-%dT%H:%M:%SZ")) },
            (None, Some(heard)) => (write::time(heard, now)),
            (None, None) => "not known",
        }
    }
}
