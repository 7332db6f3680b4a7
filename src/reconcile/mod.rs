//! What the loop knows and decides: how each declared object stands, what may be
//! done about it, and when.
//!
//! Entry points: `drifts::Drifts` remembers, `plan::plan` decides,
//! [`report::ReleaseReport`] is told on. Invariant: values in, values out; no
//! I/O, no clock (`now` is an argument), no task, no log line. No object is
//! kept. Must not know how an API server is asked.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub(crate) mod answer;
pub(crate) mod asked;
pub(crate) mod backoff;
pub(crate) mod blame;
pub(crate) mod body;
pub(crate) mod brake;
mod drift;
pub(crate) mod drifts;
pub(crate) mod elapsed;
mod first;
pub(crate) mod install_order;
pub(crate) mod judge;
mod life;
pub mod live;
pub(crate) mod plan;
pub(crate) mod recent;
pub mod report;
pub(crate) mod rollout;
