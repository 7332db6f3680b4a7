//! The records that are trusted for releases in other namespaces, by the current policies.
//!
//! Entry point: [`Releases::trust`]. Invariant: when [`Releases::trust`] returns, declarations from records
//! that are no longer trusted are out of the index, and stay out.

use std::sync::Arc;

use super::Releases;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_helm::storage::Storage;
use kubemoor_runtime::metrics::RecordFault;

impl Releases {
    /// Trusts only these records from now on. Their declarations come into the index soon after.
    pub fn trust(&self, storage: &Storage) {
        // A namespace that is not watched cannot be trusted.
        let storage = Arc::new(storage.clone().within(&self.namespaces));
        let before = {
            let mut current = self.storage.write();
            if **current == *storage {
                return;
            }
            std::mem::replace(&mut *current, Arc::clone(&storage))
        };
        for release in self.distrusted(&storage) {
            let stored = release.stored();
            self.standings.lock().remove(&stored);
            self.index.write().remove(&stored);
            self.announcer.announce(&release.id);
        }
        for namespace in before.changed(&storage) {
            let concerned = self.records.lock().releases_in(&namespace);
            concerned.iter().for_each(|stored| self.outdate(stored));
        }
    }

    /// Which records are trusted now.
    pub(super) fn storage(&self) -> Arc<Storage> {
        Arc::clone(&self.storage.read())
    }

    /// Puts into the index what records say that were believed by `storage`.
    /// Says whether that is what is trusted now.
    pub(super) fn put(&self, release: Release, storage: &Arc<Storage>) -> bool {
        // Held, so that nothing that is distrusted meanwhile comes after.
        let current = self.storage.read();
        if current.holds(&release.storage, &release.id.namespace) {
            self.enter(release);
        }
        Arc::ptr_eq(&current, storage)
    }

    /// Has releases read again for which there was no room, after others took less of it.
    pub(super) fn make_room(&self, namespace: &str) {
        let waiting: Vec<ReleaseId> = self.left_out.lock().iter().cloned().collect();
        let (own, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|it| it.namespace == namespace);
        own.iter().chain(&others).for_each(|stored| self.outdate(stored));
    }

    /// The place of the records that speak for `release`; without records, their regular place.
    pub(super) fn stored(&self, release: &ReleaseId) -> ReleaseId {
        self.index.read().release(release).map_or_else(|| release.clone(), |release| release.stored())
    }

    /// Puts a release into the index, or only its name where there is no memory for its declarations.
    fn enter(&self, mut release: Release) {
        let stored = release.stored();
        let mut index = self.index.write();
        let before = index.stored(&stored).map_or(0, |before| before.weight);
        let room = index.room_for(&release);
        if let Err(full) = &room {
            tracing::warn!(release.id = %release.id, reason = %full, "a release is not judged");
            self.metrics.undecodable(RecordFault::TooLarge);
            release.leave_out(full.to_string());
        }
        let shrinks = release.weight < before;
        index.set(release);
        drop(index);
        match room {
            Ok(()) => self.left_out.lock().remove(&stored),
            Err(_) => self.left_out.lock().insert(stored.clone()),
        };
        if shrinks && room.is_ok() {
            self.make_room(&stored.namespace);
        }
    }

    fn distrusted(&self, storage: &Storage) -> Vec<Arc<Release>> {
        let index = self.index.read();
        let is_distrusted = |it: &&Arc<Release>| !storage.holds(&it.storage, &it.id.namespace);
        index.histories().filter(is_distrusted).cloned().collect()
    }
}
