//! What is known of declared objects: which were seen alive, which have to be
//! looked at, and what of them is not as declared.
//!
//! Entry point: [`Drifts`]; what objects agree with is in `agreed`. Invariant:
//! only identities, manager names, seals and redacted findings; pure state, fed by
//! the watches, the index and the passes. What was seen alive is remembered until
//! its release drops it. Must not decide what is repaired.

mod agreed;
mod counted;
mod suspect;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

pub(crate) use super::drift::Drift;
use super::effort::note;
pub(crate) use super::first::First;
use super::first::FirstSeen;
pub(crate) use super::life::{Life, Version};
use super::live::Manager;
use super::report::DriftKind;
use crate::declaration::names::Pool;
use crate::helm::release::{Declared, Release};
use crate::model::{ObjectId, ReleaseId};
use crate::policy::signing::SigningKey;
pub(crate) use agreed::Agreed;
pub(crate) use suspect::Suspect;

/// What is known of declared objects.
pub(crate) struct Drifts {
    /// What agreements are sealed with.
    key: SigningKey,
    lives: HashMap<Arc<ObjectId>, Life>,
    /// The field managers of lives: most have the same.
    managers: Pool<[Manager]>,
    /// The releases of lives.
    releases: Pool<ReleaseId>,
    suspects: HashMap<ReleaseId, HashMap<Arc<ObjectId>, Suspect>>,
    drifting: HashMap<ReleaseId, HashMap<Arc<ObjectId>, Box<Drift>>>,
    /// Why drifts stay: of very many for the same reasons.
    reasons: Pool<str>,
    first: FirstSeen,
    /// The release as its objects were last held to it.
    held: HashMap<ReleaseId, Arc<Release>>,
    /// The releases of which something has changed that is counted.
    touched: HashSet<ReleaseId>,
}

impl Drifts {
    /// Nothing is known yet.
    pub(crate) fn new(key: SigningKey) -> Self {
        Self {
            key,
            lives: HashMap::new(),
            managers: Pool::default(),
            releases: Pool::default(),
            suspects: HashMap::new(),
            drifting: HashMap::new(),
            reasons: Pool::default(),
            first: FirstSeen::default(),
            held: HashMap::new(),
            touched: HashSet::new(),
        }
    }

    /// An object's last life.
    pub(crate) fn life(&self, object: &ObjectId) -> Option<&Life> {
        self.lives.get(object)
    }

    /// Records the last known state of an object.
    pub(crate) fn record_life(&mut self, object: ObjectId, mut life: Life) {
        life.managers = self.managers.share(&life.managers);
        life.release = self.releases.share(&life.release);
        if let Some(before) = self.lives.get(&object).filter(|before| before.release != life.release) {
            let before = Arc::clone(&before.release);
            self.clear(&before, &object);
        }
        self.touch_counted(&life.release);
        let object = self.name(&life.release, &object);
        self.lives.insert(object, life);
    }

    /// An object that nobody declares, or that nobody has seen.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.remove(object) {
            self.clear(&life.release, object);
        }
    }

    /// A watch says that an object went, or lost Helm's label, by which it has
    /// this version; gives the release that has to look.
    pub(crate) fn mark_gone(
        &mut self,
        object: &ObjectId,
        version: Version,
        now: Timestamp,
    ) -> Option<ReleaseId> {
        let life = self.lives.get_mut(object)?;
        life.judged = None;
        life.version = version;
        let release = Arc::clone(&life.release);
        let object = self.name(&release, object);
        let suspects = self.suspects.entry(ReleaseId::clone(&release)).or_default();
        let suspect = suspects.entry(object).or_insert(Suspect::new(now, true));
        suspect.reasons = suspect.reasons.saturating_add(1);
        (suspect.went, suspect.due) = (true, None);
        self.touch(&release);
        Some(ReleaseId::clone(&release))
    }

    /// Objects that were alive when last seen, of those that `is_meant` says.
    pub(crate) fn living(&self, is_meant: impl Fn(&ObjectId) -> bool) -> Vec<ObjectId> {
        note(self.lives.len());
        let alive = self.lives.iter().filter(|(object, life)| life.alive && is_meant(object));
        alive.map(|(object, _)| ObjectId::clone(object)).collect()
    }

    /// An object was looked at: it does not exist. Gives whether that is new.
    pub(crate) fn record_missing(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        since: Timestamp,
    ) -> bool {
        if let Some(life) = self.lives.get_mut(object) {
            life.alive = false;
            life.judged = None;
            let of = Arc::clone(&life.release);
            self.touch_counted(&of);
        }
        self.clear_suspicion(release, object);
        let drift = Drift::new(DriftKind::Missing, since);
        self.record_drift(release, object, drift)
    }

    /// An object is as its release declares it. Gives whether it drifted.
    pub(crate) fn record_in_sync(&mut self, release: &Release, object: &ObjectId) -> bool {
        if let Some(life) = self.lives.get_mut(object).filter(|life| *life.release == release.id) {
            life.judged = Some(release.state.digest);
        }
        self.clear_suspicion(&release.id, object);
        self.clear_drift(&release.id, object)
    }

    /// The state of the release's record declares no such object. Gives whether
    /// it drifted.
    pub(crate) fn record_undeclared(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.clear_suspicion(release, object);
        self.clear_drift(release, object)
    }

    /// An object is not as declared, and an operation is under way: it is
    /// judged when that has ended.
    pub(crate) fn mark_unsettled(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.get_mut(object) {
            life.judged = None;
        }
    }

    /// Notes whether an object differs as an exception allows. Gives whether that is new.
    pub(crate) fn allow(&mut self, object: &ObjectId, allowed: bool) -> bool {
        let life = self.lives.get_mut(object);
        life.is_some_and(|life| std::mem::replace(&mut life.allowed, allowed) != allowed)
    }

    /// An object is not as declared. Gives whether that says anything new.
    pub(crate) fn record_drift(&mut self, release: &ReleaseId, object: &ObjectId, drift: Drift) -> bool {
        if let Some(life) = self.lives.get_mut(object) {
            life.judged = None;
        }
        self.clear_suspicion(release, object);
        self.touch(release);
        let name = self.name(release, object);
        let drifting = self.drifting.entry(release.clone()).or_default();
        match drifting.get_mut(object) {
            Some(known) if known.kind == drift.kind && known.findings == drift.findings => {
                if known.doubt && !drift.doubt {
                    known.tries = 0;
                }
                known.doubt &= drift.doubt;
                known.by = drift.by.or_else(|| known.by.take());
                false
            }
            Some(known) => {
                // It drifts on, otherwise.
                let since = known.since.min(drift.since);
                let counted = known.counted && known.kind == drift.kind;
                **known = Drift { since, counted, contested: known.contested, ..drift };
                true
            }
            None => {
                drifting.insert(name, Box::new(drift));
                true
            }
        }
    }

    /// A release's state is this. Objects whose declaration changed since they
    /// were last found as declared become suspects, if `is_watched` says that
    /// no listing is to come that shows them.
    pub(crate) fn notice(
        &mut self,
        id: &ReleaseId,
        release: Option<&Arc<Release>>,
        is_watched: impl Fn(&ObjectId) -> bool,
        now: Timestamp,
    ) {
        self.touch(id);
        let Some(release) = release else {
            self.first.forget(id);
            self.held.remove(id);
            self.drop_all_but(id, |_| false);
            return;
        };
        // What cannot be believed is no manifest.
        if release.invalid.is_none() {
            self.first.note(release);
        }
        self.drop_all_but(id, |object| release.objects.contains_key(object));
        if !release.state.status.is_pending() {
            self.hold_to(release, is_watched, now);
        }
    }

    /// The manifest that was seen first of a release's revision.
    pub(crate) fn first(&self, id: &ReleaseId, revision: u64) -> Option<&First> {
        self.first.of(id, revision)
    }

    /// Every release for which there is something to do.
    pub(crate) fn concerned(&self) -> HashSet<ReleaseId> {
        note(self.suspects.len() + self.drifting.len());
        self.suspects.keys().chain(self.drifting.keys()).cloned().collect()
    }

    /// What of a release is not as declared.
    pub(crate) fn of(&self, release: &ReleaseId) -> Vec<(Arc<ObjectId>, Drift)> {
        note(self.drifting.get(release).map_or(0, HashMap::len));
        self.drifting
            .get(release)
            .into_iter()
            .flatten()
            .map(|(object, it)| (Arc::clone(object), Drift::clone(it)))
            .collect()
    }

    /// Whether something is known of an object that is not as declared.
    pub(crate) fn is_known(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.drifting.get(release).is_some_and(|all| all.contains_key(object))
    }

    /// One of these. A caller that changes what it counts by notes that by [`Drifts::touch`].
    pub(crate) fn get_mut(&mut self, release: &ReleaseId, object: &ObjectId) -> Option<&mut Drift> {
        self.drifting.get_mut(release)?.get_mut(object).map(Box::as_mut)
    }

    /// Whether more is known of an object than what an answer of `version` says:
    /// then the answer counts for nothing.
    pub(crate) fn is_overtaken(&self, object: &ObjectId, version: Version) -> bool {
        self.life(object).is_some_and(|life| life.is_after(version))
    }

    /// The guard's own write has put an object right, by which it has this
    /// version. Somebody may have changed it since.
    pub(crate) fn record_restored(&mut self, release: &ReleaseId, object: &ObjectId, version: Version) {
        if !self.is_overtaken(object, version) {
            self.clear_drift(release, object);
        }
    }

    /// An object does not drift any more. Gives whether it did.
    pub(crate) fn clear_drift(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        let is_cleared = remove(&mut self.drifting, release, object);
        if is_cleared {
            self.touch(release);
        }
        is_cleared
    }

    /// Notes why a drift stays, or that it is not known to.
    pub(crate) fn keep(&mut self, release: &ReleaseId, object: &ObjectId, reason: Option<&str>) {
        let reason = reason.map(|reason| self.reasons.share(reason));
        if let Some(drift) = self.get_mut(release, object) {
            drift.kept = reason;
        }
    }

    /// The object's name, in memory that all share who know it.
    pub(crate) fn name(&self, release: &ReleaseId, object: &ObjectId) -> Arc<ObjectId> {
        let declared = || self.held.get(release)?.objects.get_key_value(object);
        let known = self.lives.get_key_value(object).map(|(name, _)| name);
        let known = known.or_else(|| declared().map(|(name, _)| name));
        known.map_or_else(|| Arc::new(object.clone()), Arc::clone)
    }

    fn hold_to(&mut self, release: &Arc<Release>, is_watched: impl Fn(&ObjectId) -> bool, now: Timestamp) {
        let before = self.held.insert(release.id.clone(), Arc::clone(release));
        let digest = release.state.digest;
        let mut suspects = Vec::new();
        note(release.objects.len());
        for object in release.objects.keys() {
            let is_same =
                before.as_ref().is_some_and(|before| same(before.declared(object), release.declared(object)));
            let life = self.lives.get_mut(object).filter(|life| *life.release == release.id);
            let Some(life) = life else {
                suspects.push((Arc::clone(object), is_same));
                continue;
            };
            // By the manifest, never by the revision: somebody may rewrite a record.
            let stands = match &before {
                Some(before) if life.judged == Some(before.state.digest) => is_same,
                _ => life.judged == Some(digest),
            };
            if stands {
                life.judged = Some(digest);
            } else {
                suspects.push((Arc::clone(object), is_same));
            }
        }
        let is_status = before.as_ref().is_some_and(|before| before.state.status == release.state.status);
        // What a listing has shown already it shows no more.
        suspects.retain(|(object, _)| is_watched(object) || self.life(object).is_some_and(|life| life.alive));
        for (object, is_same) in suspects {
            self.suspect_declared(&release.id, object, is_same && is_status, now);
        }
    }

    fn clear_suspicion(&mut self, release: &ReleaseId, object: &ObjectId) {
        if remove(&mut self.suspects, release, object) {
            self.touch(release);
        }
    }

    fn clear(&mut self, release: &ReleaseId, object: &ObjectId) {
        self.clear_suspicion(release, object);
        self.clear_drift(release, object);
    }

    /// A release declares nothing any more but what `stays` says.
    fn drop_all_but(&mut self, id: &ReleaseId, stays: impl Fn(&ObjectId) -> bool) {
        let suspects = self.suspects.get(id).into_iter().flatten().map(|(object, _)| object);
        let drifting = self.drifting.get(id).into_iter().flatten().map(|(object, _)| object);
        note(suspects.clone().count() + drifting.clone().count());
        let dropped: Vec<Arc<ObjectId>> = suspects.chain(drifting).filter(|it| !stays(it)).cloned().collect();
        for object in dropped {
            self.clear(id, &object);
            if self.lives.get(&object).is_some_and(|life| !life.alive) {
                self.lives.remove(&object);
            }
        }
    }
}

/// Whether two declarations of an object ask the same of it, and are confirmed by
/// the same agreement.
fn same(a: Option<&Arc<Declared>>, b: Option<&Arc<Declared>>) -> bool {
    a.zip(b).is_some_and(|(a, b)| {
        a.version == b.version
            && a.opted_out == b.opted_out
            && a.digest == b.digest
            && ((a.digest.is_some() && a.packed.is_typed_as(&b.packed)) || a.fields() == b.fields())
    })
}

fn remove<T>(
    of: &mut HashMap<ReleaseId, HashMap<Arc<ObjectId>, T>>,
    release: &ReleaseId,
    object: &ObjectId,
) -> bool {
    let Some(objects) = of.get_mut(release) else { return false };
    let removed = objects.remove(object).is_some();
    if objects.is_empty() {
        of.remove(release);
    }
    removed
}

#[cfg(test)]
mod tests;
