//! The page of one release: its objects as declared and as they live, what happened, and what may be done.
//!
//! The comparison is that of `kubemoor diff`. A visitor who may not read the release's records sees what the guard says of
//! it, and no more. What cannot be read is named and hides nothing else.

mod objects;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::{Cluster, Rights};
use super::exceptions;
use super::html::{self as write, Frame, badge, notes, trouble};
use super::ledger_reader::LedgerReader;
use super::visitor::Visitor;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::{event_list, guarded};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_inspect::allowances::{self, State};
use kubemoor_inspect::comparison::{self, ReleaseReport, chart_values};
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::fleet::ReleaseRow;
use kubemoor_inspect::ledger::columns::changes;
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{self, Row};
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, Page};
use kubemoor_policy::guarded::GuardedRelease;

/// Namespaces whose exceptions are read at one time.
const AT_ONCE: usize = 8;

/// What a release is compared by.
const COMPARED_BY: [&str; 8] =
    ["Cluster", "State", "Revision", "Chart", "Values", "Drifted", "Oldest drift", "Differs in"];

/// The most of what happened that is shown.
const MOMENTS: usize = 50;

/// Fields that a row of the ledger names.
const FIELDS: usize = 3;

/// What is known of a release.
struct View<'a> {
    asked: &'a Asked,
    cluster: &'a Cluster,
    release: &'a ReleaseId,
    /// What the guard says.
    guarded: Result<Option<GuardedRelease>, Failure>,
    row: Option<Row>,
    /// Its objects, as its records declare them.
    compared: Result<(Arc<Release>, ReleaseReport), Failure>,
    policies: Vec<String>,
    exceptions: Exceptions,
    rights: Rights,
    timeline: Timeline,
}

/// The exceptions in the namespaces of the release's objects, and why some cannot be read.
struct Exceptions {
    rows: Vec<allowances::Row>,
    failures: Vec<Failure>,
}

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    framed(&visitor, &asked, read(&visitor, &asked, now).await)
}

/// The page of the release that is asked for, which follows the exceptions of these namespaces, or the reason why it
/// cannot be shown.
pub(super) fn framed(
    visitor: &Visitor,
    asked: &Asked,
    read: Result<(Markup, BTreeSet<String>), Failure>,
) -> Response {
    match read {
        Ok((page, namespaces)) => {
            let name = asked.get("name").unwrap_or("Release").to_owned();
            Frame::live(visitor, &name, "releases").of_release(asked, &namespaces).around(&page)
        }
        Err(error) => write::failure(visitor, "releases", &error),
    }
}

async fn read(
    visitor: &Visitor,
    asked: &Asked,
    now: Timestamp,
) -> Result<(Markup, BTreeSet<String>), Failure> {
    let cluster = visitor.cluster(asked)?;
    let unnamed = || Failure::Named("this address names no release".to_owned());
    let release = &asked.release().ok_or_else(unnamed)?;
    let reader = cluster.reader().await?;
    let connection = &reader.connection;
    let (guarded, compared, timeline) = tokio::join!(
        guarded::get(&connection.client, release),
        compare(&reader, release, now),
        Timeline::read(cluster, connection, release),
    );
    let guarded = match guarded.map_err(|error| failed(connection, "read the GuardedRelease", error)) {
        // The page shows nothing of the release either.
        Err(error) if error.is_forbidden() => return Err(error),
        guarded => guarded,
    };
    let namespaces = namespaces(release, compared.as_ref().ok().map(|(declared, _)| &**declared));
    let (exceptions, rights) =
        tokio::join!(Exceptions::read(connection, &namespaces, now), cluster.rights(release, &namespaces));
    let row = match &guarded {
        // Why the records cannot be read, the comparison says.
        Ok(guarded) => row(&reader, release, guarded.as_ref()).await.ok().flatten(),
        // Without the guard's word it is not known if there is one.
        Err(_) => None,
    };
    let is_known = row.is_some() || compared.is_ok();
    if !is_known {
        // Nothing is said of what the visitor may not see.
        return Err(compared.err().unwrap_or_else(unnamed));
    }
    let policies = reader.resolver.of(release).matched().map(str::to_owned).collect();
    let view =
        View { asked, cluster, release, guarded, row, compared, policies, exceptions, rights, timeline };
    Ok((view.shown(visitor, now), namespaces))
}

async fn compare(
    reader: &Reader,
    release: &ReleaseId,
    now: Timestamp,
) -> Result<(Arc<Release>, ReleaseReport), Failure> {
    let release = reader.release(release).await?;
    let mut report = comparison::compare(reader, &release, false, now, &|| ()).await;
    chart_values::add(reader, &release, &mut report).await;
    Ok((release, report))
}

/// What the list says of the release: by its guard, or why none speaks of it. `None` if it does not exist.
async fn row(
    reader: &Reader,
    release: &ReleaseId,
    guarded: Option<&GuardedRelease>,
) -> Result<Option<Row>, Failure> {
    if let Some(guarded) = guarded {
        let told = reader.pulses.told(guarded.status.clone().unwrap_or_default()).await;
        return Ok(Some(Row::guarded(release.clone(), told)));
    }
    if reader.find(release).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(Row::unguarded(release.clone(), releases::why_not(reader, release, true).await)))
}

/// The namespaces in which exceptions count for objects of a release.
fn namespaces(release: &ReleaseId, declared: Option<&Release>) -> BTreeSet<String> {
    let objects = declared.into_iter().flat_map(|declared| declared.objects.keys());
    let named = objects.filter_map(|object| object.namespace.as_deref().map(str::to_owned));
    std::iter::once(release.namespace.to_string()).chain(named).collect()
}

/// Whether an exception is for this object of a release.
fn is_for(exception: &allowances::Row, object: &ObjectId, release: &ReleaseId) -> bool {
    let named = &exception.object;
    let is_here = match &object.namespace {
        Some(namespace) => *namespace == exception.namespace,
        // Of objects of the whole cluster it lies in the release's namespace.
        None => named.namespace.is_none() && exception.namespace == release.namespace,
    };
    is_here && object.group == named.group && object.kind == named.kind && object.name == named.name
}

impl Exceptions {
    async fn read(connection: &Connection, namespaces: &BTreeSet<String>, now: Timestamp) -> Self {
        let read = namespaces
            .iter()
            .cloned()
            .map(|namespace| async move { allowances::read(connection, Some(&namespace), None, now).await });
        let mut all = Self { rows: Vec::new(), failures: Vec::new() };
        for read in stream::iter(read).buffered(AT_ONCE).collect::<Vec<_>>().await {
            match read {
                Ok(rows) => all.rows.extend(rows),
                Err(error) => all.failures.push(error),
            }
        }
        all
    }
}

impl View<'_> {
    fn shown(&self, visitor: &Visitor, now: Timestamp) -> Markup {
        html! {
            nav.trail aria-label="Way back" { a href=(Link::to("releases").text()) { "Releases" } }
            h1 { (self.release.name) }
            p.quiet {
                "in namespace " (self.release.namespace)
                @if visitor.has_several() { ", cluster " (self.cluster.name) }
            }
            (self.head())
            (self.actions())
            section {
                h2 { "Objects" }
                @match &self.compared {
                    Ok((release, report)) => (objects::compared(self.cluster, self.asked, release, report, &self.rights)),
                    Err(error) => {
                        (trouble(&error.to_string()))
                        @if error.is_forbidden() { (objects::unknown_upgrade()) }
                        (objects::told(self.guarded.as_ref().ok().and_then(Option::as_ref)))
                    }
                }
            }
            section {
                h2 { "Exceptions" }
                @let Exceptions { rows, failures } = &self.exceptions;
                @for error in failures { (trouble(&error.to_string())) }
                @let own = self.own(rows);
                @if failures.is_empty() || !own.is_empty() {
                    (exceptions::table(self.cluster, &own, &self.rights.revoke, now))
                }
            }
            section {
                h2 { "What happened" }
                (self.timeline.shown(now))
                p { a href=(self.rows()) { "All rows of the ledger" } }
            }
        }
    }

    fn head(&self) -> Markup {
        let report = self.compared.as_ref().ok().map(|(_, report)| report);
        html! {
            @if let Some(row) = &self.row { p.state { (badge(row)) " " (row.message) } }
            @if let Err(error) = &self.guarded { (trouble(&error.to_string())) }
            dl.facts {
                @if let Some(ReleaseReport { revision: Some(revision), status: Some(status), .. }) = report {
                    div { dt { "Record" } dd { "revision " (revision) ", " (status) } }
                }
                @if let Some(Row { edits: Some(edits), drift: Some(drift), .. }) = &self.row {
                    div { dt { "Edits" } dd { (edits) } }
                    div { dt { "Drift" } dd { (drift) } }
                }
                div { dt { "Policies" } dd {
                    @if self.policies.is_empty() { "none" } @else { (self.policies.join(", ")) }
                } }
            }
            @if let Some(report) = report {
                @if let Some(invalid) = &report.invalid { (trouble(&format!("The latest record does not count: {invalid}"))) }
                (notes("objects", &report.not_considered))
            }
        }
    }

    /// What the visitor may order; each leads to a page that says what it will do.
    fn actions(&self) -> Markup {
        let Some(Row { guarded: true, reason, .. }) = &self.row else { return html! {} };
        let is_suspended = reason.as_deref() == Some("Suspended");
        let link = |what: &str| {
            Link::to("act")
                .with("do", what)
                .with("cluster", &self.cluster.name)
                .of_release(self.release)
                .text()
        };
        html! {
            @if self.rights.steer {
                p.actions {
                    a.button href=(link("reconcile")) { "Repair now" }
                    @if is_suspended {
                        a.button href=(link("resume")) { "Resume repairs" }
                    } @else {
                        a.button href=(link("suspend")) { "Pause repairs" }
                    }
                }
            }
        }
    }

    /// The rows of the ledger.
    fn rows(&self) -> String {
        let ReleaseId { namespace, name } = self.release;
        let link = Link::to("ledger").with("cluster", &self.cluster.name).with("namespace", namespace);
        link.with("release", name).with("since", "30d").text()
    }

    /// The exceptions for objects of this release that count.
    fn own(&self, rows: &[allowances::Row]) -> Vec<allowances::Row> {
        let Ok((release, _)) = &self.compared else { return rows.to_vec() };
        let is_own = |row: &&allowances::Row| {
            row.state == State::Open && release.objects.keys().any(|object| is_for(row, object, &release.id))
        };
        rows.iter().filter(is_own).cloned().collect()
    }
}

/// The clusters that have a release, and in what it differs; `drifted` is where the number of drifted objects leads.
pub(super) fn side_by_side(
    release: &ReleaseId,
    rows: &[ReleaseRow],
    drifted: impl Fn(&ReleaseId, &ReleaseRow) -> Link,
    now: Timestamp,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="In all clusters" {
            table {
                thead { tr { @for head in COMPARED_BY { th scope="col" { (head) } } } }
                tbody { @for row in rows { (line(release, row, &drifted(release, row), now)) } }
            }
        }
        p.quiet { "Equal hashes of values stand for equal values, and reveal nothing else." }
    }
}

/// The state of a release as a mark, and since when its guard is silent.
pub(super) fn fleet_badge(row: &ReleaseRow) -> Markup {
    let class = match (row.stale_since, row.ready.as_deref()) {
        (Some(_), _) | (_, Some("Unknown") | None) => "badge doubt",
        (None, Some("True")) => "badge good",
        (None, Some(_)) => "badge bad",
    };
    html! {
        span class=(class) { (write::words(&row.reason)) }
        @if let Some(since) = row.stale_since {
            span.quiet.below { "stale since " (since.strftime("%Y-%m-%dT%H:%M:%SZ")) }
        }
    }
}

fn line(release: &ReleaseId, row: &ReleaseRow, drifted: &Link, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(Link::to_release(&row.cluster, release).text()) { (row.cluster) } }
            td { (fleet_badge(row)) }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { (row.chart.as_deref().unwrap_or_default()) }
            td { @if let Some(values) = &row.values { code { (values) } } }
            td.number { @if row.drifted == 0 { "0" } @else { a href=(drifted.text()) { (row.drifted) } } }
            td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
            td { (row.differs.join(", ")) }
        }
    }
}

/// What happened, newest first.
pub(super) struct Timeline {
    moments: Vec<Moment>,
    notes: Vec<String>,
    /// Whether the ledger has older rows.
    is_cut: bool,
}

/// One thing that happened.
struct Moment {
    time: Timestamp,
    what: String,
    is_warning: bool,
    text: String,
}

impl Timeline {
    /// Reads what happened to a release.
    async fn read(cluster: &Cluster, connection: &Connection, release: &ReleaseId) -> Self {
        let ReleaseId { namespace, name } = release;
        let mut timeline = Self { moments: Vec::new(), notes: Vec::new(), is_cut: false };
        match event_list::about(&connection.client, namespace, guarded::KIND, name).await {
            Ok(events) => timeline.moments.extend(events.into_iter().filter_map(|event| {
                let again = event.count.filter(|count| *count > 1);
                let text = again.map_or_else(
                    || event.message.clone(),
                    |count| format!("{} ({count} times)", event.message),
                );
                let is_warning = event.r#type == "Warning";
                Some(Moment { time: event.time()?, what: event.reason.clone(), is_warning, text })
            })),
            Err(error) => timeline.notes.push(failed(connection, "list the events", error).to_string()),
        }
        let rows = async { ledger_rows(&cluster.ledger().await?, release).await };
        timeline.take(rows.await);
        timeline
    }

    /// Reads what the ledger alone says of a release.
    pub(super) async fn of_ledger(ledger: &LedgerReader, release: &ReleaseId) -> Self {
        let mut timeline = Self { moments: Vec::new(), notes: Vec::new(), is_cut: false };
        timeline.take(ledger_rows(ledger, release).await);
        timeline
    }

    /// What happened, for people.
    pub(super) fn shown(&self, now: Timestamp) -> Markup {
        html! {
            (notes("timeline", &self.notes))
            @if self.moments.is_empty() { p.quiet { "Nothing is known." } } @else {
                ol.timeline {
                    @for moment in self.moments.iter().take(MOMENTS) {
                        li {
                            (write::time(moment.time, now))
                            span class=(if moment.is_warning { "badge bad" } else { "badge" }) { (moment.what) }
                            span { (moment.text) }
                        }
                    }
                }
                @if self.is_cut || self.moments.len() > MOMENTS {
                    p.quiet { "These are the newest " (self.moments.len().min(MOMENTS)) ": the ledger has older rows." }
                }
            }
        }
    }

    fn take(&mut self, rows: Result<Page, Failure>) {
        match rows {
            Ok(rows) => {
                self.moments.extend(rows.items.iter().map(moment));
                self.notes.extend(rows.missing);
                self.is_cut = rows.next.is_some();
            }
            Err(error) => self.notes.push(error.to_string()),
        }
        self.moments.sort_by_key(|moment| std::cmp::Reverse(moment.time));
    }
}

/// The newest rows of the ledger.
async fn ledger_rows(ledger: &LedgerReader, release: &ReleaseId) -> Result<Page, Failure> {
    let filter = Filter {
        namespace: Some(release.namespace.to_string()),
        release: Some(release.name.to_string()),
        ..Filter::default()
    };
    ledger.newest(&filter, MOMENTS).await
}

fn moment(entry: &Entry) -> Moment {
    let mut parts = vec![entry.object.short()];
    parts.extend(changes(entry, FIELDS));
    parts.extend((!entry.detail.is_empty()).then(|| entry.detail.clone()));
    parts.extend((!entry.user.is_empty()).then(|| format!("by {}", entry.user)));
    let is_warning = matches!(entry.verdict.as_str(), "Deny" | "Failed" | "Error");
    Moment { time: entry.time, what: entry.verdict.clone(), is_warning, text: parts.join("; ") }
}
