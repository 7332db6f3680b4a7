//! The ledger: who did what to which release, when, and what became of it.
//!
//! Entry points: [`Ledger::record`] takes a [`row::Row`] in, [`Writer::start`]
//! carries rows to the database, [`store::Store::page`] reads them again. [`fleet`] is how releases stand now.
//! Invariants: recording never waits, neither for the database nor for the
//! disk; what the database does not take goes to standard output as a line of
//! JSON and is counted; a Secret's value is in neither, only a keyed hash of it.
//! Must not decide anything about an edit.

mod id;
mod opening;
mod retention;
mod spill;
mod writer;

pub mod entry;
pub mod fleet;
pub mod query;
pub mod row;
pub mod store;

pub use writer::{Ledger, Writer};
