//! The access check: only the API server is answered.
//!
//! Entry point: [`Door::stage`], which looks at nothing but the path of a request. Invariant: an
//! unknown caller learns nothing, costs a comparison and is counted. Must not log a path or a
//! token.

use super::registration::{MUTATE, VALIDATE};
use kubemoor_runtime::callers::Callers;
use kubemoor_runtime::metrics::AdmissionMetrics;

/// The question of the API server about an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Whether some fields have to be reverted first.
    Mutate,
    /// Whether it is allowed.
    Validate,
}

/// The proof by which the guard recognises the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By the token in the path.
    Token,
    /// By the client certificate of its connection: the path holds no token.
    Certificate,
}

/// Distinguishes the API server from all other callers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door {
    proof: Proof,
    callers: Callers,
    metrics: AdmissionMetrics,
}

impl Door {
    /// A door that requires `proof`; rejected callers are counted in `metrics`.
    pub fn new(proof: Proof, callers: Callers, metrics: AdmissionMetrics) -> Self {
        Self { proof, callers, metrics }
    }

    /// The stage that a request for `path` asks for; `None` for a caller without access.
    pub fn stage(&self, path: &str) -> Option<Stage> {
        let asked = [(VALIDATE, Stage::Validate), (MUTATE, Stage::Mutate)]
            .into_iter()
            .find_map(|(prefix, stage)| Some((path.strip_prefix(prefix)?, stage)))
            .filter(|(shown, _)| match self.proof {
                Proof::Token => {
                    shown.strip_prefix('/').is_some_and(|token| self.callers.admits(token.as_bytes()))
                }
                Proof::Certificate => shown.is_empty(),
            });
        if asked.is_none() {
            self.metrics.caller_refused();
        }
        asked.map(|(_, stage)| stage)
    }

    /// The secret by which callers are recognised.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }
}

#[cfg(test)]
mod tests;
