//! The policies: whether they are in force (by the guard's status), what they match (by the guard's own rules), and
//! where they conflict.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::html::{self as write, PageFrame, PageLink, PageQuery, heads, sections};
use super::release_watch::Rows;
use super::visitor::{VisitedCluster, Visitor};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{InspectError, failed};
use kubemoor_inspect::policies::{self, ListedPolicy};
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_inspect::releases;
use kubemoor_policy::Policy;
use kubemoor_policy::lint::LintFinding;
use kubemoor_policy::resolver::PolicyConflict;

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let known = visitor.each(&asked, |cluster| shown(cluster)).await;
    PageFrame::live(&visitor, "Policies", "policies").narrowed(&asked).around(&html! {
        h1 { "Policies" }
        (sections(&visitor, &known))
    })
}

/// Those of the releases that all of the policies match; `None` if no policy is named.
pub(super) async fn matched(
    cluster: &VisitedCluster,
    policies: &[&str],
    rows: &[Arc<releases::ListedRelease>],
) -> Result<Option<HashSet<ReleaseId>>, InspectError> {
    if policies.is_empty() {
        return Ok(None);
    }
    let reader = cluster.reader().await?;
    // Without their labels, namespaces match no selector; the page of policies reports that.
    drop(learn_namespaces(&reader).await);
    let is_matched = |release: &ReleaseId| {
        let resolved = reader.resolver.policy(release);
        policies.iter().all(|policy| resolved.matched().any(|name| name == *policy))
    };
    Ok(Some(rows.iter().map(|row| row.id()).filter(is_matched).collect()))
}

/// Loads the labels of namespaces into the policy resolver.
async fn learn_namespaces(reader: &ClusterReader) -> Result<(), InspectError> {
    let namespaces = policies::namespaces(&reader.connection.client).await;
    let namespaces = namespaces.map_err(|error| failed(&reader.connection, "list the namespaces", error))?;
    for (name, labels) in namespaces {
        reader.resolver.set_namespace(&name, Some(labels));
    }
    Ok(())
}

async fn shown(cluster: &VisitedCluster) -> Result<Markup, InspectError> {
    let reader = cluster.reader().await?;
    let rows = policies::read(&reader.connection, None).await?;
    let board = cluster.board(None).await?;
    let unread = learn_namespaces(&reader).await.err();
    let unread =
        unread.map(|error| format!("policies that select namespaces by labels may match more: {error}"));
    let Rows { rows: releases, notes, is_complete, .. } = board.rows(Timestamp::now());
    let (matched, conflicts) = counted(releases.iter().map(|row| reader.resolver.policy(&row.id())));
    // If not all releases are known, an unknown one may match.
    let releases: Vec<_> = releases.iter().map(|row| row.id()).collect();
    let releases = (board.namespace().is_none() && is_complete).then_some(releases.as_slice());
    let findings = policies::findings(&reader.connection, releases).await?;
    let unread: Vec<_> = notes.into_iter().chain(unread).collect();
    Ok(html! {
        @if let Some(only) = board.namespace() { p.note { (write::only(only)) } }
        (write::notes(&cluster.name, &unread))
        @if rows.is_empty() { p.quiet { "There are no policies: the guard's own flags apply." } } @else {
            @let columns = heads(&["Policy", "Priority", "State", "Edits", "Drift", "Releases", "Message"]);
            @let lines = html! { @for row in &rows { (line(cluster, row, &matched)) } };
            (write::table(&format!("Policies of {}", cluster.name), &columns, &lines))
            @if !conflicts.is_empty() { (disagreements(cluster, &conflicts)) }
            @if !findings.is_empty() {
                h2 { "Rules without effect" }
                ul { @for LintFinding { policy, field, message, .. } in &findings {
                    li { strong { (policy) } ": " code { (field) } ": " (message) }
                } }
            }
        }
    })
}

/// How many releases each policy matches, and how many releases each conflict affects.
fn counted(
    releases: impl Iterator<Item = Arc<Policy>>,
) -> (BTreeMap<String, usize>, BTreeMap<PolicyConflict, usize>) {
    // Many releases share few sets of policies.
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

/// Maximum number of conflicts on the page.
const SHOWN: usize = 200;

fn disagreements(cluster: &VisitedCluster, conflicts: &BTreeMap<PolicyConflict, usize>) -> Markup {
    let releases = |policies: [&String; 2]| {
        let link = PageLink::to("releases").with("cluster", &cluster.name);
        policies.iter().fold(link, |link, policy| link.with("policy", policy)).text()
    };
    html! {
        h2 { "Conflicts between policies" }
        @let columns = heads(&["Field", "This counts", "This does not", "Why", "Releases of both"]);
        @let lines = html! {
            @for (it, count) in conflicts.iter().take(SHOWN) {
                tr {
                    th scope="row" { code { (it.field) } }
                    td { strong { (it.policy) } ": " (it.value) }
                    td { strong { (it.overridden_policy) } ": " (it.overridden_value) }
                    td.message { (it.why) }
                    td.number { a href=(releases([&it.policy, &it.overridden_policy])) { (count) } }
                }
            }
        };
        (write::table(&format!("Conflicts between policies of {}", cluster.name), &columns, &lines))
        @if conflicts.len() > SHOWN { p.quiet { "The first " (SHOWN) " of " (conflicts.len()) " are shown." } }
    }
}

fn line(cluster: &VisitedCluster, row: &ListedPolicy, matched: &BTreeMap<String, usize>) -> Markup {
    let class = match (row.accepted.as_str(), row.reason.as_str()) {
        ("True", "Accepted") => "good",
        ("False", _) => "bad",
        _ => "doubt",
    };
    let state = if row.reason.is_empty() { "Not judged yet" } else { row.reason.as_str() };
    let link = PageLink::to("releases").with("cluster", &cluster.name).with("policy", &row.name);
    html! {
        tr {
            th scope="row" { (row.name) }
            td.number { (row.priority) }
            td { (write::mark(class, &write::words(state))) }
            td { (row.edits.as_deref().unwrap_or("-")) }
            td { (row.drift.as_deref().unwrap_or("-")) }
            td.number { a href=(link.text()) { (matched.get(&row.name).copied().unwrap_or_default()) } }
            td.message { (row.told) }
        }
    }
}
