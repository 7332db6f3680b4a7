//! Edits that a rule alone allows: one of many is stored, so that a stricter policy can be tried on
//! it.
//!
//! Entry points: [`Spared::of`], [`SparedEdits::take_turn`]. Invariant: controllers may write
//! ignored fields as often as they like, and leave one row an hour. Must not judge.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use moka::sync::Cache;

use crate::webhook::case::Case;
use kubemoor_verdict::edit::{Outcome, Reason, Verdict};
use kubemoor_verdict::facts::{ChangeFacts, ClaimFacts, Facts};

/// How long edits of one user that change the same fields of one object count as one.
const PERIOD: Duration = Duration::from_secs(3600);

/// The most of them that are remembered: with more of them, some are kept again before their time.
const REMEMBERED: u64 = 10_000;

/// The changes of an edit that a rule alone allows.
pub(super) struct Spared<'f> {
    /// The release that allows it.
    pub(super) claim: &'f ClaimFacts,
    /// What it changes.
    pub(super) changes: &'f [ChangeFacts],
}

/// The edits of the last hour that were kept.
pub(super) struct SparedEdits(Cache<u64, ()>);

impl<'f> Spared<'f> {
    /// `None` if the edit is not allowed, or is allowed whatever the rules say.
    pub(super) fn of(verdict: &Verdict, facts: Option<&'f Facts>) -> Option<Self> {
        let by_rule = matches!(verdict.reason, Reason::Ignored | Reason::Autoscaled);
        let Some(Facts::Edit(facts)) = facts.filter(|_| by_rule && verdict.outcome == Outcome::Allow) else {
            return None;
        };
        // The last release that was consulted is the one that allows it.
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
            change.change.path.pointer().hash(&mut hasher);
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
