//! Work in progress.

pub mod registration;
