//! The knowledge about declared objects: which ones were seen alive, which ones have to be read,
//! and how they differ from their declarations.
//!
//! Entry point: [`Drifts`]; the module `agreed` holds the agreements of objects. Invariant: holds
//! only identities, manager names, seals and redacted findings; pure state, fed by the watches, the
//! index and the passes. An object that was seen alive is remembered until its release drops it.
//! Must not decide which objects are repaired.

mod agreed;
mod counted;
mod forget;
mod manager;
mod suspect;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use smol_str::SmolStr;

pub use super::drift::Drift;
use super::effort::note;
pub use super::first::First;
use super::first::FirstSeen;
pub(crate) use super::life::{Life, ManifestMark, Version};
use super::live::Manager;
use super::pool::Pool;
use super::report::DriftKind;
pub(crate) use agreed::Agreed;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::{Declared, Release};
use kubemoor_policy::signing::SigningKey;
pub(crate) use suspect::Suspect;

/// What is known of declared objects.
pub(crate) struct Drifts {
    /// The key that signs agreements.
    key: SigningKey,
    lives: HashMap<Arc<ObjectId>, Life>,
    /// The field managers of lives, shared because most objects have the same ones.
    managers: Pool<Vec<Manager>>,
    /// The field manager with which Helm writes each release's objects, as it was last seen.
    helms: HashMap<ReleaseId, SmolStr>,
    /// The releases of lives, shared.
    releases: Pool<ReleaseId>,
    suspects: HashMap<ReleaseId, HashMap<Arc<ObjectId>, Suspect>>,
    /// The number of the last reason to read an object.
    last_reason: u64,
    drifting: HashMap<ReleaseId, HashMap<Arc<ObjectId>, Box<Drift>>>,
    /// The reasons why drifts stay, shared because many drifts have the same ones.
    reasons: Pool<str>,
    first: FirstSeen,
    /// The releases as their objects were last compared with them.
    held: HashMap<ReleaseId, Arc<Release>>,
    /// Those with a Helm operation since then, by which objects may have been judged.
    operated: HashSet<ReleaseId>,
    /// The releases with a change that affects the counts.
    touched: HashSet<ReleaseId>,
}

impl Drifts {
    /// An empty state.
    pub(crate) fn new(key: SigningKey) -> Self {
        Self {
            key,
            lives: HashMap::new(),
            managers: Pool::default(),
            helms: HashMap::new(),
            releases: Pool::default(),
            suspects: HashMap::new(),
            last_reason: 0,
            drifting: HashMap::new(),
            reasons: Pool::default(),
            first: FirstSeen::default(),
            held: HashMap::new(),
            operated: HashSet::new(),
            touched: HashSet::new(),
        }
    }

    /// An object's last life.
    pub(crate) fn life(&self, object: &ObjectId) -> Option<&Life> {
        self.lives.get(object)
    }

    /// All objects that were seen alive and are not forgotten.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> impl Iterator<Item = &ObjectId> {
        self.lives.keys().map(|object| &**object)
    }

    /// Records the last known state of an object.
    pub(crate) fn record_life(&mut self, object: ObjectId, mut life: Life) {
        life.managers = self.managers.adopt(life.managers);
        life.release = self.releases.adopt(life.release);
        if let Some(before) = self.lives.get(&object).filter(|before| before.release != life.release) {
            let before = Arc::clone(&before.release);
            self.clear(&before, &object);
        }
        self.touch_counted(&life.release);
        let object = self.name(&life.release, &object);
        self.lives.insert(object, life);
    }

    /// Records the news of a watch that an object was deleted or lost Helm's label; the object has
    /// this version since. Returns the release that has to read it.
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
        self.add_reason(&release, object, now).went = true;
        self.touch(&release);
        Some(ReleaseId::clone(&release))
    }

    /// The objects that were alive when last seen and that `is_meant` selects.
    pub(crate) fn living(&self, is_meant: impl Fn(&ObjectId) -> bool) -> Vec<ObjectId> {
        note(self.lives.len());
        let alive = self.lives.iter().filter(|(object, life)| life.alive && is_meant(object));
        alive.map(|(object, _)| ObjectId::clone(object)).collect()
    }

    /// Records that an object was read and does not exist. Returns whether that is new.
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

    /// Records that an object matches its release. Returns whether it drifted before.
    pub(crate) fn record_in_sync(&mut self, release: &Release, object: &ObjectId) -> bool {
        if let Some(life) = self.lives.get_mut(object).filter(|life| *life.release == release.id) {
            life.judged = Some(ManifestMark::of(release));
        }
        self.clear_suspicion(&release.id, object);
        self.clear_drift(&release.id, object)
    }

    /// Records that the release's record declares no such object. Returns whether it drifted
    /// before.
    pub(crate) fn record_undeclared(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.clear_suspicion(release, object);
        self.clear_drift(release, object)
    }

    /// Records that the result for an object is not final: it is judged again in the next state of its release in which no
    /// operation is running.
    pub(crate) fn mark_unsettled(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.get_mut(object) {
            life.judged = None;
        }
    }

    /// Records whether an object differs as an exception allows. Returns whether that is new.
    pub(crate) fn allow(&mut self, object: &ObjectId, allowed: bool) -> bool {
        let life = self.lives.get_mut(object);
        life.is_some_and(|life| std::mem::replace(&mut life.allowed, allowed) != allowed)
    }

    /// Records that an object drifts. Returns whether that is new information.
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
                // It still drifts, in another way.
                let since = known.since.min(drift.since);
                let counted = known.counted && known.kind == drift.kind;
                // Who owns a field with its declared value does not change it back.
                let contested = known.contested && drift.kind != DriftKind::Ownership;
                **known = Drift { since, counted, contested, ..drift };
                true
            }
            None => {
                drifting.insert(name, Box::new(drift));
                true
            }
        }
    }

    /// Records the state of a release, and the one `before`. Objects that it no longer declares are forgotten.
    /// Objects whose declaration changed since they last matched become suspects, unless `is_watched` says that a
    /// listing to come will show them.
    pub(crate) fn notice(
        &mut self,
        id: &ReleaseId,
        (before, release): (Option<&Release>, Option<&Arc<Release>>),
        is_watched: impl Fn(&ObjectId) -> bool,
        now: Timestamp,
    ) {
        self.touch(id);
        // The record of an uninstalled release may be kept, and declares nothing.
        let standing = release.filter(|release| release.state.status != Status::Uninstalled);
        let Some(release) = standing else { return self.forget_release(id, before) };
        // An invalid record has no manifest.
        if release.invalid.is_none() {
            self.first.note(release);
        }
        self.drop_all_but(id, before, |object| release.objects.contains_key(object));
        match release.state.status.is_pending() {
            true => drop(self.operated.insert(id.clone())),
            false => self.hold_to(release, is_watched, now),
        }
    }

    /// The manifest of a release's revision as it was first seen.
    pub(crate) fn first(&self, id: &ReleaseId, revision: u64) -> Option<&First> {
        self.first.of(id, revision)
    }

    /// All releases with objects that drift or have to be read.
    pub(crate) fn concerned(&self) -> HashSet<ReleaseId> {
        note(self.suspects.len() + self.drifting.len());
        self.suspects.keys().chain(self.drifting.keys()).cloned().collect()
    }

    /// The drifting objects of a release.
    pub(crate) fn of(&self, release: &ReleaseId) -> Vec<(Arc<ObjectId>, Drift)> {
        note(self.drifting.get(release).map_or(0, HashMap::len));
        self.drifting
            .get(release)
            .into_iter()
            .flatten()
            .map(|(object, it)| (Arc::clone(object), Drift::clone(it)))
            .collect()
    }

    /// Whether an object is known to drift.
    pub(crate) fn is_known(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.drifting.get(release).is_some_and(|all| all.contains_key(object))
    }

    /// One of these. A caller that changes what it counts by notes that by [`Drifts::touch`].
    pub(crate) fn get_mut(&mut self, release: &ReleaseId, object: &ObjectId) -> Option<&mut Drift> {
        self.drifting.get_mut(release)?.get_mut(object).map(Box::as_mut)
    }

    /// Whether newer information about an object is known than an answer of `version` has: then the
    /// answer has no effect.
    pub(crate) fn is_overtaken(&self, object: &ObjectId, version: Version) -> bool {
        self.life(object).is_some_and(|life| life.is_after(version))
    }

    /// Records that the guard's own write restored an object, which has this version since. Another
    /// writer may have changed it meanwhile.
    pub(crate) fn record_restored(&mut self, release: &ReleaseId, object: &ObjectId, version: Version) {
        if !self.is_overtaken(object, version) {
            self.clear_drift(release, object);
        }
    }

    /// Records that an object no longer drifts. Returns whether it did.
    pub(crate) fn clear_drift(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        let is_cleared = remove(&mut self.drifting, release, object);
        if is_cleared {
            self.touch(release);
        }
        is_cleared
    }

    /// Records the reason why a drift stays; `None` if no reason is known.
    pub(crate) fn keep(&mut self, release: &ReleaseId, object: &ObjectId, reason: Option<&str>) {
        let reason = reason.map(|reason| self.reasons.share(reason));
        if let Some(drift) = self.get_mut(release, object) {
            drift.kept = reason;
        }
    }

    /// The object's name, in memory that all holders of the name share.
    pub(crate) fn name(&self, release: &ReleaseId, object: &ObjectId) -> Arc<ObjectId> {
        let declared = || self.held.get(release)?.objects.get_key_value(object);
        let known = self.lives.get_key_value(object).map(|(name, _)| name);
        let known = known.or_else(|| declared().map(|(name, _)| name));
        known.map_or_else(|| Arc::new(object.clone()), Arc::clone)
    }

    fn hold_to(&mut self, release: &Arc<Release>, is_watched: impl Fn(&ObjectId) -> bool, now: Timestamp) {
        let before = self.held.insert(release.id.clone(), Arc::clone(release));
        let mark = ManifestMark::of(release);
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
            // By the manifest, not by the revision: a record may be rewritten.
            let stands = match &before {
                Some(before) if life.judged == Some(ManifestMark::of(before)) => is_same,
                _ => life.judged == Some(mark),
            };
            if stands {
                life.judged = Some(mark);
            } else {
                suspects.push((Arc::clone(object), is_same));
            }
        }
        let is_status = !self.operated.remove(&release.id)
            && before.as_ref().is_some_and(|before| before.state.status == release.state.status);
        // A listing does not show an object again that it has already shown.
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
}

/// Whether an object is declared in both, and alike.
fn same(a: Option<&Arc<Declared>>, b: Option<&Arc<Declared>>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.is_alike(b))
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
