//! Records and reports the results of repairs.
//!
//! Entry points: `Reconciler::say`, `fail`, `note_repaired`, `note_restored`, `keep`, `contest`.
//! Invariant: a drift that stays is reported once; a failed attempt delays the next one. Must not
//! decide about repairs.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use serde_json::Value;

use super::super::Reconciler;
use super::restore::Judged;
use super::{Done, Next, RETRY, Situation, Task, UNSERVED};
use crate::drifts::{Drift, Version};
use crate::event::{Failure, Fault};
use crate::occurrence::{Fate, Occurrence};
use crate::plan::NOT_SERVED;
use crate::report::DriftKind;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::path::Path;
use kubemoor_helm::release::Release;

/// Why an addition stays.
const ADDED: &str = "the guard has never seen the object without what was added below a sealed path; `kubemoor reconcile` removes it";

/// Why a change of what a webhook or the server added stays.
const WITHIN: &str = "the guard does not know the former value of what was changed in an addition of a webhook or the API server; undo the change by hand";

/// Why nothing is written.
const UNCONFIRMED: &str = "the guard has never seen the live object with these values";

impl Reconciler {
    /// Records why the object is not repaired; `None` if it is.
    pub(super) fn keep(&mut self, task: &Task, reason: Option<&str>) {
        self.drifts.keep(&task.id, &task.object, reason);
    }

    /// Counts a drift once.
    pub(super) fn count_found(&mut self, task: &Task, kind: DriftKind) {
        let known = self.drifts.get_mut(&task.id, &task.object);
        if known.is_some_and(|known| !std::mem::replace(&mut known.counted, true)) {
            self.tell(Occurrence::Found(kind));
        }
    }

    /// Reports that another writer undoes the repairs again and again.
    pub(super) fn contest(&mut self, task: &Task) {
        let Some(drift) = self.drifts.get_mut(&task.id, &task.object) else { return };
        if matches!(drift.repaired, Some(Err(_))) || std::mem::replace(&mut drift.contested, true) {
            return;
        }
        let drift = drift.clone();
        self.tell_of(task, drift, Fate::Contested);
    }

    /// Reports once that a drift stays. The arbiter is asked about a doubt first.
    pub(super) fn report(&mut self, task: &Task, situation: &Situation, reason: &'static str) -> Next {
        if situation.drift.doubt {
            return Self::begin_settling(task, situation, reason);
        }
        self.say(task, &situation.release, reason);
        Next::settled()
    }

    /// Reports once that a drift stays.
    pub(super) fn say(&mut self, task: &Task, release: &Arc<Release>, reason: &str) {
        self.drifts.keep(&task.id, &task.object, Some(reason));
        let Some(drift) = self.drifts.get_mut(&task.id, &task.object) else { return };
        if std::mem::replace(&mut drift.reported, true) {
            return;
        }
        let drift = drift.clone();
        let fate = if drift.doubt { Fate::InDoubt } else { Fate::Reported };
        if fate == Fate::Reported {
            self.count_found(task, drift.kind);
        }
        let object = self.drifts.name(&task.id, &task.object);
        self.tell(Occurrence::Object { release: Arc::clone(release), object, drift: Box::new(drift), fate });
    }

    /// Reports that the object stays unchanged. A doubt is settled first: an object that turns out
    /// to match is confirmed by that, and a remaining doubt is reported as one.
    pub(super) fn leave_unconfirmed(&mut self, task: &Task, situation: &Situation) -> Next {
        if situation.drift.doubt {
            return self.report(task, situation, UNCONFIRMED);
        }
        self.mark_unconfirmed(task, true);
        if task.asked
            && let Some(drift) = self.drifts.get_mut(&task.id, &task.object)
        {
            // An order is answered each time.
            drift.reported = false;
        }
        self.say(task, &situation.release, UNCONFIRMED);
        Next::settled()
    }

    /// Reports that additions stay.
    pub(super) fn leave_additions(
        &mut self,
        task: &Task,
        situation: &Situation,
        changes: &[FieldChange],
    ) -> Next {
        self.mark_unconfirmed(task, true);
        let are_within = changes.iter().all(|change| change.agreement == Agreement::Within);
        self.say(task, &situation.release, if are_within { WITHIN } else { ADDED });
        Next::settled()
    }

    /// Records whether the object stays unchanged because a person has to confirm the repair.
    pub(super) fn mark_unconfirmed(&mut self, task: &Task, unconfirmed: bool) {
        if let Some(drift) = self.drifts.get_mut(&task.id, &task.object) {
            drift.unconfirmed = unconfirmed;
        }
    }

    /// Records whether an exception, or its own time to live, allows the object to be missing.
    pub(super) fn mark_allowed(&mut self, task: &Task, situation: &Situation) {
        let exceptions = situation.exceptions(&task.object, self.now);
        let may_be_gone = exceptions.of_deletion().is_some() || exceptions.may_have_expired();
        let allowed = situation.drift.kind == DriftKind::Missing && may_be_gone;
        let drift = self.drifts.get_mut(&task.id, &task.object);
        if let Some(drift) = drift.filter(|drift| drift.allowed != allowed) {
            drift.allowed = allowed;
            self.drifts.touch(&task.id);
        }
    }

    /// Reports that the cluster does not serve the object's kind, so nothing can be written.
    pub(super) fn leave_unserved(&mut self, task: &Task, release: &Arc<Release>) -> Next {
        self.say(task, release, NOT_SERVED);
        Next::again(UNSERVED)
    }

    /// Handles a piece of work that failed.
    pub(super) fn fail_by(&mut self, task: &Task, release: &Arc<Release>, failure: &Failure) -> Next {
        match failure.fault {
            Fault::Unserved => self.leave_unserved(task, release),
            // The next leader does it, or this one when it leads again.
            Fault::NotLeading => Next::again(RETRY),
            _ => self.fail_with(task, failure),
        }
    }

    /// Records an attempt that failed at the API server, or did not reach it.
    pub(super) fn fail_with(&mut self, task: &Task, failure: &Failure) -> Next {
        if failure.fault == Fault::Unanswered {
            self.repairs.backoff.attempt_unanswered(&task.object, self.now);
        } else if self.repairs.backoff.attempt(&task.object, self.now) == 1
            && failure.fault == Fault::NoRecord
        {
            // The release may be gone, and the watch of records tells that in a moment.
            return Next::again(RETRY);
        }
        self.wait_after(task, &failure.message)
    }

    /// Records a failed attempt.
    pub(super) fn fail(&mut self, task: &Task, reason: &str) -> Next {
        self.repairs.backoff.attempt(&task.object, self.now);
        self.wait_after(task, reason)
    }

    /// Records a repaired drift.
    pub(super) fn note_repaired(&mut self, task: &Task, situation: &Situation, drift: Drift, fate: Fate) {
        let confirmed_by = situation.ordered_by.clone();
        let drift = Drift { repaired: Some(Ok(())), kept: None, confirmed_by, ..drift };
        let release = Arc::clone(&situation.release);
        let object = self.drifts.name(&task.id, &task.object);
        self.tell(Occurrence::Object { release, object, drift: Box::new(drift), fate });
    }

    /// Records the version of the guard's own write. Where the release or its policy changed
    /// meanwhile, the write followed the earlier state, and the object is read again.
    pub(super) fn note_restored(&mut self, task: &Task, situation: &Situation, version: Version) {
        match self.is_in_force(task, situation) {
            true => self.drifts.record_restored(&task.id, &task.object, version),
            false => self.drifts.suspect(&task.id, task.object.clone(), self.now),
        };
    }

    /// Remembers fields that the API server refuses to set by this record.
    pub(super) fn learn_fixed(&mut self, task: &Task, judged: &Judged, paths: &[Path]) {
        self.repairs.fixed.note(&task.object, &attempted(judged), paths.iter().map(ToString::to_string));
    }

    /// Whether all the changes are known to be of such fields.
    pub(super) fn are_known_fixed(&self, task: &Task, judged: &Judged) -> bool {
        let (fixed, attempted) = (&self.repairs.fixed, attempted(judged));
        judged.changes.iter().all(|change| fixed.has(&task.object, &attempted, &change.path.to_string()))
    }

    /// Reports what happened to the object of a task.
    pub(super) fn tell_of(&mut self, task: &Task, drift: Drift, fate: Fate) {
        let Some(release) = self.known.release(&task.id).cloned() else { return };
        let object = self.drifts.name(&task.id, &task.object);
        self.tell(Occurrence::Object { release, object, drift: Box::new(drift), fate });
    }

    /// Says that the attempt failed, and waits for the next one.
    fn wait_after(&mut self, task: &Task, reason: &str) -> Next {
        let wait = self.repairs.backoff.until(&task.object, self.now).unwrap_or(RETRY);
        if let Some(drift) = self.drifts.get_mut(&task.id, &task.object) {
            drift.repaired = Some(Err(reason.to_owned()));
            drift.kept = None;
            let drift = drift.clone();
            self.tell_of(task, drift, Fate::Failed);
        }
        Next::Done(Done::Later(wait))
    }
}

/// What an attempt was made with: once somebody has changed what the object holds, the next one may succeed. A number of
/// replicas changes nothing about that.
fn attempted(Judged { situation, seen, .. }: &Judged) -> String {
    let mut content = seen.live.object.clone().unwrap_or_default();
    if let Value::Object(content) = &mut content {
        content.retain(|name, _| name != "metadata" && name != "status");
        if let Some(Value::Object(spec)) = content.get_mut("spec") {
            spec.remove("replicas");
        }
    }
    let content = BuildHasherDefault::<DefaultHasher>::default().hash_one(content.to_string());
    format!("{}/{content:x}", situation.release.latest.uid)
}
