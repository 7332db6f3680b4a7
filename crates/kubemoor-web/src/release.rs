//! The page of one release: its objects as declared and as they live, what happened, and what may be done.
//!
//! Entry point: [`page`]. Invariant: the comparison is that of `kubemoor diff`; a visitor who may not read the
//! release's records sees what the guard says of it, and no more.

mod next_upgrade;
pub(super) mod objects;
pub(super) mod timeline;

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
use super::visitor::Visitor;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_inspect::allowances::{self, State};
use kubemoor_inspect::comparison::{self, ReleaseReport, chart_values};
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{self, Row};
use kubemoor_policy::guarded::GuardedRelease;

/// Namespaces whose exceptions are read at one time.
const AT_ONCE: usize = 8;

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
    timeline: timeline::Timeline,
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
        timeline::read(cluster, connection, release),
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
                        @if error.is_forbidden() { (next_upgrade::unknown()) }
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
