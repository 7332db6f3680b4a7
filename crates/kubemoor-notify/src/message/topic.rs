//! The topics of messages, and how bad they are.
//!
//! Entry points: [`Topic`], [`Severity`]. Invariant: fixed sets of names, which settings and receivers use.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

/// The kinds of event that a receiver chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Drift that was found, repaired, not repaired, or ended.
    Drift,
    /// Objects that somebody changes back.
    Contest,
    /// Repairs that stop because too much drifts.
    Brake,
    /// The emergency switch.
    Emergency,
    /// Exceptions.
    Exception,
    /// Denied changes.
    Denial,
    /// Stuck operations of Helm.
    Operation,
    /// Tests, which every receiver gets.
    #[serde(skip_deserializing)]
    Test,
}

/// Whether a condition begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It lasts until a message says that it ended.
    Begins,
    /// It ended.
    Ends,
    /// It does not last.
    Once,
}

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Critical,
    Warning,
    Info,
}

impl Topic {
    /// All of which a receiver may choose.
    pub(crate) const ALL: [Self; 7] = [
        Self::Drift,
        Self::Contest,
        Self::Brake,
        Self::Emergency,
        Self::Exception,
        Self::Denial,
        Self::Operation,
    ];

    /// Its name, as routes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drift => "drift",
            Self::Contest => "contest",
            Self::Brake => "brake",
            Self::Emergency => "emergency",
            Self::Exception => "exception",
            Self::Denial => "denial",
            Self::Operation => "operation",
            Self::Test => "test",
        }
    }

    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Brake | Self::Emergency => Severity::Critical,
            Self::Drift | Self::Contest | Self::Operation => Severity::Warning,
            Self::Exception | Self::Denial | Self::Test => Severity::Info,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Severity {
    /// Its name, which Alertmanager's users and PagerDuty share.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}
