//! Re-creates a missing object as Helm itself would write it.
//!
//! Entry point: `Task::recreate`. Invariant: what Helm dropped meanwhile is
//! taken back by its uid.

use jiff::Timestamp;
use serde_json::Value;

use super::super::pass::{RETRY, take_in};
use super::super::report;
use super::{AGAIN, Done, LOOK, Situation, Task, version_of};
use crate::cluster::call::CallError;
use crate::cluster::objects::{Target, WriteError};
use crate::declaration::digest::Digest;
use crate::helm::record::ApplyMethod;
use crate::helm::state::{self, Deletion};
use crate::ledger::row::Repaired;
use crate::metrics::Repair;
use crate::reconcile::body;
use crate::reconcile::plan::Plan;
use crate::reconcile::report::DriftKind;

/// How often the records are looked at after a write whose look failed.
const SECOND_LOOKS: usize = 3;

impl Task<'_> {
    /// Brings the object back.
    pub(super) async fn recreate(&self, situation: &Situation) -> Done {
        let Self { shared, id, object, .. } = self;
        let Some(target) = shared.target(&situation.release, object) else {
            return self.is_unserved(situation);
        };
        match shared.guard.objects.read(&target).await {
            Ok(Some(live)) => {
                if !take_in(shared, id, &live, &target.resource.version) {
                    return Done::Later(AGAIN);
                }
                return self.is_present();
            }
            Ok(None) => {}
            Err(CallError::Unserved) => return self.is_unserved(situation),
            Err(error) => return self.failed(&error.to_string()),
        }
        // The records are read after the object: what they say now is what counts.
        if let Err(error) = shared.guard.releases.fresh(id, LOOK).await {
            return self.failed(&error.to_string());
        }
        let Some(situation) = self.situation() else { return Done::Settled };
        if situation.plan != Plan::Repair {
            return Done::Later(AGAIN);
        }
        let revision = situation.release.state.revision;
        let declared = match shared.guard.releases.document(id, revision, object, LOOK).await {
            Ok(declared) if self.is_to_write(declared.status) => declared,
            Ok(_) => return Done::Later(AGAIN),
            Err(error) => return self.failed(&error.to_string()),
        };
        let method = declared.apply_method;
        // What is written is what was weighed.
        if declared.object.as_ref().map(Digest::of) != Some(situation.declared.digest) {
            return Done::Later(AGAIN);
        }
        let Some(mut document) = body::of(declared.object, target.resource.api_version()) else {
            return Done::Later(AGAIN);
        };
        if let Some(path) = situation.left_out() {
            body::leave_out(path, &mut document);
        }
        let attempts = shared.repairer.backoff.lock().attempt(object, Timestamp::now());
        let manager = self.manager(&situation.release, method);
        let written = if method == ApplyMethod::ServerSide {
            shared.guard.objects.apply(&target, &document, &manager, true).await
        } else {
            shared.guard.objects.create(&target, &document, &manager).await
        };
        match written {
            Ok(created) => {
                let uid = created.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
                self.repaired(&situation, Repair::Repaired, attempts, false);
                shared.drifts.lock().is_restored(id, object, version_of(&created));
                self.take_back_if_dropped(&target, uid).await
            }
            Err(WriteError::AlreadyExists { .. }) => self.is_present(),
            // The namespace takes everything along; nothing comes back into it.
            Err(WriteError::Terminating { .. }) => {
                self.keep(Some("its namespace is being deleted"));
                Done::Later(RETRY)
            }
            Err(WriteError::Failed(CallError::Unserved)) => self.is_unserved(&situation),
            Err(WriteError::Failed(error)) => {
                let done = self.failed(&error.to_string());
                self.take_back_if_made(&target, &manager).await;
                done
            }
            Err(error) => self.refused(&error),
        }
    }

    /// After a write of which nobody knows whether it was done: looks for what
    /// it would have made. Its release may have dropped it, and then nobody
    /// would look at it again.
    async fn take_back_if_made(&self, target: &Target, manager: &str) {
        let Ok(Some(live)) = self.shared.guard.objects.read(target).await else { return };
        let is_made = live.sighting.managers.iter().any(|it| it.name == manager);
        if is_made && live.sighting.release.as_ref() == Some(self.id) {
            self.take_back_if_dropped(target, &live.sighting.uid).await;
        }
    }

    /// Somebody else put it right, or something else is wrong with it by now.
    fn is_present(&self) -> Done {
        let Self { shared, id, object, .. } = self;
        let mut drifts = shared.drifts.lock();
        let missing = DriftKind::Missing;
        let drift = drifts.get_mut(id, object).map(|drift| drift.kind);
        if drift.is_some_and(|kind| kind != missing) {
            return Done::Later(AGAIN);
        }
        drifts.recovered(id, object);
        shared.guard.metrics.repaired(missing.into(), Repair::Present);
        Done::Settled
    }

    /// Looks at the records once more after the write: Helm may have dropped
    /// the object, or begun to uninstall it, while it was written.
    async fn take_back_if_dropped(&self, target: &Target, uid: &str) -> Done {
        let Self { shared, id, object, .. } = self;
        let mut looked = shared.guard.releases.fresh(id, LOOK).await;
        for _ in 0..SECOND_LOOKS {
            if looked.is_ok() {
                break;
            }
            looked = shared.guard.releases.fresh(id, LOOK).await;
        }
        if let Err(error) = looked {
            tracing::warn!(release.id = %id, "{object} was re-created, and the records cannot be read again: {error}");
            return Done::Repaired;
        }
        let release = shared.release(id);
        let timeout = shared.guard.book.of(id).operation_timeout;
        let wanted = release.as_deref().is_some_and(|release| {
            state::standing(release, object, timeout, Timestamp::now()).is_some_and(|standing| {
                !matches!(standing.deletion, Deletion::Dropped | Deletion::Uninstalled)
            })
        });
        if wanted || uid.is_empty() {
            return Done::Repaired;
        }
        match shared.guard.objects.delete(target, uid).await {
            Ok(()) => {
                shared.guard.metrics.repaired(DriftKind::Missing.into(), Repair::TakenBack);
                if let Some(release) = &release {
                    report::keep(
                        shared,
                        release,
                        object,
                        Repaired::TakenBack,
                        Vec::new(),
                        "its release dropped it",
                    );
                }
                tracing::info!(release.id = %id, drift.object = %object, "{object} is taken back: its release dropped it");
            }
            Err(WriteError::NotFound { .. } | WriteError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(
                    release.id = %id, drift.object = %object,
                    "{object} was re-created, its release dropped it meanwhile, and it cannot be taken back: {error}"
                );
            }
        }
        Done::Settled
    }
}
