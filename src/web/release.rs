//! The page of one release: its objects as declared and as they live, what happened, and what may be done.
//!
//! Entry point: [`page`]. Invariant: the comparison is that of `kubemoor diff`; a visitor who may not read the
//! release's records sees what the guard says of it, and no more.

mod next_upgrade;
pub(super) mod objects;
pub(super) mod timeline;

use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::{Cluster, Rights};
use super::exceptions;
use super::html::{self as write, Frame, badge, notes, trouble};
use super::visitor::Visitor;
use crate::client::guarded;
use crate::helm::release::Release;
use crate::inspect::allowances::{self, State};
use crate::inspect::comparison::{self, ReleaseReport, chart_values};
use crate::inspect::failure::Failure;
use crate::inspect::reading::Reader;
use crate::inspect::releases::{self, Row};
use crate::model::ReleaseId;
use crate::policy::guarded::GuardedRelease;

/// What is known of a release.
struct View<'a> {
    cluster: &'a Cluster,
    release: &'a ReleaseId,
    /// What the guard says.
    guarded: Result<Option<GuardedRelease>, Failure>,
    row: Option<Row>,
    /// Its objects, as its records declare them.
    compared: Result<(Arc<Release>, ReleaseReport), Failure>,
    policies: Vec<String>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    rights: Rights,
    timeline: timeline::Timeline,
}

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let now = Timestamp::now();
    framed(&visitor, &asked, read(&visitor, &asked, now).await)
}

/// The page of the release that is asked for, or the reason why it cannot be shown.
pub(super) fn framed(visitor: &Visitor, asked: &Asked, read: Result<Markup, Failure>) -> Response {
    match read {
        Ok(page) => {
            let name = asked.get("name").unwrap_or("Release").to_owned();
            Frame::live(visitor, &name, "releases").around(&page)
        }
        Err(error) => write::failure(visitor, "releases", &error),
    }
}

async fn read(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Result<Markup, Failure> {
    let cluster = visitor.cluster(asked)?;
    let unnamed = || Failure::Named("this address names no release".to_owned());
    let release = &asked.release().ok_or_else(unnamed)?;
    let reader = cluster.reader().await?;
    let connection = &reader.connection;
    let (guarded, compared, exceptions, rights, timeline) = tokio::join!(
        guarded::get(&connection.client, release),
        compare(&reader, release, now),
        allowances::read(connection, Some(&release.namespace), None, now),
        cluster.rights(&release.namespace),
        timeline::read(cluster, connection, release),
    );
    let guarded = guarded
        .map_err(|error| crate::inspect::failure::failed(connection, "read the GuardedRelease", error));
    let row = row(&reader, release, guarded.as_ref().ok().and_then(Option::as_ref)).await;
    let is_known = row.is_some() || compared.is_ok();
    if !is_known {
        // Nothing is said of what the visitor may not see.
        return Err(compared.err().unwrap_or_else(unnamed));
    }
    let policies = reader.resolver.of(release).matched().map(str::to_owned).collect();
    let view = View { cluster, release, guarded, row, compared, policies, exceptions, rights, timeline };
    Ok(view.shown(visitor, now))
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

/// What the list says of the release: by its guard, or why none speaks of it.
async fn row(reader: &Reader, release: &ReleaseId, guarded: Option<&GuardedRelease>) -> Option<Row> {
    if let Some(guarded) = guarded {
        let told = reader.pulses.told(guarded.status.clone().unwrap_or_default()).await;
        return Some(Row::guarded(release.clone(), told));
    }
    reader.release(release).await.ok()?;
    Some(Row::unguarded(release.clone(), releases::why_not(reader, release, true).await))
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
                    Ok((release, report)) => (objects::compared(self.cluster, release, report, self.rights)),
                    Err(error) => {
                        (trouble(&error.to_string()))
                        @if error.is_forbidden() { (next_upgrade::unknown()) }
                        (objects::told(self.guarded.as_ref().ok().and_then(Option::as_ref)))
                    }
                }
            }
            section {
                h2 { "Exceptions" }
                @match &self.exceptions {
                    Ok(rows) => (exceptions::table(self.cluster, &self.own(rows), now)),
                    Err(error) => (trouble(&error.to_string())),
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
                (notes(&report.not_considered))
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
            row.state == State::Open
                && release.objects.keys().any(|object| {
                    (&object.group, &object.kind, &object.name)
                        == (&row.object.group, &row.object.kind, &row.object.name)
                })
        };
        rows.iter().filter(is_own).cloned().collect()
    }
}
