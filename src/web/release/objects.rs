//! The objects of a release, declared and live side by side.
//!
//! Entry points: [`compared`], [`told`] for what the guard alone says. Invariant: values come as the comparison
//! shows them, which masks those of Secrets.

use maud::{Markup, html};

use super::super::address::Link;
use super::super::cluster::{Cluster, Rights};
use super::next_upgrade;
use crate::helm::release::Release;
use crate::helm::values::Candidate;
use crate::inspect::comparison::object::{FieldReport, State, What};
use crate::inspect::comparison::{ObjectReport, ReleaseReport};
use crate::model::{ObjectId, ReleaseId};
use crate::policy::guarded::GuardedRelease;
use crate::verdict::difference::Difference;
use crate::verdict::shown::Shown;

/// Objects of which fields are shown, and fields of each.
const OBJECTS: usize = 100;
const FIELDS: usize = 50;

/// The objects as they were compared: those that are not in sync first.
pub(in crate::web) fn compared(
    cluster: &Cluster,
    release: &Release,
    report: &ReleaseReport,
    rights: Rights,
) -> Markup {
    let listed = |object: &ObjectId| report.objects.iter().any(|it| it.object == *object);
    let matching: Vec<_> = release.objects.keys().filter(|object| !listed(object)).collect();
    html! {
        (next_upgrade::summary(release, report))
        @for object in report.objects.iter().take(OBJECTS) { (shown(cluster, &release.id, object, rights)) }
        @if report.objects.len() > OBJECTS { p.quiet { "and " (report.objects.len() - OBJECTS) " more" } }
        @if !matching.is_empty() {
            details #matching open[report.objects.is_empty()] {
                summary { (matching.len()) " objects match their release" }
                ul.objects { @for object in matching.iter().take(OBJECTS * 5) { li { code { (object.kind) "/" (object.name) } (elsewhere(&release.id, object)) } } }
            }
        }
    }
}

/// The guard's report of objects, for a visitor who may not read the release's records.
pub(in crate::web) fn told(guarded: Option<&GuardedRelease>) -> Markup {
    let drifts = guarded.and_then(|it| it.status.as_ref()).map(|status| status.drifts.as_slice());
    let drifts = drifts.unwrap_or_default();
    html! {
        @if !drifts.is_empty() { p { "The guard's status names the first objects that do not match:" } }
        @for drift in drifts {
            article.object {
                h3 { code { (drift.object.kind) "/" (drift.object.name) } }
                p { span.badge.bad { (drift.r#type) } @if let Some(message) = &drift.message { " " (message) } }
                @if !drift.fields.is_empty() {
                    div.wide tabindex="0" role="region" aria-label=(format!("Fields of {}", drift.object.name)) {
                        table.fields {
                            thead { tr { @for head in ["Field", "Declared", "Live"] { th scope="col" { (head) } } } }
                            tbody { @for field in &drift.fields { tr {
                                th scope="row" { code { (field.path) } }
                                td { code.declared { (field.declared.as_deref().unwrap_or("absent")) } }
                                td { code.live { (field.live.as_deref().unwrap_or("absent")) } }
                            } } }
                        }
                    }
                }
            }
        }
    }
}

fn elsewhere(release: &ReleaseId, object: &ObjectId) -> Markup {
    match &object.namespace {
        Some(namespace) if *namespace != release.namespace => html! { span.quiet { " in " (namespace) } },
        Some(_) => html! {},
        None => html! { span.quiet { " in the whole cluster" } },
    }
}

fn shown(cluster: &Cluster, release: &ReleaseId, report: &ObjectReport, rights: Rights) -> Markup {
    let (class, state) = words(report.state);
    html! {
        article.object {
            h3 { code { (report.object.kind) "/" (report.object.name) } (elsewhere(release, &report.object)) }
            p { span class=(class) { (state) } @if let Some(reason) = &report.reason { " " (reason) } }
            @if report.state == State::Missing { p.quiet { "The next upgrade creates it." } }
            @if !report.fields.is_empty() { (fields(report)) }
            p.actions {
                @if !report.fields.is_empty() {
                    a href=(about("explain", cluster, release, report).text()) { "All chart values, and advice" (whose(report)) }
                }
                @if rights.allow && may_be_allowed(report.state) {
                    a href=(allow(cluster, release, report)) { "Make an exception" (whose(report)) }
                }
            }
        }
    }
}

fn may_be_allowed(state: State) -> bool {
    matches!(state, State::Drifted | State::Missing | State::InDoubt)
}

/// For users of screen readers, who hear the link alone.
fn whose(report: &ObjectReport) -> Markup {
    html! { span.hidden { " for " (report.object.kind) "/" (report.object.name) } }
}

/// A page about an object.
fn about(page: &'static str, cluster: &Cluster, release: &ReleaseId, report: &ObjectReport) -> Link {
    Link::to(page)
        .with("cluster", &cluster.name)
        .with("namespace", report.object.namespace.as_deref().unwrap_or(&release.namespace))
        .with("object", &named(&report.object))
}

fn allow(cluster: &Cluster, release: &ReleaseId, report: &ObjectReport) -> String {
    let link = about("allow", cluster, release, report);
    let paths = report.fields.iter().take(8).map(|field| field.path.as_str());
    let paths: Vec<_> = if report.state == State::Missing { vec!["delete"] } else { paths.collect() };
    paths.iter().fold(link, |link, path| link.with("path", path)).text()
}

/// An object as the commands take it.
fn named(object: &ObjectId) -> String {
    let kind = object.kind.to_lowercase();
    if object.group.is_empty() {
        format!("{kind}/{}", object.name)
    } else {
        format!("{kind}.{}/{}", object.group, object.name)
    }
}

fn fields(report: &ObjectReport) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(format!("Fields of {}", report.object.name)) {
            table.fields {
                thead { tr { @for head in ["Field", "Declared", "Live", "Owned by", "The next upgrade", "Chart value"] { th scope="col" { (head) } } } }
                tbody { @for field in report.fields.iter().take(FIELDS) { (line(field)) } }
            }
        }
        @if report.fields.len() > FIELDS { p.quiet { "and " (report.fields.len() - FIELDS) " more fields" } }
    }
}

fn line(field: &FieldReport) -> Markup {
    let value =
        |value: &Option<Shown>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    // Of long values the place at which they differ.
    let at = field.difference.as_deref().filter(|_| field.what == What::Changed);
    let path = at.map_or(field.path.as_str(), |at: &Difference| at.path.as_str());
    let (declared, live) = match (field.what, at) {
        (_, Some(at)) => (value(&at.declared), value(&at.new)),
        (What::Changed | What::Removed, None) => (value(&field.declared), value(&field.live)),
        (What::ElementRemoved, None) => ("one element".to_owned(), "removed".to_owned()),
        (What::ElementMoved, None) => ("one element".to_owned(), format!("moved: {}", value(&field.live))),
        (What::ElementRepeated, None) => {
            ("one element".to_owned(), format!("several: {}", value(&field.live)))
        }
    };
    html! {
        tr {
            th scope="row" {
                code { (path) }
                @if let Some(line) = at.and_then(|at| at.line) { span.quiet { "line " (line) } }
                @if field.doubt { span.quiet { "may differ" } }
            }
            td { code.declared { (declared) } }
            td { code.live { (live) } }
            td { (field.owners.join(", ")) }
            td { (next_upgrade::effect(&field.next_upgrade)) }
            td { @if let Some(value) = &field.chart_value { (chart_value(value)) } }
        }
    }
}

/// The value of the chart that probably sets a field, and what speaks for it.
fn chart_value(Candidate { value, evidence, .. }: &Candidate) -> Markup {
    let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
    html! { "probably " code { (value) } span.quiet.below { (evidence.join(", ")) } }
}

/// What a state is called, and how it looks.
fn words(state: State) -> (&'static str, &'static str) {
    match state {
        State::Drifted => ("badge bad", "Drifted"),
        State::Missing => ("badge bad", "Missing"),
        State::InDoubt => ("badge doubt", "In doubt"),
        State::Ownership => ("badge bad", "Matches, but the next helm upgrade may fail with a conflict"),
        State::Awaited => ("badge doubt", "Not there yet: a Helm operation is under way"),
        State::NotCreated => ("badge doubt", "Not created: the Helm operation failed"),
        State::Allowed => ("badge good", "Missing, as an exception allows"),
        State::AllowedToDiffer => ("badge good", "Differs, as an exception allows"),
        State::Foreign => ("badge doubt", "Owned by another release"),
        State::OptedOut => ("badge doubt", "Opted out by its manifest"),
        State::BeingDeleted => ("badge doubt", "Being deleted"),
        State::NotServed => ("badge doubt", "Not served"),
        State::Unread => ("badge doubt", "Not read"),
    }
}
