//! The reasons why an object was not written.
//!
//! Entry point: [`WriteError`]. Invariant: no error quotes a Secret's values.

use super::super::call::CallError;
use super::Target;
use kubemoor_declare::model::Cause;

/// Why a write did not happen. Messages are the API server's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object or its namespace does not exist.
    #[error("not found: {message}")]
    NotFound {
        /// The API server's message.
        message: String,
    },
    /// An object of that name exists.
    #[error("it exists already: {message}")]
    AlreadyExists {
        /// The API server's message.
        message: String,
    },
    /// The object has another version, uid or field owner than the write expects.
    #[error("conflict: {message}")]
    Conflict {
        /// The API server's message.
        message: String,
    },
    /// Missing rights, a quota, or an admission plugin or webhook that refuses.
    #[error("forbidden: {message}")]
    Forbidden {
        /// The API server's message.
        message: String,
    },
    /// The namespace is being deleted and takes no new objects.
    #[error("the namespace is being deleted: {message}")]
    Terminating {
        /// The API server's message.
        message: String,
    },
    /// The object is invalid, or changes a field that must not change.
    #[error("invalid: {message}")]
    Invalid {
        /// The API server's message.
        message: String,
        /// The fields at fault.
        causes: Vec<Cause>,
    },
    /// This process does not lead, or no more.
    #[error("this replica does not lead, or is read-only, and writes nothing")]
    NotLeading,
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] CallError),
}

impl WriteError {
    pub(super) fn of(target: &Target, error: CallError) -> Self {
        let error = if target.resource.is_secret() { error.without_values() } else { error };
        let is_terminating = error.is_terminating();
        let CallError::Refused { code, reason, message, causes, retry_after, names_absent } = error else {
            return Self::Failed(error);
        };
        match (code, reason.as_str()) {
            (404, _) => Self::NotFound { message },
            (409, "AlreadyExists") => Self::AlreadyExists { message },
            (409, _) => Self::Conflict { message },
            (403, _) if is_terminating => Self::Terminating { message },
            (403, _) => Self::Forbidden { message },
            (422, _) => Self::Invalid { message, causes },
            _ => {
                Self::Failed(CallError::Refused { code, reason, message, causes, retry_after, names_absent })
            }
        }
    }
}
