//! Writes to the cluster, with a rate limit and a time limit, and only by the leader: leadership is checked after the
//! wait for the rate limit, immediately before the request, and no response is awaited after its end.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::Request;

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::lease::Leadership;

/// The rate limit of rare writes, per second.
const SELDOM: NonZeroU32 = at_least_one(50);

/// A rate for a constant; 1 if `rate` is 0.
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

    /// For rare writes: reaching the limit means that something is wrong.
    pub(crate) fn seldom(client: kube::Client, leadership: Leadership) -> Self {
        Self::new(client, Quota::per_second(SELDOM), leadership)
    }

    pub(crate) fn led(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    pub(crate) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends a write when the rate limit allows it; returns the body of the response.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, ClusterError> {
        self.rate.until_ready().await;
        self.send_in_turn(request).await
    }

    /// Sends a write if the rate limit allows it now; otherwise returns `None`.
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
