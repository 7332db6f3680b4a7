//! Errors in a policy, an allowance or an annotation, for the user who wrote it: the field, a reason from a closed set
//! and the correct form. A policy, allowance or annotation with a flaw has no effect.

use std::fmt;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Where: `spec.ignore[0].paths[1]`, or the name of an annotation.
    pub field: String,
    pub reason: FlawReason,
    /// One clause for the user: what is wrong and what to write.
    pub message: String,
}

/// The kind of error; the reason of conditions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray,
)]
pub enum FlawReason {
    /// The text is not YAML, or not an object of this kind.
    Unreadable,
    UnknownField,
    Missing,
    InvalidValue,
    InvalidPath,
    /// A regular expression that does not compile, or grows too large.
    InvalidRegex,
    /// A glob of a release or namespace that can match nothing.
    InvalidGlob,
    InvalidSelector,
    InvalidSubject,
    InvalidSchedule,
    /// A time zone that is not in the IANA database.
    UnknownTimeZone,
    /// A cron expression that never matches.
    NeverFires,
    InvalidTime,
    /// A time further in the future than an allowance may last.
    TooFar,
    /// An object in another namespace than its allowance.
    ForeignNamespace,
    TooMany,
    DuplicateName,
}

impl FlawReason {
    /// Every reason, in the order of the documentation.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The reason's name, as in conditions.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.reason.as_str(), self.message)
    }
}

/// All flaws on one line.
pub fn join(flaws: &[Flaw]) -> String {
    flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Collects the flaws of one text: reading continues after the first flaw, so that the user sees all of them at once.
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

    pub(crate) fn take<T, E: fmt::Display>(
        &mut self,
        field: &str,
        reason: FlawReason,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(field, reason, error)).ok()
    }

    /// Adds a flaw if a list is longer than the limit; returns whether it is within the limit.
    pub(crate) fn check_count(&mut self, field: &str, count: usize, limit: usize) -> bool {
        if count > limit {
            let message = format_args!("{count} entries, but at most {limit} are allowed");
            self.add(field, FlawReason::TooMany, message);
        }
        count <= limit
    }

    /// Adds a flaw if a text is longer than the limit; returns whether it is within the limit.
    pub(crate) fn limit_length(&mut self, field: &str, reason: FlawReason, text: &str, limit: usize) -> bool {
        if text.len() > limit {
            self.add(field, reason, format_args!("{} bytes, but at most {limit} are allowed", text.len()));
        }
        text.len() <= limit
    }

    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<Flaw>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
