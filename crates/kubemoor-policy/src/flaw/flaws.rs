//! Collects the flaws of one text while it is read.
//!
//! Entry point: [`Flaws`]. Invariant: a text with a flaw has no value ([`Flaws::or`]). A limited number of flaws
//! is reported.

use std::fmt;

use super::{Flaw, FlawReason};

/// The flaws of one text while it is read: reading continues after the first flaw, so that a person
/// sees all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Flaws(Vec<Flaw>);

/// The most flaws that are reported for one text.
const TOLD: usize = 20;

impl Flaws {
    pub(crate) fn add(&mut self, field: &str, reason: FlawReason, message: impl fmt::Display) {
        if self.0.len() < TOLD {
            self.0.push(Flaw { field: field.to_owned(), reason, message: message.to_string() });
        }
    }

    /// Returns the value, or records the error.
    pub(crate) fn take<T, E: fmt::Display>(
        &mut self,
        field: &str,
        reason: FlawReason,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(field, reason, error)).ok()
    }

    /// Records a list that is longer than the limit; returns whether it is within the limit.
    pub(crate) fn within(&mut self, field: &str, count: usize, limit: usize) -> bool {
        if count > limit {
            self.add(field, FlawReason::TooMany, format_args!("{count} entries, at most {limit} are taken"));
        }
        count <= limit
    }

    /// `value`, unless there are flaws.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<Flaw>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
