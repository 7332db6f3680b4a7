//! All rows of a ledger as a file.
//!
//! Entry points: [`csv()`], [`json`]. Invariant: a file that lacks rows of a replica is only made for a visitor who asks for
//! what can be read, and says so in its name; no answer holds the whole ledger in memory.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::header::HeaderName;
use http::{StatusCode, header};
use jiff::Timestamp;
use maud::html;

use super::super::address::Asked;
use super::super::html::{self as write, Frame, notes, trouble};
use super::super::ledger_reader::{Begun, LedgerReader};
use super::super::visitor::Visitor;
use super::filter;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::ledger::columns::{COLUMNS, columns};
use kubemoor_inspect::ledger::place;
use kubemoor_inspect::sheet::Sheet;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, Page};

/// What an address asks for by this name, if a file may lack rows.
const PARTIAL: (&str, &str) = ("partial", "allow");

/// The header that says which rows a file lacks.
const MISSING: HeaderName = HeaderName::from_static("kubemoor-missing-rows");

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
pub(crate) async fn csv(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    export(&visitor, &asked, Form::Csv).await
}

/// All rows, one on each line.
pub(crate) async fn json(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
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
    use super::*;

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
