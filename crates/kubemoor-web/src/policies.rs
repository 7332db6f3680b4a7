//! The policies: which are in force, what they match, and where they disagree.
//!
//! Entry point: [`page`]. Invariant: whether a policy is in force is what the guard says of it; what it matches
//! is found by the guard's own rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::future::join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link, encoded};
use super::board::Rows;
use super::cluster::{Cluster, by, deadline};
use super::html::{Frame, notes, trouble, turns};
use super::visitor::Visitor;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::policies::{self, Row};
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases;
use kubemoor_policy::Policy;
use kubemoor_policy::conflict::Conflict;
use kubemoor_policy::lint::Finding;

/// Disagreements on a page.
const CONFLICTS: usize = 100;

/// What is known of a cluster's policies.
struct Known {
    rows: Vec<Row>,
    /// How many releases each matches.
    matched: BTreeMap<String, usize>,
    /// Where two of them disagree, and for how many releases.
    conflicts: BTreeMap<Conflict, usize>,
    /// What in them has no effect.
    findings: Vec<Finding>,
    notes: Vec<String>,
    /// The only namespace whose releases are counted.
    only: Option<String>,
}

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let known =
        visitor.asked(&asked).map(|cluster| async move { (cluster, by(deadline(), read(cluster)).await) });
    let known = join_all(known).await;
    Frame::live(&visitor, "Policies", "policies").of(&asked).around(&html! {
        h1 { "Policies" }
        @for (cluster, known) in &known {
            section {
                @if visitor.has_several() { h2 { (cluster.name) } }
                @match known {
                    Ok(known) => (shown(cluster, &asked, known)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

/// Of these releases those that each of the policies matches; `None` where no policy is named.
pub(super) async fn matched(
    cluster: &Cluster,
    policies: &[&str],
    rows: &[Arc<releases::Row>],
) -> Result<Option<HashSet<ReleaseId>>, Failure> {
    if policies.is_empty() {
        return Ok(None);
    }
    let reader = cluster.reader().await?;
    // What may not be read selects nothing, as on the page of policies, which says so.
    drop(learn_namespaces(&reader).await);
    let is_matched = |release: &ReleaseId| {
        let resolved = reader.resolver.of(release);
        policies.iter().all(|policy| resolved.matched().any(|name| name == *policy))
    };
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
    let Rows { rows: releases, notes, is_complete, .. } = board.rows(Timestamp::now());
    let (matched, conflicts) = counted(releases.iter().map(|row| reader.resolver.of(&row.id())));
    // Where not all releases are known, one of the others may match.
    let releases: Vec<_> = releases.iter().map(|row| row.id()).collect();
    let releases = (board.namespace.is_none() && is_complete).then_some(releases.as_slice());
    let findings = policies::findings(&reader.connection, releases).await?;
    let notes = notes.into_iter().chain(unread).collect();
    Ok(Known { rows, matched, conflicts, findings, notes, only: board.namespace.clone() })
}

/// How many releases each policy matches, and those of which two disagree.
fn counted(
    releases: impl Iterator<Item = Arc<Policy>>,
) -> (BTreeMap<String, usize>, BTreeMap<Conflict, usize>) {
    // Few sets of policies match many releases.
    let mut sets: HashMap<Vec<String>, (Arc<Policy>, usize)> = HashMap::new();
    for policy in releases {
        let names = policy.matched().map(str::to_owned).collect();
        sets.entry(names).or_insert((policy, 0)).1 += 1;
    }
    let (mut matched, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
    for (names, (policy, count)) in sets {
        for name in names {
            *matched.entry(name).or_default() += count;
        }
        for conflict in policy.conflicts() {
            *conflicts.entry(conflict).or_default() += count;
        }
    }
    (matched, conflicts)
}

fn shown(cluster: &Cluster, asked: &Asked, known: &Known) -> Markup {
    let Known { rows, matched, conflicts, findings, notes: unread, only } = known;
    html! {
        @if let Some(only) = only { p.note { (super::html::only(only)) } }
        (notes(&cluster.name, unread))
        @if rows.is_empty() { p.quiet { "There are no policies: the guard's own flags hold." } } @else {
            div.wide tabindex="0" role="region" aria-label=(format!("Policies of {}", cluster.name)) {
                table {
                    thead { tr {
                        @for head in ["Policy", "Priority", "State", "Edits", "Drift", "Releases", "Message"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for row in rows { (line(cluster, row, matched)) } }
                }
            }
            @if !conflicts.is_empty() { (disagreements(cluster, asked, conflicts)) }
            @if !findings.is_empty() {
                h2 { "What has no effect" }
                ul { @for Finding { policy, field, message, .. } in findings {
                    li { strong { (policy) } ": " code { (field) } ": " (message) }
                } }
            }
        }
    }
}

/// Where policies disagree, and which of them counts.
fn disagreements(cluster: &Cluster, asked: &Asked, conflicts: &BTreeMap<Conflict, usize>) -> Markup {
    let (page, pages) = asked.page("page", conflicts.len(), CONFLICTS);
    let turned = |page: usize| {
        let link = Link::to("policies").with("cluster", &cluster.name).with("page", &page.to_string());
        format!("{}#conflicts-{}", link.text(), encoded(&cluster.name))
    };
    let releases = |policies: [&String; 2]| {
        let link = Link::to("releases").with("cluster", &cluster.name);
        policies.iter().fold(link, |link, policy| link.with("policy", policy)).text()
    };
    html! {
        h2 id=(format!("conflicts-{}", encoded(&cluster.name))) { "Where policies disagree" }
        div.wide tabindex="0" role="region" aria-label=(format!("Where policies of {} disagree", cluster.name)) {
            table {
                thead { tr {
                    @for head in ["Field", "This counts", "This does not", "Why", "Releases of both"] {
                        th scope="col" { (head) }
                    }
                } }
                tbody { @for (it, count) in conflicts.iter().skip((page - 1) * CONFLICTS).take(CONFLICTS) {
                    tr {
                        th scope="row" { code { (it.field) } }
                        td { strong { (it.policy) } ": " (it.says) }
                        td { strong { (it.over) } ": " (it.otherwise) }
                        td.message { (it.why) }
                        td.number { a href=(releases([&it.policy, &it.over])) { (count) } }
                    }
                } }
            }
        }
        (turns(&format!("Pages of disagreements of {}", cluster.name), (page, pages), turned))
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
