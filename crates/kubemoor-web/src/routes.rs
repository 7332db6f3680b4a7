//! Which address is which page: [`router`] around the pages [`of_clusters`] or [`of_database`].
//!
//! No page but a login's own is answered before the visitor is let in. The style and the script are part of the program,
//! and hold nothing of anybody.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{Extensions, HeaderMap, StatusCode, Version, header};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use super::door::{self, Door};
use super::html;
use super::{act, exceptions, explain, fleet, ledger, overview, policies, release, releases, replay, stream};

/// The largest form: a denial that was pasted, and its token.
const FORM: usize = 128 << 10;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The pages below `path` of clusters that are asked.
pub(super) fn of_clusters(path: &str) -> Router {
    let at = |page: &str| format!("{path}/{page}");
    Router::new()
        .route(&at(""), get(overview::page))
        .route(&at("releases"), get(releases::page))
        .route(&at("release"), get(release::page))
        .route(&at("exceptions"), get(exceptions::page))
        .route(&at("policies"), get(policies::page))
        .route(&at("explain"), get(explain::page).post(explain::pasted))
        .route(&at("act"), get(act::confirm).post(act::carry_out))
        .route(&at("allow"), get(act::ask))
}

/// The pages below `path` of a database that clusters share.
pub(super) fn of_database(path: &str) -> Router {
    let at = |page: &str| format!("{path}/{page}");
    Router::new()
        .route(&at(""), get(fleet::overview))
        .route(&at("releases"), get(fleet::releases))
        .route(&at("release"), get(fleet::release))
}

/// The pages `own` and those that all have, below `path`; `open` are those before a login.
pub(super) fn router(door: Arc<Door>, path: &str, own: Router, open: Router) -> Router {
    // The addresses within pages are relative, so that they hold below any path.
    let at = |page: &str| format!("{path}/{page}");
    let pages = own
        .route(&at("ledger"), get(ledger::page))
        .route(&at("ledger.csv"), get(ledger::csv))
        .route(&at("ledger.json"), get(ledger::json))
        .route(&at("replay"), get(replay::page).post(replay::pasted))
        .route(&at("stream"), get(stream::changes))
        .fallback(async || html::refusal(StatusCode::NOT_FOUND, "There is no such page."))
        .layer(middleware::from_fn_with_state(Arc::clone(&door), door::admit));
    pages
        .merge(open)
        .route(&at("style.css"), get(style))
        .route(&at("script.js"), get(script))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(middleware::from_fn_with_state(door, door::check))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_page))
}

/// Whether an answer is a page: streams, exports and files stay as they are. No secret is on two pages as the same text, so
/// that the lengths of compressed pages reveal nothing of it.
fn is_page(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=300")], STYLE)
}

/// The script, without which every page works as well.
async fn script() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "max-age=300")],
        SCRIPT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_alone_are_compressed() {
        for (kind, expected) in [
            ("text/html; charset=utf-8", true),
            ("text/event-stream", false),
            ("text/csv; charset=utf-8", false),
            ("application/x-ndjson; charset=utf-8", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static(kind))]);
            let is_compressed = is_page(StatusCode::OK, Version::HTTP_11, &headers, &Extensions::new());
            assert_eq!(is_compressed, expected, "{kind}");
        }
    }
}
