//! Counts the objects of a release by state.
//!
//! Entry point: `Counts::of`. Invariant: the counts add up to the number of declared objects.
//! Must not write sentences.

use super::{Facts, ObjectState};
use kubemoor_policy::guarded::ObjectCounts;

/// The numbers of objects by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that are declared.
    pub declared: usize,
    /// They match.
    pub matching: usize,
    /// They do not match, or another manager owns their fields.
    pub drifted: usize,
    /// Of those that drifted: they match, and another manager owns their fields.
    pub ownership: usize,
    /// They may not match.
    pub in_doubt: usize,
    /// They are being deleted.
    pub deleting: usize,
    /// They differ as an exception allows.
    pub allowed: usize,
    /// The operation that failed or is under way has not created them.
    pub not_created: usize,
    /// They are not judged: opted out, owned by another release, or outside of the release's namespace.
    pub unjudged: usize,
    /// Of those that are not judged: they lie outside of the release's namespace and do not name the release.
    pub outside: usize,
    /// The guard may not, or could not, read them.
    pub unwatched: usize,
}

impl Counts {
    pub(super) fn of(facts: &Facts) -> Self {
        let of = |meant: &[ObjectState]| facts.objects.iter().filter(|it| meant.contains(&it.state)).count();
        let drifted = facts.objects.iter().filter(|it| it.state.is_drift()).count();
        let forbidden: usize = facts.unwatched.iter().map(|it| it.objects).sum();
        let mut counts = Self {
            declared: facts.declared,
            matching: 0,
            drifted,
            ownership: of(&[ObjectState::Ownership]),
            in_doubt: of(&[ObjectState::InDoubt]),
            deleting: of(&[ObjectState::Deleting]),
            allowed: of(&[ObjectState::Allowed]),
            not_created: of(&[ObjectState::Awaited]),
            unjudged: of(&[ObjectState::OptedOut, ObjectState::Foreign, ObjectState::Outside]),
            outside: of(&[ObjectState::Outside]),
            unwatched: of(&[ObjectState::Unread]).saturating_add(forbidden),
        };
        // A failed release also includes objects of the previous revision.
        counts.declared = counts.declared.max(counts.others());
        counts.matching = counts.declared - counts.others();
        counts
    }

    /// The counts as a status stores them.
    pub fn kept(&self) -> ObjectCounts {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        ObjectCounts {
            matching: number(self.matching),
            ownership: number(self.ownership),
            in_doubt: number(self.in_doubt),
            allowed: number(self.allowed),
            deleting: number(self.deleting),
            not_created: number(self.not_created),
            unjudged: number(self.unjudged),
            unwatched: number(self.unwatched),
        }
    }

    /// All that do not plainly match.
    fn others(&self) -> usize {
        let Self { drifted, in_doubt, deleting, allowed, not_created, unjudged, unwatched, .. } = *self;
        [drifted, in_doubt, deleting, allowed, not_created, unjudged, unwatched]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}
