//! The state and the decisions of the loop: the state of each declared object, which repairs are allowed, and when.
//!
//! [`machine::Reconciler`] turns [`event::LoopEvent`]s into [`event::LoopAction`]s. Values in, values out: no I/O, no
//! clock (`now` is an argument), no task and no log line. No object is kept.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod body;
pub mod brake;
pub mod drifts;
pub mod event;
mod judge;
mod known;
pub mod machine;
mod orders;
mod pass;
mod plan;
mod recreate;
mod repair;
pub mod report;
mod restore;
mod rollout;
pub mod scopes;
pub mod waits;

/// Counts visited objects or releases: tests check that the work is proportional to the changes. Called by every walk
/// over objects or releases.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn note_effort(_: usize) {}

#[cfg(test)]
thread_local! {
    pub(crate) static EFFORT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(crate) fn note_effort(objects: usize) {
    EFFORT.with(|effort| effort.set(effort.get() + objects));
}

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
