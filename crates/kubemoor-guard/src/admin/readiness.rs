//! The conditions for receiving requests.
//!
//! Entry point: [`Readiness::condition`]. Invariant: a condition is unmet until its owner reports it as met.
//! A readiness request never waits for an owner.

use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;

/// All conditions of this process; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<RwLock<Vec<(&'static str, Standing)>>>,
}

/// One condition, in the hands of the component that knows of it. Clones report
/// on the same condition.
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Met,
    /// Met, with something that is to be known.
    Noted(String),
    Unmet(String),
}

impl Readiness {
    /// No condition; that is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition, unmet until its owner reports it as met. An existing name returns the existing
    /// condition in its current state.
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut conditions = self.conditions.write();
        if conditions.iter().all(|(present, _)| *present != name) {
            conditions.push((name, Standing::Unmet("not yet known".to_owned())));
        }
        Condition { readiness: self.clone(), name }
    }

    /// Whether all conditions are met.
    pub fn is_ready(&self) -> bool {
        self.conditions.read().iter().all(|(_, standing)| !matches!(standing, Standing::Unmet(_)))
    }

    /// Returns whether all conditions are met, and one line for each: `[+]records ok` or
    /// `[-]records: no listing yet`.
    pub fn report(&self) -> (bool, String) {
        let conditions = self.conditions.read();
        let mut ready = true;
        let mut report = String::new();
        for (name, standing) in conditions.iter() {
            // Writing to a String cannot fail.
            let _ = match standing {
                Standing::Met => writeln!(report, "[+]{name} ok"),
                Standing::Noted(note) => writeln!(report, "[!]{name}: {note}"),
                Standing::Unmet(reason) => {
                    ready = false;
                    writeln!(report, "[-]{name}: {reason}")
                }
            };
        }
        report.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, report)
    }
}

impl Condition {
    /// The condition holds.
    pub fn met(&self) {
        self.set(Standing::Met);
    }

    /// The condition holds, and something is to be known of it, in a few words
    /// on one line.
    pub fn noted(&self, note: impl Into<String>) {
        self.set(Standing::Noted(note.into()));
    }

    /// Marks the condition as unmet. `reason` names what is missing, in a few words on one line.
    pub fn unmet(&self, reason: impl Into<String>) {
        self.set(Standing::Unmet(reason.into()));
    }

    fn set(&self, standing: Standing) {
        let mut conditions = self.readiness.conditions.write();
        for (name, present) in conditions.iter_mut() {
            if *name == self.name && *present != standing {
                match &standing {
                    Standing::Met | Standing::Noted(_) if matches!(present, Standing::Unmet(_)) => {
                        tracing::info!(condition = name, "a condition for readiness is met");
                    }
                    // It was met before, and its owner says more.
                    Standing::Met | Standing::Noted(_) => {}
                    Standing::Unmet(reason) => {
                        tracing::warn!(condition = name, reason, "a condition for readiness is not met");
                    }
                }
                present.clone_from(&standing);
            }
        }
    }
}
