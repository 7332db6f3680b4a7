//! The end of what is known about objects.
//!
//! Entry points: `Drifts::forget`, `forget_release`, `drop_all_but`. Invariant: nothing that a release has ceased to declare is remembered
//! of it, so that it is seen anew if it is declared again, whichever watch was ahead when it ended. Must not decide what
//! is declared.

use std::sync::Arc;

use super::super::effort::note;
use super::Drifts;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;

impl Drifts {
    /// Forgets an object that no release declares, or that was never seen.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.remove(object) {
            self.clear(&life.release, object);
        }
    }

    /// Forgets a release that is gone, and which declared this `before`.
    pub(crate) fn forget_release(&mut self, id: &ReleaseId, before: Option<&Release>) {
        self.first.forget(id);
        self.helms.remove(id);
        self.held.remove(id);
        self.operated.remove(id);
        self.drop_all_but(id, before, |_| false);
    }

    /// Forgets all objects of a release that it declared `before` or of which there is something to do, except those
    /// that `stays` selects.
    pub(super) fn drop_all_but(
        &mut self,
        id: &ReleaseId,
        before: Option<&Release>,
        stays: impl Fn(&ObjectId) -> bool,
    ) {
        let suspects = self.suspects.get(id).into_iter().flatten().map(|(object, _)| object);
        let drifting = self.drifting.get(id).into_iter().flatten().map(|(object, _)| object);
        let declared = before.into_iter().flat_map(|before| before.objects.keys());
        // What an earlier guard saw is remembered although the record cannot be read.
        let is_unread = before.is_some_and(|before| before.invalid.is_some());
        let lives = self.lives.iter().filter(|(_, life)| is_unread && *life.release == *id);
        let known = suspects.chain(drifting).chain(declared).chain(lives.map(|(object, _)| object));
        note(known.clone().count());
        let dropped: Vec<Arc<ObjectId>> = known.filter(|it| !stays(it)).cloned().collect();
        for object in dropped {
            self.clear(id, &object);
            if self.lives.get(&object).is_some_and(|life| *life.release == *id) {
                self.lives.remove(&object);
            }
        }
    }
}
