//! The rules of a policy for objects, computed once for each.
//!
//! Entry points: [`Kept::of`], [`Kept::empty`]. Invariant: an answer belongs to one declaration, by its identity, and
//! is dropped with it. Must not compute rules itself.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::ObjectRules;
use kubemoor_helm::release::Declared;

/// The number of answers above which those of dropped declarations are removed.
const MANY: usize = 64;

/// The rules of a policy for objects. A copy starts empty.
#[derive(Debug, Default)]
pub(super) struct Kept {
    answers: RwLock<HashMap<usize, Answer>>,
    /// The empty rules, which most objects have.
    empty: Arc<ObjectRules>,
}

#[derive(Debug)]
struct Answer {
    declared: Weak<Declared>,
    rules: Arc<ObjectRules>,
}

impl Kept {
    /// The empty rules, of an object for which nothing has to be kept.
    pub(super) fn empty(&self) -> Arc<ObjectRules> {
        Arc::clone(&self.empty)
    }

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
        let rules = if made.is_empty() { Arc::clone(&self.empty) } else { Arc::new(made) };
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
