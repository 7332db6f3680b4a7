//! One release across the clusters of a shared ledger.
//!
//! Entry point: [`page`]. Invariant: shows what guards and the ledger say, no object and nothing to order.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::super::address::{Asked, Link, Place};
use super::super::history::LEFT;
use super::super::release::everywhere::{self, badge};
use super::super::release::framed;
use super::super::release::timeline::{self, Timeline};
use super::super::visitor::Visitor;
use super::{shared, wanted};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, spoken};
use kubemoor_inspect::fleet::{self, ReleaseRow, Wanted};

/// The page.
pub(crate) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    // The database knows no exceptions.
    let read = read(&visitor, &asked, now).await.map(|page| (page, BTreeSet::new()));
    framed(&visitor, &asked, read)
}

async fn read(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Result<Markup, Failure> {
    let unnamed = || Failure::Named("this address names no release".to_owned());
    let release = asked.release().ok_or_else(unnamed)?;
    let shared = shared(visitor)?;
    // All clusters are compared, whichever is looked at.
    let wish = Wanted { clusters: Vec::new(), release: Some(release.name.to_string()), ..wanted(asked) };
    let rows = fleet::kept(&shared.store, &wish).await?;
    let cluster = asked.get("cluster");
    let is_meant = |row: &&ReleaseRow| cluster.is_none_or(|cluster| cluster == row.cluster);
    let meant: Vec<_> = rows.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(Failure::Named(format!("no cluster of this ledger has release {}", spoken(&release))));
    }
    let timeline = timeline::of_ledger(&shared.ledger(cluster), &release).await;
    Ok(shown(&release, cluster, (&rows, &meant), &timeline, now))
}

fn shown(
    release: &ReleaseId,
    cluster: Option<&str>,
    (rows, meant): (&[ReleaseRow], &[&ReleaseRow]),
    timeline: &Timeline,
    now: Timestamp,
) -> Markup {
    let place = Place { cluster, namespace: Some(&release.namespace) };
    let ledger = place.link("ledger").with("release", &release.name).with("since", "30d");
    html! {
        nav.trail aria-label="Way back" { a href=(Link::to("releases").text()) { "Releases" } }
        h1 { (release.name) }
        p.quiet { "in namespace " (release.namespace) @if let Some(cluster) = cluster { ", cluster " (cluster) } }
        @if let [row] = meant { (one(row)) }
        section {
            h2 { "In all clusters" }
            (everywhere::table(release, rows, drifted, now))
        }
        section {
            h2 { "What happened" }
            (timeline.shown(now))
            p { a href=(ledger.text()) { "All rows of the ledger" } }
        }
    }
}

fn one(row: &ReleaseRow) -> Markup {
    html! {
        p.state { (badge(row)) " " (row.message) }
        dl.facts {
            @if let Some(edits) = &row.edits { div { dt { "Edits" } dd { (edits) } } }
            @if let Some(drift) = &row.drift { div { dt { "Drift" } dd { (drift) } } }
        }
    }
}

/// The rows that tell since when objects drift. The database holds no objects.
fn drifted(release: &ReleaseId, row: &ReleaseRow) -> Link {
    let place = Place { cluster: Some(&row.cluster), namespace: Some(&release.namespace) };
    let since = row.oldest_drift.map_or_else(|| "30d".to_owned(), |oldest| oldest.to_string());
    let rows = place.link("ledger").with("release", &release.name).with("since", &since);
    LEFT.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict))
}
