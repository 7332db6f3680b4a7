//! The verdicts on edits, live objects and releases.
//!
//! Entry points: [`judge::judge`] for edits of declared objects, [`records::judge`] for edits of Helm's records,
//! [`claims::judge_deletion`] for deletions of namespaces and definitions, [`drift::compare`] for live objects;
//! [`replay::Replay`] judges recorded edits by other policies; [`revert::plan`] reverts the drifting fields of an
//! edit, [`ownership`] predicts the next upgrade, [`health::ReleaseHealth`] gives the health of a release as a whole.
//! Webhook, loop and commands call the same functions, which accept any JSON. No verdict holds a Secret's value.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod additions;
pub mod claims;
pub mod diff;
pub mod drift;
pub mod edit;
pub mod exceptions;
pub mod health;
pub mod identities;
pub mod judge;
pub mod message;
pub mod owners;
pub mod ownership;
pub mod records;
pub mod remedy;
pub mod replay;
pub mod revert;
pub mod sealed;
pub mod shown;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-policy/src/samples.rs"]
mod sample_policies;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-declare/src/samples.rs"]
mod sample_values;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;

// The samples name this crate as the tests of other crates do.
#[cfg(test)]
extern crate self as kubemoor_verdict;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
mod samples;
