//! The knowledge and the decisions of the loop: the state of each declared object, which repairs
//! are allowed, and when.
//!
//! Entry points: `machine::Reconciler` turns `event::Event`s into `event::Action`s;
//! `drifts::Drifts` remembers, `plan::plan` decides, `report::ReleaseReport` is published.
//! Invariant: values in, values out; no I/O, no clock (`now` is an argument), no task, no log line.
//! No object is kept. Must not know how to call an API server.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub(crate) mod alarms;
pub(crate) mod answer;
pub(crate) mod asked;
pub mod backoff;
pub(crate) mod blame;
pub(crate) mod body;
pub mod brake;
pub mod departure;
mod drift;
pub mod drifts;
mod effort;
pub(crate) mod elapsed;
pub mod event;
mod first;
pub(crate) mod install_order;
pub(crate) mod judge;
pub(crate) mod known;
mod life;
pub mod live;
pub mod machine;
pub mod occurrence;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod recent;
pub mod report;
pub(crate) mod rollout;
pub mod scopes;
pub(crate) mod suspensions;
pub(crate) mod tally;

#[cfg(test)]
mod simulation;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-policy/src/samples.rs"]
mod sample_policies;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;
