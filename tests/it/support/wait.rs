//! Waiting for a condition: the only way in which tests wait.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

/// How long the control plane and the guard may take for what happens by itself: the one budget of all waits, a multiple
/// of it where a comment says why. It bounds a test that has failed and proves nothing about time.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// Between two questions: an eighth of the time waited so far, within these limits. Each question costs the machine on
/// which the other tests run.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// What a condition says each time it is asked: its value once it holds, why it does not hold before.
pub(crate) trait Outcome {
    type Value;

    fn met(self) -> Result<Self::Value, String>;
}

impl Outcome for bool {
    type Value = ();

    fn met(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it does not hold".to_owned()) }
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn met(self) -> Result<T, String> {
        self.ok_or_else(|| "there is nothing yet".to_owned())
    }
}

impl<T, E: Display> Outcome for Result<T, E> {
    type Value = T;

    fn met(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Asks until the condition holds and returns its value.
///
/// # Panics
/// When the condition does not hold `within` the time given: with its name and the last reason.
pub(crate) async fn eventually<F, R>(
    what: &str,
    within: Duration,
    condition: F,
) -> <R::Output as Outcome>::Value
where
    F: FnMut() -> R,
    R: Future<Output: Outcome>,
{
    let met = poll(within, condition).await;
    met.unwrap_or_else(|reason| panic!("not within {:?}: {what}; last seen: {reason}", within * patience()))
}

/// Asks until the condition holds and returns its value, or the last reason if it does not hold `within` the time given.
pub(crate) async fn poll<F, R>(
    within: Duration,
    mut condition: F,
) -> Result<<R::Output as Outcome>::Value, String>
where
    F: FnMut() -> R,
    R: Future<Output: Outcome>,
{
    let start = Instant::now();
    let deadline = start + within * patience();
    let [shortest, longest] = PAUSES;
    loop {
        match condition().await.met() {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() >= deadline => return Err(reason),
            Err(_) => tokio::time::sleep((start.elapsed() / 8).clamp(shortest, longest)).await,
        }
    }
}

/// Awaits a message of a channel, an element of a stream or a task, for as long as [`eventually`] asks.
///
/// # Panics
/// When it does not come: with its name.
pub(crate) async fn soon<F: IntoFuture>(what: &str, future: F) -> F::Output {
    let come = tokio::time::timeout(budget(), future).await;
    come.unwrap_or_else(|_| panic!("not within {:?}: {what}", budget()))
}

/// [`SOON`] for waits that block.
pub(crate) fn budget() -> Duration {
    SOON * patience()
}

/// How many times as long as usual a wait may last: `KUBEMOOR_TEST_PATIENCE`, for machines that do other work.
fn patience() -> u32 {
    std::env::var("KUBEMOOR_TEST_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
