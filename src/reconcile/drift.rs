//! One object that is not as declared, as the loop remembers it.
//!
//! Entry point: [`Drift`]. Invariant: values are there only as redacted
//! findings. Must not decide anything.

use std::sync::Arc;

use jiff::Timestamp;

use super::report::{DriftKind, Drifted};
use crate::model::ObjectId;
use crate::verdict::edit::Finding;

/// What is wrong with an object.
#[derive(Clone, Debug)]
pub(crate) struct Drift {
    pub(crate) kind: DriftKind,
    pub(crate) since: Timestamp,
    pub(crate) findings: Vec<Finding>,
    /// The manager that wrote what is not as declared.
    pub(crate) by: Option<String>,
    /// Only the arbiter can tell whether it is drift at all, and it was not
    /// asked yet.
    pub(crate) doubt: bool,
    /// An exception allows it to be so.
    pub(crate) allowed: bool,
    /// Whether it was said, and counted.
    pub(crate) reported: bool,
    pub(crate) counted: bool,
    pub(crate) repaired: Option<Result<(), String>>,
    pub(crate) kept: Option<Arc<str>>,
    pub(crate) contested: bool,
    /// What is declared was never seen in the live object, so nobody writes it.
    pub(crate) unconfirmed: bool,
    /// How often nothing could be done about it.
    pub(crate) tries: u32,
    /// Who ordered the repair and so vouched for what was written.
    pub(crate) confirmed_by: Option<String>,
}

impl Drift {
    /// A drift of which no more is known.
    pub(crate) fn new(kind: DriftKind, since: Timestamp) -> Self {
        Self {
            kind,
            since,
            findings: Vec::new(),
            by: None,
            doubt: false,
            allowed: false,
            reported: false,
            counted: false,
            repaired: None,
            kept: None,
            contested: false,
            unconfirmed: false,
            tries: 0,
            confirmed_by: None,
        }
    }

    /// As it is shown.
    pub(crate) fn shown(&self, object: &Arc<ObjectId>) -> Drifted {
        Drifted {
            object: Arc::clone(object),
            kind: self.kind,
            findings: self.findings.clone(),
            by: self.by.clone(),
            since: self.since,
            repaired: self.repaired.clone(),
            kept: self.kept.clone(),
            contested_by: self.contested.then(|| self.by.clone().unwrap_or_default()),
            unconfirmed: self.unconfirmed,
            doubt: self.doubt,
            allowed: self.allowed,
        }
    }

    /// Whether it is drift, and nobody else's business.
    pub(crate) fn is_certain(&self) -> bool {
        !self.doubt && !self.allowed && self.kind != DriftKind::Terminating
    }
}
