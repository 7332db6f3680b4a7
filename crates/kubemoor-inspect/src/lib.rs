//! A person's view of a cluster, and the actions that their own rights allow: shared by the commands and the page.
//!
//! It needs no running guard and no rights of its own: the API server authorizes the person. No result holds a Secret's
//! values, and every failure is one sentence.

pub mod comparison;
pub mod exceptions;
pub mod explanation;
pub mod failure;
pub mod fleet;
pub mod guard;
pub mod ledger;
pub mod policies;
pub mod reading;
pub mod releases;
pub mod replay;
pub mod report;
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
