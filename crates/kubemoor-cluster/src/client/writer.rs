//! Writes to the cluster: at a rate, only by the leader, and within a time. A write waits for its turn first and asks
//! last, immediately before the request, whether this process leads; no answer is awaited beyond the lead's end.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::Request;

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::lease::Leadership;

/// The rate of rare writes, per second.
const SELDOM: NonZeroU32 = at_least_one(50);

/// A rate for a constant.
pub const fn at_least_one(rate: u32) -> NonZeroU32 {
    match NonZeroU32::new(rate) {
        Some(rate) => rate,
        None => NonZeroU32::MIN,
    }
}

#[derive(Clone)]
pub(crate) struct ClusterWriter {
    client: kube::Client,
    rate: Arc<DefaultDirectRateLimiter>,
    leadership: Leadership,
    patience: Duration,
}

impl ClusterWriter {
    /// Writes at most at `rate`, and only while this process leads.
    pub(crate) fn new(client: kube::Client, rate: Quota, leadership: Leadership) -> Self {
        Self { client, rate: Arc::new(RateLimiter::direct(rate)), leadership, patience: PATIENCE }
    }

    /// Writes what is seldom written, so that any rate above the usual is a fault.
    pub(crate) fn seldom(client: kube::Client, leadership: Leadership) -> Self {
        Self::new(client, Quota::per_second(SELDOM), leadership)
    }

    pub(crate) fn led(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    pub(crate) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends a write when its turn comes; the body of the answer.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, ClusterError> {
        self.rate.until_ready().await;
        self.send_in_turn(request).await
    }

    /// Sends a write if it is its turn; `None` if not.
    pub(crate) async fn send_now(&self, request: Request<Vec<u8>>) -> Option<Result<Vec<u8>, ClusterError>> {
        self.rate.check().ok()?;
        Some(self.send_in_turn(request).await)
    }

    async fn send_in_turn(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, ClusterError> {
        let within = self.leadership.remaining().min(self.patience);
        if within.is_zero() {
            return Err(ClusterError::NotLeading);
        }
        call::send(&self.client, request, BODY_CAP, within).await
    }
}

#[cfg(test)]
mod tests;
