//! Reads Helm's stored data the way Helm does: a record's bytes become a [`record::Record`], its manifest becomes
//! objects, and a release's records become a [`release::Release`]. [`state::current_claim`] returns what the release's
//! state allows. All functions are pure and accept any input, because every user who may write a Secret can write a
//! record.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod chart_source;
pub mod index;
pub mod manifest;
pub mod record;
pub mod release;
pub mod state;
pub mod storage;
pub mod values;
mod yaml;

// The samples name this crate as the tests of other crates do.
#[cfg(test)]
extern crate self as kubemoor_helm;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
mod samples;
