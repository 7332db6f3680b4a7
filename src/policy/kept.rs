//! What a policy says of objects, worked out once for each.
//!
//! Entry point: [`Kept::of`]. Invariant: an answer is for one declaration, by
//! its identity, and dies with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::ObjectRules;
use crate::helm::release::Declared;

/// Answers beyond which those for declarations that are gone are cleared away.
const MANY: usize = 64;

/// What a policy says of objects. A copy starts empty.
#[derive(Debug, Default)]
pub(super) struct Kept {
    answers: RwLock<HashMap<usize, Answer>>,
    /// What is said of most objects: nothing.
    nothing: Arc<ObjectRules>,
}

#[derive(Debug)]
struct Answer {
    declared: Weak<Declared>,
    rules: Arc<ObjectRules>,
}

impl Kept {
    /// The answer for a declaration, made by `make` if there is none.
    pub(super) fn of(
        &self,
        declared: &Arc<Declared>,
        make: impl FnOnce() -> ObjectRules,
    ) -> Arc<ObjectRules> {
        let key = Arc::as_ptr(declared).addr();
        let is_for = |answer: &&Answer| answer.declared.as_ptr() == Arc::as_ptr(declared);
        if let Some(answer) = self.answers.read().get(&key).filter(is_for) {
            return Arc::clone(&answer.rules);
        }
        let made = make();
        let rules = if made.is_empty() { Arc::clone(&self.nothing) } else { Arc::new(made) };
        let mut kept = self.answers.write();
        if kept.len() >= MANY && kept.len() == kept.capacity() {
            kept.retain(|_, answer| answer.declared.strong_count() > 0);
        }
        kept.insert(key, Answer { declared: Arc::downgrade(declared), rules: Arc::clone(&rules) });
        rules
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::default()
    }
}
