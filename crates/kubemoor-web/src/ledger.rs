//! The ledger: who did what, and what became of it; as a page, and as files.
//!
//! Rows come as the visitor may read them, and values as the ledger keeps them, which masks those of Secrets. Of several
//! clusters, one that fails or does not answer takes none of the others along. A file that lacks rows of a replica is only
//! made for a visitor who asks for what can be read, and says so in its name; no answer holds the whole ledger in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use futures::stream;
use http::header::HeaderName;
use http::{StatusCode, header};
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::time::timeout;

use super::address::Asked;
use super::html::{self as write, Frame, cluster_choice, notes, trouble};
use super::ledger_reader::{Begun, LedgerReader};
use super::visitor::Visitor;
use kubemoor_declare::model::Operation;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::ledger::columns::{COLUMNS, changes, columns};
use kubemoor_inspect::ledger::place;
use kubemoor_inspect::sheet::Sheet;
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::entry::{Entry, Field};
use kubemoor_ledger::query::{self, Filter, Page};

/// Rows on a page.
const PAGE: u32 = 100;

/// Since when rows are shown, where nothing else is asked for.
const SINCE: &str = "24h";

/// How long the page waits for one cluster.
const PATIENCE: Duration = Duration::from_secs(15);

/// The operations that rows have.
const OPERATIONS: [Operation; 3] = [Operation::Create, Operation::Update, Operation::Delete];

/// Fields that a row of the table names before it is opened.
const FIELDS: usize = 2;

/// What an address asks for by this name, if a file may lack rows.
const PARTIAL: (&str, &str) = ("partial", "allow");

/// The header that says which rows a file lacks.
const MISSING: HeaderName = HeaderName::from_static("kubemoor-missing-rows");

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    if visitor.has_several() && asked.get("cluster").is_none() {
        return of_clusters(&visitor, &asked, now).await;
    }
    let rows = async {
        let filter = Filter { limit: Some(PAGE), ..filter(&asked, now)? };
        first(&visitor.ledger(&asked).await?, filter).await
    };
    let rows = rows.await;
    let status = match &rows {
        Ok(_) => StatusCode::OK,
        Err(error) if error.is_forbidden() => StatusCode::FORBIDDEN,
        Err(_) => StatusCode::BAD_GATEWAY,
    };
    // A shared ledger tells of new rows; older rows stay as they are.
    let is_live = visitor.shared.is_some() && asked.get("before").is_none();
    let frame = if is_live { Frame::live } else { Frame::still };
    let frame = Frame { status, ..frame(&visitor, "Ledger", "ledger") };
    let only = rows.as_ref().ok().and_then(|begun| begun.only.as_deref());
    frame.around(&html! {
        h1 { "Ledger" }
        (form(&visitor, &asked, only))
        @if let Some(only) = only { p.note { (write::only(only)) } }
        @match rows.as_ref().map(|begun| &begun.page) {
            Err(error) => (trouble(&error.to_string())),
            Ok(rows) if rows.items.is_empty() => { (notes("ledger", &rows.missing)) p.quiet { "No row matches." } },
            Ok(rows) => {
                (notes("ledger", &rows.missing))
                p.quiet {
                    "Export: " a href=(asked.link("ledger.csv").text()) { "CSV" } ", "
                    a href=(asked.link("ledger.json").text()) { "JSON" }
                }
                @let is_shared = visitor.shared.is_some();
                (table(rows.items.iter().map(|it| (is_shared.then_some(it.cluster.as_str()), it)), is_shared, now))
                @if let Some(next) = &rows.next {
                    nav.turns aria-label="Pages of the list" {
                        a rel="next" href=(asked.link("ledger").set("before", Some(next)).text()) { "Older rows" }
                    }
                }
            }
        }
    })
}

/// The first rows, with all that is kept of them. Who may not read all namespaces is shown their own.
async fn first(ledger: &LedgerReader, filter: Filter) -> Result<Begun, Failure> {
    let mut begun = ledger.begin(filter).await?;
    ledger.add_facts(&mut begun.page, &begun.filter).await?;
    Ok(begun)
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

/// The newest rows of several clusters, each of which keeps a ledger of its own.
async fn of_clusters(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Response {
    let filter = match filter(asked, now) {
        Ok(filter) => Filter { before: None, limit: Some(PAGE), ..filter },
        Err(error) => return framed(visitor, asked, StatusCode::BAD_GATEWAY, &trouble(&error.to_string())),
    };
    let read = visitor.clusters.iter().map(|cluster| async {
        let late = |_| Failure::Named(format!("the ledger did not answer within {} s", PATIENCE.as_secs()));
        let rows = async { first(&cluster.ledger().await?, filter.clone()).await };
        let rows = timeout(PATIENCE, rows).await.map_err(late).flatten();
        (cluster.name.as_str(), rows)
    });
    let read: Vec<(&str, Result<Begun, Failure>)> = join_all(read).await;
    let known: Vec<_> =
        read.iter().filter_map(|(name, rows)| Some((*name, &rows.as_ref().ok()?.page))).collect();
    let (entries, is_cut) = merged(&known);
    let status = if known.is_empty() { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
    let of_cluster = |name: &str| asked.link("ledger").set("before", None).set("cluster", Some(name)).text();
    framed(
        visitor,
        asked,
        status,
        &html! {
            @for (name, rows) in &read {
                @match rows {
                    Ok(Begun { page, only, .. }) => {
                        @if let Some(only) = only { p.note { (name) ": " (write::only(only)) } }
                        (notes(name, &page.missing))
                    },
                    Err(error) => (trouble(&format!("{name}: {error}"))),
                }
            }
            @if entries.is_empty() && !known.is_empty() { p.quiet { "No row matches." } }
            @if !entries.is_empty() {
                (table(entries.into_iter().map(|(name, entry)| (Some(name), entry)), true, now))
                p.quiet {
                    @if is_cut { "Older rows and exports of one cluster: " } @else { "Exports of one cluster: " }
                    @for (name, _) in &known { a href=(of_cluster(name)) { (name) } " " }
                }
            }
        },
    )
}

fn framed(visitor: &Visitor, asked: &Asked, status: StatusCode, content: &Markup) -> Response {
    let frame = Frame { status, ..Frame::still(visitor, "Ledger", "ledger") };
    frame.around(&html! {
        h1 { "Ledger" }
        (form(visitor, asked, None))
        (content)
    })
}

/// The newest rows of all, with the names of their clusters, and whether there are further ones.
fn merged<'p>(pages: &[(&'p str, &'p Page)]) -> (Vec<(&'p str, &'p Entry)>, bool) {
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let mut entries: Vec<_> =
        pages.iter().flat_map(|(name, page)| page.items.iter().map(|entry| (*name, entry))).collect();
    // Rows of one time stay in the order of their clusters.
    entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.time));
    let is_cut = entries.len() > most || pages.iter().any(|(_, page)| page.next.is_some());
    entries.truncate(most);
    (entries, is_cut)
}

/// The form that holds what the address asks for; `only` is the namespace that stands for all.
fn form(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
    let text = |label: &str, name: &str, hint: &str| {
        html! { label { (label) input name=(name) value=[asked.get(name)] placeholder=(hint); } }
    };
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
            (choice("Operation", "operation", &OPERATIONS.map(Operation::as_str), &operations))
            (text("Since", "since", SINCE))
            (text("Until", "until", "now"))
            @if visitor.shared.is_some() { (text("Cluster", "cluster", "all")) }
            (cluster_choice(visitor, asked))
            button { "Show" }
        }
    }
}

/// Any number of values of one name, each with a box.
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

/// Rows, each with the name of its cluster where several are shown.
fn table<'e>(
    entries: impl IntoIterator<Item = (Option<&'e str>, &'e Entry)>,
    has_clusters: bool,
    now: Timestamp,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Rows of the ledger" {
            table {
                thead { tr {
                    @if has_clusters { th scope="col" { "Cluster" } }
                    @for head in ["Time", "Verdict", "Release", "Object", "User", "What"] { th scope="col" { (head) } }
                } }
                tbody { @for (cluster, entry) in entries { (row(cluster, entry, now)) } }
            }
        }
    }
}

fn row(cluster: Option<&str>, entry: &Entry, now: Timestamp) -> Markup {
    let mut what = changes(entry, FIELDS);
    if !entry.detail.is_empty() {
        what.push(entry.detail.clone());
    }
    let place = format!("{}-{}", entry.id, cluster.unwrap_or(&entry.cluster));
    html! {
        tr {
            @if let Some(cluster) = cluster { td { (cluster) } }
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

/// Everything that is kept of a row.
fn whole(entry: &Entry, place: &str) -> Markup {
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
        @if let Some(facts) = &entry.facts {
            details id=(format!("facts-{place}")) {
                summary { "By what a replay judges it" }
                code { (facts) }
            }
        }
    }
}

/// What a verdict looks like.
fn verdict(entry: &Entry) -> Markup {
    let class = match entry.verdict.as_str() {
        "Deny" | "Failed" | "Error" | "failed" | "record-invalid" => "badge bad",
        "Warn" | "Revert" | "Record" | "Reported" => "badge doubt",
        "Allow" | "Recreated" | "Restored" | "Ended" | "deployed" => "badge good",
        _ => "badge",
    };
    html! { span class=(class) { (entry.verdict) } }
}

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
    /// Whether the file's name says that rows are missing.
    is_partial: bool,
}

impl Form {
    /// The page that exports in this form, and the end of the file's name.
    fn page(self) -> (&'static str, &'static str) {
        match self {
            Self::Csv => ("ledger.csv", "csv"),
            Self::Json => ("ledger.json", "json"),
        }
    }

    fn text(self, entries: &[Entry], is_first: bool) -> Result<String, Failure> {
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
                let line = |entry: &Entry| serde_json::to_string(entry).map(|line| line + "\n");
                let lines: Result<Vec<_>, _> = entries.iter().map(line).collect();
                let lines =
                    lines.map_err(|error| Failure::Named(format!("cannot write a row as JSON: {error}")))?;
                Ok(lines.concat())
            }
        }
    }
}

impl Rest {
    /// The next rows as text, and what is left.
    async fn next(self) -> Result<(String, Option<Self>), Failure> {
        let page = self.ledger.page(&self.filter).await?;
        let page = self.whole(page).await?;
        self.take(&page)
    }

    /// The page with all that its file holds of rows.
    async fn whole(&self, mut page: Page) -> Result<Page, Failure> {
        // A spreadsheet has no column for them.
        if self.form == Form::Json {
            self.ledger.add_facts(&mut page, &self.filter).await?;
        }
        Ok(page)
    }

    /// These rows as text, and what is left.
    fn take(mut self, page: &Page) -> Result<(String, Option<Self>), Failure> {
        if !self.is_partial {
            refuse(&page.missing)?;
        }
        let text = self.form.text(&page.items, self.is_first)?;
        self.filter.before = page.next.as_deref().map(place).transpose()?;
        self.is_first = false;
        let is_over = self.filter.before.is_none();
        Ok((text, (!is_over).then_some(self)))
    }
}

/// All rows as a table for spreadsheets.
pub(super) async fn csv(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    export(&visitor, &asked, Form::Csv).await
}

/// All rows, one on each line.
pub(super) async fn json(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    export(&visitor, &asked, Form::Json).await
}

async fn export(visitor: &Visitor, asked: &Asked, form: Form) -> Response {
    let begun = async {
        let filter = filter(asked, Timestamp::now())?;
        let ledger = visitor.ledger(asked).await?;
        let Begun { page, filter, .. } = ledger.begin(filter).await?;
        let rest = Rest { ledger, filter, form, is_first: true, is_partial: true };
        let page = rest.whole(page).await?;
        Ok::<_, Failure>((Rest { is_partial: !page.missing.is_empty(), ..rest }, page))
    };
    let (rest, page) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return write::failure(visitor, "ledger", &error),
    };
    if rest.is_partial && asked.get(PARTIAL.0) != Some(PARTIAL.1) {
        return refused(visitor, asked, form, &page.missing);
    }
    let name = file(rest.filter.namespace.as_deref(), rest.is_partial, form);
    match rest.take(&page) {
        Ok((first, rest)) => sent(&name, form, &page.missing, first, rest),
        Err(error) => write::failure(visitor, "ledger", &error),
    }
}

/// The file.
fn sent(name: &str, form: Form, missing: &[String], first: String, rest: Option<Rest>) -> Response {
    let kind = match form {
        Form::Csv => "text/csv; charset=utf-8",
        Form::Json => "application/x-ndjson; charset=utf-8",
    };
    let name = format!("attachment; filename=\"{name}\"");
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
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &name)];
    let missing = (!missing.is_empty()).then(|| [(MISSING, plain(missing))]);
    (headers, missing, Body::from_stream(pages)).into_response()
}

/// Why there is no file, and the way to one without the missing rows.
fn refused(visitor: &Visitor, asked: &Asked, form: Form, missing: &[String]) -> Response {
    let (page, _) = form.page();
    let partial = asked.link(page).set(PARTIAL.0, Some(PARTIAL.1));
    let frame =
        Frame { status: StatusCode::BAD_GATEWAY, ..Frame::still(visitor, "Rows are missing", "ledger") };
    frame.around(&html! {
        h1 { "Rows are missing" }
        (trouble("Nothing was exported: the file would lack rows that cannot be read now."))
        (notes("export", missing))
        p { "Try again, or export " a href=(partial.text()) { "the rows that can be read" } "." }
    })
}

/// Ends an export whose name does not say that rows are missing.
fn refuse(missing: &[String]) -> Result<(), Failure> {
    if missing.is_empty() { Ok(()) } else { Err(Failure::Named(missing.join("; "))) }
}

/// The name of a file of these rows, which says of which namespace they are, and whether rows are missing.
fn file(namespace: Option<&str>, is_partial: bool, form: Form) -> String {
    let (_, end) = form.page();
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let namespace = namespace.filter(is_plain).map(|namespace| format!("-{namespace}")).unwrap_or_default();
    let partial = if is_partial { "-partial" } else { "" };
    format!("ledger{namespace}{partial}.{end}")
}

/// Sentences as a header can hold them.
fn plain(sentences: &[String]) -> String {
    sentences.join("; ").replace(|letter: char| !(letter.is_ascii_graphic() || letter == ' '), "?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    /// A page of rows at these seconds, the newest first.
    fn rows(seconds: &[u32], next: Option<&str>) -> Page {
        let entry = |second: &u32| {
            json!({
                "id": second.to_string(), "time": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
                "kind": "verdict", "cluster": "here", "namespace": "shop", "release": "web", "revision": 1,
                "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
                "operation": "UPDATE", "user": "alice", "groups": [], "verdict": "Deny", "reason": "drift", "detail": "",
                "fields": [], "moreFields": 0, "uid": "",
            })
        };
        let items: Vec<Entry> =
            seconds.iter().map(|second| serde_json::from_value(entry(second)).unwrap()).collect();
        Page { items, next: next.map(str::to_owned), missing: Vec::new() }
    }

    fn told(pages: &[(&str, &Page)]) -> (Vec<String>, bool) {
        let (entries, is_cut) = merged(pages);
        (entries.iter().map(|(name, entry)| format!("{name} {}", entry.id)).collect(), is_cut)
    }

    #[test]
    fn rows_of_clusters_stand_in_the_order_of_time() {
        let (east, west) = (rows(&[9, 5, 1], None), rows(&[7, 5], None));
        let expected = ["east 9", "west 7", "east 5", "west 5", "east 1"].map(str::to_owned).to_vec();
        assert_eq!(told(&[("east", &east), ("west", &west)]), (expected, false));
    }

    #[test]
    fn a_page_has_the_newest_rows_and_says_that_there_are_more() {
        let seconds: Vec<u32> = (0..PAGE).rev().collect();
        let (east, west) = (rows(&seconds, None), rows(&[200], None));
        let (entries, is_cut) = told(&[("east", &east), ("west", &west)]);
        assert_eq!(
            (entries.len(), entries.first().map(String::as_str), is_cut),
            (100, Some("west 200"), true)
        );
        assert_eq!(entries.last().map(String::as_str), Some("east 1"));
        assert!(told(&[("east", &rows(&[1], Some("7")))]).1);
    }

    #[test]
    fn name_of_file_says_whose_rows_it_has_and_that_rows_are_missing() {
        for (namespace, is_partial, form, expected) in [
            (None, false, Form::Csv, "ledger.csv"),
            (Some("shop"), false, Form::Json, "ledger-shop.json"),
            (None, true, Form::Json, "ledger-partial.json"),
            (Some("shop"), true, Form::Csv, "ledger-shop-partial.csv"),
            (Some("a\"; b"), true, Form::Csv, "ledger-partial.csv"),
        ] {
            assert_eq!(file(namespace, is_partial, form), expected);
        }
    }

    #[test]
    fn export_without_rows_of_a_replica_breaks_off_unless_its_name_says_so() {
        assert!(refuse(&[]).is_ok());
        let missing = "rows that pod b keeps are not shown: \u{1b}[31mgone\r\nset-cookie: a=b".to_owned();
        let refused = refuse(std::slice::from_ref(&missing)).unwrap_err().to_string();
        assert!(refused.contains("rows that pod b keeps"), "{refused}");
        let header = plain(&[missing.clone(), missing]);
        assert!(header::HeaderValue::from_str(&header).is_ok() && !header.contains('\n'), "{header}");
    }
}
