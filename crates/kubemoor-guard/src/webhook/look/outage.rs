//! The only reason why no verdict is reached: an API server that does not answer.
//!
//! Entry point: [`Unreached::unless_answered`]. Invariant: a missing permission of the guard, or
//! data of a user, must not turn a denial into an error: an error leaves the edit to
//! `failurePolicy`, which may allow it. Must not judge.

use thiserror::Error;

use kubemoor_cluster::client::call::CallError;

/// The reason why the basis of a verdict could not be read.
#[derive(Debug, Error)]
pub(in crate::webhook) enum Unreached {
    /// The records could not be read.
    #[error("the edit could not be judged: {0}")]
    Look(Box<CallError>),
    /// The arbiter could not tell.
    #[error("the edit could not be judged: {0}")]
    Arbitrate(Box<CallError>),
    /// It could not be asked whether the editor may have what they ask for.
    #[error("the edit could not be judged, since the editor's rights cannot be read: {0}")]
    Ask(Box<CallError>),
    /// The object's metadata could not be read.
    #[error("the edit could not be judged, since the object's owner cannot be read: {0}")]
    Own(Box<CallError>),
}

impl Unreached {
    /// This error if the API server did not answer. Otherwise the verdict stays as it is, and the
    /// log names the missing part.
    ///
    /// # Errors
    /// This one.
    pub(in crate::webhook) fn unless_answered(self) -> Result<(), Self> {
        if self.is_outage() {
            return Err(self);
        }
        let reason = self.error();
        tracing::warn!(%reason, "an edit is judged by what was known of it before");
        Ok(())
    }

    /// Whether the API server did not answer.
    pub(super) fn is_outage(&self) -> bool {
        self.error().is_outage()
    }

    fn error(&self) -> &CallError {
        let (Self::Look(error) | Self::Arbitrate(error) | Self::Ask(error) | Self::Own(error)) = self;
        error
    }
}

#[cfg(test)]
mod tests;
