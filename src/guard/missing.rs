//! What was seen alive, and what of it is gone.
//!
//! Entry point: [`Missing`]. Invariant: only identities, uids and manager
//! names; pure state, fed by the watches and the index. Must not decide what
//! is repaired.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::objects::{Manager, Sighting};
use crate::helm::release::Release;
use crate::model::{ObjectId, ReleaseId};

/// What is known of the life of objects.
#[derive(Default)]
pub(super) struct Missing {
    /// Objects that were seen with a release's annotations.
    seen: HashMap<ObjectId, Seen>,
    /// What is gone, by the release that it belonged to.
    gone: HashMap<ReleaseId, HashMap<ObjectId, Gone>>,
    /// The first manifest that was seen of a release's revision.
    first: HashMap<ReleaseId, First>,
}

/// The first manifest that was seen of one record. A record that was deleted
/// and made anew is another one, whatever revision it has.
struct First {
    uid: String,
    revision: u64,
    digest: [u8; 32],
}

/// An object's last life.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) release: ReleaseId,
    pub(super) managers: Arc<[Manager]>,
}

/// An object that is gone.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) since: Instant,
    /// How it lived; none if the guard never saw it alive.
    pub(super) seen: Option<Seen>,
    /// Whether it was reported already.
    pub(super) reported: bool,
}

impl Missing {
    /// An object is there.
    pub(super) fn lives(&mut self, sighting: Sighting) {
        for gone in self.gone.values_mut() {
            gone.remove(&sighting.id);
        }
        self.gone.retain(|_, gone| !gone.is_empty());
        match sighting.release {
            Some(release) => {
                let managers = sighting.managers.into();
                self.seen.insert(sighting.id, Seen { release, managers });
            }
            None => drop(self.seen.remove(&sighting.id)),
        }
    }

    /// An object went; gives the release that it belonged to.
    pub(super) fn went(&mut self, sighting: &Sighting, now: Instant) -> Option<ReleaseId> {
        let seen = self.seen.remove(&sighting.id).or_else(|| {
            Some(Seen { release: sighting.release.clone()?, managers: sighting.managers.clone().into() })
        })?;
        let release = seen.release.clone();
        self.lost(&release, sighting.id.clone(), Some(seen), now);
        Some(release)
    }

    /// After a full listing of a kind: what was seen and is not in it went.
    pub(super) fn went_but(
        &mut self,
        is_of_kind: impl Fn(&ObjectId) -> bool,
        listed: &HashSet<ObjectId>,
        now: Instant,
    ) -> HashSet<ReleaseId> {
        let went: Vec<_> =
            self.seen.keys().filter(|id| is_of_kind(id) && !listed.contains(*id)).cloned().collect();
        let mut releases = HashSet::new();
        for id in went {
            if let Some(seen) = self.seen.remove(&id) {
                releases.insert(seen.release.clone());
                let release = seen.release.clone();
                self.lost(&release, id, Some(seen), now);
            }
        }
        releases
    }

    /// A declared object that the guard has never seen alive.
    pub(super) fn never_seen(&mut self, release: &ReleaseId, id: ObjectId, now: Instant) {
        self.lost(release, id, None, now);
    }

    /// Whether an object was seen and is there.
    pub(super) fn is_alive(&self, id: &ObjectId) -> bool {
        self.seen.contains_key(id)
    }

    /// A release's state changed: what it no longer has is not missed.
    pub(super) fn notice(&mut self, id: &ReleaseId, release: Option<&Arc<Release>>) {
        match release {
            Some(release) => {
                // What cannot be believed is no manifest.
                if release.invalid.is_none() {
                    self.note_first(release);
                }
                if let Some(gone) = self.gone.get_mut(id) {
                    gone.retain(|object, _| release.objects.contains_key(object));
                }
            }
            None => {
                self.first.remove(id);
                self.gone.remove(id);
            }
        }
    }

    /// The digest of the manifest that was seen first of a release's revision.
    pub(super) fn first_digest(&self, id: &ReleaseId, revision: u64) -> Option<[u8; 32]> {
        self.first.get(id).filter(|first| first.revision == revision).map(|first| first.digest)
    }

    /// Whether a release misses anything.
    pub(super) fn misses(&self, release: &ReleaseId) -> bool {
        self.gone.get(release).is_some_and(|gone| !gone.is_empty())
    }

    /// What a release misses.
    pub(super) fn of(&self, release: &ReleaseId) -> Vec<(ObjectId, Gone)> {
        let gone = self.gone.get(release).into_iter().flatten();
        gone.map(|(id, gone)| (id.clone(), gone.clone())).collect()
    }

    /// An object is not missed any more.
    pub(super) fn forget(&mut self, release: &ReleaseId, id: &ObjectId) {
        if let Some(gone) = self.gone.get_mut(release) {
            gone.remove(id);
        }
    }

    /// Marks an object as reported; says whether it was not before.
    pub(super) fn report(&mut self, release: &ReleaseId, id: &ObjectId) -> bool {
        let gone = self.gone.get_mut(release).and_then(|gone| gone.get_mut(id));
        gone.is_some_and(|gone| !std::mem::replace(&mut gone.reported, true))
    }

    /// How many objects are missing, of those of releases that `counts` says,
    /// that the guard saw alive.
    pub(super) fn count(&self, counts: impl Fn(&ReleaseId, &ObjectId) -> bool) -> usize {
        let all = self.gone.iter().flat_map(|(release, gone)| gone.iter().map(move |it| (release, it)));
        all.filter(|(release, (object, gone))| gone.seen.is_some() && counts(release, object)).count()
    }

    fn note_first(&mut self, release: &Release) {
        let (uid, revision) = (&release.latest.uid, release.state.revision);
        let known = self.first.get(&release.id);
        if known.is_none_or(|first| first.uid != *uid || first.revision != revision) {
            let first = First { uid: uid.clone(), revision, digest: release.state.digest };
            self.first.insert(release.id.clone(), first);
        }
    }

    fn lost(&mut self, release: &ReleaseId, id: ObjectId, seen: Option<Seen>, since: Instant) {
        let gone = self.gone.entry(release.clone()).or_default();
        gone.entry(id).or_insert(Gone { since, seen, reported: false });
    }
}

#[cfg(test)]
mod tests;
