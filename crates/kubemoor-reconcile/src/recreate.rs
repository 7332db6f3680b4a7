//! Re-creates a missing object as Helm would write it, and deletes it again if its release dropped it during the write.
//!
//! The guard reads the object first, then the records. It writes only the declaration that it has planned for, and
//! reads the records again after the write. It never replaces an object, and deletes only what it created, by uid.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::body;
use crate::drifts::{ObjectDrift, ResourceVersion};
use crate::event::{
    ApiWork, Fault, GovernedRelease, LoopNotice, ManifestDocument, ObjectOutcome, Secret, WorkFailure,
    WorkOutcome, Write,
};
use crate::machine::Reconciler;
use crate::plan::RepairPlan;
use crate::repair::{AGAIN, RETRY, RepairContext, RepairStep, Task, api_version};
use crate::report::DriftKind;
use kubemoor_declare::catalog;
use kubemoor_declare::declare::{Digest, prepare};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_helm::state::{self, Deletion};
use kubemoor_verdict::additions;

/// The number of tries to read the records after a write.
const LOOKS: usize = 4;

pub(crate) enum Recreate {
    Reading(Arc<Release>),
    /// The CustomResourceDefinition is read; the version in which the kind is served.
    Definition(String),
    /// The records are read; the version in which the kind is served.
    Records(String),
    Document(Box<RepairContext>, String),
    /// It is written by this field manager, in this attempt.
    Writing {
        situation: Box<RepairContext>,
        manager: String,
        attempts: u32,
    },
    /// It is unknown whether the write was done: the object is read.
    LookingAgain {
        release: Arc<Release>,
        manager: String,
        wait: Duration,
    },
    /// The records are read again: Helm may have dropped the object, or begun to uninstall it, during the write.
    RecordsAgain {
        created: Created,
        looks: usize,
    },
    Deleting(Created),
}

/// An object that the guard has created from the manifest of this release.
pub(crate) struct Created {
    release: Arc<Release>,
    uid: String,
    /// The wait after a write that was not answered.
    wait: Option<Duration>,
}

impl Created {
    fn result(&self) -> RepairStep {
        self.wait.map_or(RepairStep::Repaired, RepairStep::Later)
    }
}

impl Reconciler {
    pub(crate) fn recreate(&mut self, task: &Task, recreate: Recreate, outcome: WorkOutcome) -> RepairStep {
        match (recreate, outcome) {
            (Recreate::Reading(_), WorkOutcome::Object { live: Some(_), .. }) => self.leave_present(task),
            (Recreate::Reading(_), WorkOutcome::Object { live: None, version }) => {
                // Built-in kinds have no CustomResourceDefinition.
                if catalog::core().facts(&task.object.group, &task.object.kind).is_some() {
                    return read_records(task, version);
                }
                let work = ApiWork::ReadDefinition { object: task.object.clone() };
                RepairStep::recreate(work, Recreate::Definition(version))
            }
            // The API server deletes the objects of a kind before the kind, but still accepts new ones for a moment.
            // One that is left behind breaks the kind if its definition is created again.
            (Recreate::Definition(_), WorkOutcome::Definition { deleting: true }) => {
                self.keep(task, "the CustomResourceDefinition of its kind is being deleted");
                RepairStep::Later(RETRY)
            }
            (Recreate::Definition(version), WorkOutcome::Definition { deleting: false }) => {
                read_records(task, version)
            }
            (
                Recreate::Definition(version),
                WorkOutcome::Failed(WorkFailure { fault: Fault::Forbidden, .. }),
            ) => read_records(task, version),
            (Recreate::Reading(release), WorkOutcome::Failed(failure)) => {
                self.fail_by(task, &release, &failure)
            }
            (Recreate::Records(version), WorkOutcome::Records(governed)) => {
                self.learn_records(&task.id, governed);
                let Some(situation) = self.situation(task) else { return RepairStep::Settled };
                if situation.plan != RepairPlan::Repair {
                    return RepairStep::Again(AGAIN);
                }
                RepairStep::recreate(
                    task.read_manifest(&situation.release),
                    Recreate::Document(Box::new(situation), version),
                )
            }
            (Recreate::Document(situation, version), WorkOutcome::Document(document)) => {
                self.write_anew(task, situation, &version, document)
            }
            (Recreate::Writing { situation, manager, attempts }, outcome) => {
                self.written_anew(task, &situation, manager, attempts, outcome)
            }
            (Recreate::LookingAgain { release, manager, wait }, outcome) => {
                if let WorkOutcome::Object { live: Some(live), .. } = outcome
                    && live.sighting.managers.iter().any(|it| it.name == manager)
                    && live.sighting.release.as_ref() == Some(&task.id)
                {
                    let created = Created { release, uid: live.sighting.uid, wait: Some(wait) };
                    return read_records_again(task, created, 1);
                }
                RepairStep::Later(wait)
            }
            (Recreate::RecordsAgain { created, .. }, WorkOutcome::Records(governed)) => {
                self.delete_if_dropped(task, created, governed)
            }
            (Recreate::RecordsAgain { created, looks }, WorkOutcome::Failed(failure)) => {
                if looks < LOOKS {
                    return read_records_again(task, created, looks + 1);
                }
                let result = created.result();
                self.tell_of_created(
                    task,
                    created.release,
                    ObjectOutcome::RecordsUnreadable(failure.message),
                );
                result
            }
            (Recreate::RecordsAgain { created, .. }, _) => created.result(),
            (Recreate::Deleting(created), outcome) => self.deleted(task, created, outcome),
            (_, WorkOutcome::Failed(failure)) => self.fail_with(task, &failure),
            _ => RepairStep::Again(AGAIN),
        }
    }

    fn write_anew(
        &mut self,
        task: &Task,
        situation: Box<RepairContext>,
        version: &str,
        document: ManifestDocument,
    ) -> RepairStep {
        let ManifestDocument { status, apply_method, object, .. } = document;
        let object = object.map(|Secret(value)| value);
        // Only the planned declaration is written.
        let is_weighed = object.as_ref().map(Digest::new) == Some(situation.declared.digest);
        // The record may have changed since it was read.
        if !task.is_to_write(status) || !is_weighed || !self.is_in_force(task, &situation) {
            return RepairStep::Again(AGAIN);
        }
        let prepared = object.and_then(|object| prepare(object, api_version(&task.object, version)));
        let Some(mut document) = prepared else {
            return RepairStep::Again(AGAIN);
        };
        if let Some(path) = situation.left_out() {
            document = additions::take_away([path], &document);
        }
        let attempts = self.repairs.backoff.attempt(&task.object, self.now);
        let manager = self.manager(&situation.release, apply_method);
        let by = manager.clone();
        let write = match apply_method {
            ApplyMethod::ServerSide => {
                // Kubernetes before 1.23 creates a Service that an apply misses by a request of its own, which rejects
                // any version; so may other API servers do, and after a failure the guard does without one.
                let is_service = task.object.group.is_empty() && task.object.kind == "Service";
                if situation.drift.repaired.is_none() && !is_service {
                    body::set_create_only(&mut document);
                }
                Write::Apply { document: Secret(document), manager: by }
            }
            _ => Write::Create { document: Secret(document), manager: by },
        };
        RepairStep::recreate(
            task.write(&situation.declared, write),
            Recreate::Writing { situation, manager, attempts },
        )
    }

    fn written_anew(
        &mut self,
        task: &Task,
        situation: &RepairContext,
        manager: String,
        attempts: u32,
        outcome: WorkOutcome,
    ) -> RepairStep {
        match outcome.written() {
            Ok(created) => {
                let uid = created.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
                let drift = situation.drift.clone();
                self.note_repaired(situation, drift, ObjectOutcome::Repaired { attempts });
                self.note_restored(task, situation, ResourceVersion::written(&created));
                let (release, uid) = (Arc::clone(&situation.release), uid.to_owned());
                read_records_again(task, Created { release, uid, wait: None }, 1)
            }
            Err(WorkFailure { fault: Fault::AlreadyExists, .. }) => self.leave_present(task),
            // Somebody was faster; or the next look finds nothing, and the API server rejects the version.
            Err(WorkFailure { fault: Fault::Conflict, message }) if situation.drift.repaired.is_none() => {
                if let Some(drift) = self.drifts.get_mut(&task.id, &task.object) {
                    drift.repaired = Some(Err(message));
                }
                self.leave_present(task)
            }
            // The namespace is deleted with all its objects; nothing can be created in it.
            Err(WorkFailure { fault: Fault::Terminating, .. }) => {
                self.keep(task, "its namespace is being deleted");
                RepairStep::Again(RETRY)
            }
            // It is unknown whether the write was done. If the release has dropped the object, no
            // later pass would look at it again.
            Err(WorkFailure { fault: Fault::Unanswered, message }) => {
                let RepairStep::Later(wait) = self.fail(task, &message) else { return RepairStep::Settled };
                let work = task.read_object(&situation.declared);
                let release = Arc::clone(&situation.release);
                RepairStep::recreate(work, Recreate::LookingAgain { release, manager, wait })
            }
            Err(failure) => self.fail_by(task, &situation.release, &failure),
        }
    }

    /// The object exists again: it is read and compared in another pass.
    fn leave_present(&mut self, task: &Task) -> RepairStep {
        self.drifts.suspect(&task.id, task.object.clone(), self.now);
        self.tell(LoopNotice::Present(DriftKind::Missing));
        RepairStep::Again(AGAIN)
    }

    /// Deletes a created object unless its release still declares it, or the manifest says
    /// `helm.sh/resource-policy: keep`: then Helm deletes none either.
    fn delete_if_dropped(
        &mut self,
        task: &Task,
        created: Created,
        governed: Option<GovernedRelease>,
    ) -> RepairStep {
        self.learn_records(&task.id, governed);
        let declared = created.release.declared(&task.object);
        let Some(declared) =
            declared.filter(|it| !it.keep && !created.uid.is_empty() && !self.is_wanted(task))
        else {
            return created.result();
        };
        let write = Write::Delete { uid: created.uid.clone() };
        RepairStep::recreate(task.write(declared, write), Recreate::Deleting(created))
    }

    fn deleted(&mut self, task: &Task, created: Created, outcome: WorkOutcome) -> RepairStep {
        match outcome.written() {
            Ok(_) => self.tell_of_created(task, created.release, ObjectOutcome::DeletedAgain),
            Err(failure) if matches!(failure.fault, Fault::NotFound | Fault::Conflict) => {}
            Err(failure) => {
                self.tell_of_created(task, created.release, ObjectOutcome::CannotTakeBack(failure.message));
            }
        }
        RepairStep::Settled
    }

    /// Whether the release declares the object and none of its Helm operations deletes it, or its record cannot tell.
    /// An operation began during the write, because nothing is created while one is under way: however long ago that
    /// was by this clock, it is not dead.
    fn is_wanted(&self, task: &Task) -> bool {
        self.known.release(&task.id).is_some_and(|release| {
            if release.invalid.is_some() {
                return true;
            }
            let claim = state::current_claim(release, &task.object, Duration::MAX, self.now);
            claim.is_some_and(|it| !matches!(it.deletion, Deletion::Dropped | Deletion::Uninstalled))
        })
    }

    fn tell_of_created(&mut self, task: &Task, release: Arc<Release>, fate: ObjectOutcome) {
        let drift = ObjectDrift::new(task.object.clone(), DriftKind::Missing, self.now);
        self.tell(LoopNotice::Object { release, drift: Box::new(drift), fate });
    }
}

/// Reads the records after the object, because their current state counts.
fn read_records(task: &Task, version: String) -> RepairStep {
    RepairStep::recreate(task.read_records(), Recreate::Records(version))
}

fn read_records_again(task: &Task, created: Created, looks: usize) -> RepairStep {
    RepairStep::recreate(task.read_records(), Recreate::RecordsAgain { created, looks })
}
