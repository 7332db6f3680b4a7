//! The ledger: who did what to which release, when, and with which result.
//!
//! [`LedgerHandle::record`] accepts a [`row::LedgerRow`], [`LedgerWriter::start`] writes rows to the database,
//! [`store::Store::page`] reads them. [`fleet`] holds the current states of releases. Recording
//! never waits, neither for the database nor for the disk. Rows that the database does not accept go to
//! standard output as lines of JSON and are counted. Neither place gets a Secret's value, only a keyed hash
//! of it.

mod id;
mod retention;
mod writer;

pub mod entry;
pub mod fleet;
pub mod query;
pub mod row;
pub mod store;

pub use writer::{LedgerHandle, LedgerWriter};
