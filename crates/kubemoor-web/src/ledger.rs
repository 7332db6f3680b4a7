//! The ledger, as a page and as files: who did what, and the outcome.
//!
//! Rows are those that the visitor may read, with values as the ledger keeps them, which masks those of Secrets. If
//! only one namespace is readable, the page says so. A cluster that fails or hangs does not affect the others. An
//! export that lacks rows of a replica needs the visitor's consent and is marked in its name. No response holds the
//! whole ledger in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::future::{join_all, ready};
use futures::{StreamExt as _, stream};
use http::header::HeaderName;
use http::{StatusCode, header};
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::time::timeout;

use super::html::{self as write, PageFrame, PageQuery, cluster_choice, notes, text_field, trouble};
use super::visitor::Visitor;
use kubemoor_declare::model::Operation;
use kubemoor_inspect::failure::InspectError;
use kubemoor_inspect::ledger::{COLUMNS, LedgerSource, changes, columns, parse_position, rows};
use kubemoor_inspect::report::Sheet;
use kubemoor_ledger::entry::{EntryField, LedgerEntry};
use kubemoor_ledger::query::{self, EntryPage, Filter};

const PAGE: u32 = 100;

/// The default start of the time range.
const SINCE: &str = "24h";

/// How long a page waits for the ledger of one cluster.
const PATIENCE: Duration = Duration::from_secs(15);

/// Fields that a row of the table shows before it is expanded.
const FIELDS: usize = 2;

/// The query parameter that permits an export to lack rows.
const PARTIAL: (&str, &str) = ("partial", "allow");

/// The header that describes the rows that an export lacks.
const MISSING: HeaderName = HeaderName::from_static("kubemoor-missing-rows");

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let read = match filter(&asked, now) {
        Ok(filter) => read(&visitor, &asked, &Filter { limit: Some(PAGE), facts: true, ..filter }).await,
        Err(error) => vec![(None, Err(error))],
    };
    let status = match read.first() {
        _ if read.iter().any(|(_, rows)| rows.is_ok()) => StatusCode::OK,
        Some((_, Err(error))) if error.is_forbidden() => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    };
    let only = match read.as_slice() {
        [(None, Ok(FirstRows { only, .. }))] => only.as_deref(),
        _ => None,
    };
    // A shared ledger notifies of new rows; older rows do not change.
    let is_new = visitor.shared.is_some() && asked.get("before").is_none();
    let frame = if is_new { PageFrame::live } else { PageFrame::still };
    let frame = PageFrame { status, ..frame(&visitor, "Ledger", "ledger") };
    frame.around(&html! {
        h1 { "Ledger" }
        (form(&visitor, &asked, only))
        @for (cluster, rows) in &read {
            section {
                @if let Some(cluster) = cluster { h2 { (cluster) } }
                @match rows {
                    Ok(rows) => (shown(&visitor, &asked, *cluster, rows, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

/// The rows of one ledger, with links to older rows and to exports; `cluster` is set if there are several.
fn shown(
    visitor: &Visitor,
    asked: &PageQuery,
    cluster: Option<&str>,
    FirstRows { page, only, .. }: &FirstRows,
    now: Timestamp,
) -> Markup {
    let link = |page: &'static str| match cluster {
        Some(_) => asked.link(page).set("before", None).set("cluster", cluster),
        None => asked.link(page),
    };
    let of_cluster = cluster.map(|cluster| format!(" of {cluster}")).unwrap_or_default();
    let is_shared = visitor.shared.is_some();
    html! {
        @if let Some(only) = only { p.note { (write::only(only)) } }
        (notes(cluster.unwrap_or("ledger"), &page.missing))
        @if page.items.is_empty() { p.quiet { "No row matches." } } @else {
            p.quiet {
                "Export: " a href=(link("ledger.csv").text()) { "CSV" } ", "
                a href=(link("ledger.json").text()) { "JSON" }
            }
            @let heads = html! {
                @if is_shared { th scope="col" { "Cluster" } }
                (write::heads(&["Time", "Verdict", "Release", "Object", "User", "What"]))
            };
            @let lines = html! { @for entry in &page.items { (row(cluster, entry, is_shared, now)) } };
            (write::table(&format!("Rows of the ledger{of_cluster}"), &heads, &lines))
            @if let Some(next) = &page.next {
                nav.turns aria-label=(format!("Pages of the list{of_cluster}")) {
                    a rel="next" href=(link("ledger").set("before", Some(next)).text()) { "Older rows" }
                }
            }
        }
    }
}

/// The first rows: of the requested cluster or database, or of several clusters, each with its name.
async fn read<'v>(
    visitor: &'v Visitor,
    asked: &PageQuery,
    filter: &Filter,
) -> Vec<(Option<&'v str>, Result<FirstRows, InspectError>)> {
    if !visitor.has_several() || asked.get("cluster").is_some() {
        let rows = async { visitor.ledger(asked).await?.begin(filter.clone()).await };
        return vec![(None, in_time(rows).await)];
    }
    // A position in one ledger means nothing in another. Together they fill one page.
    let clusters = u32::try_from(visitor.clusters.len().max(1)).unwrap_or(u32::MAX);
    let limit = filter.limit.map(|limit| limit.div_ceil(clusters));
    let filter = &Filter { before: None, limit, ..filter.clone() };
    let read = visitor.clusters.iter().map(|cluster| async move {
        let rows = async { cluster.ledger().await?.begin(filter.clone()).await };
        (Some(cluster.name.as_str()), in_time(rows).await)
    });
    join_all(read).await
}

/// Limits how long a ledger may take to answer.
pub(super) async fn in_time<T>(
    answer: impl Future<Output = Result<T, InspectError>>,
) -> Result<T, InspectError> {
    let late =
        |_| InspectError::InvalidInput(format!("the ledger did not answer within {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, answer).await.map_err(late).flatten()
}

/// The query as a filter of the ledger.
fn filter(asked: &PageQuery, now: Timestamp) -> Result<Filter, InspectError> {
    let wrong = |what: String| InspectError::InvalidInput(what);
    let text = |name: &str| asked.get(name).map(str::to_owned);
    let object = asked.get("object").map(str::parse).transpose();
    let operations: Result<Vec<_>, _> = asked.all("operation").map(query::parse_operation).collect();
    let verdicts: Result<Vec<_>, _> = asked.all("verdict").map(query::parse_verdict).collect();
    Ok(Filter {
        // A guard knows only its own cluster.
        cluster: text("cluster"),
        namespace: text("namespace"),
        release: text("release"),
        user: text("by"),
        verdicts: verdicts.map_err(wrong)?.into_iter().map(str::to_owned).collect(),
        operations: operations.map_err(wrong)?,
        object: object.map_err(|error: &str| wrong(format!("object: {error}")))?,
        since: asked.time("since", Some(SINCE), now)?,
        until: asked.time("until", None, now)?,
        before: asked.get("before").map(parse_position).transpose()?,
        ..Filter::default()
    })
}

/// The form with the values of the query; `only` is the namespace that is shown instead of all.
fn form(visitor: &Visitor, asked: &PageQuery, only: Option<&str>) -> Markup {
    let text = |label: &str, name: &str, hint: &str| text_field(asked, label, name, hint);
    let verdicts: Vec<_> = asked.all("verdict").filter_map(|it| query::parse_verdict(it).ok()).collect();
    let operations = asked.all("operation").filter_map(|it| query::parse_operation(it).ok());
    let operations: Vec<_> = operations.map(Operation::as_str).collect();
    html! {
        form.filter method="get" action="ledger" role="search" {
            (text("Namespace", "namespace", only.unwrap_or("all")))
            (text("Release", "release", "all"))
            (text("Object", "object", "deployment/web"))
            (text("User", "by", "all"))
            (choice("Verdict", "verdict", &query::verdicts().collect::<Vec<_>>(), &verdicts))
            (choice("Operation", "operation", &Operation::ALL.map(Operation::as_str), &operations))
            (text("Since", "since", SINCE))
            (text("Until", "until", "now"))
            (cluster_choice(visitor, asked, true))
            button { "Show" }
        }
    }
}

/// A choice of any number of values, with a check box for each.
fn choice(label: &str, name: &str, values: &[&str], asked: &[&str]) -> Markup {
    let chosen: Vec<&str> = values.iter().copied().filter(|value| asked.contains(value)).collect();
    html! {
        details.choice id=(format!("choose-{name}")) {
            summary { (label) ": " @if chosen.is_empty() { "all" } @else { (chosen.join(", ")) } }
            fieldset {
                legend.hidden { (label) }
                @for value in values {
                    label { input type="checkbox" name=(name) value=(value) checked[chosen.contains(value)]; (value) }
                }
            }
        }
    }
}

fn row(cluster: Option<&str>, entry: &LedgerEntry, is_shared: bool, now: Timestamp) -> Markup {
    let mut what = changes(entry, FIELDS);
    if !entry.detail.is_empty() {
        what.push(entry.detail.clone());
    }
    let place = format!("{}-{}", entry.id, cluster.unwrap_or(&entry.cluster));
    html! {
        tr {
            @if is_shared { td { (entry.cluster) } }
            td { (write::time(entry.time, now)) }
            td { (verdict(entry)) @if !entry.reason.is_empty() { span.quiet.below { (entry.reason) } } }
            td.name { (entry.release.as_deref().unwrap_or_default()) span.quiet.below { (entry.namespace) } }
            td { (entry.object.short()) span.quiet.below { (entry.operation.as_deref().unwrap_or_default()) } }
            td { (entry.user) }
            td.message {
                details id=(format!("row-{place}")) {
                    summary { @if what.is_empty() { "Details" } @else { (what.join("; ")) } }
                    (whole(entry, &place))
                }
            }
        }
    }
}

fn whole(entry: &LedgerEntry, place: &str) -> Markup {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let line = |field: &EntryField| {
        html! {
            tr {
                th scope="row" { code { (field.path) } @if let Some(line) = field.line { " line " (line) } }
                td { code { (value(&field.declared)) } }
                td { code { (value(&field.old)) } }
                td { code { (value(&field.new)) } }
            }
        }
    };
    html! {
        dl.kept {
            @for (name, value) in COLUMNS.iter().zip(columns(entry)) {
                @if !value.is_empty() && *name != "changes" { div { dt { (name) } dd { (value) } } }
            }
        }
        @if !entry.fields.is_empty() {
            table {
                thead { tr { (write::heads(&["Field", "Declared", "Before", "After"])) } }
                tbody { @for field in &entry.fields {
                    (line(field))
                    @if let Some(difference) = &field.difference { (line(difference)) }
                } }
            }
        }
        @if let Some(facts) = &entry.facts {
            details id=(format!("facts-{place}")) {
                summary { "By what a replay judges it" }
                code { (facts) }
            }
        }
    }
}

fn verdict(entry: &LedgerEntry) -> Markup {
    let class = match entry.verdict.as_str() {
        "Deny" | "Failed" | "Error" | "failed" | "record-invalid" => "badge bad",
        "Warn" | "Revert" | "Record" | "Reported" => "badge doubt",
        "Allow" | "Recreated" | "Restored" | "Ended" | "deployed" => "badge good",
        _ => "badge",
    };
    html! { span class=(class) { (entry.verdict) } }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportFormat {
    Csv,
    Json,
}

impl ExportFormat {
    /// The page that exports this format, and the extension of the file.
    fn page(self) -> (&'static str, &'static str) {
        match self {
            Self::Csv => ("ledger.csv", "csv"),
            Self::Json => ("ledger.json", "json"),
        }
    }

    fn text(self, entries: &[LedgerEntry], is_first: bool) -> Result<String, InspectError> {
        match self {
            Self::Csv => {
                let mut sheet = Sheet::new();
                if is_first {
                    sheet.row(COLUMNS)?;
                }
                for entry in entries {
                    sheet.row(columns(entry))?;
                }
                sheet.text()
            }
            Self::Json => {
                let line = |entry: &LedgerEntry| serde_json::to_string(entry).map(|line| line + "\n");
                let lines: Result<Vec<_>, _> = entries.iter().map(line).collect();
                let lines = lines.map_err(|error| {
                    InspectError::InvalidInput(format!("cannot write a row as JSON: {error}"))
                })?;
                Ok(lines.concat())
            }
        }
    }
}

pub(super) async fn csv(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    export(&visitor, &asked, ExportFormat::Csv).await
}

pub(super) async fn json(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    export(&visitor, &asked, ExportFormat::Json).await
}

async fn export(visitor: &Visitor, asked: &PageQuery, form: ExportFormat) -> Response {
    let begun = async {
        // The CSV has no column for the facts.
        let filter = Filter { facts: form == ExportFormat::Json, ..filter(asked, Timestamp::now())? };
        let ledger = visitor.ledger(asked).await?;
        let begun = ledger.begin(filter).await?;
        Ok::<_, InspectError>((ledger, begun))
    };
    let (ledger, FirstRows { page, filter, .. }) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return write::failure(visitor, "ledger", &error),
    };
    let is_partial = !page.missing.is_empty();
    if is_partial && asked.get(PARTIAL.0) != Some(PARTIAL.1) {
        return refused(visitor, asked, form, &page.missing);
    }
    let name = file([asked.get("cluster"), filter.namespace.as_deref()], is_partial, form);
    let name = format!("attachment; filename=\"{name}\"");
    let kind = match form {
        ExportFormat::Csv => "text/csv; charset=utf-8",
        ExportFormat::Json => "application/x-ndjson; charset=utf-8",
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &name)];
    let missing = is_partial.then(|| [(MISSING, plain(&page.missing))]);
    let first = form.text(&page.items, true);
    // If a later page cannot be read, the response is cut off, which the browser reports.
    let others = stream::try_unfold(page.next, move |next| {
        let (source, filter) = (Arc::clone(&ledger.source), filter.clone());
        async move {
            let Some(next) = next else { return Ok(None) };
            let page = source.page(&Filter { before: Some(parse_position(&next)?), ..filter }).await?;
            if !is_partial {
                refuse(&page.missing)?;
            }
            Ok::<_, InspectError>(Some((form.text(&page.items, false)?, page.next)))
        }
    });
    let pages = stream::once(ready(first)).chain(others);
    (headers, missing, Body::from_stream(pages)).into_response()
}

/// The page that says why there is no export, with a link to one without the missing rows.
fn refused(visitor: &Visitor, asked: &PageQuery, form: ExportFormat, missing: &[String]) -> Response {
    let (page, _) = form.page();
    let partial = asked.link(page).set(PARTIAL.0, Some(PARTIAL.1));
    let frame = PageFrame {
        status: StatusCode::BAD_GATEWAY,
        ..PageFrame::still(visitor, "Rows are missing", "ledger")
    };
    frame.around(&html! {
        h1 { "Rows are missing" }
        (trouble("Nothing was exported: the file would lack rows that cannot be read now."))
        (notes("export", missing))
        p { "Try again, or export " a href=(partial.text()) { "the rows that can be read" } "." }
    })
}

/// Aborts an export that is not marked as partial if rows are missing.
fn refuse(missing: &[String]) -> Result<(), InspectError> {
    if missing.is_empty() { Ok(()) } else { Err(InspectError::InvalidInput(missing.join("; "))) }
}

/// The file name of an export: cluster and namespace, and whether rows are missing.
fn file(names: [Option<&str>; 2], is_partial: bool, form: ExportFormat) -> String {
    let (_, end) = form.page();
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let names: String = names.into_iter().flatten().filter(is_plain).map(|name| format!("-{name}")).collect();
    let partial = if is_partial { "-partial" } else { "" };
    format!("ledger{names}{partial}.{end}")
}

#[derive(Clone)]
pub(super) struct VisitorLedger {
    pub(super) source: Arc<LedgerSource>,
    /// The namespace that is shown to a visitor who may not read all.
    pub(super) own: Option<String>,
}

/// The first rows, as far as the visitor may read them.
pub(super) struct FirstRows {
    pub(super) page: EntryPage,
    /// The filter for the following rows.
    pub(super) filter: Filter,
    /// The only namespace that is shown, if the user did not choose it.
    pub(super) only: Option<String>,
}

impl VisitorLedger {
    /// The first rows: of all namespaces, or of the visitor's own if they may not read all.
    pub(super) async fn begin(&self, filter: Filter) -> Result<FirstRows, InspectError> {
        match (self.source.page(&filter).await, &filter.namespace, &self.own) {
            (Err(error), None, Some(own)) if error.is_forbidden() => {
                let filter = Filter { namespace: Some(own.clone()), ..filter };
                Ok(FirstRows { page: self.source.page(&filter).await?, filter, only: Some(own.clone()) })
            }
            (page, ..) => Ok(FirstRows { page: page?, filter, only: None }),
        }
    }

    pub(super) async fn newest(&self, filter: &Filter, most: usize) -> Result<EntryPage, InspectError> {
        rows(&self.source, filter, most, |_| true).await
    }
}

/// Sentences as a valid header value.
fn plain(sentences: &[String]) -> String {
    sentences.join("; ").replace(|letter: char| !(letter.is_ascii_graphic() || letter == ' '), "?")
}

#[cfg(test)]
mod tests;
