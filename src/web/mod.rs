//! The web page: releases, their drift, exceptions and the ledger, for one visitor at a time.
//!
//! Entry points: `Page::on_loopback`, `Page::serve`. Invariant: the page has no rights of its own, everything is read and
//! done with the visitor's credentials; no action without a token that only the visitor's own pages
//! hold; text from a cluster is text of the page and never markup; nothing is loaded from
//! elsewhere. Must not decide a rule, read a cluster in another way than the commands do, or log a credential.

mod act;
mod address;
mod assets;
mod board;
mod cluster;
mod door;
mod exceptions;
mod explain;
mod html;
mod ledger;
mod overview;
mod policies;
mod release;
mod releases;
mod stream;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use self::cluster::{GuardAddress, Settings as ClusterSettings};
use self::door::Door;

/// The largest form: a denial that was pasted, and its token.
const FORM: usize = 128 << 10;

/// What is served.
pub(crate) struct Settings {
    /// The clusters, side by side.
    pub(crate) clusters: Vec<ClusterSettings>,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// There are no random bytes.
    #[error("cannot make the page's secrets: {0}")]
    Random(#[from] crate::callers::RandomError),
    /// The port failed.
    #[error("cannot serve the page: {0}")]
    Port(#[from] std::io::Error),
}

/// A page that is ready to be served on a loopback address.
pub(crate) struct Page {
    door: Arc<Door>,
    listener: TcpListener,
}

impl Page {
    /// The page of these clusters on `listener`, for whoever knows its address.
    pub(crate) fn on_loopback(settings: Settings, listener: TcpListener) -> Result<Self, ServeError> {
        let address = listener.local_addr()?;
        let door = Arc::new(Door::on_loopback(settings.clusters, address)?);
        Ok(Self { door, listener })
    }

    /// The address that lets a browser in.
    pub(crate) fn address(&self) -> String {
        self.door.address()
    }

    /// Serves the page until `stop`.
    pub(crate) async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self { door, listener } = self;
        door.begin().await;
        let router = router(door);
        // What is under way is given up: nobody waits for a page that its owner has ended.
        tokio::select! {
            served = axum::serve(listener, router).into_future() => Ok(served?),
            () = stop.cancelled() => Ok(()),
        }
    }
}

fn router(door: Arc<Door>) -> Router {
    let path = door.path().to_owned();
    // The addresses within pages are relative, so that they hold below any path.
    let at = |page: &str| format!("{path}/{page}");
    let pages = Router::new()
        .route(&at(""), get(overview::page))
        .route(&at("releases"), get(releases::page))
        .route(&at("release"), get(release::page))
        .route(&at("exceptions"), get(exceptions::page))
        .route(&at("ledger"), get(ledger::page))
        .route(&at("ledger.csv"), get(ledger::csv))
        .route(&at("ledger.json"), get(ledger::json))
        .route(&at("policies"), get(policies::page))
        .route(&at("explain"), get(explain::page).post(explain::pasted))
        .route(&at("act"), get(act::confirm).post(act::carry_out))
        .route(&at("allow"), get(act::ask))
        .route(&at("stream"), get(stream::changes))
        .layer(middleware::from_fn_with_state(Arc::clone(&door), door::admit));
    pages
        .route(&at(door::OPEN), get(door::open).with_state(Arc::clone(&door)))
        .route(&at("style.css"), get(assets::style))
        .route(&at("script.js"), get(assets::script))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(middleware::from_fn_with_state(door, door::check))
}
