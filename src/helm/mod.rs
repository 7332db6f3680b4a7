//! What Helm stored, read the way Helm reads it.
//!
//! Entry points: bytes of a record become a [`record::Record`], its manifest
//! objects, a release's records a [`release::Release`]; [`state::standing`] says
//! what their state authorises. Invariant: values in, values out; total on any input, since whoever may
//! write a Secret writes a record. Must not talk to a cluster.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod index;
pub mod manifest;
pub mod record;
pub mod release;
pub mod state;
pub mod storage;
pub mod values;
mod yaml;
