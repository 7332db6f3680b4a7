//! The state of declared objects: which ones were seen alive, which ones with their declared values, which ones have to
//! be read, and how they differ.
//!
//! Holds identities, manager names, seals and redacted findings, never an object. An object that was seen alive is
//! remembered until its release drops it. An agreement (the object was seen with its declared values) comes only from
//! the live object, or from an earlier process that saw it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use smol_str::SmolStr;

use crate::event::HelmManager;
use crate::note_effort;
use crate::report::DriftKind;
use crate::waits::backoff_delay;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::{DeclaredObject, ObjectDeclarations, Release};
use kubemoor_policy::agreement::{LastAgreement, ObservedObject};
use kubemoor_policy::signing::{Declaration, SigningKey};
use kubemoor_verdict::claims::{self, is_local};
use kubemoor_verdict::drift::MatchedDeclaration;
use kubemoor_verdict::edit::FieldFinding;
use kubemoor_verdict::health::ObjectState;

pub(crate) struct Drifts {
    key: SigningKey,
    lives: HashMap<Arc<ObjectId>, LastSeen>,
    by_release: HashMap<ReleaseId, ReleaseDrifts>,
    /// The number of the last reason to read an object.
    last_reason: u64,
    /// The releases with a change that affects the counts.
    touched: HashSet<ReleaseId>,
}

#[derive(Default)]
struct ReleaseDrifts {
    suspects: HashMap<Arc<ObjectId>, Suspect>,
    drifting: HashMap<Arc<ObjectId>, Box<ObjectDrift>>,
    /// The first seen manifest of its revision: nothing is repaired towards a manifest that was rewritten later.
    first: Option<FirstManifest>,
    /// The release as its objects were last compared with it.
    held: Option<Arc<Release>>,
    /// Whether a Helm operation ran since then: objects may have been compared with its manifest.
    operated: bool,
    /// The field manager with which Helm writes its objects, as it was last seen.
    manager: Option<SmolStr>,
    /// The managers of the object that was seen last: most objects share them.
    managers: Arc<Vec<HelmManager>>,
}

impl ReleaseDrifts {
    fn is_empty(&self) -> bool {
        self.is_quiet() && self.first.is_none() && self.held.is_none() && self.manager.is_none()
    }

    fn is_quiet(&self) -> bool {
        self.suspects.is_empty() && self.drifting.is_empty()
    }
}

/// The longest wait for another try where nothing could be done.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectDrift {
    pub object: Arc<ObjectId>,
    pub kind: DriftKind,
    pub since: Timestamp,
    pub findings: Vec<FieldFinding>,
    /// The field manager that wrote the changes, as far as the object records it.
    pub by: Option<String>,
    /// Only a dry run can tell whether this is drift, and none has done so yet.
    pub needs_dry_run: bool,
    pub allowed: bool,
    /// Whether it was reported, and whether it was counted.
    pub reported: bool,
    pub counted: bool,
    /// The result of the last repair; `None` if none was tried.
    pub repaired: Option<Result<(), String>>,
    /// The reason why it is not repaired; `None` while it is.
    pub unrepaired_reason: Option<Arc<str>>,
    /// Whether somebody changes it back after each repair.
    pub contested: bool,
    /// The guard has never seen the declared values in the live object, so it does not write them.
    pub unconfirmed: bool,
    /// The number of attempts in which nothing could be done.
    pub tries: u32,
    /// The user who ordered the repair and so confirmed the written values.
    pub confirmed_by: Option<String>,
}

impl ObjectDrift {
    pub fn new(object: impl Into<Arc<ObjectId>>, kind: DriftKind, since: Timestamp) -> Self {
        Self { object: object.into(), kind, since, ..Self::default() }
    }

    pub fn state(&self) -> ObjectState {
        match self.kind {
            _ if self.allowed => ObjectState::Allowed,
            DriftKind::Terminating if self.findings.is_empty() => ObjectState::Deleting,
            _ if self.needs_dry_run => ObjectState::InDoubt,
            DriftKind::Missing => ObjectState::Missing,
            DriftKind::Changed | DriftKind::Terminating => ObjectState::Changed,
            DriftKind::Ownership => ObjectState::Ownership,
            DriftKind::Unreadable => ObjectState::Unreadable,
        }
    }

    /// The field manager that changes it back after each repair; empty if the object records no name.
    pub fn contested_by(&self) -> Option<&str> {
        self.contested.then(|| self.by.as_deref().unwrap_or_default())
    }

    pub(crate) fn held(&self) -> Option<String> {
        let finalizers = self.findings.iter().find(|it| claims::is_of_finalizers(&self.object, &it.path))?;
        let names = finalizers.new.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(format!("it is being deleted, but blocked by the finalizers {names}"))
    }

    /// Counts an attempt in which nothing could be done, and returns the wait before the next: `first`, then longer
    /// each time.
    pub(crate) fn lengthen_wait(&mut self, name: &str, first: Duration) -> Duration {
        let wait = backoff_delay(first, self.tries, LONGEST_WAIT, name);
        self.tries = self.tries.saturating_add(1);
        wait
    }

    /// Whether it is certainly drift: not allowed, and not an object that is being deleted.
    pub(crate) fn is_certain(&self) -> bool {
        !self.needs_dry_run && !self.allowed && self.kind != DriftKind::Terminating
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LastSeen {
    pub(crate) release: ReleaseId,
    pub(crate) has_release_annotations: bool,
    pub(crate) alive: bool,
    /// The last `metadata.resourceVersion` of a watch event, or of a later response.
    pub(crate) version: ResourceVersion,
    pub(crate) managers: Arc<Vec<HelmManager>>,
    /// The digest of the manifest that it last matched.
    pub(crate) judged: Option<[u8; 32]>,
    pub(crate) allowed: bool,
    /// Its last agreement. Only such values are written to it, unless a user orders more.
    pub(crate) agreed: Option<LastAgreement>,
    /// The text of the seal that its policy puts on it; `None` for most objects.
    pub(crate) seal: Option<Arc<String>>,
}

/// A `metadata.resourceVersion`. For one object, a higher one is later; a value that is not a number cannot be
/// compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceVersion(Option<NonZeroU64>);

impl ResourceVersion {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.parse().ok())
    }

    pub(crate) fn written(object: &Value) -> Self {
        Self::parse(object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
    }
}

impl LastSeen {
    /// An object of a release of which nothing else is known.
    pub(crate) fn new(release: ReleaseId, vouched: bool) -> Self {
        Self {
            release,
            has_release_annotations: vouched,
            alive: false,
            version: ResourceVersion::default(),
            managers: Arc::default(),
            judged: None,
            allowed: false,
            agreed: None,
            seal: None,
        }
    }

    fn is_after(&self, version: ResourceVersion) -> bool {
        self.version.0.zip(version.0).is_some_and(|(known, other)| known > other)
    }
}

/// The first seen manifest of one record. A record that was deleted and created again is another one, even with the
/// same revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstManifest {
    /// The record's uid; `None` where an earlier process did not store it.
    pub uid: Option<String>,
    pub revision: u64,
    pub digest: [u8; 32],
}

impl FirstManifest {
    /// Whether a release now has another record of the revision with another manifest: it was installed again.
    pub(crate) fn is_replaced_in(&self, release: &Release) -> bool {
        release.invalid.is_none()
            && release.latest.revision == self.revision
            && release.state.digest != self.digest
            && self.uid.as_ref().is_some_and(|uid| *uid != release.latest.uid)
    }
}

/// Objects that are due within this time are read together.
const TOGETHER: SignedDuration = SignedDuration::from_secs(1);

/// An object that has to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspect {
    pub(crate) since: Timestamp,
    /// A watch reported that it is gone.
    pub(crate) is_deleted: bool,
    /// Its declaration or the status of its release has changed since it was last read.
    redeclared: bool,
    /// The number of the newest reason to read it, counted over all objects.
    reason: u64,
    pub(crate) unread: bool,
    pub(crate) tries: u32,
    pub(crate) barred: bool,
    /// The time of the next try, unless an event comes earlier; `None` for at once.
    pub(crate) due: Option<Timestamp>,
}

impl Suspect {
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_none_or(|due| due.duration_since(now) <= TOGETHER)
    }
}

fn same_leaves(then: &DeclaredObject, now: &DeclaredObject) -> HashSet<String> {
    let then: HashMap<String, Value> =
        then.fields().leaves().into_iter().map(|(path, value)| (path.to_string(), value)).collect();
    let now = now.fields().leaves().into_iter().map(|(path, value)| (path.to_string(), value));
    now.filter(|(path, value)| then.get(path) == Some(value)).map(|(path, _)| path).collect()
}

/// The longest name of a field manager that the API server accepts.
const LONGEST: usize = 128;

impl Drifts {
    pub(crate) fn new(key: SigningKey) -> Self {
        Self {
            key,
            lives: HashMap::new(),
            by_release: HashMap::new(),
            last_reason: 0,
            touched: HashSet::new(),
        }
    }

    fn release_mut(&mut self, release: &ReleaseId) -> &mut ReleaseDrifts {
        self.by_release.entry(release.clone()).or_default()
    }

    fn suspects_of(&self, release: &ReleaseId) -> impl Iterator<Item = (&Arc<ObjectId>, &Suspect)> {
        self.by_release.get(release).into_iter().flat_map(|it| &it.suspects)
    }

    fn drifts_of(&self, release: &ReleaseId) -> impl Iterator<Item = &ObjectDrift> {
        let drifting = self.by_release.get(release).into_iter().flat_map(|it| it.drifting.values());
        drifting.map(|drift| &**drift)
    }

    pub(crate) fn last_seen_state(&self, object: &ObjectId) -> Option<&LastSeen> {
        self.lives.get(object)
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> impl Iterator<Item = &ObjectId> {
        self.lives.keys().map(|object| &**object)
    }

    pub(crate) fn record_life(&mut self, object: ObjectId, mut life: LastSeen) {
        if let Some(drifts) = self.by_release.get_mut(&life.release) {
            match drifts.managers == life.managers {
                true => life.managers = Arc::clone(&drifts.managers),
                false => drifts.managers = Arc::clone(&life.managers),
            }
        }
        if let Some(before) = self.lives.get(&object).filter(|before| before.release != life.release) {
            let before = before.release.clone();
            self.clear(&before, &object);
        }
        self.touch_counted(&life.release);
        let object = self.name(&life.release, &object);
        self.lives.insert(object, life);
    }

    /// Records a watch event by which an object was deleted or lost Helm's label, with its new version. Returns the
    /// release that has to read it.
    pub(crate) fn mark_gone(
        &mut self,
        object: &ObjectId,
        version: ResourceVersion,
        now: Timestamp,
    ) -> Option<ReleaseId> {
        let life = self.lives.get_mut(object)?;
        life.judged = None;
        life.version = version;
        let release = life.release.clone();
        let object = self.name(&release, object);
        self.suspect(&release, object, now).is_deleted = true;
        self.touch(&release);
        Some(release)
    }

    /// The objects that were alive when last seen and that `is_meant` selects.
    pub(crate) fn living(&self, is_meant: impl Fn(&ObjectId) -> bool) -> Vec<ObjectId> {
        note_effort(self.lives.len());
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
            let of = life.release.clone();
            self.touch_counted(&of);
        }
        self.record_drift(release, ObjectDrift::new(object.clone(), DriftKind::Missing, since))
    }

    /// Records that an object matches its release. Returns whether it drifted before.
    pub(crate) fn record_in_sync(&mut self, release: &Release, object: &ObjectId) -> bool {
        if let Some(life) = self.lives.get_mut(object).filter(|life| life.release == release.id) {
            life.judged = Some(release.state.digest);
        }
        self.clear(&release.id, object)
    }

    /// Removes an object from the suspects and the drifts. Returns whether it drifted.
    pub(crate) fn clear(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.clear_suspicion(release, object);
        self.clear_drift(release, object)
    }

    /// Records that the result for an object is not final: it is compared again in the next state of its release in
    /// which no operation is running.
    pub(crate) fn mark_unsettled(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.get_mut(object) {
            life.judged = None;
        }
    }

    pub(crate) fn allow(&mut self, object: &ObjectId, allowed: bool) -> bool {
        let life = self.lives.get_mut(object);
        life.is_some_and(|life| std::mem::replace(&mut life.allowed, allowed) != allowed)
    }

    pub(crate) fn record_drift(&mut self, release: &ReleaseId, mut drift: ObjectDrift) -> bool {
        drift.object = self.name(release, &drift.object);
        if let Some(life) = self.lives.get_mut(&drift.object) {
            life.judged = None;
        }
        self.clear_suspicion(release, &drift.object);
        self.touch(release);
        let drifting = &mut self.release_mut(release).drifting;
        match drifting.get_mut(&drift.object) {
            Some(known) if known.kind == drift.kind && known.findings == drift.findings => {
                if known.needs_dry_run && !drift.needs_dry_run {
                    known.tries = 0;
                }
                known.needs_dry_run &= drift.needs_dry_run;
                known.by = drift.by.or_else(|| known.by.take());
                false
            }
            Some(known) => {
                // It still drifts, in another way.
                let since = known.since.min(drift.since);
                let counted = known.counted && known.kind == drift.kind;
                // A manager that owns a field with its declared value does not change it back.
                let contested = known.contested && drift.kind != DriftKind::Ownership;
                **known = ObjectDrift { since, counted, contested, ..drift };
                true
            }
            None => {
                drifting.insert(Arc::clone(&drift.object), Box::new(drift));
                true
            }
        }
    }

    /// Records the state of a release, and the one `before`. Objects that it no longer declares are forgotten. Objects
    /// whose declaration changed since they last matched become suspects if they are alive or their watch has been
    /// listed (`is_watched`); a list to come will show the others.
    pub(crate) fn notice(
        &mut self,
        id: &ReleaseId,
        (before, release): (Option<&Release>, Option<&Arc<Release>>),
        is_watched: impl Fn(&ObjectId) -> bool,
        now: Timestamp,
    ) {
        self.touch(id);
        let Some(release) = release.filter(|release| !release.is_uninstalled()) else {
            return self.forget_release(id, before);
        };
        // An invalid record has no manifest.
        if release.invalid.is_none() {
            self.note_first(release);
        }
        self.drop_all_but(id, before, |object| release.objects.contains_key(object));
        match release.state.status.is_pending() {
            true => self.release_mut(id).operated = true,
            false => self.hold_to(release, is_watched, now),
        }
    }

    pub(crate) fn first(&self, id: &ReleaseId, revision: u64) -> Option<&FirstManifest> {
        self.by_release.get(id)?.first.as_ref().filter(|first| first.revision == revision)
    }

    fn note_first(&mut self, release: &Release) {
        let (uid, revision) = (&release.latest.uid, release.state.revision);
        match &mut self.release_mut(&release.id).first {
            Some(first) if first.revision == revision && first.uid.as_ref().is_none_or(|own| own == uid) => {
                first.uid = Some(uid.clone());
            }
            first => {
                *first =
                    Some(FirstManifest { uid: Some(uid.clone()), revision, digest: release.state.digest })
            }
        }
    }

    pub(crate) fn concerned(&self) -> HashSet<ReleaseId> {
        note_effort(self.by_release.len());
        let concerned = self.by_release.iter().filter(|(_, it)| !it.is_quiet());
        concerned.map(|(release, _)| release.clone()).collect()
    }

    pub(crate) fn of_release(&self, release: &ReleaseId) -> Vec<ObjectDrift> {
        let all: Vec<_> = self.drifts_of(release).cloned().collect();
        note_effort(all.len());
        all
    }

    pub(crate) fn is_known(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.by_release.get(release).is_some_and(|it| it.drifting.contains_key(object))
    }

    /// The drift of an object. A caller that changes whether it is certain has to call [`Drifts::touch`].
    pub(crate) fn get_mut(&mut self, release: &ReleaseId, object: &ObjectId) -> Option<&mut ObjectDrift> {
        self.by_release.get_mut(release)?.drifting.get_mut(object).map(Box::as_mut)
    }

    /// Whether the known state of an object is newer than a response with `version`, which then has no effect.
    pub(crate) fn is_overtaken(&self, object: &ObjectId, version: ResourceVersion) -> bool {
        self.last_seen_state(object).is_some_and(|life| life.is_after(version))
    }

    /// Records that the guard's own write restored an object, with its new version. Watch events of this version or a
    /// later one take precedence: other managers may own fields of the object, or have changed it since. Returns
    /// whether it still drifts.
    pub(crate) fn record_restored(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        version: ResourceVersion,
    ) -> bool {
        let known = self.last_seen_state(object).and_then(|life| life.version.0);
        if known.zip(version.0).is_none_or(|(known, written)| known < written) {
            self.clear_drift(release, object);
        }
        self.is_known(release, object)
    }

    pub(crate) fn clear_drift(&mut self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.remove(release, |it| it.drifting.remove(object).is_some())
    }

    fn clear_suspicion(&mut self, release: &ReleaseId, object: &ObjectId) {
        self.remove(release, |it| it.suspects.remove(object).is_some());
    }

    fn remove(&mut self, release: &ReleaseId, remove: impl FnOnce(&mut ReleaseDrifts) -> bool) -> bool {
        let Some(drifts) = self.by_release.get_mut(release) else { return false };
        let is_removed = remove(drifts);
        if drifts.is_empty() {
            self.by_release.remove(release);
        }
        if is_removed {
            self.touch(release);
        }
        is_removed
    }

    pub(crate) fn set_unrepaired_reason(&mut self, release: &ReleaseId, object: &ObjectId, reason: &str) {
        if let Some(drift) = self.get_mut(release, object) {
            drift.unrepaired_reason = Some(Arc::from(reason));
        }
    }

    /// The id of an object, as the one shared copy of it.
    fn name(&self, release: &ReleaseId, object: &ObjectId) -> Arc<ObjectId> {
        let declared = || self.by_release.get(release)?.held.as_ref()?.objects.get_key_value(object);
        let known = self.lives.get_key_value(object).map(|(name, _)| name);
        let known = known.or_else(|| declared().map(|(name, _)| name));
        known.map_or_else(|| Arc::new(object.clone()), Arc::clone)
    }

    fn hold_to(&mut self, release: &Arc<Release>, is_watched: impl Fn(&ObjectId) -> bool, now: Timestamp) {
        let drifts = self.release_mut(&release.id);
        let before = drifts.held.replace(Arc::clone(release));
        let operated = std::mem::take(&mut drifts.operated);
        let digest = release.state.digest;
        let mut suspects = Vec::new();
        note_effort(release.objects.len());
        for object in release.objects.keys() {
            let declared = before.as_ref().and_then(|it| it.declared(object)).zip(release.declared(object));
            let is_same = declared.is_some_and(|(before, now)| before.is_alike(now));
            let life = self.lives.get_mut(object).filter(|life| life.release == release.id);
            let Some(life) = life else {
                suspects.push((Arc::clone(object), is_same));
                continue;
            };
            // By the manifest, not by the revision: a record may be rewritten.
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
        let is_status =
            !operated && before.as_ref().is_some_and(|before| before.state.status == release.state.status);
        // A completed list does not show an object again.
        suspects.retain(|(object, _)| {
            is_watched(object) || self.last_seen_state(object).is_some_and(|life| life.alive)
        });
        for (object, is_same) in suspects {
            self.suspect(&release.id, object, now).redeclared |= !(is_same && is_status);
        }
    }

    /// Marks an object to be read at once. `since` is kept from the first reason, and each call is a new reason.
    pub(crate) fn suspect(
        &mut self,
        release: &ReleaseId,
        object: impl Into<Arc<ObjectId>>,
        now: Timestamp,
    ) -> &mut Suspect {
        self.last_reason += 1;
        let reason = self.last_reason;
        let suspects = &mut self.release_mut(release).suspects;
        let suspect = suspects.entry(object.into()).or_insert(Suspect { since: now, ..Suspect::default() });
        (suspect.due, suspect.reason) = (None, reason);
        suspect
    }

    /// Whether a known drift of a release is a difference from an earlier declaration.
    pub(crate) fn has_outdated(&self, release: &ReleaseId) -> bool {
        let mut redeclared = self.suspects_of(release).filter(|(_, suspect)| suspect.redeclared);
        redeclared.any(|(object, _)| self.is_known(release, object))
    }

    /// Makes the suspects of a release that `is_meant` selects due at once.
    pub(crate) fn hurry(&mut self, release: &ReleaseId, is_meant: impl Fn(&ObjectId) -> bool) {
        let suspects = self.by_release.get_mut(release).into_iter().flat_map(|it| &mut it.suspects);
        suspects.filter(|(object, _)| is_meant(object)).for_each(|(_, suspect)| suspect.due = None);
    }

    /// Makes all waiting suspects due at once, except those that only a watch can report.
    pub(crate) fn end_waits(&mut self) {
        let suspects = self.by_release.values_mut().flat_map(|it| it.suspects.values_mut());
        let timed = suspects.filter(|suspect| suspect.due.is_some_and(|due| due < Timestamp::MAX));
        timed.for_each(|suspect| suspect.due = None);
    }

    pub(crate) fn next_look(&self, release: &ReleaseId) -> Option<Timestamp> {
        let due = self.suspects_of(release).filter_map(|(_, suspect)| suspect.due).min();
        due.filter(|due| *due < Timestamp::MAX)
    }

    pub(crate) fn suspects(&self, release: &ReleaseId) -> Vec<(ObjectId, Suspect)> {
        let all: Vec<_> =
            self.suspects_of(release).map(|(object, it)| (ObjectId::clone(object), *it)).collect();
        note_effort(all.len());
        all
    }

    pub(crate) fn suspicion(&self, release: &ReleaseId, object: &ObjectId) -> Option<Suspect> {
        self.by_release.get(release)?.suspects.get(object).copied()
    }

    /// Gives suspects that `is_meant` selects a newer reason to be read: running reads of them may be older than a list
    /// without them.
    pub(crate) fn doubt_reads(&mut self, is_meant: impl Fn(&ObjectId) -> bool) {
        let suspects = self.by_release.values_mut().flat_map(|it| &mut it.suspects);
        for (_, suspect) in suspects.filter(|(object, _)| is_meant(object)) {
            self.last_reason += 1;
            suspect.reason = self.last_reason;
        }
    }

    /// Whether there is a newer reason to read an object than when a read began: its response may be older than that
    /// reason.
    pub(crate) fn has_new_reason(&self, release: &ReleaseId, object: &ObjectId, begun: &Suspect) -> bool {
        self.suspicion(release, object).is_some_and(|now| now.reason != begun.reason)
    }

    /// Whether a release has suspects that the guard has not tried to read.
    pub(crate) fn has_untried(&self, release: &ReleaseId) -> bool {
        self.suspects_of(release).any(|(_, suspect)| !suspect.unread)
    }

    /// Whether an object has to be read and could not be.
    pub(crate) fn is_unread(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.suspicion(release, object).is_some_and(|suspect| suspect.unread)
    }

    /// Records that a read of an object had no usable result; it is tried again at `due` or after an earlier event.
    /// `unread`: the object could not be read, and a drift from an earlier declaration is forgotten. `barred`: the
    /// guard lacks the permission to read it.
    pub(crate) fn defer_read(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        due: Timestamp,
        (unread, barred): (bool, bool),
    ) {
        let suspect = self.by_release.get_mut(release).and_then(|it| it.suspects.get_mut(object));
        let Some(suspect) = suspect else { return };
        suspect.tries = suspect.tries.saturating_add(1);
        (suspect.due, suspect.barred) = (Some(due), barred);
        suspect.unread |= unread;
        if unread && suspect.redeclared {
            self.clear_drift(release, object);
        }
    }

    /// Records that the loop ends before it reads the suspects of a release. A drift from an earlier declaration is
    /// forgotten.
    pub(crate) fn leave_unread(&mut self, release: &ReleaseId) {
        let suspects = self.by_release.get_mut(release).into_iter().flat_map(|it| &mut it.suspects);
        let outdated = suspects.filter_map(|(object, suspect)| {
            suspect.unread = true;
            suspect.redeclared.then(|| Arc::clone(object))
        });
        for object in outdated.collect::<Vec<_>>() {
            self.clear_drift(release, &object);
        }
    }

    pub(crate) fn is_suspect(&self, release: &ReleaseId, object: &ObjectId) -> bool {
        self.suspicion(release, object).is_some()
    }

    /// The objects of a release that were seen alive with its annotations, whether or not they still exist; sorted.
    pub(crate) fn seen_alive(&self, release: &Release) -> Vec<ObservedObject> {
        let vouched = |object: &Arc<ObjectId>| {
            let life = self
                .last_seen_state(object)
                .filter(|it| it.has_release_annotations && it.release == release.id)?;
            Some(ObservedObject { object: Arc::clone(object), agreement: life.agreed.clone(), settled: None })
        };
        let mut seen: Vec<ObservedObject> = release.objects.keys().filter_map(vouched).collect();
        seen.sort_by(|a, b| a.object.cmp(&b.object));
        // Reports are kept.
        seen.shrink_to_fit();
        seen
    }

    /// The number of a release's objects that were seen with their declared values, and the objects that were not, or
    /// not completely; sorted.
    pub(crate) fn confirmed(&self, release: &Release) -> (usize, Vec<ObjectId>) {
        let is_confirmed = |object: &ObjectId| {
            let agreement = release.declared(object).and_then(|it| self.agreement(&release.id, object, it));
            agreement.is_some_and(|agreement| agreement.confirms_all(None))
        };
        let declared = release.objects.iter().filter(|(_, declarations)| declarations.latest.is_some());
        let seen = declared.filter_map(|(object, _)| Some((object, self.last_seen_state(object)?)));
        let own = seen.filter(|(_, life)| life.has_release_annotations && life.release == release.id);
        let (confirmed, open): (Vec<_>, Vec<_>) =
            own.map(|(object, _)| object).partition(|object| is_confirmed(object));
        let mut open: Vec<_> = open.into_iter().map(|object| ObjectId::clone(object)).collect();
        open.sort();
        (confirmed.len(), open)
    }

    /// The objects in a release's namespace that were seen with another release's annotations, and that other release;
    /// sorted.
    pub(crate) fn foreign(&self, release: &Release) -> Vec<(ObjectId, ReleaseId)> {
        let owner = |object: &ObjectId| {
            let life = self.last_seen_state(object)?;
            (life.has_release_annotations && life.alive && life.release != release.id)
                .then(|| life.release.clone())
        };
        let declared = release.objects.iter().filter(|(_, declarations)| declarations.latest.is_some());
        let declared = declared.filter(|(object, _)| is_local(release, object));
        let mut foreign: Vec<_> =
            declared.filter_map(|(object, _)| Some((ObjectId::clone(object), owner(object)?))).collect();
        foreign.sort();
        foreign
    }

    pub(crate) fn agreement(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &DeclaredObject,
    ) -> Option<&LastAgreement> {
        let agreement =
            self.last_seen_state(object).filter(|life| life.release == *release)?.agreed.as_ref()?;
        self.is_with(agreement, release, object, declared).then_some(agreement)
    }

    pub(crate) fn seal(&mut self, object: &ObjectId, seal: Option<String>) {
        if let Some(life) = self.lives.get_mut(object).filter(|life| life.seal.as_deref() != seal.as_ref()) {
            life.seal = seal.map(Arc::new);
            let of = life.release.clone();
            self.touch_counted(&of);
        }
    }

    /// Whether the object was seen with nothing added below the paths that are sealed now, under this declaration.
    pub(crate) fn is_seen_without_additions(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &DeclaredObject,
    ) -> bool {
        let life =
            self.last_seen_state(object).filter(|life| life.release == *release && life.seal.is_some());
        let Some((life, digest)) = life.zip(declared.digest.as_ref()) else { return false };
        let declaration =
            Declaration { release, object, digest, seal: life.seal.as_deref().map(String::as_str) };
        life.agreed.as_ref().is_some_and(|agreement| agreement.is_for_declaration(&self.key, &declaration))
    }

    /// Whether the object may hold additions below sealed paths: the guard has never seen it without them.
    pub(crate) fn may_hold_additions(&self, release: &Release, object: &ObjectId) -> bool {
        self.last_seen_state(object).is_some_and(|life| life.seal.is_some())
            && release
                .declared(object)
                .is_some_and(|declared| !self.is_seen_without_additions(&release.id, object, declared))
    }

    /// Records that an object of `release` was seen as declared. Returns whether that is new information.
    pub(crate) fn record_agreement(
        &mut self,
        release: &Release,
        object: &ObjectId,
        seen: &MatchedDeclaration,
    ) -> bool {
        let Some(digest) = &seen.declared.digest else { return false };
        let life = self
            .last_seen_state(object)
            .filter(|life| life.has_release_annotations && life.release == release.id);
        let Some((before, seal)) = life.map(|life| (life.agreed.clone(), life.seal.clone())) else {
            return false;
        };
        // The knowledge that it was once seen without additions is kept.
        let is_known = |it: &LastAgreement| self.is_with(it, &release.id, object, &seen.declared);
        if seen.has_additions && before.as_ref().is_some_and(|it| is_known(it) && it.open_paths().is_empty())
        {
            return false;
        }
        let former = before.as_ref().filter(|_| !seen.excepted_paths.is_empty());
        let former = former.and_then(|before| self.former(release, object, before));
        let same = former.map(|former| same_leaves(former, &seen.declared)).unwrap_or_default();
        let is_same = |path: &Path| same.contains(&path.to_string());
        let seal = seal.as_deref().filter(|_| !seen.has_additions).map(String::as_str);
        let declaration = Declaration { release: &release.id, object, digest, seal };
        let agreement = Some(LastAgreement::after(
            before.as_ref(),
            &self.key,
            &declaration,
            &seen.excepted_paths,
            is_same,
        ));
        let is_new = agreement != before;
        if let Some(life) = self.lives.get_mut(object).filter(|_| is_new) {
            life.agreed = agreement;
            self.touch_counted(&release.id);
        }
        is_new
    }

    /// Takes over an earlier process's knowledge of a release: the first seen manifest of a revision, and the objects
    /// that were seen alive, without those that a readable record no longer declares. An agreement with the current
    /// declaration is still valid.
    pub(crate) fn remember(&mut self, release: &Release, first: FirstManifest, seen: Vec<ObservedObject>) {
        let id = &release.id;
        // The earlier process saw its first manifest of the revision before this process did.
        let known = &mut self.release_mut(id).first;
        if known.as_ref().is_none_or(|known| known.revision == first.revision) {
            let uid = known.as_ref().map_or_else(|| first.uid.clone(), |known| known.uid.clone());
            *known = Some(FirstManifest { uid, ..first });
        }
        self.touch_counted(id);
        let counts =
            |seen: &ObservedObject| release.invalid.is_some() || release.objects.contains_key(&seen.object);
        let seen = seen.into_iter().filter(counts);
        for ObservedObject { object, agreement, settled: _ } in seen {
            let declared = release.declared(&object);
            let wants = |it: &Option<LastAgreement>| {
                let with =
                    |it: &&LastAgreement| declared.is_some_and(|now| self.is_with(it, id, &object, now));
                it.as_ref().filter(with).map(|it| it.open_paths().is_empty())
            };
            // None: with another declaration; false: with the current one, except for open paths.
            let earlier = wants(&agreement);
            let known = self.lives.get(&object).and_then(|life| wants(&life.agreed));
            let object = self.name(id, &object);
            let life = self.lives.entry(object).or_insert_with(|| LastSeen::new(id.clone(), true));
            if life.release != *id {
                continue;
            }
            life.has_release_annotations = true;
            if life.agreed.is_none() || earlier > known {
                life.agreed = agreement;
            }
        }
    }

    /// Whether an agreement is with this declaration, under the object's seal or without one.
    fn is_with(
        &self,
        agreement: &LastAgreement,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &DeclaredObject,
    ) -> bool {
        let Some(digest) = &declared.digest else { return false };
        let is_with = |seal: Option<&str>| {
            agreement.is_for_declaration(&self.key, &Declaration { release, object, digest, seal })
        };
        let seal = self.last_seen_state(object).and_then(|life| life.seal.as_ref());
        is_with(None) || seal.is_some_and(|seal| is_with(Some(seal.as_str())))
    }

    /// The declaration that an object agreed with, if it is still available: that of the previous revision, during a
    /// Helm operation and shortly after it.
    fn former<'d>(
        &'d self,
        release: &'d Release,
        object: &ObjectId,
        agreement: &LastAgreement,
    ) -> Option<&'d Arc<DeclaredObject>> {
        let declarations = release.objects.get(object).into_iter();
        let known = declarations.flat_map(ObjectDeclarations::all);
        let held = self.by_release.get(&release.id).and_then(|it| it.held.as_ref()?.declared(object));
        known.chain(held).find(|declared| self.is_with(agreement, &release.id, object, declared))
    }

    /// The field manager with which Helm writes a release's objects: the one that most of them show, preferably with
    /// this method, else the last recorded one. A user may have written Helm's annotations by hand, so kubectl counts
    /// only if there is no other.
    pub(crate) fn manager(&self, release: &Release, method: ApplyMethod) -> Option<SmolStr> {
        let applies = method == ApplyMethod::ServerSide;
        let mut votes: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        let lives = release.objects.keys().filter_map(|object| self.last_seen_state(object));
        for life in lives.filter(|life| life.release == release.id) {
            for manager in life.managers.iter() {
                *votes.entry((manager.applies == applies, &manager.name)).or_default() += 1;
            }
        }
        let by_hand = |name: &str| name.starts_with("kubectl");
        let most = votes
            .into_iter()
            .max_by_key(|((is_alike, name), votes)| (!by_hand(name), *is_alike, *votes, *name));
        let shown = most.map(|((_, name), _)| SmolStr::new(name));
        let noted = self.by_release.get(&release.id).and_then(|it| it.manager.clone());
        shown.into_iter().chain(noted).min_by_key(|name| by_hand(name))
    }

    /// Records the field manager of a release, for times when none of its objects shows it.
    pub(crate) fn note_manager(&mut self, release: &Release) {
        if let Some(name) = self.manager(release, release.state.apply_method) {
            self.release_mut(&release.id).manager = Some(name);
        }
    }

    /// Takes over the field manager that an earlier process recorded, unless this one has seen it.
    pub(crate) fn remember_manager(&mut self, release: &ReleaseId, name: SmolStr) {
        if !name.is_empty() && name.len() <= LONGEST {
            self.release_mut(release).manager.get_or_insert(name);
        }
    }

    /// The number of objects of a release that drift, or are gone according to a watch, among those that `counts`
    /// selects.
    pub(crate) fn count(&self, release: &ReleaseId, counts: impl Fn(&ObjectId, &LastSeen) -> bool) -> usize {
        let Some(ReleaseDrifts { drifting, suspects, .. }) = self.by_release.get(release) else { return 0 };
        note_effort(drifting.len() + suspects.len());
        let certain = drifting.iter().filter(|(_, drift)| drift.is_certain()).map(|(object, _)| object);
        let deleted = suspects.iter().filter(|(object, it)| it.is_deleted && !drifting.contains_key(*object));
        let all = certain.chain(deleted.map(|(object, _)| object));
        all.filter(|object| self.lives.get(*object).is_some_and(|life| counts(object, life))).count()
    }

    pub(crate) fn oldest(&self, release: &ReleaseId) -> Option<Timestamp> {
        self.drifts_of(release).filter(|drift| drift.is_certain()).map(|drift| drift.since).min()
    }

    pub(crate) fn touch(&mut self, release: &ReleaseId) {
        if !self.touched.contains(release) {
            self.touched.insert(release.clone());
        }
    }

    pub(crate) fn take_touched(&mut self) -> HashSet<ReleaseId> {
        std::mem::take(&mut self.touched)
    }

    /// As [`Self::touch`], after a change of a [`LastSeen`]. A release without drifts and suspects needs no new count.
    fn touch_counted(&mut self, release: &ReleaseId) {
        if self.by_release.get(release).is_some_and(|it| !it.is_quiet()) {
            self.touch(release);
        }
    }

    /// Forgets an object that no release declares, or that was never seen.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        if let Some(life) = self.lives.remove(object) {
            self.clear(&life.release, object);
        }
    }

    /// Forgets a deleted release, which declared this `before`.
    pub(crate) fn forget_release(&mut self, id: &ReleaseId, before: Option<&Release>) {
        self.drop_all_but(id, before, |_| false);
        self.by_release.remove(id);
    }

    /// Forgets the objects of a release that it declared `before` or that are suspect or drifting, except those that
    /// `stays` selects.
    fn drop_all_but(&mut self, id: &ReleaseId, before: Option<&Release>, stays: impl Fn(&ObjectId) -> bool) {
        let suspects = self.suspects_of(id).map(|(object, _)| object);
        let drifting = self.drifts_of(id).map(|drift| &drift.object);
        let declared = before.into_iter().flat_map(|before| before.objects.keys());
        // While a record is invalid, objects that an earlier process saw are known without being declared.
        let is_unread = before.is_some_and(|before| before.invalid.is_some());
        let lives = self.lives.iter().filter(|(_, life)| is_unread && life.release == *id);
        let known = suspects.chain(drifting).chain(declared).chain(lives.map(|(object, _)| object));
        let known: Vec<&Arc<ObjectId>> = known.collect();
        note_effort(known.len());
        let dropped: Vec<Arc<ObjectId>> = known.into_iter().filter(|it| !stays(it)).cloned().collect();
        for object in dropped {
            self.clear(id, &object);
            if self.lives.get(&object).is_some_and(|life| life.release == *id) {
                self.lives.remove(&object);
            }
        }
    }
}

#[cfg(test)]
mod tests;
