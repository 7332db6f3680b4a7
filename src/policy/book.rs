//! The policies in force, by release.
//!
//! Entry point: [`Book::of`]. Invariant: whoever asks for one release twice
//! gets the same answer until the policies change. Reads no file and makes no
//! call.

use std::sync::Arc;

use super::Policy;
use crate::model::ReleaseId;

/// What holds for each release.
#[derive(Debug)]
pub struct Book {
    defaults: Arc<Policy>,
}

impl Book {
    /// A book in which `defaults` hold for every release.
    pub fn new(defaults: Policy) -> Self {
        Self { defaults: Arc::new(defaults) }
    }

    /// What holds where no release is concerned.
    pub fn defaults(&self) -> &Arc<Policy> {
        &self.defaults
    }

    /// What holds for a release.
    pub fn of(&self, _release: &ReleaseId) -> Arc<Policy> {
        Arc::clone(&self.defaults)
    }
}
