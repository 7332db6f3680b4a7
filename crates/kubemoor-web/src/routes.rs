//! Which address is which page.
//!
//! Entry points: [`router`] around the pages [`of_clusters`] or [`of_database`]. Invariant: no page but a login's own is
//! answered before the visitor is let in.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::get;
use http::StatusCode;

use super::door::{self, Door};
use super::html;
use super::{
    act, assets, exceptions, explain, fleet, ledger, overview, policies, release, releases, replay, stream,
};

/// The largest form: a denial that was pasted, and its token.
const FORM: usize = 128 << 10;

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
        .route(&at("style.css"), get(assets::style))
        .route(&at("script.js"), get(assets::script))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(middleware::from_fn_with_state(door, door::check))
}
