//! Who is answered: the API server alone.
//!
//! Entry point: [`Door::stage`], before anything of a request but its path is
//! looked at. Invariant: an unknown caller learns nothing, costs a comparison
//! and is counted; neither a path nor a token is ever logged.

use super::registration::{MUTATE, VALIDATE};
use crate::callers::Callers;
use crate::metrics::AdmissionMetrics;

/// What the API server asks of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Whether anything is to be set back first.
    Mutate,
    /// Whether it passes.
    Validate,
}

/// By what the API server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By the token in the path.
    Token,
    /// By the certificate that its connection was made with: the path holds no
    /// token.
    Certificate,
}

/// Tells the API server from everybody else. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door {
    proof: Proof,
    callers: Callers,
    metrics: AdmissionMetrics,
}

impl Door {
    /// A door that opens by `proof`; refused callers are counted in `metrics`.
    pub fn new(proof: Proof, callers: Callers, metrics: AdmissionMetrics) -> Self {
        Self { proof, callers, metrics }
    }

    /// The stage that a request for `path` asks for; `None` for a caller who gets no
    /// answer.
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

    /// The secret that callers are known by.
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
