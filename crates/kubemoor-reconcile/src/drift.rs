//! The memory of the loop about one drifting object.
//!
//! Entry point: [`Drift`]. Invariant: holds values only as redacted findings. Must not decide
//! anything.

use std::sync::Arc;

use jiff::Timestamp;

use super::report::{DriftKind, Drifted};
use kubemoor_declare::model::ObjectId;
use kubemoor_verdict::edit::Finding;

/// What is wrong with an object.
#[derive(Clone, Debug)]
pub struct Drift {
    pub kind: DriftKind,
    pub since: Timestamp,
    pub findings: Vec<Finding>,
    /// The field manager that wrote the differences.
    pub by: Option<String>,
    /// Only the arbiter can tell whether this is drift, and it has not been asked yet.
    pub doubt: bool,
    /// An exception allows the difference.
    pub allowed: bool,
    /// Whether it was reported, and whether it was counted.
    pub reported: bool,
    pub counted: bool,
    pub repaired: Option<Result<(), String>>,
    pub kept: Option<Arc<str>>,
    pub contested: bool,
    /// The guard has never seen the declared values in the live object, so it does not write them.
    pub unconfirmed: bool,
    /// The number of attempts in which nothing could be done.
    pub tries: u32,
    /// The person who ordered the repair and so confirmed the written values.
    pub confirmed_by: Option<String>,
}

impl Drift {
    /// A drift with nothing but its kind and its beginning.
    pub fn new(kind: DriftKind, since: Timestamp) -> Self {
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

    /// The drift as reports show it.
    pub fn shown(&self, object: &Arc<ObjectId>) -> Drifted {
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

    /// Whether it is drift beyond doubt: not allowed, and not an object that is being deleted.
    pub(crate) fn is_certain(&self) -> bool {
        !self.doubt && !self.allowed && self.kind != DriftKind::Terminating
    }
}
