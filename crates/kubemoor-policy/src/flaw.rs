//! Errors in a policy, an allowance or an annotation, for the person who wrote it.
//!
//! Entry point: [`Flaw`]. Invariant: a flaw names the field, a reason from a closed set and the
//! correct form. A text with a flaw must not take effect, not even in part.

mod flaws;

use std::fmt;

use serde::Serialize;

pub(super) use self::flaws::Flaws;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Where: `spec.ignore[0].paths[1]`, or the name of an annotation.
    pub field: String,
    /// The kind of error.
    pub reason: FlawReason,
    /// One clause for a person: what is wrong and what to write.
    pub message: String,
}

/// The kind of error; the reason of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum FlawReason {
    /// The text is not YAML, or not an object of this kind.
    Unreadable,
    /// A field that does not exist.
    UnknownField,
    /// A field that is missing.
    Missing,
    /// A value that the field does not accept.
    InvalidValue,
    /// A path that is not a JSON Pointer.
    InvalidPath,
    /// A regular expression that does not compile, or grows too large.
    InvalidRegex,
    /// A glob of a release or namespace that can match nothing.
    InvalidGlob,
    /// A selector of labels or annotations that cannot be read.
    InvalidSelector,
    /// A subject that names nobody.
    InvalidSubject,
    /// An invalid schedule.
    InvalidSchedule,
    /// A time zone that is not in the IANA database.
    UnknownTimeZone,
    /// A cron expression that never matches.
    NeverFires,
    /// An invalid time.
    InvalidTime,
    /// A time that is further away than an allowance may last.
    TooFar,
    /// An object in another namespace than its allowance.
    ForeignNamespace,
    /// More entries than the limit.
    TooMany,
    /// Two policies of one name.
    DuplicateName,
}

impl FlawReason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 17] = [
        Self::Unreadable,
        Self::UnknownField,
        Self::Missing,
        Self::InvalidValue,
        Self::InvalidPath,
        Self::InvalidRegex,
        Self::InvalidGlob,
        Self::InvalidSelector,
        Self::InvalidSubject,
        Self::InvalidSchedule,
        Self::UnknownTimeZone,
        Self::NeverFires,
        Self::InvalidTime,
        Self::TooFar,
        Self::ForeignNamespace,
        Self::TooMany,
        Self::DuplicateName,
    ];

    /// The reason's name, as in conditions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "Unreadable",
            Self::UnknownField => "UnknownField",
            Self::Missing => "Missing",
            Self::InvalidValue => "InvalidValue",
            Self::InvalidPath => "InvalidPath",
            Self::InvalidRegex => "InvalidRegex",
            Self::InvalidGlob => "InvalidGlob",
            Self::InvalidSelector => "InvalidSelector",
            Self::InvalidSubject => "InvalidSubject",
            Self::InvalidSchedule => "InvalidSchedule",
            Self::UnknownTimeZone => "UnknownTimeZone",
            Self::NeverFires => "NeverFires",
            Self::InvalidTime => "InvalidTime",
            Self::TooFar => "TooFar",
            Self::ForeignNamespace => "ForeignNamespace",
            Self::TooMany => "TooMany",
            Self::DuplicateName => "DuplicateName",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.reason.as_str(), self.message)
    }
}
