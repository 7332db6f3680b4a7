//! The web page: releases, their drift, exceptions and the ledger, for one visitor at a time.
//!
//! `WebPage::on_loopback` serves it for its owner, `in_cluster::serve` for users of the cluster. The page has no rights
//! of its own: it reads and acts with the visitor's credentials, as the commands do, and acts only on a form with a
//! token that only the visitor's own pages contain. Text from a cluster is always escaped, and nothing is loaded from
//! other sites. Only the login page is served before the visitor is authenticated.

mod access_control;
mod act;
mod explain;
mod fleet;
mod html;
pub mod in_cluster;
mod ledger;
mod overview;
mod policies;
mod release;
mod release_watch;
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

pub use self::access_control::LoopbackSettings;
use self::access_control::{AccessCheck, Loopback};
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
    /// Serves the page for these clusters, or this database, on `listener`, to visitors who know its address.
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
        let open =
            Router::new().route(&format!("{path}/{}", access_control::OPEN), get(access_control::open));
        let open = open.with_state(Arc::clone(&loopback));
        let has_objects = loopback.visitor.shared.is_none();
        let router =
            router(Arc::new(AccessCheck::on_loopback(loopback)), &path, has_objects, Router::new(), open);
        // Requests in flight are dropped: the owner has ended the page.
        tokio::select! {
            served = axum::serve(listener, router).into_future() => Ok(served?),
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// The maximum size of a form: a pasted denial and its token.
const FORM: usize = 128 << 10;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The pages of `own` and the common ones, below `path`; `open` has those before a login. A database has no objects.
fn router(door: Arc<AccessCheck>, path: &str, has_objects: bool, own: Router, open: Router) -> Router {
    // Links within pages are relative, so they work below any path.
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
        .layer(middleware::from_fn(access_control::limit_concurrency))
        .route(&at("stream"), get(visitor::change_stream))
        .fallback(async || html::no_such_page())
        .layer(middleware::from_fn_with_state(Arc::clone(&door), access_control::admit));
    pages
        .merge(open)
        .route(&at("style.css"), asset("text/css; charset=utf-8", STYLE))
        // Every page also works without it.
        .route(&at("script.js"), asset("text/javascript; charset=utf-8", SCRIPT))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(CsrfLayer::new().with_rejection_response(refuse_another_site))
        .layer(middleware::from_fn_with_state(door, access_control::check))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_page))
}

fn refuse_another_site(_: ProtectionError) -> Response {
    html::refusal(StatusCode::FORBIDDEN, "Another site sent this request. Nothing was done.")
}

/// Whether a response is an HTML page; streams, exports and assets are not compressed. A secret never appears as the
/// same text on two pages, so the lengths of compressed pages reveal nothing about it.
fn is_page(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

fn asset(kind: &'static str, text: &'static str) -> MethodRouter {
    get(async move || ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text))
}

#[cfg(test)]
mod tests;
