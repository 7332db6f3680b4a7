//! The state of one object in a comparison, and of its fields (`field`).
//!
//! Entry points: [`State`], [`FieldReport`]. Must not compare anything.

mod field;

use serde::Serialize;

pub use self::field::{FieldReport, What};
use kubemoor_verdict::health::ObjectState;

/// What is the matter with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub enum State {
    /// Some fields are not as declared.
    Drifted,
    /// It does not exist.
    Missing,
    /// Some fields may not be as declared.
    InDoubt,
    /// Its fields match, and another field manager owns some of them.
    Ownership,
    /// A Helm operation under way will make it.
    Awaited,
    /// The operation that failed has not created it.
    NotCreated,
    /// It does not exist, as an exception or its own time to live allows.
    Allowed,
    /// It differs as an exception allows.
    AllowedToDiffer,
    /// Another release owns it.
    Foreign,
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// The API server serves no such kind.
    NotServed,
    /// It could not be read.
    Unread,
}

impl State {
    /// The health of an object in this state.
    pub(crate) fn health(self) -> ObjectState {
        match self {
            Self::Drifted => ObjectState::Changed,
            // A kind that is not served has no objects.
            Self::Missing | Self::NotServed => ObjectState::Missing,
            Self::InDoubt => ObjectState::InDoubt,
            Self::Ownership => ObjectState::Ownership,
            Self::Awaited | Self::NotCreated => ObjectState::Awaited,
            Self::Allowed | Self::AllowedToDiffer => ObjectState::Allowed,
            Self::Foreign => ObjectState::Foreign,
            Self::OptedOut => ObjectState::OptedOut,
            Self::BeingDeleted => ObjectState::Deleting,
            Self::Unread => ObjectState::Unread,
        }
    }
}
