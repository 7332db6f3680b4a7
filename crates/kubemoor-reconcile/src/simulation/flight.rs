//! A write on its way to the API server.
//!
//! Entry points: [`Flight`] for the API server, [`Awaited`] for the guard that sent it. Must not decide anything.

use jiff::Timestamp;

use super::super::event::{ApiWork, WorkId, Write};
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// A write on its way.
pub(super) struct Flight {
    pub(super) guard: usize,
    pub(super) process: usize,
    pub(super) errand: WorkId,
    pub(super) object: ObjectId,
    pub(super) write: Write,
    pub(super) arrives: Timestamp,
    /// When its guard gives it up.
    pub(super) deadline: Timestamp,
}

/// A write whose answer a guard awaits.
pub(super) struct Awaited {
    pub(super) errand: WorkId,
    pub(super) release: ReleaseId,
    pub(super) work: ApiWork,
    pub(super) deadline: Timestamp,
}
