//! The web page: releases, their drift, exceptions and the ledger, for one visitor at a time.
//!
//! `Page::on_loopback` serves it for its owner, `in_cluster::serve` for users of the cluster. The page has no rights of its
//! own: everything is read and done with the visitor's credentials, as the commands do it, and nothing is done without a
//! token that only the visitor's own pages hold. Text from a cluster is text of the page and never markup, and nothing is
//! loaded from elsewhere.

mod act;
mod address;
mod board;
mod cluster;
mod door;
mod exceptions;
mod explain;
mod fleet;
mod history;
mod html;
pub mod in_cluster;
mod ledger;
mod ledger_reader;
mod loopback;
mod overview;
mod policies;
mod release;
mod releases;
mod replay;
mod routes;
mod shared_ledger;
mod stream;
mod visitor;
mod visitors;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::cluster::{GuardAddress, Settings as ClusterSettings};
use self::door::Door;
use self::loopback::Loopback;
pub use self::loopback::Settings;
use self::routes::{of_clusters, of_database, router};

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There are no random bytes.
    #[error("cannot make the page's secrets: {0}")]
    Random(#[from] kubemoor_runtime::callers::RandomError),
    /// The port failed.
    #[error("cannot serve the page: {0}")]
    Port(#[from] std::io::Error),
}

/// A page that is ready to be served on a loopback address.
pub struct Page {
    loopback: Arc<Loopback>,
    listener: TcpListener,
}

impl Page {
    /// The page of these clusters, or of this database, on `listener`, for visitors who know its address.
    pub fn on_loopback(settings: Settings, listener: TcpListener) -> Result<Self, ServeError> {
        let address = listener.local_addr()?;
        let loopback = Arc::new(Loopback::new(settings, address)?);
        Ok(Self { loopback, listener })
    }

    /// The address that lets a browser in.
    pub fn address(&self) -> String {
        self.loopback.address()
    }

    /// Serves the page until `stop`.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self { loopback, listener } = self;
        loopback.visitor.begin().await;
        let path = loopback.path();
        let open = Router::new().route(&format!("{path}/{}", loopback::OPEN), get(loopback::open));
        let open = open.with_state(Arc::clone(&loopback));
        let own = match &loopback.visitor.shared {
            Some(_) => of_database(&path),
            None => of_clusters(&path),
        };
        let router = router(Arc::new(Door::on_loopback(loopback)), &path, own, open);
        // What is under way is given up: nobody waits for a page that its owner has ended.
        tokio::select! {
            served = axum::serve(listener, router).into_future() => Ok(served?),
            () = stop.cancelled() => Ok(()),
        }
    }
}
