//! An object of which something may be otherwise than is known.
//!
//! Entry point: [`Suspect`]. Invariant: a plain value. Must not decide when it is looked at.

use jiff::Timestamp;

/// An object that has to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub(crate) since: Timestamp,
    /// A watch says that it went.
    pub(crate) went: bool,
    /// It was tried, and could not be read.
    pub(crate) unread: bool,
}

impl Suspect {
    /// Nobody has tried to read it yet.
    pub(super) fn new(since: Timestamp, went: bool) -> Self {
        Self { since, went, unread: false }
    }
}
