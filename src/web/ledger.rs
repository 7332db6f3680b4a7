//! The ledger: who did what, and what became of it.
//!
//! Entry points: `page`, `csv`, `json`. Invariant: rows come as the visitor may read them; no answer holds the
//! whole ledger in memory.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{StatusCode, header};
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::Asked;
use super::html::{self as write, Frame, trouble};
use super::ledger_reader::LedgerReader;
use super::visitor::Visitor;
use crate::inspect::failure::Failure;
use crate::inspect::ledger::columns::{COLUMNS, changes, columns};
use crate::inspect::ledger::place;
use crate::inspect::sheet::Sheet;
use crate::inspect::times::Moment;
use crate::ledger::entry::{Entry, Field};
use crate::ledger::query::{self, Filter};

/// Rows on a page.
const PAGE: u32 = 100;

/// Since when rows are shown, where nothing else is asked for.
pub(super) const SINCE: &str = "24h";

/// Fields that a row names before it is opened.
const FIELDS: usize = 2;

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    Json,
}

/// What is left to send of an export.
struct Rest {
    ledger: LedgerReader,
    filter: Filter,
    form: Form,
    is_first: bool,
}

impl Rest {
    /// The next rows as text, and what is left.
    async fn next(mut self) -> Result<(String, Option<Self>), Failure> {
        let page = self.ledger.page(&self.filter).await?;
        let text = self.text(&page.items)?;
        self.filter.before = page.next.as_deref().map(place).transpose()?;
        self.is_first = false;
        let is_over = self.filter.before.is_none();
        Ok((text, (!is_over).then_some(self)))
    }

    fn text(&self, entries: &[Entry]) -> Result<String, Failure> {
        match self.form {
            Form::Csv => {
                let mut sheet = Sheet::new();
                if self.is_first {
                    sheet.row(COLUMNS)?;
                }
                for entry in entries {
                    sheet.row(columns(entry))?;
                }
                sheet.text()
            }
            Form::Json => {
                let line = |entry: &Entry| serde_json::to_string(entry).map(|line| line + "\n");
                let lines: Result<Vec<_>, _> = entries.iter().map(line).collect();
                let lines =
                    lines.map_err(|error| Failure::Named(format!("cannot write a row as JSON: {error}")))?;
                Ok(lines.concat())
            }
        }
    }
}

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let now = Timestamp::now();
    if visitor.has_several() && asked.get("cluster").is_none() {
        return Frame::still(&visitor, "Ledger", "ledger").around(&html! {
            h1 { "Ledger" }
            (form(&visitor, &asked))
            p.quiet { "Choose a cluster." }
        });
    }
    let rows = async {
        let (ledger, filter) = opened(&visitor, &asked, now).await?;
        ledger.page(&Filter { limit: Some(PAGE), ..filter }).await
    };
    let rows = rows.await;
    let status = match &rows {
        Ok(_) => StatusCode::OK,
        Err(error) if error.is_forbidden() => StatusCode::FORBIDDEN,
        Err(_) => StatusCode::BAD_GATEWAY,
    };
    // A shared ledger tells of new rows; older rows stay as they are.
    let is_live = visitor.shared.is_some() && asked.get("before").is_none();
    let frame = Frame { status, is_live, ..Frame::still(&visitor, "Ledger", "ledger") };
    frame.around(&html! {
        h1 { "Ledger" }
        (form(&visitor, &asked))
        @match &rows {
            Err(error) => (trouble(&error.to_string())),
            Ok(rows) if rows.items.is_empty() => p.quiet { "No row matches." },
            Ok(rows) => {
                p.quiet {
                    "Export: " a href=(asked.link("ledger.csv").text()) { "CSV" } ", "
                    a href=(asked.link("ledger.json").text()) { "JSON" }
                }
                (table(&rows.items, visitor.shared.is_some(), now))
                @if let Some(next) = &rows.next {
                    nav.turns aria-label="Pages of the list" {
                        a rel="next" href=(asked.link("ledger").set("before", Some(next)).text()) { "Older rows" }
                    }
                }
            }
        }
    })
}

/// All rows as a table for spreadsheets.
pub(super) async fn csv(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    export(&visitor, &Asked::of(query), Form::Csv).await
}

/// All rows, one on each line.
pub(super) async fn json(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    export(&visitor, &Asked::of(query), Form::Json).await
}

/// What a verdict looks like.
pub(super) fn verdict(entry: &Entry) -> Markup {
    let class = match entry.verdict.as_str() {
        "Deny" | "Failed" | "Error" | "failed" | "record-invalid" => "badge bad",
        "Warn" | "Revert" | "Record" | "Reported" => "badge doubt",
        "Allow" | "Recreated" | "Restored" | "Ended" | "deployed" => "badge good",
        _ => "badge",
    };
    html! { span class=(class) { (entry.verdict) } }
}

async fn export(visitor: &Visitor, asked: &Asked, form: Form) -> Response {
    let begun = async {
        let (ledger, filter) = opened(visitor, asked, Timestamp::now()).await?;
        Rest { ledger, filter, form, is_first: true }.next().await
    };
    let (first, rest) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return write::failure(visitor, "ledger", &error),
    };
    let (kind, name) = match form {
        Form::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"ledger.csv\""),
        Form::Json => ("application/x-ndjson; charset=utf-8", "attachment; filename=\"ledger.json\""),
    };
    // A page that cannot be read ends the answer in the middle, which the browser reports.
    let pages = stream::unfold(Some((Some(first), rest)), |state| async move {
        match state? {
            (Some(text), rest) => Some((Ok(text), Some((None, rest)))),
            (None, None) => None,
            (None, Some(rest)) => match rest.next().await {
                Ok((text, rest)) => Some((Ok(text), Some((None, rest)))),
                Err(error) => Some((Err(error), None)),
            },
        }
    });
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
    (headers, Body::from_stream(pages)).into_response()
}

/// The ledger that is asked for, and which of its rows. Who may not read all namespaces is shown their own.
async fn opened(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Result<(LedgerReader, Filter), Failure> {
    let filter = filter(asked, now)?;
    let (ledger, namespace) = visitor.ledger(asked).await?;
    Ok((ledger, Filter { namespace, ..filter }))
}

/// What is asked for, as the ledger takes it.
fn filter(asked: &Asked, now: Timestamp) -> Result<Filter, Failure> {
    let wrong = |what: String| Failure::Named(what);
    let time = |name: &str, text: &str| {
        let moment: Result<Moment, _> = text.parse();
        moment.map(|moment| moment.time(now)).map_err(|error| wrong(format!("{name}: {error}")))
    };
    let text = |name: &str| asked.get(name).map(str::to_owned);
    let object = asked.get("object").map(str::parse).transpose();
    let operations: Result<Vec<_>, _> = asked.all("operation").map(query::parse_operation).collect();
    let verdicts: Result<Vec<_>, _> = asked.all("verdict").map(query::parse_verdict).collect();
    Ok(Filter {
        namespace: text("namespace"),
        release: text("release"),
        user: text("by"),
        verdicts: verdicts.map_err(wrong)?.into_iter().map(str::to_owned).collect(),
        operations: operations.map_err(wrong)?,
        object: object.map_err(|error: &str| wrong(format!("object: {error}")))?,
        since: Some(time("since", asked.get("since").unwrap_or(SINCE))?),
        until: asked.get("until").map(|text| time("until", text)).transpose()?,
        before: asked.get("before").map(place).transpose()?,
        ..Filter::default()
    })
}

fn form(visitor: &Visitor, asked: &Asked) -> Markup {
    let text = |label: &str, name: &str, hint: &str| {
        html! { label { (label) input name=(name) value=[asked.get(name)] placeholder=(hint); } }
    };
    html! {
        form.filter method="get" action="ledger" role="search" {
            (text("Namespace", "namespace", "all"))
            (text("Release", "release", "all"))
            (text("Object", "object", "deployment/web"))
            (text("User", "by", "all"))
            label { "Verdict"
                select name="verdict" {
                    option value="" { "all" }
                    @for verdict in query::verdicts() {
                        option value=(verdict) selected[asked.get("verdict") == Some(verdict)] { (verdict) }
                    }
                }
            }
            label { "Operation"
                select name="operation" {
                    option value="" { "all" }
                    @for operation in ["CREATE", "UPDATE", "DELETE"] {
                        option value=(operation) selected[asked.get("operation") == Some(operation)] { (operation) }
                    }
                }
            }
            (text("Since", "since", SINCE))
            (text("Until", "until", "now"))
            @if visitor.shared.is_some() { (text("Cluster", "cluster", "all")) }
            @if visitor.has_several() {
                label { "Cluster"
                    select name="cluster" required {
                        option value="" { "choose" }
                        @for cluster in &visitor.clusters {
                            option value=(cluster.name) selected[asked.get("cluster") == Some(&cluster.name)] {
                                (cluster.name)
                            }
                        }
                    }
                }
            }
            button { "Show" }
        }
    }
}

fn table(entries: &[Entry], has_clusters: bool, now: Timestamp) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Rows of the ledger" {
            table {
                thead { tr {
                    @if has_clusters { th scope="col" { "Cluster" } }
                    @for head in ["Time", "Verdict", "Release", "Object", "User", "What"] { th scope="col" { (head) } }
                } }
                tbody { @for entry in entries { (row(entry, has_clusters, now)) } }
            }
        }
    }
}

fn row(entry: &Entry, has_clusters: bool, now: Timestamp) -> Markup {
    let mut what = changes(entry, FIELDS);
    if !entry.detail.is_empty() {
        what.push(entry.detail.clone());
    }
    html! {
        tr {
            @if has_clusters { td { (entry.cluster) } }
            td { (write::time(entry.time, now)) }
            td { (verdict(entry)) @if !entry.reason.is_empty() { span.quiet.below { (entry.reason) } } }
            td { (entry.release.as_deref().unwrap_or_default()) span.quiet.below { (entry.namespace) } }
            td { (entry.object.short()) span.quiet.below { (entry.operation.as_deref().unwrap_or_default()) } }
            td { (entry.user) }
            td.message {
                details id=(format!("row-{}-{}", entry.id, entry.cluster)) {
                    summary { @if what.is_empty() { "Details" } @else { (what.join("; ")) } }
                    (whole(entry))
                }
            }
        }
    }
}

/// Everything that is kept of a row.
fn whole(entry: &Entry) -> Markup {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let line = |field: &Field| {
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
                thead { tr { @for head in ["Field", "Declared", "Before", "After"] { th scope="col" { (head) } } } }
                tbody { @for field in &entry.fields {
                    (line(field))
                    @if let Some(difference) = &field.difference { (line(difference)) }
                } }
            }
        }
    }
}
