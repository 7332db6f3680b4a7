//! What of a drift stays as it is, whatever is written.
//!
//! Entry points: [`is_left`] for what no repair may undo, `Task::learn_fixed`
//! for what the API server did not take, `Task::is_outdated` for a manifest that
//! it takes no more at all. Invariant: what was learned holds for one revision.
//! Must not write.

use super::{LOOK, Situation, Task};
use crate::cluster::objects::{Target, WriteError};
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::model::ObjectId;
use crate::reconcile::body;
use crate::verdict::sealed;

/// Why the guard leaves a sealed field alone.
pub(super) const LEFT: &str =
    "whoever has set this has to undo it, or delete the object, which is re-created then";

/// What of a change the API server did not take.
pub(super) struct Fixed {
    pub(super) paths: Vec<Path>,
    /// Why it takes that on no object; none if only this one is in the way.
    pub(super) outdated: Option<String>,
}

/// Whether a change is of a sealed field that no repair may undo.
pub(super) fn is_left(object: &ObjectId, change: &FieldChange) -> bool {
    sealed::is_sealed(object, &change.path) && change.declared.is_none() && sealed::stays(object, change)
}

impl Task<'_> {
    /// Why the API server takes the manifest itself no more, whatever the object
    /// is; none if it would take it anew, and the object is what it is held
    /// against.
    pub(super) async fn is_outdated(
        &self,
        situation: &Situation,
        target: &Target,
        message: &str,
    ) -> Option<String> {
        let Self { shared, id, object, .. } = self;
        let revision = situation.release.state.revision;
        let declared = shared.guard.releases.document(id, revision, object, LOOK).await.ok()?;
        let document = body::of(declared.object, target.resource.api_version())?;
        match shared.guard.objects.would_create(target, &document).await {
            Err(WriteError::Invalid { .. }) => {
                Some(format!("the API server does not take what its manifest says any more: {message}"))
            }
            _ => None,
        }
    }

    pub(super) fn learn_fixed(&self, situation: &Situation, paths: &[Path]) {
        let mut fixed = self.shared.repairer.fixed.lock();
        let entry = fixed.entry(self.object.clone()).or_default();
        if entry.0 != situation.release.state.revision {
            *entry = (situation.release.state.revision, Vec::new());
        }
        entry.1.extend(paths.iter().map(ToString::to_string));
    }

    pub(super) fn is_known_fixed(&self, situation: &Situation, changes: &[FieldChange]) -> bool {
        let fixed = self.shared.repairer.fixed.lock();
        fixed.get(self.object).is_some_and(|(revision, paths)| {
            *revision == situation.release.state.revision
                && changes.iter().all(|change| paths.contains(&change.path.to_string()))
        })
    }
}
