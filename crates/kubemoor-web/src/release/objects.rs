//! The objects of a release, declared and live side by side, and what the next Helm upgrade does to the fields that drift.
//!
//! Values come as the comparison shows them, which masks those of Secrets, and effects as it finds them, by the conflicts of
//! `kubemoor forecast`. What a page leaves out has a page of its own.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::super::address::{Asked, Link};
use super::super::cluster::{Cluster, Rights};
use super::super::html::turns;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_helm::values::Candidate;
use kubemoor_inspect::comparison::object::{FieldReport, State, What};
use kubemoor_inspect::comparison::{ObjectReport, ReleaseReport};
use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_policy::resource::MAX_PATHS;
use kubemoor_verdict::difference::Difference;
use kubemoor_verdict::ownership::Effect;
use kubemoor_verdict::shown::Shown;

/// Objects on a page of which fields are shown, and fields of each.
const OBJECTS: usize = 100;
const FIELDS: usize = 50;

/// Fields on the page of one object.
const ALL_FIELDS: usize = 2000;

/// Objects on a page that match their release.
const MATCHING: usize = 500;

/// The names in an address of one object, and of the namespace that it is in.
const OBJECT: &str = "object";
const IN: &str = "in";

/// Conflicts of fields that the page does not show that are named.
const NAMED: usize = 10;

/// The objects as they were compared, those that are not in sync first: a page of them, or the one that is asked for.
pub(super) fn compared(
    cluster: &Cluster,
    asked: &Asked,
    release: &Release,
    report: &ReleaseReport,
    rights: &Rights,
) -> Markup {
    let whole = || Link::to_release(&cluster.name, &release.id);
    if let Some(object) = asked.get(OBJECT) {
        let is_meant = |it: &&ObjectReport| {
            named(&it.object) == object && it.object.namespace.as_deref() == asked.get(IN)
        };
        return html! {
            @match report.objects.iter().find(is_meant) {
                Some(object) => (shown(cluster, &release.id, object, rights, ALL_FIELDS)),
                None => p.quiet { code { (object) } " matches its release, or is no part of it." },
            }
            p { a href=(whole().text()) { "All objects of the release" } }
        };
    }
    let (page, pages) = asked.page("page", report.objects.len(), OBJECTS);
    let turned = |page: usize| whole().with("page", &page.to_string()).text();
    html! {
        (next_upgrade(release, report))
        @for object in report.objects.iter().skip((page - 1) * OBJECTS).take(OBJECTS) {
            (shown(cluster, &release.id, object, rights, FIELDS))
        }
        (turns("Pages of objects", (page, pages), turned))
        (matching(cluster, asked, release, report))
    }
}

/// The objects that match their release: a page of them.
fn matching(cluster: &Cluster, asked: &Asked, release: &Release, report: &ReleaseReport) -> Markup {
    let listed: BTreeSet<&ObjectId> = report.objects.iter().map(|it| &it.object).collect();
    let matching: Vec<_> = release.objects.keys().filter(|object| !listed.contains(&***object)).collect();
    let (page, pages) = asked.page("matching", matching.len(), MATCHING);
    let turned = |page: usize| {
        let link = Link::to_release(&cluster.name, &release.id).with("matching", &page.to_string());
        format!("{}#matching", link.text())
    };
    html! {
        @if !matching.is_empty() {
            details #matching open[report.objects.is_empty() || asked.get("matching").is_some()] {
                summary {
                    (matching.len())
                    @if matching.len() == 1 { " object matches its release" } @else { " objects match their release" }
                }
                ul.objects { @for object in matching.iter().skip((page - 1) * MATCHING).take(MATCHING) {
                    li { code { (object.kind) "/" (object.name) } (elsewhere(&release.id, object)) }
                } }
                (turns("Pages of objects that match", (page, pages), turned))
            }
        }
    }
}

/// The guard's report of objects, for a visitor who may not read the release's records.
pub(super) fn told(guarded: Option<&GuardedRelease>) -> Markup {
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

/// An object with so many of its fields.
fn shown(
    cluster: &Cluster,
    release: &ReleaseId,
    report: &ObjectReport,
    rights: &Rights,
    most: usize,
) -> Markup {
    let (class, state) = words(report.state);
    html! {
        article.object {
            h3 { code { (report.object.kind) "/" (report.object.name) } (elsewhere(release, &report.object)) }
            p { span class=(class) { (state) } @if let Some(reason) = &report.reason { " " (reason) } }
            @if let Some(why) = &report.not_repaired { p.quiet { "Not repaired: " (why) } }
            @if report.state == State::Missing { p.quiet { "The next upgrade creates it." } }
            @if !report.fields.is_empty() { (fields(cluster, release, report, most)) }
            p.actions {
                @if !report.fields.is_empty() {
                    a href=(about("explain", cluster, release, report).text()) { "All chart values, and advice" (whose(report)) }
                }
                @if rights.allow.contains(place(release, &report.object)) && may_be_allowed(report.state) {
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

/// The namespace of exceptions for an object.
fn place<'o>(release: &'o ReleaseId, object: &'o ObjectId) -> &'o str {
    object.namespace.as_deref().unwrap_or(&release.namespace)
}

/// A page about an object.
fn about(page: &'static str, cluster: &Cluster, release: &ReleaseId, report: &ObjectReport) -> Link {
    Link::to(page)
        .with("cluster", &cluster.name)
        .with("namespace", place(release, &report.object))
        .with("object", &named(&report.object))
}

fn allow(cluster: &Cluster, release: &ReleaseId, report: &ObjectReport) -> String {
    let link = about("allow", cluster, release, report);
    if report.state == State::Missing {
        return link.with("path", "delete").text();
    }
    let paths: BTreeSet<&str> = report.fields.iter().map(|field| field.path.as_str()).collect();
    let is_cut = paths.len() > MAX_PATHS;
    let link = link.set("drifting", is_cut.then(|| paths.len().to_string()).as_deref());
    paths.into_iter().take(MAX_PATHS).fold(link, |link, path| link.with("path", path)).text()
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

fn fields(cluster: &Cluster, release: &ReleaseId, report: &ObjectReport, most: usize) -> Markup {
    let more = report.fields.len().saturating_sub(most);
    let ReleaseId { namespace, name } = release;
    let own = Link::to_release(&cluster.name, release).with(OBJECT, &named(&report.object));
    let own = own.set(IN, report.object.namespace.as_deref());
    html! {
        div.wide tabindex="0" role="region" aria-label=(format!("Fields of {}", report.object.name)) {
            table.fields {
                thead { tr { @for head in ["Field", "Declared", "Live", "Owned by", "The next upgrade", "Chart value"] { th scope="col" { (head) } } } }
                tbody { @for field in report.fields.iter().take(most) { (line(field)) } }
            }
        }
        @if more > 0 && most < ALL_FIELDS {
            p { a href=(own.text()) { "and " (more) " more fields" span.hidden { " of " (report.object.kind) "/" (report.object.name) } } }
        } @else if more > 0 {
            p.quiet { "and " (more) " more fields: " code { "kubemoor diff " (name) " -n " (namespace) } " shows all" }
        }
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
            td.message { (effect(&field.next_upgrade)) }
            td.message { @for value in &field.chart_values { (chart_value(value)) } }
        }
    }
}

/// The value of the chart that probably sets a field, and what speaks for it.
fn chart_value(Candidate { value, evidence, .. }: &Candidate) -> Markup {
    let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
    html! { div { "probably " code { (value) } span.quiet.below { (evidence.join(", ")) } } }
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

/// How Helm applies the release, and whether its next upgrade fails as things are.
fn next_upgrade(release: &Release, report: &ReleaseReport) -> Markup {
    let method = match release.state.apply_method {
        ApplyMethod::ServerSide => "server-side",
        ApplyMethod::ClientSide => "client-side, by a three-way merge",
    };
    let failing: BTreeSet<(&ObjectId, String)> = report
        .conflicts
        .iter()
        .filter(|it| it.conflict.differs)
        .map(|it| (&it.object, it.conflict.path.to_string()))
        .collect();
    let has_fields = report.objects.iter().any(|object| !object.fields.is_empty());
    let is_shown = |(object, path): &&(&ObjectId, String)| {
        let fields = report.objects.iter().filter(|it| it.object == **object).flat_map(|it| &it.fields);
        let mut failing = fields.filter(|field| field.next_upgrade.is_failure());
        failing.any(|field| field.path.starts_with(&**path) || path.starts_with(&field.path))
    };
    let hidden: Vec<_> = failing.iter().filter(|it| !is_shown(it)).collect();
    let ReleaseId { namespace, name } = &release.id;
    html! {
        @if !report.objects.is_empty() || !failing.is_empty() {
            p #next-upgrade {
                "Helm applies this release " (method) ". "
                @if !failing.is_empty() {
                    "The next upgrade fails: " (failing.len())
                    @if failing.len() == 1 { " field conflicts. " } @else { " fields conflict. " }
                    "To list all conflicts: " code { "kubectl moor forecast " (name) " -n " (namespace) }
                } @else if has_fields {
                    "The fields below do not make the next upgrade fail."
                } @else {
                    "As things are, the next upgrade meets no conflict."
                }
            }
            @if !hidden.is_empty() {
                ul { @for (object, path) in hidden.iter().take(NAMED) {
                    li { code { (object.kind) "/" (object.name) } " " code { (path) } }
                } }
            }
        }
        @for left in &report.left_behind { p.quiet { "Left behind by an upgrade: " (left.text()) } }
    }
}

/// What it does to a field.
fn effect(effect: &Effect) -> Markup {
    match effect {
        Effect::Fails(_) => html! { strong { (effect) } },
        _ => html! { (effect) },
    }
}

/// Why nothing is said about it to a visitor who may not read the release's record.
pub(super) fn unknown_upgrade() -> Markup {
    html! {
        p.quiet {
            "The effect of the next upgrade and the chart values that set a field are shown only to users who may read \
             the release's record."
        }
    }
}
