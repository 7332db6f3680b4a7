//! Edits that pass by a rule alone: of them one of many is kept, so that a stricter policy can be tried on it.
//!
//! Entry points: [`Spared::of`], [`SparedEdits::take_turn`]. Invariant: controllers write what policies ignore as
//! often as they like, and leave a row an hour for it. Must not judge.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use moka::sync::Cache;

use crate::verdict::edit::{Outcome, Reason, Verdict};
use crate::verdict::facts::{ChangeFacts, ClaimFacts, Facts};
use crate::webhook::case::Case;

/// How long edits of one user that change the same fields of one object count as one.
const PERIOD: Duration = Duration::from_secs(3600);

/// The most of them that are remembered: with more of them, some are kept again before their time.
const REMEMBERED: u64 = 10_000;

/// What an edit changes that passes by a rule alone.
pub(super) struct Spared<'f> {
    /// The release that lets it pass.
    pub(super) claim: &'f ClaimFacts,
    /// What it changes.
    pub(super) changes: &'f [ChangeFacts],
}

/// The edits of the last hour that were kept.
pub(super) struct SparedEdits(Cache<u64, ()>);

impl<'f> Spared<'f> {
    /// None where the edit does not pass, or passes whatever the rules say.
    pub(super) fn of(verdict: &Verdict, facts: Option<&'f Facts>) -> Option<Self> {
        let by_rule = matches!(verdict.reason, Reason::Ignored | Reason::Autoscaled);
        let Some(Facts::Edit(facts)) = facts.filter(|_| by_rule && verdict.outcome == Outcome::Allow) else {
            return None;
        };
        // The last that was heard is the one that lets it pass.
        let claim = facts.claims.last()?;
        Some(Self { claim, changes: &claim.alternatives.last()?.changes })
    }
}

impl SparedEdits {
    /// Takes the turn of an edit to be kept; false where one like it was kept within the last hour.
    pub(super) fn take_turn(&self, case: &Case<'_>, spared: &Spared<'_>) -> bool {
        let mut hasher = DefaultHasher::new();
        (&case.subject.object, case.operation, &case.actor.user, &spared.claim.release).hash(&mut hasher);
        for change in spared.changes {
            change.change.path.to_string().hash(&mut hasher);
        }
        let entry = self.0.entry(hasher.finish()).or_insert(());
        entry.is_fresh()
    }
}

impl Default for SparedEdits {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(REMEMBERED).time_to_live(PERIOD).build())
    }
}
