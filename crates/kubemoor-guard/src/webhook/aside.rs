//! Long work apart from the threads that answer requests.
//!
//! Entry point: [`aside`]. Invariant: a thread that answers requests never computes for long.
//! Must not decide which work is long.

use std::future::{Future, poll_fn};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Does the work of a future apart from the threads that answer requests.
pub(super) async fn aside<F: Future>(work: F) -> F::Output {
    let mut work = Box::pin(work);
    let is_possible = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    poll_fn(|context| match is_possible {
        true => block_in_place(|| work.as_mut().poll(context)),
        false => work.as_mut().poll(context),
    })
    .await
}
