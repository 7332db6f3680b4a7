//! The guard at work: [`webhook`] answers the API server, [`guard`] runs the drift loop, [`admin`] serves health,
//! metrics and the ledger.

pub mod admin;
pub mod guard;
pub mod webhook;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-verdict/src/samples.rs"]
mod sample_verdicts;
