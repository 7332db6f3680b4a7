//! Work in progress.

pub mod directory;
