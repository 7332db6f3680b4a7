//! The web page: releases, their drift, exceptions and the ledger, for one visitor at a time.
//!
//! `WebPage::on_loopback` serves it for its owner, `in_cluster::serve` for users of the cluster. The page has no rights of
//! its own: everything is read and done with the visitor's credentials, as the commands do it, and nothing is done without
//! a token that only the visitor's own pages hold. Text from a cluster is text of the page and never markup, and nothing is
//! loaded from elsewhere. No page but a login's own is answered before the visitor is let in.

mod act;
mod board;
mod door;
mod explain;
mod fleet;
mod html;
pub mod in_cluster;
mod ledger;
mod overview;
mod policies;
mod release;
mod releases;
mod replay;
mod visitor;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use axum::{Router, middleware};
use http::{Extensions, HeaderMap, StatusCode, Version, header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::csrf::{CsrfLayer, ProtectionError};

pub use self::door::LoopbackSettings;
use self::door::{AccessCheck, Loopback};
pub use self::visitor::{GuardAddress, PageCluster};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot make the page's secrets: {0}")]
    Random(#[from] kubemoor_runtime::callers::RandomError),
    #[error("cannot serve the page: {0}")]
    Port(#[from] std::io::Error),
}

/// A page that is ready to be served on a loopback address.
pub struct WebPage {
    loopback: Arc<Loopback>,
    listener: TcpListener,
}

impl WebPage {
    /// The page of these clusters, or of this database, on `listener`, for visitors who know its address.
    pub fn on_loopback(settings: LoopbackSettings, listener: TcpListener) -> Result<Self, ServeError> {
        let address = listener.local_addr()?;
        let loopback = Arc::new(Loopback::new(settings, address)?);
        Ok(Self { loopback, listener })
    }

    pub fn address(&self) -> String {
        self.loopback.address()
    }

    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self { loopback, listener } = self;
        let path = loopback.path();
        let open = Router::new().route(&format!("{path}/{}", door::OPEN), get(door::open));
        let open = open.with_state(Arc::clone(&loopback));
        let has_objects = loopback.visitor.shared.is_none();
        let router =
            router(Arc::new(AccessCheck::on_loopback(loopback)), &path, has_objects, Router::new(), open);
        // What is under way is given up: nobody waits for a page that its owner has ended.
        tokio::select! {
            served = axum::serve(listener, router).into_future() => Ok(served?),
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// The largest form: a denial that was pasted, and its token.
const FORM: usize = 128 << 10;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The pages `own` and those that all have, below `path`; `open` are those before a login. A database has no objects.
fn router(door: Arc<AccessCheck>, path: &str, has_objects: bool, own: Router, open: Router) -> Router {
    // The addresses within pages are relative, so that they hold below any path.
    let at = |page: &str| format!("{path}/{page}");
    let pages = own
        .route(&at(""), get(overview::page))
        .route(&at("releases"), get(releases::page))
        .route(&at("release"), get(release::page))
        .route(&at("ledger"), get(ledger::page))
        .route(&at("ledger.csv"), get(ledger::csv))
        .route(&at("ledger.json"), get(ledger::json))
        .route(&at("replay"), get(replay::page).post(replay::page));
    let pages = match has_objects {
        true => pages
            .route(&at("exceptions"), get(act::list))
            .route(&at("policies"), get(policies::page))
            .route(&at("explain"), get(explain::page).post(explain::page))
            .route(&at("act"), get(act::confirm).post(act::carry_out))
            .route(&at("allow"), get(act::ask)),
        false => pages,
    };
    let pages = pages
        .layer(middleware::from_fn(door::take_turn))
        .route(&at("stream"), get(visitor::change_stream))
        .fallback(async || html::no_such_page())
        .layer(middleware::from_fn_with_state(Arc::clone(&door), door::admit));
    pages
        .merge(open)
        .route(&at("style.css"), asset("text/css; charset=utf-8", STYLE))
        // Without it every page works as well.
        .route(&at("script.js"), asset("text/javascript; charset=utf-8", SCRIPT))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(CsrfLayer::new().with_rejection_response(refuse_another_site))
        .layer(middleware::from_fn_with_state(door, door::check))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_page))
}

fn refuse_another_site(_: ProtectionError) -> Response {
    html::refusal(StatusCode::FORBIDDEN, "Another site sent this request. Nothing was done.")
}

/// Whether an answer is a page: streams, exports and files stay as they are. No secret is on two pages as the same text, so
/// that the lengths of compressed pages reveal nothing of it.
fn is_page(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

fn asset(kind: &'static str, text: &'static str) -> MethodRouter {
    get(async move || ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text))
}

#[cfg(test)]
mod tests;
