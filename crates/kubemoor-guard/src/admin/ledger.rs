//! `GET /api/v1/ledger`: serves ledger rows to users who may list GuardedReleases in the requested namespace.
//!
//! Entry point: [`answer`]. Invariant: the ledger is read only after the user is authenticated and the API
//! server has authorized them. An unauthorized user gets the same answer whether or not rows exist.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::authenticator::{Authenticator, Permission, Refusal};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::query::{self, Filter, PAGE, Page};
use kubemoor_runtime::server::Peer;

/// The path.
pub(super) const PATH: &str = "/api/v1/ledger";

/// Pages that are read at one time: the writer of the ledger and its trimming need connections as well.
const READS: usize = 4;

/// The ledger, and the means to authenticate its readers.
#[derive(Clone)]
pub struct LedgerReader {
    ledger: Ledger,
    users: Authenticator,
    reads: Arc<Semaphore>,
}

/// The query parameters. Unknown names are refused: a misspelt filter must not return more rows than
/// requested.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    namespace: Option<String>,
    release: Option<String>,
    user: Option<String>,
    /// One of these, separated by commas.
    verdict: Option<String>,
    /// Likewise.
    operation: Option<String>,
    object: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    facts: Option<bool>,
    limit: Option<u32>,
    r#continue: Option<String>,
}

impl LedgerReader {
    /// The ledger; refused until its users can be authenticated.
    pub fn new(ledger: Ledger, users: Authenticator) -> Self {
        Self { ledger, users, reads: Arc::new(Semaphore::new(READS)) }
    }
}

pub(super) async fn answer(
    State(books): State<LedgerReader>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    match page(&books, &peer, &headers, asked).await {
        Ok(page) => Json(page).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn page(
    books: &LedgerReader,
    peer: &Peer,
    headers: &HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Page, Refusal> {
    let Query(asked) = asked.map_err(|error| Refusal::Malformed(error.body_text()))?;
    let permission = Permission::Ledger { namespace: asked.namespace.as_deref() };
    books.users.permit(peer, headers, permission).await?;
    let filter = asked.filter(books.ledger.cluster())?;
    let closed = || Refusal::Unavailable("the ledger is not open; the guard's log says why".to_owned());
    let store = books.ledger.store().ok_or_else(closed)?;
    let busy = |_| Refusal::Unavailable("too many read the ledger at once; try again".to_owned());
    let _turn = books.reads.try_acquire().map_err(busy)?;
    store.page(&filter).await.map_err(|error| {
        tracing::warn!(%error, "the ledger cannot be read");
        Refusal::Unavailable("the ledger cannot be read; the guard's log says why".to_owned())
    })
}

impl Asked {
    /// Only rows of the guard's own cluster: the rights were asked for there.
    fn filter(self, cluster: Option<&str>) -> Result<Filter, Refusal> {
        let Self {
            namespace,
            release,
            user,
            verdict,
            operation,
            object,
            since,
            until,
            facts,
            limit,
            r#continue,
        } = self;
        let object =
            object.map(|text| text.parse().map_err(|form: &str| Refusal::Malformed(form.to_owned())));
        let before = r#continue.map(|text| {
            text.parse().map_err(|_| {
                Refusal::Malformed("`continue` is none that this ledger gave; leave it out".to_owned())
            })
        });
        if limit.is_some_and(|limit| !(1..=PAGE).contains(&limit)) {
            return Err(Refusal::Malformed(format!("`limit` is a number from 1 to {PAGE}")));
        }
        Ok(Filter {
            cluster: Some(cluster.unwrap_or_default().to_owned()),
            namespace,
            release,
            user,
            verdicts: each(verdict.as_deref(), |text| query::parse_verdict(text).map(str::to_owned))?,
            operations: each(operation.as_deref(), query::parse_operation)?,
            object: object.transpose()?,
            since,
            until,
            before: before.transpose()?,
            facts: facts.unwrap_or_default(),
            limit,
        })
    }
}

/// Parses each part of a comma-separated list.
fn each<T>(list: Option<&str>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Refusal> {
    let texts = list.into_iter().flat_map(|list| list.split(','));
    texts.map(|text| parse(text).map_err(Refusal::Malformed)).collect()
}
