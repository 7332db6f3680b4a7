//! Decides which rows of this cluster's releases have to be written, and when.
//!
//! Entry points: [`Pending::take`] for due work, [`Pending::written`] or [`Pending::fail`] for its
//! result. Invariant: nothing is due while another replica leads; a written row is due again only
//! when its content changes; failed work is never forgotten. Pure. Must not access the database.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use kubemoor_declare::model::ReleaseId;
use kubemoor_ledger::fleet::ReleaseState;

/// The interval of the guard's sign of life: several of them fit into the time after which the
/// guard counts as silent.
pub(super) const BEAT: Duration = Duration::from_secs(30);

/// The shortest time between two writes: changes in between are written together.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The most releases of one write.
pub(super) const MOST: usize = 500;

/// The pauses between attempts at a database that fails.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What is not written yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Set while this replica leads.
    lead: Option<Lead>,
}

/// The pending work while this replica leads.
#[derive(Debug)]
struct Lead {
    /// The releases whose rows may be outdated.
    marked: BTreeSet<ReleaseId>,
    /// Hashes of the rows that this guard has written.
    rows: HashMap<ReleaseId, u64>,
    /// Whether the rows of guards before have been looked through.
    has_reread: bool,
    beat_at: Instant,
    write_at: Instant,
    /// Set while the database fails: when it is tried again, and the pause then.
    failing: Option<(Instant, Duration)>,
}

/// The due work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Whether to write the guard's sign of life.
    pub(super) beats: bool,
    /// Whether to check the rows of earlier guards.
    pub(super) rereads: bool,
    /// The releases to check.
    pub(super) releases: Vec<ReleaseId>,
}

impl Pending {
    /// Begins to lead: all `known` releases have to be checked.
    pub(super) fn lead(&mut self, known: Vec<ReleaseId>, now: Instant) {
        self.lead = Some(Lead {
            marked: known.into_iter().collect(),
            rows: HashMap::new(),
            has_reread: false,
            beat_at: now,
            write_at: now,
            failing: None,
        });
    }

    /// Another replica leads.
    pub(super) fn follow(&mut self) {
        self.lead = None;
    }

    /// Marks releases whose state may have changed.
    pub(super) fn note(&mut self, releases: impl IntoIterator<Item = ReleaseId>, now: Instant) {
        let Some(lead) = &mut self.lead else { return };
        if lead.marked.is_empty() {
            lead.write_at = lead.write_at.max(now);
        }
        lead.marked.extend(releases);
    }

    /// The time at which work is due; `None` if only an event can make work due.
    pub(super) fn due(&self) -> Option<Instant> {
        let lead = self.lead.as_ref()?;
        let has_work = !lead.marked.is_empty() || !lead.has_reread;
        let next = if has_work { lead.beat_at.min(lead.write_at) } else { lead.beat_at };
        Some(lead.failing.map_or(next, |(at, _)| at))
    }

    /// What is due now.
    pub(super) fn take(&mut self, now: Instant) -> Work {
        let Some(lead) = &mut self.lead else { return Work::default() };
        if lead.failing.is_some_and(|(at, _)| at > now) {
            return Work::default();
        }
        let mut work = Work { beats: lead.beat_at <= now, ..Work::default() };
        if lead.write_at <= now {
            work.rereads = !lead.has_reread;
            while work.releases.len() < MOST
                && let Some(release) = lead.marked.pop_first()
            {
                work.releases.push(release);
            }
        }
        // Until the result is known.
        lead.beat_at = if work.beats { now + BEAT } else { lead.beat_at };
        lead.has_reread |= work.rereads;
        lead.write_at = if work.rereads || !work.releases.is_empty() { now + PAUSE } else { lead.write_at };
        work
    }

    /// Whether the row of a release is outdated.
    pub(super) fn is_news(&self, state: &ReleaseState) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.rows.get(&state.release) != Some(&hash(state)))
    }

    /// Records that the database has accepted these rows.
    pub(super) fn written(&mut self, states: &[ReleaseState], gone: &[ReleaseId]) {
        let Some(lead) = &mut self.lead else { return };
        lead.failing = None;
        for state in states {
            lead.rows.insert(state.release.clone(), hash(state));
        }
        for release in gone {
            lead.rows.remove(release);
        }
    }

    /// Records that the database has not accepted the due work.
    pub(super) fn fail(&mut self, work: Work, now: Instant) {
        let Some(lead) = &mut self.lead else { return };
        if lead.failing.is_none() {
            // The database that answers next may be a copy that lacks the last rows.
            lead.marked.extend(lead.rows.drain().map(|(release, _)| release));
        }
        let (shortest, longest) = RETRY;
        let pause = lead.failing.map_or(shortest, |(_, pause)| (pause * 2).min(longest));
        lead.failing = Some((now + pause, pause));
        lead.marked.extend(work.releases);
        lead.has_reread &= !work.rereads;
        if work.beats {
            lead.beat_at = now;
        }
        lead.write_at = lead.write_at.min(now);
    }
}

fn hash(state: &ReleaseState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
