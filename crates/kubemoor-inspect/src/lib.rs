//! A user's view of a cluster, and the actions that their own rights allow: shared by the commands and the
//! web page.
//!
//! Entry points: `reading::Reader`, then `releases`, `comparison` and `explanation`; `allowances`, `policies`
//! and `ledger` for lists; `orders` and `exceptions` for actions. Invariant: needs no guard and no right of
//! its own: the API server authorizes the user. No answer holds a Secret's values. Every failure is one
//! sentence. Must not print, know the command line or the page, or judge by other rules than the guard's.

pub mod allowances;
pub mod chart;
pub mod comparison;
pub mod exceptions;
pub mod explanation;
pub mod failure;
pub mod fleet;
pub mod forecast;
pub mod guard;
pub mod ledger;
pub(crate) mod object;
pub mod orders;
pub mod policies;
pub mod pulses;
pub mod reading;
pub mod releases;
pub mod replay;
pub mod sheet;
pub mod times;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-policy/src/samples.rs"]
mod sample_policies;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-verdict/src/samples.rs"]
mod sample_verdicts;
