//! Objects whose state may have changed since they were last read.
//!
//! Entry points: [`Suspect`], `Drifts::suspect`. Invariant: news of the object end every wait. Must
//! not decide how long one is.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::effort::note;
use super::Drifts;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// Objects that are due within this time are read together.
const TOGETHER: SignedDuration = SignedDuration::from_secs(1);

/// An object that has to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub(crate) since: Timestamp,
    /// A watch reported that it is gone.
    pub(crate) went: bool,
    /// Its release has changed its declaration since it was last read, or has another status.
    redeclared: bool,
    /// The number of the newest reason to read it, counted over all objects.
    reason: u64,
    /// A read was tried and failed.
    pub(crate) unread: bool,
    /// The number of failed reads.
    pub(crate) tries: u32,
    /// The guard has no right to read it.
    pub(crate) barred: bool,
    /// The time of the next try unless there is news of it earlier; `None` for at once.
    pub(super) due: Option<Timestamp>,
}

impl Suspect {
    /// Whether it is to be read by now.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_none_or(|due| due.duration_since(now) <= TOGETHER)
    }

    /// A suspect that has not been read yet.
    fn new(since: Timestamp) -> Self {
        Self {
            since,
            went: false,
            redeclared: false,
            reason: 0,
            unread: false,
            tries: 0,
            barred: false,
            due: None,
        }
    }
}

impl Drifts {
    /// Marks an object to be read at once. The first reason for it counts.
    pub(crate) fn suspect(&mut self, release: &ReleaseId, object: impl Into<Arc<ObjectId>>, now: Timestamp) {
        self.add_reason(release, object.into(), now);
    }

    /// Adds a reason to read an object at once. A suspicion that was cleared and comes again has another reason than
    /// before.
    pub(super) fn add_reason(
        &mut self,
        release: &ReleaseId,
        object: Arc<ObjectId>,
        now: Timestamp,
    ) -> &mut Suspect {
        self.last_reason += 1;
        let suspects = self.suspects.entry(release.clone()).or_default();
        let suspect = suspects.entry(object).or_insert(Suspect::new(now));
        (suspect.due, suspect.reason) = (None, self.last_reason);
        suspect
    }

    /// The same once the release has changed; `is_same` says whether it declares the object as before, in the same
    /// status.
    pub(super) fn suspect_declared(
        &mut self,
        release: &ReleaseId,
        object: Arc<ObjectId>,
        is_same: bool,
        now: Timestamp,
    ) {
        self.suspect(release, Arc::clone(&object), now);
        let suspect = self.suspects.get_mut(release).and_then(|all| all.get_mut(&object));
        if let Some(suspect) = suspect.filter(|_| !is_same) {
            suspect.redeclared = true;
        }
    }

    /// Whether a known drift of a release is a difference from an earlier declaration.
    pub(crate) fn has_outdated(&self, release: &ReleaseId) -> bool {
        let is_outdated = |(object, suspect): (&Arc<ObjectId>, &Suspect)| {
            suspect.redeclared && self.is_known(release, object)
        };
        self.suspects.get(release).into_iter().flatten().any(is_outdated)
    }

    /// Ends the waits of a release's objects that could not be read and that `is_meant` selects:
    /// they are tried at once.
    pub(crate) fn hurry(&mut self, release: &ReleaseId, is_meant: impl Fn(&ObjectId) -> bool) {
        let suspects = self.suspects.get_mut(release).into_iter().flatten();
        suspects.filter(|(object, _)| is_meant(object)).for_each(|(_, suspect)| suspect.due = None);
    }

    /// Ends the waits of all objects that could not be read, except those that only a watch can
    /// report.
    pub(crate) fn end_waits(&mut self) {
        let suspects = self.suspects.values_mut().flat_map(HashMap::values_mut);
        let timed = suspects.filter(|suspect| suspect.due.is_some_and(|due| due < Timestamp::MAX));
        timed.for_each(|suspect| suspect.due = None);
    }

    /// The time of the next try for a release's objects that could not be read.
    pub(crate) fn next_look(&self, release: &ReleaseId) -> Option<Timestamp> {
        let suspects = self.suspects.get(release)?;
        note(suspects.len());
        suspects.values().filter_map(|suspect| suspect.due).min().filter(|due| *due < Timestamp::MAX)
    }

    /// The objects of a release that have to be looked at.
    pub(crate) fn suspects(&self, release: &ReleaseId) -> Vec<(ObjectId, Suspect)> {
        note(self.suspects.get(release).map_or(0, HashMap::len));
        self.suspects
            .get(release)
            .into_iter()
            .flatten()
            .map(|(object, it)| (ObjectId::clone(object), *it))
            .collect()
    }

    /// The suspicion against an object, if there is one.
    pub(crate) fn suspicion(&self, release: &ReleaseId, object: &ObjectId) -> Option<Suspect> {
        self.suspects.get(release)?.get(object).copied()
    }

    /// Whether there is a newer reason to read an object than at the beginning of a read. An answer
    /// that was under way meanwhile may be older than that reason.
    pub(crate) fn has_new_reason(&self, release: &ReleaseId, object: &ObjectId, begun: &Suspect) -> bool {
        self.suspicion(release, object).is_some_and(|now| now.reason != begun.reason)
    }

    /// Whether a release has suspects that the guard has not tried to read.
    pub(crate) fn has_untried(&self, release: &ReleaseId) -> bool {
        self.suspects.get(release).is_some_and(|all| all.values().any(|it| !it.unread))
    }

    /// Whether an object has to be looked at and could not be read.
    pub(crate) fn is_unread(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.suspicion(release, object).is_some_and(|suspect| suspect.unread)
    }

    /// Records that an object could not be read; it is tried again at `due`, or when there is news
    /// of it. `barred`: the guard lacks the right to read it. A drift from an earlier declaration
    /// is forgotten.
    pub(crate) fn put_off(&mut self, release: &ReleaseId, object: &ObjectId, due: Timestamp, barred: bool) {
        let suspect = self.suspects.get_mut(release).and_then(|all| all.get_mut(object));
        let Some(suspect) = suspect else { return };
        let tries = suspect.tries.saturating_add(1);
        *suspect = Suspect { unread: true, tries, barred, due: Some(due), ..*suspect };
        if suspect.redeclared {
            self.clear_drift(release, object);
        }
    }

    /// Records that the loop ends before it reads the suspects of a release. A drift from an earlier declaration is
    /// forgotten.
    pub(crate) fn leave_unread(&mut self, release: &ReleaseId) {
        let suspects = self.suspects.get_mut(release).into_iter().flatten();
        let unread: Vec<_> = suspects
            .filter_map(|(object, suspect)| {
                let was_unread = std::mem::replace(&mut suspect.unread, true);
                (!was_unread).then(|| (Arc::clone(object), suspect.redeclared))
            })
            .collect();
        for (object, _) in unread.into_iter().filter(|(_, redeclared)| *redeclared) {
            self.clear_drift(release, &object);
        }
    }

    /// Records that the answer to a read was useless; the object is tried again at `due`, or when
    /// there is news of it.
    pub(crate) fn ask_again(&mut self, release: &ReleaseId, object: &ObjectId, due: Timestamp) {
        if let Some(suspect) = self.suspects.get_mut(release).and_then(|all| all.get_mut(object)) {
            (suspect.tries, suspect.due) = (suspect.tries.saturating_add(1), Some(due));
        }
    }

    /// Whether an object has to be looked at.
    pub(crate) fn is_suspect(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.suspects.get(release).is_some_and(|all| all.contains_key(object))
    }
}
