//! Errors in a policy, an allowance or an annotation, for the person who wrote it: the field, a reason from a closed
//! set and the correct form. A text with a flaw takes no effect.

use std::fmt;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Where: `spec.ignore[0].paths[1]`, or the name of an annotation.
    pub field: String,
    pub reason: FlawReason,
    /// One clause for a person: what is wrong and what to write.
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
    /// A time that is further away than an allowance may last.
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

/// All of them, in one line.
pub fn join(flaws: &[Flaw]) -> String {
    flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The flaws of one text while it is read: reading continues after the first flaw, so that a person sees all of them
/// at once.
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

    /// Records a list that is longer than the limit; returns whether it is within the limit.
    pub(crate) fn within(&mut self, field: &str, count: usize, limit: usize) -> bool {
        if count > limit {
            self.add(field, FlawReason::TooMany, format_args!("{count} entries, at most {limit} are taken"));
        }
        count <= limit
    }

    /// Records a text that is longer than the limit; returns whether it is within the limit.
    pub(crate) fn limit_length(&mut self, field: &str, reason: FlawReason, text: &str, limit: usize) -> bool {
        if text.len() > limit {
            self.add(field, reason, format_args!("{} bytes, at most {limit} are taken", text.len()));
        }
        text.len() <= limit
    }

    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<Flaw>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
