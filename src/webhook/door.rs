//! The access check: only the API server is answered.
//!
//! Entry point: [`Door::stage`], which looks at nothing but the path of a request. Invariant: an
//! unknown caller learns nothing, costs a comparison and is counted. Must not log a path or a
//! token.

use super::registration::{MUTATE, VALIDATE};
use crate::callers::Callers;
use crate::metrics::AdmissionMetrics;

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
mod tests {
    use super::*;
    use crate::callers::CallerToken;
    use crate::metrics;

    fn door(proof: Proof) -> Door {
        Door::new(proof, Callers::default(), AdmissionMetrics::register(&mut metrics::registry()))
    }

    #[test]
    fn only_a_path_with_a_known_token_is_answered() {
        let door = door(Proof::Token);
        let (known, other) = ("a".repeat(64), "b".repeat(64));
        assert_eq!(door.stage(&format!("/validate/{known}")), None, "nobody is known yet");
        door.callers().accept(CallerToken::parse(&known).unwrap(), None);
        for (path, stage) in [
            (format!("/validate/{known}"), Some(Stage::Validate)),
            (format!("/mutate/{known}"), Some(Stage::Mutate)),
            (format!("/validate/{other}"), None),
            (format!("/validate/{known}a"), None),
            (format!("/validate/{known}/"), None),
            (format!("/validate//{known}"), None),
            (format!("/validate/{}", "a".repeat(63)), None),
            (format!("/validate{known}"), None),
            (format!("/Validate/{known}"), None),
            (format!("/{known}"), None),
            ("/validate".to_owned(), None),
            ("/validate/".to_owned(), None),
            ("/".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(door.stage(&path), stage, "{path}");
        }
    }

    #[test]
    fn behind_a_certificate_the_path_holds_no_token() {
        let door = door(Proof::Certificate);
        for (path, stage) in [
            ("/validate", Some(Stage::Validate)),
            ("/mutate", Some(Stage::Mutate)),
            ("/validate/", None),
            ("/validate/x", None),
            ("/", None),
        ] {
            assert_eq!(door.stage(path), stage, "{path}");
        }
    }
}
