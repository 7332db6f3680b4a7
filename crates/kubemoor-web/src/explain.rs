//! Explains an object, or a denial that was pasted, as `kubemoor explain` does.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::access_control::PageRequest;
use super::html::{
    self as write, PageFrame, PageLink, PageQuery, cluster_choice, fields_table, mark, notes, text_field,
    trouble,
};
use super::visitor::Visitor;
use kubemoor_inspect::explanation::{
    ExplainQuery, ExplainedField, Explanation, FieldState, PolicyFacts, ReleaseFacts, explain, parse_path,
};
use kubemoor_inspect::failure::InspectError;
use kubemoor_verdict::shown::Difference;

const FIELD_HEADS: [&str; 7] =
    ["Field", "State", "Declared", "Live", "Owned by", "Chart values", "Exceptions"];

/// Explains the named object or the pasted message; without either, shows the empty form.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    PageRequest(asked): PageRequest,
) -> Response {
    let (visitor, asked) = (&*visitor, &asked);
    let report = match (asked.get("text"), asked.get("object")) {
        (None, None) => None,
        _ => Some(report(visitor, asked).await),
    };
    PageFrame::still(visitor, "Explain", "explain").around(&html! {
        h1 { "Explain" }
        @match &report {
            None => {},
            Some(Ok(report)) => (shown(report, asked)),
            Some(Err(error)) => (trouble(&error.to_string())),
        }
        (form(visitor, asked))
    })
}

async fn report(visitor: &Visitor, asked: &PageQuery) -> Result<Explanation, InspectError> {
    let cluster = visitor.cluster(asked)?;
    let query = match asked.get("text") {
        Some(text) => ExplainQuery::parse(text).ok_or_else(|| {
            let why = "this is not a denial or warning that names an object: paste the whole message, or \
                       name the object";
            InspectError::InvalidInput(why.to_owned())
        })?,
        None => named(asked)?,
    };
    let reader = cluster.reader().await?;
    let namespace = reader.connection.namespace.clone();
    explain(&reader, query, namespace, Timestamp::now()).await
}

fn named(asked: &PageQuery) -> Result<ExplainQuery, InspectError> {
    let paths: Result<Vec<_>, _> =
        asked.all("path").flat_map(str::split_whitespace).map(parse_path).collect();
    Ok(ExplainQuery {
        object: asked.get("object").unwrap_or_default().to_owned(),
        namespace: asked.get("namespace").map(str::to_owned),
        release: None,
        paths: paths.map_err(InspectError::InvalidInput)?,
    })
}

fn form(visitor: &Visitor, asked: &PageQuery) -> Markup {
    html! {
        form.sheet method="post" action="explain" {
            h2 { "Paste a denial or a warning" }
            (write::token(visitor))
            (cluster_choice(visitor, asked, false))
            label { "Message" textarea name="text" rows="6" required { (asked.get("text").unwrap_or_default()) } }
            button { "Explain the message" }
        }
        form.sheet method="get" action="explain" {
            h2 { "Or name an object" }
            (cluster_choice(visitor, asked, false))
            label { "Object" input name="object" required value=[asked.get("object")] placeholder="deployment/web"; }
            label { "Namespace" input name="namespace" value=[asked.get("namespace")]; }
            (text_field(asked, "Field", "path", "/spec/replicas"))
            button { "Explain the object" }
        }
    }
}

fn shown(report: &Explanation, asked: &PageQuery) -> Markup {
    let by_guard = || "the default of the guard".to_owned();
    html! {
        section {
            h2 { code { (report.object) } }
            dl.facts {
                div { dt { "State" } dd { (report.state) } }
                @if let Some(ReleaseFacts { release, revision, status, invalid, chart, effect }) = &report.release {
                    div { dt { "Release" } dd { a href=(PageLink::to("release").set("cluster", asked.get("cluster")).of_release(release).text()) { (release.name) } " in namespace " (release.namespace) } }
                    div { dt { "Record" } dd { "revision " (revision) ", " (status) ": " (effect) } }
                    @if let Some(chart) = chart { div { dt { "Chart" } dd { (chart) } } }
                    @if let Some(invalid) = invalid { div { dt { "Invalid" } dd { (invalid) } } }
                }
                @if let Some(PolicyFacts { matched, edits, drift }) = &report.policy {
                    div { dt { "Policies" } dd { @if matched.is_empty() { "none" } @else { (matched.join(", ")) } } }
                    div { dt { "Edits" } dd { (edits.clone().unwrap_or_else(by_guard)) } }
                    div { dt { "Drift" } dd { (drift.clone().unwrap_or_else(by_guard)) } }
                }
                @if let Some(guard) = &report.guard {
                    div { dt { "Guard" } dd { (guard.reason.as_ref().unwrap_or(&guard.ready)) ": " (guard.message) } }
                }
                @for exception in &report.exceptions { div { dt { "Exception" } dd { (exception) } } }
                @for flaw in &report.flaws { div { dt { "Invalid annotation" } dd { (flaw) } } }
            }
            @if !report.fields.is_empty() {
                (fields_table("Fields", &FIELD_HEADS, &html! { @for field in &report.fields { (line(field)) } }))
            }
            @if !report.advice.is_empty() { h3 { "What you can do" } ul { @for advice in &report.advice { li { (advice) } } } }
            (notes("", &report.unread))
        }
    }
}

fn line(field: &ExplainedField) -> Markup {
    let (class, state) = match field.state {
        FieldState::AsDeclared => ("good", "As declared"),
        FieldState::Drifted => ("bad", "Drifted"),
        FieldState::InDoubt => ("doubt", "In doubt"),
        FieldState::Absent => ("bad", "Absent with its object"),
    };
    let (declared, live) = match field.difference.as_deref() {
        // For long values, the place at which they differ.
        Some(Difference { declared, new, .. }) => (declared, new),
        None => (&field.declared, &field.live),
    };
    let value = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    let managers: Vec<_> =
        field.managers.iter().map(|manager| format!("{} ({:?})", manager.name, manager.operation)).collect();
    html! {
        tr {
            th scope="row" { code { (field.path) } }
            td { (mark(class, state)) }
            td { code.declared { (value(declared)) } }
            td { code.live { (value(live)) } }
            td { @if managers.is_empty() { "nobody" } @else { (managers.join(", ")) } }
            td { @for candidate in &field.values { span.below { code { (candidate.value) } " " (candidate.score) "%" } } }
            td { (field.covered_by.join("; ")) @if let Some(does) = &field.next_upgrade { br; "The next upgrade " (does) } }
        }
    }
}
