//! Writes to the cluster: at a rate, only by the leader, and within a time.
//!
//! Entry points: `Writer::send`; `Writer::turn` and `Writer::turn_now` for a
//! write that takes several requests. Invariant: a write waits for its turn first
//! and asks last, immediately before each request, whether this process leads; no
//! answer is awaited beyond the lead's end. Must not know what is written.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::Request;

use super::call::{self, BODY_CAP, CallError, PATIENCE};
use super::lease::Leadership;

/// The rate of rare writes, per second.
const SELDOM: NonZeroU32 = match NonZeroU32::new(50) {
    Some(rate) => rate,
    None => NonZeroU32::MIN,
};

/// Writes to the cluster. Cheap to clone; clones share one rate.
#[derive(Clone)]
pub(crate) struct Writer {
    client: kube::Client,
    rate: Arc<DefaultDirectRateLimiter>,
    leadership: Leadership,
    patience: Duration,
}

/// The right to write once.
pub(crate) struct Turn<'w>(&'w Writer);

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This process does not lead, or no more.
    #[error("another replica leads now")]
    NotLeading,
    /// The API server gave no usable answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Writer {
    /// Writes at most at `rate`, and only while this process leads.
    pub(crate) fn new(client: kube::Client, rate: Quota, leadership: Leadership) -> Self {
        Self { client, rate: Arc::new(RateLimiter::direct(rate)), leadership, patience: PATIENCE }
    }

    /// Writes what is seldom written, so that any rate above the usual is a fault.
    pub(crate) fn seldom(client: kube::Client, leadership: Leadership) -> Self {
        Self::new(client, Quota::per_second(SELDOM), leadership)
    }

    /// The same for a process that leads by `leadership`.
    pub(crate) fn led(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// The same with an answer awaited for `patience` at most.
    pub(crate) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends a write when its turn comes; the body of the answer.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, SendError> {
        self.turn().await.send(request).await
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        self.rate.until_ready().await;
        Turn(self)
    }

    /// A turn, if there is one now.
    pub(crate) fn turn_now(&self) -> Option<Turn<'_>> {
        self.rate.check().is_ok().then_some(Turn(self))
    }
}

impl Turn<'_> {
    /// Sends one request of the write; the body of the answer.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, SendError> {
        let Writer { client, leadership, patience, .. } = self.0;
        let within = leadership.left().unwrap_or(*patience).min(*patience);
        if within.is_zero() {
            return Err(SendError::NotLeading);
        }
        Ok(call::send(client, request, BODY_CAP, within).await?)
    }
}

#[cfg(test)]
mod tests;
