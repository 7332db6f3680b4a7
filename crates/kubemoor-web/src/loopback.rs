//! How the owner of a page on this machine is let in.
//!
//! Entry points: [`Loopback::address`], which the owner is told, and [`open()`] behind it. Invariant: the address below
//! which all pages lie is not to be guessed, and nobody who has not got it is let in.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};

use super::cluster::{Cluster, Settings as ClusterSettings};
use super::html;
use super::visitor::{Entry, Visitor, hex};
use super::visitors::cookies;
use kubemoor_ledger::store::Store;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::callers::{self, RandomError};

/// The page behind the address that the owner was told.
pub(super) const OPEN: &str = "open";

/// The name of the owner's cookie.
const COOKIE: &str = "kubemoor";

/// Purposes of marks.
const PATH: &str = "path of the page";
const TOKEN: &str = "token of the address";
const OWNER: &str = "cookie of the visitor";
const FORMS: &str = "forms of the visitor";

/// What is served.
pub enum Settings {
    /// Clusters, side by side.
    Clusters(Vec<ClusterSettings>),
    /// The database that the guards of many clusters share. No cluster is asked.
    Database(Store),
}

/// What lets the owner in.
pub(super) struct Loopback {
    key: SigningKey,
    address: SocketAddr,
    pub(super) visitor: Arc<Visitor>,
}

impl Loopback {
    /// Lets in visitors who know the address that is made here.
    pub(super) fn new(settings: Settings, address: SocketAddr) -> Result<Self, RandomError> {
        let key = callers::random_key()?;
        let forms = SigningKey::new(key.mark(FORMS, &[]));
        let visitor = match settings {
            Settings::Clusters(clusters) => {
                let clusters = clusters.into_iter().map(Cluster::new).collect();
                Visitor::new(clusters, Entry::Owner, None, forms)
            }
            Settings::Database(store) => Visitor::of_database(store, forms),
        };
        Ok(Self { key, address, visitor: Arc::new(visitor) })
    }

    /// What a browser may call this server.
    pub(super) fn hosts(&self) -> Vec<String> {
        vec![self.address.to_string(), format!("localhost:{}", self.address.port())]
    }

    /// The path below which all pages lie, without a slash at its end. Cookies know no port: below a path that nobody
    /// guesses, no other server of this machine is sent them.
    pub(super) fn path(&self) -> String {
        format!("/{}", hex(self.key.mark(PATH, &[]).split_at(16).0))
    }

    /// The address that lets a browser in.
    pub(super) fn address(&self) -> String {
        format!("http://{}{}/{OPEN}?token={}", self.address, self.path(), self.token())
    }

    /// Whether a request is the owner's.
    pub(super) fn is_owner(&self, headers: &HeaderMap) -> bool {
        let own = self.cookie();
        cookies(headers).any(|(name, value)| name == COOKIE && is_same(value, &own))
    }

    fn token(&self) -> String {
        hex(&self.key.mark(TOKEN, &[]))
    }

    fn cookie(&self) -> String {
        hex(&self.key.mark(OWNER, &[]))
    }
}

/// The address that the owner was told.
pub(super) async fn open(
    State(loopback): State<Arc<Loopback>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let own = loopback.token();
    if !query.iter().any(|(name, value)| name == "token" && is_same(value, &own)) {
        let why =
            "The token in this address is not valid. Open the address that `kubemoor ui` has printed last.";
        return html::refusal(StatusCode::UNAUTHORIZED, why);
    }
    let (cookie, path) = (loopback.cookie(), loopback.path());
    let cookie = format!("{COOKIE}={cookie}; Path={path}/; HttpOnly; SameSite=Strict");
    let Ok(cookie) = HeaderValue::from_str(&cookie) else {
        return html::refusal(StatusCode::INTERNAL_SERVER_ERROR, "The cookie cannot be set.");
    };
    // A redirection would still count as the step of the page that opened the address, and lack the cookie.
    ([(header::SET_COOKIE, cookie)], html::doorstep("./", "Continue to the overview")).into_response()
}

fn is_same(left: &str, right: &str) -> bool {
    verify_slices_are_equal(left.as_bytes(), right.as_bytes()).is_ok()
}
