//! The ledger: who did what, and what became of it.
//!
//! Entry points: `page`; `csv` and `json` for files (`export`). Invariant: rows come as the visitor may read them; no
//! answer holds the whole ledger in memory.

mod export;
mod form;
mod rows;
mod several;

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use maud::html;

pub(super) use self::export::{csv, json};
use self::form::form;
use self::rows::table;
use super::address::Asked;
use super::html::{self as write, Frame, notes, trouble};
use super::visitor::Visitor;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::ledger::place;
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::{self, Filter};

/// Rows on a page.
const PAGE: u32 = 100;

/// Since when rows are shown, where nothing else is asked for.
pub(super) const SINCE: &str = "24h";

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    if visitor.has_several() && asked.get("cluster").is_none() {
        return several::page(&visitor, &asked, now).await;
    }
    let rows = async {
        let filter = Filter { limit: Some(PAGE), ..filter(&asked, now)? };
        let ledger = visitor.ledger(&asked).await?;
        let mut begun = ledger.begin(filter).await?;
        ledger.add_facts(&mut begun.page, &begun.filter).await?;
        Ok::<_, Failure>(begun)
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
