//! Re-creates a missing object as Helm itself would write it.
//!
//! Entry points: `Reconciler::begin_recreating`, `recreate`. Invariant: the guard looks for the
//! object first, then reads the records, and writes only the declaration that it has judged. It
//! reads the records again after each write. Must not replace an object that exists.

use std::sync::Arc;

use serde_json::Value;

use super::super::Reconciler;
use super::{AGAIN, Done, Next, RETRY, Repair, Seen, Situation, TakeBack, Task, api_version};
use crate::body;
use crate::drifts::Version;
use crate::event::{Document, Failure, Fault, Outcome, Secret, Work, Write};
use crate::occurrence::{Fate, Occurrence};
use crate::plan::Plan;
use crate::report::DriftKind;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::document::prepare;
use kubemoor_declare::embedded;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;

/// The state of a re-creation.
pub(crate) enum Recreate {
    /// The guard looks for the object.
    Reading(Arc<Release>),
    /// The definition of its kind is looked at; the version in which the kind is served.
    Definition(String),
    /// The records are read; the version in which the kind is served.
    Records(String),
    /// The manifest is read.
    Document(Box<Situation>, String),
    /// It is written.
    Writing(Creation),
}

/// An object that is being re-created.
pub(crate) struct Creation {
    situation: Box<Situation>,
    /// The field manager that it is written as.
    manager: String,
    attempts: u32,
}

impl Reconciler {
    /// Begins to re-create a missing object.
    pub(super) fn begin_recreating(task: &Task, situation: &Situation) -> Next {
        let version = Arc::clone(&situation.declared.version);
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::work(work, Repair::Recreate(Recreate::Reading(Arc::clone(&situation.release))))
    }

    pub(super) fn recreate(&mut self, task: &Task, recreate: Recreate, outcome: Outcome) -> Next {
        match (recreate, outcome) {
            (Recreate::Reading(_), Outcome::Object { live: Some(live), version }) => {
                if !self.take_in(&task.id, &live, &version) {
                    return Next::again(AGAIN);
                }
                self.leave_present(task)
            }
            (Recreate::Reading(_), Outcome::Object { live: None, version }) => {
                if is_built_in(&task.object) {
                    return Self::read_records(task, version);
                }
                let work = Work::ReadDefinition { object: task.object.clone() };
                Next::work(work, Repair::Recreate(Recreate::Definition(version)))
            }
            // The API server deletes the objects of a kind before the kind, and takes new ones for
            // a moment. One that stays behind breaks the kind if it is ever defined anew.
            (Recreate::Definition(_), Outcome::Definition { deleting: true }) => {
                self.keep(task, Some("the CustomResourceDefinition of its kind is being deleted"));
                Next::later(RETRY)
            }
            (Recreate::Definition(version), Outcome::Definition { deleting: false }) => {
                Self::read_records(task, version)
            }
            (Recreate::Definition(version), Outcome::Failed(Failure { fault: Fault::Forbidden, .. })) => {
                Self::read_records(task, version)
            }
            (Recreate::Reading(release), Outcome::Failed(failure)) => self.fail_by(task, &release, &failure),
            (Recreate::Records(version), Outcome::Records(ruled)) => {
                self.learn_records(&task.id, ruled);
                let Some(situation) = self.situation(task) else { return Next::settled() };
                if situation.plan != Plan::Repair {
                    return Next::again(AGAIN);
                }
                let revision = situation.release.state.revision;
                let work = Work::ReadDocument { revision, object: task.object.clone() };
                Next::work(work, Repair::Recreate(Recreate::Document(Box::new(situation), version)))
            }
            (Recreate::Document(situation, version), Outcome::Document(document)) => {
                self.write_anew(task, situation, &version, document)
            }
            (Recreate::Writing(creation), outcome) => self.written_anew(task, creation, outcome),
            (_, Outcome::Failed(failure)) => self.fail_with(task, &failure),
            _ => Next::again(AGAIN),
        }
    }

    /// Reads the records after the object, because their present state counts.
    fn read_records(task: &Task, version: String) -> Next {
        let work = Work::ReadRecords { release: task.id.clone() };
        Next::work(work, Repair::Recreate(Recreate::Records(version)))
    }

    fn write_anew(
        &mut self,
        task: &Task,
        situation: Box<Situation>,
        version: &str,
        document: Document,
    ) -> Next {
        let Document { status, apply_method, object, .. } = document;
        let object = object.map(|Secret(value)| value);
        // What is written is what was weighed.
        let is_weighed = object.as_ref().map(Digest::of) == Some(situation.declared.digest);
        // The record was read meanwhile and may have changed.
        if !task.is_to_write(status) || !is_weighed || !self.is_in_force(task, &situation) {
            return Next::again(AGAIN);
        }
        let prepared = object.and_then(|object| prepare(object, api_version(&task.object, version)));
        let Some(mut document) = prepared else {
            return Next::again(AGAIN);
        };
        if let Some(path) = situation.left_out() {
            body::leave_out(path, &mut document);
        }
        let attempts = self.repairs.backoff.attempt(&task.object, self.now);
        let manager = self.manager(&situation.release, apply_method);
        let (document, by) = (Secret(document), manager.clone());
        let write = match apply_method {
            ApplyMethod::ServerSide => Write::Apply { document, manager: by },
            _ => Write::Create { document, manager: by },
        };
        let version = Arc::clone(&situation.declared.version);
        let work = Work::Write { object: task.object.clone(), version, write };
        Next::work(work, Repair::Recreate(Recreate::Writing(Creation { situation, manager, attempts })))
    }

    fn written_anew(&mut self, task: &Task, creation: Creation, outcome: Outcome) -> Next {
        let Creation { situation, manager, attempts } = creation;
        let situation = &*situation;
        match outcome.written() {
            Ok(created) => {
                let uid = created.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
                self.note_repaired(task, situation, situation.drift.clone(), Fate::Repaired { attempts });
                self.note_restored(task, situation, version_written(&created));
                self.begin_taking_back(task, situation, uid.to_owned(), Done::Repaired)
            }
            Err(Failure { fault: Fault::AlreadyExists, .. }) => self.leave_present(task),
            // The namespace is deleted with all its objects; nothing can be created in it.
            Err(Failure { fault: Fault::Terminating, .. }) => {
                self.keep(task, Some("its namespace is being deleted"));
                Next::again(RETRY)
            }
            // It is unknown whether the write was done. If the release has dropped the object, no
            // later pass would look at it again.
            Err(Failure { fault: Fault::Unanswered, message }) => {
                let Next::Done(done) = self.fail(task, &message) else { return Next::settled() };
                let version = Arc::clone(&situation.declared.version);
                let work = Work::ReadObject { object: task.object.clone(), version };
                let release = Arc::clone(&situation.release);
                Next::work(work, Repair::TakeBack(TakeBack::Looking { release, manager, done }))
            }
            Err(failure) => self.fail_by(task, &situation.release, &failure),
        }
    }

    /// Leaves an object that exists: another writer re-created it, or it has another drift now.
    fn leave_present(&mut self, task: &Task) -> Next {
        let drift = self.drifts.get_mut(&task.id, &task.object).map(|drift| drift.kind);
        if drift.is_some_and(|kind| kind != DriftKind::Missing) {
            return Next::again(AGAIN);
        }
        self.drifts.clear_drift(&task.id, &task.object);
        self.tell(Occurrence::Present(DriftKind::Missing));
        Next::settled()
    }
}

/// Unused fields of what was read are dropped with it.
impl From<(Box<crate::live::Live>, String)> for Seen {
    fn from((live, version): (Box<crate::live::Live>, String)) -> Self {
        Self { live: *live, version }
    }
}

/// The version of an object as it was written.
pub(super) fn version_written(written: &Value) -> Version {
    Version::of(written.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
}

/// Whether the kind is built into every API server, without a CustomResourceDefinition.
fn is_built_in(object: &ObjectId) -> bool {
    embedded::core().facts(&object.group, &object.kind).is_some()
}
