//! The declarations of a manifest: their paths, and the rules for comparing them with live values.
//!
//! Entry points: [`declare::declare`] turns one manifest document into [`fields::Fields`];
//! [`fields::Fields::changed`] and [`fields::Fields::drift`] compare objects with them. Types come from
//! [`catalog::Catalog`].
//!
//! Invariant: pure and total. Any JSON gives an answer, nothing below [`schema::MAX_DEPTH`] levels is
//! visited, and a doubt is reported as a doubt. Must not know a release, a policy or a cluster.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod restore;
mod unions;

pub mod additions;
pub mod ambiguous;
pub mod catalog;
pub mod compare;
pub mod compressed;
pub mod declare;
pub mod digest;
pub mod document;
pub mod embedded;
pub mod equality;
pub mod fields;
pub mod lookup;
pub mod model;
pub mod openapi;
pub mod outline;
pub mod outputs;
pub mod packed;
pub mod path;
pub mod prune;
pub mod quantity;
pub mod schema;
pub mod sweep;

#[cfg(test)]
pub(crate) mod samples;
