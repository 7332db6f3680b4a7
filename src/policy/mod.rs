//! What is to become of edits and of drift.
//!
//! Entry point: [`book::Book`], which gives the [`Policy`] of a release.
//! Invariant: plain values. This module reads no file and judges nothing.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod book;

use std::time::Duration;

use crate::model::{DriftMode, EditsMode};

/// The policy that holds for a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of an edit that drifts.
    pub edits: EditsMode,
    /// What becomes of drift that the loop finds.
    pub drift: DriftMode,
    /// How long a Helm operation's record may stay untouched before the
    /// operation counts as dead and loses its rights.
    pub operation_timeout: Duration,
}
