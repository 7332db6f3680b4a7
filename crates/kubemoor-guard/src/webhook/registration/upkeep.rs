//! The rhythm in which a guard keeps a Secret that replicas share: it reads the Secret, writes a step that is due, and
//! pauses.
//!
//! Entry point: `run`. Invariant: a change of leadership ends the pause, and a failure that repeats is logged once.
//! Must not decide which step is due.

use std::fmt::Display;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use kubemoor_cluster::client::lease::Leadership;

/// A Secret that is kept.
pub(super) trait Upkeep: Sync {
    /// The knowledge of this process.
    type State: Default + Send;
    /// The reason why the Secret could not be kept.
    type Error: Display + Send;

    /// The pause after a failure.
    fn retry(&self) -> Duration;

    /// Whether this replica writes.
    fn leadership(&self) -> &Leadership;

    /// Reads the Secret, writes a step that is due, and returns the pause until the next time.
    fn keep(
        &self,
        client: &kube::Client,
        state: &mut Self::State,
    ) -> impl Future<Output = Result<Duration, Self::Error>> + Send;

    /// Logs a failure.
    fn warn(error: &str);
}

/// Keeps the Secret until `stop`.
pub(super) async fn run<U: Upkeep>(upkeep: &U, client: &kube::Client, stop: &CancellationToken) {
    let mut leading = upkeep.leadership().watch();
    let mut state = U::State::default();
    let mut last_failure = None;
    loop {
        let kept = tokio::select! {
            () = stop.cancelled() => return,
            kept = upkeep.keep(client, &mut state) => kept,
        };
        let (pause, failure) = match kept {
            Ok(pause) => (pause, None),
            Err(error) => (upkeep.retry(), Some(error.to_string())),
        };
        if let Some(error) = failure.as_ref().filter(|_| failure != last_failure) {
            U::warn(error);
        }
        last_failure = failure;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Ok(()) = leading.changed() => {}
        }
    }
}
