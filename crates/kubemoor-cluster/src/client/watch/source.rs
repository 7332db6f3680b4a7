//! The requests of a watch.
//!
//! Entry points: [`Source::page`], [`Source::watch`], [`answer`]. Invariant: a request that a caller stops waiting for is
//! under way until its answer is taken. Must not know what was asked before.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::Request;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{Request as Requests, WatchEvent};
use tokio::time::timeout;

use super::{Form, LIFE};
use crate::client::call::{CallError, PATIENCE};
use crate::client::pages::{Page, PageSize};

/// The changes of a watch.
pub(super) type Changes<F> = BoxStream<'static, kube::Result<WatchEvent<<F as Form>::Wire>>>;

/// A request under way.
pub(super) type Asked<T> = BoxFuture<'static, Result<T, CallError>>;

/// What is asked for.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) client: kube::Client,
    pub(super) path: Result<String, CallError>,
    pub(super) selector: Option<String>,
    /// A field selector.
    pub(super) fields: Option<String>,
}

impl Source {
    /// Requests a page.
    pub(super) fn page<F: Form>(
        self: Arc<Self>,
        size: PageSize,
        after: Option<String>,
    ) -> Asked<Page<F::Wire>> {
        async move { self.list::<F>(size, after.as_deref()).await }.boxed()
    }

    /// Requests a watch from a version on.
    pub(super) fn watch<F: Form>(self: Arc<Self>, version: String) -> Asked<Changes<F>> {
        async move { self.open::<F>(&version).await }.boxed()
    }

    async fn list<F: Form>(&self, size: PageSize, after: Option<&str>) -> Result<Page<F::Wire>, CallError> {
        let parameters = ListParams {
            label_selector: self.selector.clone(),
            field_selector: self.fields.clone(),
            limit: Some(size.objects()),
            continue_token: after.map(str::to_owned),
            ..ListParams::default()
        };
        let requests = Requests::new(self.path.clone()?);
        let request =
            if F::METADATA { requests.list_metadata(&parameters)? } else { requests.list(&parameters)? };
        Page::fetch(&self.client, request, size.cap(), PATIENCE).await
    }

    async fn open<F: Form>(&self, version: &str) -> Result<Changes<F>, CallError> {
        let parameters = WatchParams {
            label_selector: self.selector.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(LIFE.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let requests = Requests::new(self.path.clone()?);
        let request: Request<Vec<u8>> = if F::METADATA {
            requests.watch_metadata(&parameters, version)?
        } else {
            requests.watch(&parameters, version)?
        };
        let opening = self.client.request_events::<F::Wire>(request);
        match timeout(PATIENCE, opening).await {
            Ok(changes) => Ok(changes?.boxed()),
            Err(_) => Err(CallError::Late { within: PATIENCE }),
        }
    }
}

/// The answer to the request under way, or else to this one. If the caller cancels that, the request stays.
pub(super) async fn answer<T>(
    asked: &mut Option<Asked<T>>,
    ask: impl FnOnce() -> Asked<T>,
) -> Result<T, CallError> {
    let answer = asked.get_or_insert_with(ask).await;
    *asked = None;
    answer
}
