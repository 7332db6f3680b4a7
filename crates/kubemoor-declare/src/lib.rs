//! The fields that a manifest declares, and the rules for comparing them with live values.
//!
//! [`declare::declare`] turns one manifest document into [`fields::DeclaredFields`];
//! [`fields::DeclaredFields::changed`] and [`fields::DeclaredFields::drift`] compare objects with them. Types come from
//! [`catalog::Catalog`]. All functions are pure, accept any JSON and visit nothing below [`schema::MAX_DEPTH`] levels.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod restore;

pub mod catalog;
pub mod compare;
pub mod declare;
pub mod equality;
pub mod excerpt;
pub mod fields;
pub mod model;
pub mod openapi;
pub mod packed;
pub mod path;
pub mod prune;
pub mod schema;

#[cfg(test)]
pub(crate) mod samples;
