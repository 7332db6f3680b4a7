//! Helm's stored data, read the way Helm reads it: a record's bytes become a [`record::Record`], its manifest objects, and a
//! release's records a [`release::Release`]; [`state::standing`] gives the rights that their state grants. Values in, values
//! out; total on any input, since every user who may write a Secret can write a record.
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
