//! The policies: which are in force, what they match, and where they disagree.
//!
//! Entry point: [`page`]. Invariant: whether a policy is in force is what the guard says of it; what it matches
//! is found by the guard's own rules.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::html::{Frame, notes, trouble};
use super::visitor::Visitor;
use crate::inspect::failure::{Failure, failed};
use crate::inspect::policies::{self, Row};
use crate::inspect::reading::Reader;
use crate::inspect::releases;
use crate::model::ReleaseId;
use crate::policy::lint::Finding;

/// What is known of a cluster's policies.
struct Known {
    rows: Vec<Row>,
    /// How many releases each matches.
    matched: BTreeMap<String, usize>,
    /// What in them has no effect.
    findings: Vec<Finding>,
    notes: Vec<String>,
}

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let known = visitor.asked(&asked).map(|cluster| async move { (cluster, read(cluster).await) });
    let known = join_all(known).await;
    Frame::still(&visitor, "Policies", "policies").around(&html! {
        h1 { "Policies" }
        @for (cluster, known) in &known {
            section {
                @if visitor.has_several() { h2 { (cluster.name) } }
                @match known {
                    Ok(known) => (shown(cluster, known)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

/// Of these releases those that a policy matches; `None` where no policy is named.
pub(super) async fn matched(
    cluster: &Cluster,
    policy: Option<&str>,
    rows: &[Arc<releases::Row>],
) -> Result<Option<HashSet<ReleaseId>>, Failure> {
    let Some(policy) = policy else { return Ok(None) };
    let reader = cluster.reader().await?;
    // What may not be read selects nothing, as on the page of policies, which says so.
    drop(learn_namespaces(&reader).await);
    let is_matched = |release: &ReleaseId| reader.resolver.of(release).matched().any(|name| name == policy);
    Ok(Some(rows.iter().map(|row| row.id()).filter(is_matched).collect()))
}

/// Has the policies know the labels of namespaces.
async fn learn_namespaces(reader: &Reader) -> Result<(), Failure> {
    let namespaces = policies::namespaces(&reader.connection.client).await;
    let namespaces = namespaces.map_err(|error| failed(&reader.connection, "list the namespaces", error))?;
    for (name, labels) in namespaces {
        reader.resolver.set_namespace(&name, Some(labels));
    }
    Ok(())
}

async fn read(cluster: &Cluster) -> Result<Known, Failure> {
    let reader = cluster.reader().await?;
    let rows = policies::read(&reader.connection, None).await?;
    let board = cluster.board(None).await?;
    let unread = learn_namespaces(&reader).await.err();
    let unread =
        unread.map(|error| format!("policies that select namespaces by labels may match more: {error}"));
    let mut matched: BTreeMap<String, usize> = BTreeMap::new();
    let releases = board.rows(Timestamp::now()).rows;
    for row in &releases {
        for name in reader.resolver.of(&row.id()).matched() {
            *matched.entry(name.to_owned()).or_default() += 1;
        }
    }
    // Where not all releases are seen, one that is not may match.
    let releases: Vec<_> = releases.iter().map(|row| row.id()).collect();
    let releases = board.namespace.is_none().then_some(releases.as_slice());
    let findings = policies::findings(&reader.connection, releases).await?;
    Ok(Known { rows, matched, findings, notes: unread.into_iter().collect() })
}

fn shown(cluster: &Cluster, Known { rows, matched, findings, notes: unread }: &Known) -> Markup {
    html! {
        (notes(unread))
        @if rows.is_empty() { p.quiet { "There are no policies: the guard's own flags hold." } } @else {
            div.wide tabindex="0" role="region" aria-label="Policies" {
                table {
                    thead { tr {
                        @for head in ["Policy", "Priority", "State", "Edits", "Drift", "Releases", "Message"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for row in rows { (line(cluster, row, matched)) } }
                }
            }
            @if !findings.is_empty() {
                h2 { "What has no effect" }
                ul { @for Finding { policy, field, message, .. } in findings {
                    li { strong { (policy) } ": " code { (field) } ": " (message) }
                } }
            }
        }
    }
}

fn line(cluster: &Cluster, row: &Row, matched: &BTreeMap<String, usize>) -> Markup {
    let class = match (row.accepted.as_str(), row.reason.as_str()) {
        ("True", "Accepted") => "badge good",
        ("False", _) => "badge bad",
        _ => "badge doubt",
    };
    let state = if row.reason.is_empty() { "Not judged yet" } else { row.reason.as_str() };
    let link = Link::to("releases").with("cluster", &cluster.name).with("policy", &row.name);
    html! {
        tr {
            th scope="row" { (row.name) }
            td.number { (row.priority) }
            td { span class=(class) { (super::html::words(state)) } }
            td { (row.edits.as_deref().unwrap_or("-")) }
            td { (row.drift.as_deref().unwrap_or("-")) }
            td.number { a href=(link.text()) { (matched.get(&row.name).copied().unwrap_or_default()) } }
            td.message { (row.told) }
        }
    }
}
