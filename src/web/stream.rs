//! Tells an open page that what it shows has changed.
//!
//! Entry point: [`changes`]. Invariant: says that something changed, and not what.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::future::select_all;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::time::sleep;

use super::visitor::Visitor;

/// Changes that come together are told once.
const GATHERING: Duration = Duration::from_secs(1);

/// How long one stream lasts. The browser asks for the next, which has to be let in anew.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// An event for each change of what is followed.
pub(super) async fn changes(
    Extension(visitor): Extension<Arc<Visitor>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut receivers = visitor.changes();
    receivers.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
    let events = stream::unfold(receivers, |mut receivers| async move {
        if receivers.is_empty() {
            return None;
        }
        let (ended, place, _) =
            select_all(receivers.iter_mut().map(|receiver| receiver.changed().boxed())).await;
        if ended.is_err() {
            receivers.swap_remove(place);
        }
        sleep(GATHERING).await;
        receivers.iter_mut().for_each(tokio::sync::watch::Receiver::mark_unchanged);
        Some((Event::default().event("change").data("change"), receivers))
    });
    Sse::new(events.map(Ok).take_until(sleep(LIFE))).keep_alive(KeepAlive::default())
}
