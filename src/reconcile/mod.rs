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
pub(crate) mod backoff;
pub(crate) mod blame;
pub(crate) mod body;
pub(crate) mod brake;
pub mod departure;
mod drift;
pub(crate) mod drifts;
mod effort;
pub(crate) mod elapsed;
pub(crate) mod event;
mod first;
pub(crate) mod install_order;
pub(crate) mod judge;
pub(crate) mod known;
mod life;
pub mod live;
pub(crate) mod machine;
pub(crate) mod occurrence;
pub(crate) mod plan;
pub(crate) mod recent;
pub mod report;
pub(crate) mod rollout;
pub(crate) mod scopes;
pub(crate) mod suspensions;
pub(crate) mod tally;

#[cfg(test)]
mod simulation;
