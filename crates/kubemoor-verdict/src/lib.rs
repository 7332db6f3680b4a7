//! The one decision on edits.
//!
//! Entry points: [`judge::judge`] for edits of declared objects, [`records::judge`] for edits of
//! Helm's records, [`dependants::judge`] for deletions of namespaces and definitions;
//! [`replay::Replay`] judges recorded edits by other policies; [`revert::plan`] reverts the
//! drifting fields of an edit, [`ownership`] finds the owners of declared fields,
//! [`health::Health`] gives the health of a release as a whole. Webhook, loop and command line call
//! the same functions.
//!
//! Invariant: values in, values out; no I/O, no clock, no logging; total on any JSON. No verdict
//! holds a Secret's value: [`shown::Shown`] is the part of a value that a person may see, and no
//! other part leaves this module. Must not depend on the caller: a request, the loop or a command.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod additions;
pub mod adoption;
pub mod circumstances;
pub mod claims;
pub mod deletion;
pub mod dependants;
pub mod difference;
pub mod drift;
pub mod edit;
pub mod exceptions;
pub mod facts;
pub mod health;
pub mod identities;
pub mod judge;
pub mod message;
mod outputs;
pub mod ownership;
pub mod patch;
pub mod recorded;
pub mod records;
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
#[path = "../../kubemoor-declare/src/samples/mod.rs"]
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
