//! Why a repair wrote nothing.

use crate::cluster::objects::WriteError;

/// Why nothing was written.
pub(super) enum Trouble {
    Write(WriteError),
    /// The release has moved on.
    Moved,
    /// It would take away what was never seen to be gone.
    Unconfirmed,
    Other(String),
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}
