//! Reads the suspect objects and judges them.
//!
//! Entry points: `Reconciler::look` begins, `looked` takes the answer. Invariant: an answer that is
//! older than the news of a watch has no effect. Must not write.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::backoff::growing;
use super::super::drifts::Suspect;
use super::super::elapsed::elapsed;
use super::super::event::{Failure, Fault, Outcome, Work};
use super::Reconciler;
use super::pass::{Job, Step};
use super::repair::{AGAIN, Done, RETRY, UNSERVED};
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;

/// The first wait where the guard lacks the right to read.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// The longest such wait, and the longest after any other failure.
const LONGEST_FORBIDDEN: Duration = Duration::from_secs(900);
const LONGEST: Duration = Duration::from_secs(300);

/// An object counts as unread after this number of outdated answers.
const OLD_ANSWERS: u32 = 4;

impl Reconciler {
    /// Reads one object, to judge it.
    pub(super) fn look(&mut self, release: &Release, object: ObjectId) -> Step {
        let Some(suspect) = self.drifts.suspicion(&release.id, &object) else { return Step::Nothing };
        match release.declared(&object).filter(|_| self.may_look(release, &object)) {
            Some(declared) => {
                let version = Arc::clone(&declared.version);
                Step::Hand(
                    Work::ReadObject { object: object.clone(), version },
                    Job::Look { object, suspect },
                )
            }
            None => {
                self.drifts.record_undeclared(&release.id, &object);
                Step::Nothing
            }
        }
    }

    /// An object was read, to be judged.
    pub(super) fn looked(
        &mut self,
        release: &Release,
        object: &ObjectId,
        suspect: Suspect,
        outcome: Outcome,
    ) -> Done {
        match outcome {
            Outcome::Object { live: Some(live), version } => {
                let is_old = self.drifts.has_new_reason(&release.id, object, &suspect);
                if !self.take_in(&release.id, &live, &version) {
                    return self.ask_again(release, object, suspect);
                }
                // No release declares it any more.
                if self.drifts.is_suspect(&release.id, object) {
                    self.drifts.record_undeclared(&release.id, object);
                }
                if is_old {
                    // A listing that came meanwhile may lack it.
                    self.drifts.suspect(&release.id, object.clone(), self.now);
                    return Done::Later(AGAIN);
                }
                Done::Settled
            }
            Outcome::Object { live: None, .. } => {
                if self.drifts.has_new_reason(&release.id, object, &suspect) {
                    // It may have been created since it was read.
                    return Done::Later(AGAIN);
                }
                // Otherwise a watch has reported meanwhile that it exists.
                if self.drifts.is_suspect(&release.id, object) {
                    self.note_gone_by_now(release, object, suspect.since);
                }
                Done::Settled
            }
            Outcome::Failed(Failure { fault: Fault::Unserved, .. }) => {
                // A kind that is not served has no objects.
                if elapsed(suspect.since, self.now) < UNSERVED {
                    return self.look_later(release, object, UNSERVED);
                }
                self.note_gone_by_now(release, object, suspect.since);
                Done::Settled
            }
            // A watch that is refused too reports when the guard gains the right.
            Outcome::Failed(Failure { fault: Fault::Forbidden, .. }) => {
                let wait = growing(FORBIDDEN, suspect.tries, LONGEST_FORBIDDEN, &release.id.name);
                let due = if self.scopes.is_forbidden(object) { Timestamp::MAX } else { self.after(wait) };
                self.drifts.put_off(&release.id, object, due, true);
                Done::Settled
            }
            _ => {
                let wait = growing(RETRY, suspect.tries, LONGEST, &release.id.name);
                self.look_later(release, object, wait)
            }
        }
    }

    /// The answer is older than what is known. An object is read from etcd itself, so answers stay old only where etcd
    /// was restored, until the watches list everything again.
    fn ask_again(&mut self, release: &Release, object: &ObjectId, suspect: Suspect) -> Done {
        if !self.drifts.is_suspect(&release.id, object) {
            // The news of the watch is enough.
            return Done::Settled;
        }
        let wait = growing(AGAIN, suspect.tries, LONGEST, &object.name);
        let due = self.after(wait);
        match suspect.tries < OLD_ANSWERS {
            true => self.drifts.ask_again(&release.id, object, due),
            false => self.drifts.put_off(&release.id, object, due, false),
        }
        Done::Later(wait)
    }

    fn look_later(&mut self, release: &Release, object: &ObjectId, wait: Duration) -> Done {
        self.drifts.put_off(&release.id, object, self.after(wait), false);
        Done::Later(wait)
    }

    /// The same by the present declaration: the release may have changed while the object was read.
    fn note_gone_by_now(&mut self, release: &Release, object: &ObjectId, since: Timestamp) {
        if let Some(release) = self.known.release(&release.id).cloned() {
            self.note_gone(&release, object, since);
        }
    }
}
