//! What Helm stored, read the way Helm reads it: bytes of a record to a
//! [`record::Record`], its manifest to objects, a release's records to a
//! [`release::Release`], and what their state authorises ([`state::standing`]).
//!
//! Invariant: values in, values out; total on any input, since whoever may
//! write a Secret writes a record. Nothing here talks to a cluster.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod index;
pub mod manifest;
pub mod record;
pub mod release;
pub mod state;
pub mod storage;
mod yaml;
