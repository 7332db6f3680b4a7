//! Tells an open page that what it shows has changed.
//!
//! Entry point: [`changes`]. Invariant: says that something changed, and not what; a page whose visitor was forgotten
//! does not come back at once, so that visitors who are too many do not displace one another without end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::future::{ready, select_all};
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::time::sleep;

use super::address::Asked;
use super::board::Changes;
use super::visitor::Visitor;

/// Changes that come together are told once.
const GATHERING: Duration = Duration::from_secs(1);

/// How long one stream lasts. The browser asks for the next, which has to be let in anew.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// How long the browser waits before it asks for the next stream, and if what this one followed has ended.
const PAUSE: Duration = Duration::from_secs(3);
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// An event for each change of what is followed: of the release that is named, else of all.
pub(super) async fn changes(
    Extension(visitor): Extension<Arc<Visitor>>,
    asked: Asked,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let followed = visitor.changes(&asked).await;
    // A browser keeps the pause that it was told last.
    let first = stream::once(ready(Event::default().retry(PAUSE)));
    let events = stream::unfold(Some(followed), |followed: Option<Vec<Changes>>| async move {
        let mut followed = followed?;
        let (next, ..) = select_all(followed.iter_mut().map(|changes| changes.next().boxed())).await;
        if next.is_err() {
            return Some((Event::default().retry(LONG_PAUSE), None));
        }
        sleep(GATHERING).await;
        followed.iter_mut().for_each(Changes::settle);
        Some((Event::default().event("change").data("change"), Some(followed)))
    });
    Sse::new(first.chain(events).map(Ok).take_until(sleep(LIFE))).keep_alive(KeepAlive::default())
}
