//! The first page: the state of the clusters at a glance.
//!
//! Entry point: [`page`]. Invariant: every number links to the rows behind it; a cluster that fails affects no other.

pub(super) mod history;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::address::{Asked, Place};
use super::board::Rows;
use super::cluster::{Cluster, by, deadline};
use super::clusters_table;
use super::drifting_fields::Field;
use super::history::{History, Place as Counted};
use super::html::{self as write, Frame, notes, trouble, turns};
use super::visitor::Visitor;
use kubemoor_inspect::allowances::{self, State};
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::fleet::{self, ClusterRow, DRIFTED};
use kubemoor_verdict::health::Reason;

/// Fields that are shown, and on a page of all of them.
const FIELDS: usize = 8;
const ALL_FIELDS: usize = 500;

/// The name in an address of the page of all fields.
const PAGE: &str = "fields";

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// What is known of a cluster at a glance.
struct Glance {
    cluster: ClusterRow,
    /// The one that is shown to a visitor who may not list all.
    namespace: Option<String>,
    /// Whether nobody chose it.
    is_narrowed: bool,
    rows: Rows,
    fields: Vec<Field>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    history: Result<Arc<History>, Arc<Failure>>,
}

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let asked = &asked;
    let glances = visitor.asked(asked).map(|cluster| async move {
        let (user, glance) = tokio::join!(
            by(deadline(), cluster.user()),
            Box::pin(glance(cluster, asked.get("namespace"), now))
        );
        (cluster, user.ok().flatten().map(str::to_owned), glance)
    });
    let glances = join_all(glances).await;
    Frame::live(&visitor, "Overview", "").around(&html! {
        h1 { "Overview" }
        @if visitor.has_several() {
            @let rows: Vec<_> = glances.iter().map(|(cluster, _, glance)| match glance {
                Ok(glance) => (glance.cluster.clone(), glance.namespace.as_deref()),
                Err(error) => (ClusterRow::failed(&cluster.name, error.to_string()), None),
            }).collect();
            @let rows: Vec<_> = rows.iter().map(|(row, namespace)| (row, *namespace)).collect();
            (clusters_table::table(&rows, now))
        }
        @for (cluster, user, glance) in &glances {
            section.cluster {
                h2 { (cluster.name) }
                @if let Some(user) = user { p.quiet { "as " (user) } }
                @match glance {
                    Ok(glance) => (shown(cluster, glance, asked, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

async fn glance(cluster: &Cluster, chosen: Option<&str>, now: Timestamp) -> Result<Glance, Failure> {
    let end = deadline();
    let board = by(end, cluster.board(chosen)).await?;
    let is_narrowed = board.only(chosen).is_some();
    let connection = cluster.connection().await?;
    let namespace = board.namespace.clone();
    if board.is_forbidden() {
        cluster.histories.forget();
    }
    // On the heap: all of it together would not fit onto the stack of a thread.
    let history = Box::pin(async {
        let counted = Counted { namespace: namespace.clone(), ..Counted::default() };
        let ledger = Box::pin(cluster.ledger()).await?;
        Box::pin(cluster.histories.read(&ledger, counted, now)).await
    });
    let exceptions = async {
        match board.exceptions(now) {
            Some(exceptions) => Ok(exceptions),
            // Nothing follows them, or not yet.
            None => by(end, allowances::read(connection, namespace.as_deref(), None, now)).await,
        }
    };
    let rows = board.rows(now);
    let at_a_glance =
        Box::pin(fleet::at_a_glance(&cluster.name, &connection.client, namespace.as_deref(), &rows.rows));
    // A cluster that does not answer is not waited for as long as a ledger is.
    let (exceptions, history, cluster) = tokio::try_join!(
        async { Ok(exceptions.await) },
        async { Ok(history.await) },
        by(end, async { Ok(at_a_glance.await) })
    )?;
    let fields = board.fields(None).ranked();
    Ok(Glance { cluster, namespace, is_narrowed, rows, fields, exceptions, history })
}

fn shown(cluster: &Cluster, glance: &Glance, asked: &Asked, now: Timestamp) -> Markup {
    let Glance { cluster: _, namespace, is_narrowed, rows, fields, exceptions, history } = glance;
    let place = Place { cluster: Some(&cluster.name), namespace: namespace.as_deref() };
    html! {
        @if let Some(namespace) = namespace {
            @if *is_narrowed { p.note { (write::only(namespace)) } }
            form.filter method="get" action="./" {
                input type="hidden" name="cluster" value=(cluster.name);
                label { "Namespace" input name="namespace" value=(namespace); }
                button { "Show" }
            }
        }
        (notes(&cluster.name, &rows.notes))
        @if let Ok(history) = history { (notes(&format!("ledger-{}", cluster.name), &history.missing)) }
        @if !rows.is_blind { (states(place, rows)) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(place, asked, fields)) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match exceptions {
                    Ok(exceptions) => (ending(place, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
            @match history {
                Ok(history) => (history::shown(history, place)),
                Err(error) => section { h3 { "Ledger" } p.note { (error) } },
            }
        }
    }
}

/// The releases by state, those that need somebody first.
fn states(place: Place<'_>, Rows { rows, .. }: &Rows) -> Markup {
    let mut counts: BTreeMap<(u8, usize, &str), usize> = BTreeMap::new();
    for row in rows {
        let state = write::state(row);
        let place = Reason::ALL.iter().position(|reason| reason.as_str() == state).unwrap_or(usize::MAX);
        let rank = match (row.guarded, row.ready.as_deref()) {
            (true, Some("False")) => 0,
            (true, Some("True")) => 2,
            _ => 1,
        };
        *counts.entry((rank, place, state)).or_default() += 1;
        // The list finds every release with drift, also one whose repairs are paused.
        if state != DRIFTED && row.drifted.is_some_and(|drifted| drifted > 0) {
            let place = Reason::ALL.iter().position(|reason| reason.as_str() == DRIFTED);
            *counts.entry((0, place.unwrap_or(usize::MAX), DRIFTED)).or_default() += 1;
        }
    }
    let all = place.link("releases");
    html! {
        ul.tiles {
            li { a.tile href=(all.text()) { strong { (rows.len()) } span { "Releases" } } }
            @for ((rank, _, state), count) in &counts {
                li {
                    a class=(format!("tile {}", ["bad", "doubt", "good"].get(usize::from(*rank)).unwrap_or(&"")))
                        href=(all.clone().with("state", state).text()) {
                        strong { (count) }
                        span { (write::words(state)) }
                    }
                }
            }
        }
    }
}

/// The fields that drift in most releases, or a page of all fields that drift.
fn drifting(place: Place<'_>, asked: &Asked, fields: &[Field]) -> Markup {
    if fields.is_empty() {
        return html! { p.quiet { "No field drifts." } };
    }
    let link = |field: &str| place.link("releases").with("field", field).text();
    let (page, pages) = asked.page(PAGE, fields.len(), ALL_FIELDS);
    let of_page = |page: &str| place.link("").with(PAGE, page).text();
    let (before, most) = match asked.get(PAGE) {
        Some(_) => ((page - 1) * ALL_FIELDS, ALL_FIELDS),
        None => (0, FIELDS),
    };
    html! {
        ul.ranked {
            @for Field { name, releases, is_least } in fields.iter().skip(before).take(most) {
                li { a href=(link(name)) {
                    code { (name) }
                    span.count { @if *is_least { "at least " } (releases) }
                } }
            }
        }
        @if fields.iter().any(|field| field.is_least) {
            p.quiet { "The status of a release names 10 drifted objects, with 10 fields of each: further releases may have the field." }
        }
        @if asked.get(PAGE).is_some() {
            (turns("Pages of fields", (page, pages), |page| of_page(&page.to_string())))
        } @else if fields.len() > most {
            p { a href=(of_page("all")) { "and " (fields.len() - most) " more fields" } }
        }
    }
}

fn ending(place: Place<'_>, exceptions: &[allowances::Row], now: Timestamp) -> Markup {
    let open: Vec<_> = exceptions.iter().filter(|row| row.state == State::Open).collect();
    let mut ending: Vec<(Timestamp, &allowances::Row)> =
        open.iter().filter_map(|row| Some((row.until.parse().ok()?, *row))).collect();
    ending.retain(|(until, _): &(Timestamp, _)| until.duration_since(now) <= SOON);
    ending.sort_by_key(|(until, _)| *until);
    let of = |row: &allowances::Row| place.link("exceptions").set("namespace", Some(&row.namespace)).text();
    html! {
        @if ending.is_empty() { p.quiet { "None." } } @else {
            ul.ranked {
                @for (until, row) in ending.iter().take(ENDING) {
                    li {
                        a href=(of(row)) {
                            span { code { (row.object.kind) "/" (row.object.name) } " in " (row.namespace) }
                            span.count { (write::time(*until, now)) }
                        }
                    }
                }
            }
            @if ending.len() > ENDING {
                p { a href=(place.link("exceptions").text()) { "and " (ending.len() - ENDING) " more, among all exceptions" } }
            }
        }
        p {
            a href=(place.link("exceptions").text()) {
                (open.len()) @if open.len() == 1 { " open exception" } @else { " open exceptions" }
            }
        }
    }
}
