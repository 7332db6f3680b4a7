//! The pages of a database that the guards of many clusters share.
//!
//! Entry point: [`page`], the first one. Invariant: no cluster is asked, and nothing can be ordered.

pub(super) mod release;
pub(super) mod releases;

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Place};
use super::clusters_table;
use super::history::Place as Counted;
use super::html::{self as write, Frame, trouble};
use super::overview::history;
use super::shared_ledger::SharedLedger;
use super::visitor::Visitor;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::fleet::{self, ClusterRow, Wanted};

/// The page with all clusters, or with the one that is asked for.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let place = place(&asked);
    let read = async {
        let (shared, wanted) = (shared(&visitor)?, wanted(&asked));
        let (ledger, text) = (shared.ledger(place.cluster), |text: Option<&str>| text.map(str::to_owned));
        let counted = Counted {
            cluster: text(place.cluster),
            namespace: text(place.namespace),
            // What is new is shown at once.
            version: *shared.changes().borrow(),
        };
        let (clusters, history) = tokio::join!(
            fleet::clusters(&shared.store, &wanted),
            shared.histories.read(&ledger, counted, now)
        );
        Ok::<_, Failure>((clusters?, history))
    };
    let read = read.await;
    Frame::live(&visitor, "Overview", "").around(&html! {
        h1 { "Overview" }
        (form(&asked))
        @match &read {
            Err(error) => (trouble(&error.to_string())),
            Ok((clusters, _)) if clusters.is_empty() => {
                p.quiet { "No cluster is found: no guard of a cluster that you may see writes to this ledger." }
            }
            Ok((clusters, history)) => {
                (states(place, clusters))
                h2 { "Clusters" }
                @let rows: Vec<_> = clusters.iter().map(|row| (row, place.namespace)).collect();
                (clusters_table::table(&rows, now))
                div.columns {
                    @match history {
                        Ok(history) => (history::shown(history, place)),
                        Err(error) => section { h3 { "Ledger" } p.note { (error) } },
                    }
                }
            }
        }
    })
}

/// The database.
fn shared(visitor: &Visitor) -> Result<&SharedLedger, Failure> {
    let none = || Failure::Named("this page shows no shared ledger".to_owned());
    visitor.shared.as_ref().ok_or_else(none)
}

fn place(asked: &Asked) -> Place<'_> {
    Place { cluster: asked.get("cluster"), namespace: asked.get("namespace") }
}

/// The clusters and the namespace that are asked for.
fn wanted(asked: &Asked) -> Wanted {
    let text = |name: &str| asked.get(name).map(str::to_owned);
    Wanted {
        clusters: text("cluster").into_iter().collect(),
        namespace: text("namespace"),
        ..Wanted::default()
    }
}

fn form(asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="./" role="search" {
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            button { "Show" }
        }
    }
}

/// The releases of these clusters by state.
fn states(place: Place<'_>, clusters: &[ClusterRow]) -> Markup {
    let counts = fleet::states(clusters);
    let all: u64 = clusters.iter().map(|cluster| cluster.releases).sum();
    let releases = place.link("releases");
    html! {
        ul.tiles {
            li { a.tile href=(releases.text()) { strong { (all) } span { "Releases" } } }
            @for (state, count) in &counts {
                li {
                    a class=(if *state == "InSync" { "tile good" } else { "tile" })
                        href=(releases.clone().with("state", state).text()) {
                        strong { (count) }
                        span { (write::words(state)) }
                    }
                }
            }
        }
    }
}
