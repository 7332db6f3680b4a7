//! The only reason why no verdict is reached: an API server that does not answer.
//!
//! Entry point: [`Unreached::unless_answered`]. Invariant: a missing permission of the guard, or
//! data of a user, must not turn a denial into an error: an error leaves the edit to
//! `failurePolicy`, which may allow it. Must not judge.

use thiserror::Error;

use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::objects::WriteError;
use kubemoor_cluster::mirror::arbiter::ArbiterError;
use kubemoor_cluster::mirror::releases::{DocumentError, LookError};

/// The reason why the basis of a verdict could not be read.
#[derive(Debug, Error)]
pub(in crate::webhook) enum Unreached {
    /// The records could not be read.
    #[error("the edit could not be judged: {0}")]
    Look(Box<LookError>),
    /// The arbiter could not tell.
    #[error("the edit could not be judged: {0}")]
    Arbitrate(Box<ArbiterError>),
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
        let reason = self.cause();
        tracing::warn!(reason, "an edit is judged by what was known of it before");
        Ok(())
    }

    /// Whether the API server did not answer.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Look(error) => is_outage_of_look(error),
            Self::Arbitrate(error) => is_outage_of_arbiter(error),
            Self::Ask(error) | Self::Own(error) => error.is_outage(),
        }
    }

    fn cause(&self) -> String {
        match self {
            Self::Look(error) => error.to_string(),
            Self::Arbitrate(error) => error.to_string(),
            Self::Ask(error) | Self::Own(error) => error.to_string(),
        }
    }
}

fn is_outage_of_look(error: &LookError) -> bool {
    match error {
        LookError::Late { .. } => true,
        LookError::Call { reason, .. } => reason.is_outage(),
        LookError::Slow { .. } | LookError::Moving { .. } => false,
    }
}

fn is_outage_of_arbiter(error: &ArbiterError) -> bool {
    match error {
        // A dry run passes through other webhooks, and the API server reports some of their errors,
        // and errors caused by the object, as its own.
        ArbiterError::Refused {
            reason: WriteError::Failed(CallError::Refused { code: 500, .. }), ..
        } => false,
        ArbiterError::Refused { reason: WriteError::Failed(error), .. } => error.is_outage(),
        ArbiterError::Document(DocumentError::Call { reason, .. }) => reason.is_outage(),
        ArbiterError::Late { .. }
        | ArbiterError::Document(_)
        | ArbiterError::NotDeclared { .. }
        | ArbiterError::NotServed { .. }
        | ArbiterError::Changed { .. }
        | ArbiterError::Obstructed { .. }
        | ArbiterError::Refused { .. } => false,
    }
}

#[cfg(test)]
mod tests;
