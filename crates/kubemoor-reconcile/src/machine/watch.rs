//! Takes in the news of watches.
//!
//! Entry points: `Reconciler::follow`, `hear`. Invariant: news that an object is gone is only a
//! suspicion: a watch by label reports the same for an object that lost the label. News of a closed
//! watch is ignored. Must not write.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::super::drifts::{Life, Version};
use super::super::effort::note;
use super::super::event::{Action, Fault, ObjectNews};
use super::super::live::Live;
use super::super::scopes::Scope;
use super::Reconciler;
use super::observe::{Source, version_of};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::{Declared, Release};

impl Reconciler {
    /// Takes in the scopes to watch, and the kinds that the cluster does not serve.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<Scope>, unserved: &BTreeSet<(String, String)>) {
        let (opened, closed) = self.scopes.want(wanted);
        self.forget_unwatched(&closed);
        closed.into_iter().for_each(|scope| self.act(Action::Unwatch(scope)));
        opened.into_iter().for_each(|scope| self.act(Action::Watch(scope)));
        self.suspect_unserved(unserved);
        self.note_listed();
        self.unscoped.clear();
        self.attend_unlisted();
    }

    /// Takes in the news of a watch.
    pub(super) fn hear(&mut self, scope: &Scope, tidings: ObjectNews) {
        if !self.scopes.has(scope) {
            return;
        }
        match tidings {
            ObjectNews::Relisting => self.scopes.begin_listing(scope),
            ObjectNews::Object { live, is_listed } => {
                // All are listed again every few minutes, and most are as they were.
                if is_listed && !self.scopes.list(scope, &live.sighting.id) && self.is_as_known(&live) {
                    return;
                }
                let concerned = self.observe(&live, &scope.version, Source::Watch);
                concerned.into_iter().flatten().for_each(|release| self.attend(&release));
            }
            ObjectNews::Gone { object, version } => self.note_went(&object, Version::of(&version)),
            ObjectNews::Listed => {
                let Some((listed, are_judged)) = self.scopes.end_listing(scope) else { return };
                let mut went = self.drifts.living(|object| scope.holds(object) && !listed.contains(object));
                went.sort();
                went.iter().for_each(|object| self.note_went(object, Version::default()));
                if are_judged {
                    self.suspect_never_seen(scope);
                }
                self.note_listed();
                self.attend_unlisted();
            }
            ObjectNews::Watching => {
                if self.scopes.permit(scope) {
                    self.attend_declaring(scope);
                }
            }
            ObjectNews::Broken(failure) => {
                if matches!(failure.fault, Fault::Forbidden)
                    && self.scopes.forbid(scope, failure.message.clone())
                {
                    self.attend_declaring(scope);
                }
                if failure.fault == Fault::Unserved {
                    self.suspect_alive(scope);
                }
                self.scopes.mark_broken(scope);
                self.note_listed();
                self.attend_unlisted();
            }
        }
    }

    /// Whether an object is in the version that was seen last.
    fn is_as_known(&self, live: &Live) -> bool {
        let (object, version) = (&live.sighting.id, version_of(live));
        let is_same = |life: &Life| {
            life.alive && life.version == version && !self.drifts.is_suspect(&life.release, object)
        };
        version != Version::default() && self.drifts.life(object).is_some_and(is_same)
    }

    /// The declared objects of a release that cannot be watched.
    pub(super) fn unwatched(
        &self,
        release: &Release,
        known: &HashSet<&ObjectId>,
    ) -> Vec<kubemoor_verdict::health::Unwatched> {
        self.scopes.unwatched(release, known)
    }

    /// Forgets what only these watches showed and no release declares: nothing tells of its end any more.
    fn forget_unwatched(&mut self, closed: &[Scope]) {
        if closed.is_empty() {
            return;
        }
        let (scopes, known) = (&self.scopes, &self.known);
        let unwatched = self.drifts.living(|object| {
            closed.iter().any(|scope| scope.holds(object))
                && !scopes.is_watched(object)
                && known.claims(object).is_empty()
        });
        unwatched.iter().for_each(|object| self.drifts.forget(object));
    }

    /// Records that a watch no longer shows an object, which had this version last.
    fn note_went(&mut self, object: &ObjectId, version: Version) {
        let Some(release) = self.drifts.life(object).map(|life| life.release.clone()) else { return };
        if !self.known.declares(&release, object) {
            self.drifts.forget(object);
        } else if let Some(release) = self.drifts.mark_gone(object, version, self.now) {
            self.attend(&release);
        }
    }

    /// Marks all live objects of a kind that is no longer served to be read. They may still exist.
    fn suspect_alive(&mut self, scope: &Scope) {
        let mut alive = self.drifts.living(|object| scope.holds(object));
        alive.sort();
        for object in alive {
            let Some(release) = self.drifts.life(&object).map(|life| life.release.clone()) else { continue };
            self.drifts.suspect(&release, object, self.now);
            self.attend(&release);
        }
    }

    /// Marks the declared objects of a kind that were absent from its listing to be read.
    fn suspect_never_seen(&mut self, scope: &Scope) {
        let counts = |release: &Release| matches!(release.state.status, Status::Deployed | Status::Failed);
        let mut missing: Vec<(ReleaseId, Arc<ObjectId>)> = Vec::new();
        for release in self.known.releases().filter(|release| counts(release)) {
            note(release.objects.len());
            for (object, declarations) in release.objects.iter() {
                let is_alive = || self.drifts.life(object).is_some_and(|life| life.alive);
                let is_meant = scope.holds(object) && declarations.latest.is_some();
                if is_meant && !is_alive() && self.may_look(release, object) {
                    missing.push((release.id.clone(), Arc::clone(object)));
                }
            }
        }
        self.suspect_and_attend(missing);
    }

    /// Whether the cluster is known to serve no kind of the object's group and name.
    pub(super) fn is_unserved(&self, object: &ObjectId) -> bool {
        let kind = || (object.group.to_string(), object.kind.to_string());
        self.unserved.as_ref().is_some_and(|unserved| !unserved.is_empty() && unserved.contains(&kind()))
    }

    /// Marks the declared objects of kinds that the cluster does not serve, and that no watch
    /// shows, to be read. Releases without a change are skipped unless the served kinds have
    /// changed.
    fn suspect_unserved(&mut self, unserved: &BTreeSet<(String, String)>) {
        let changed = std::mem::take(&mut self.changed);
        let is_same = self.unserved.replace(unserved.clone()).is_some_and(|before| before == *unserved);
        let releases: Vec<_> = match is_same {
            true => changed.iter().filter_map(|id| self.known.release(id)).cloned().collect(),
            false => self.known.releases().cloned().collect(),
        };
        let is_unknown = |object: &ObjectId, declared: &Declared| {
            declared.plural().is_none()
                || (!unserved.is_empty()
                    && unserved.contains(&(object.group.to_string(), object.kind.to_string())))
        };
        let mut unknown: Vec<(ReleaseId, Arc<ObjectId>)> = Vec::new();
        for release in releases.iter().filter(|release| release.state.status == Status::Deployed) {
            note(release.objects.len());
            for (object, declarations) in release.objects.iter() {
                let is_meant = declarations.latest.as_ref().is_some_and(|it| is_unknown(object, it));
                let is_news = !self.drifts.is_known(&release.id, object) && self.may_look(release, object);
                if is_meant && is_news {
                    unknown.push((release.id.clone(), Arc::clone(object)));
                }
            }
        }
        self.suspect_and_attend(unknown);
    }

    fn suspect_and_attend(&mut self, mut objects: Vec<(ReleaseId, Arc<ObjectId>)>) {
        objects.sort();
        let releases: BTreeSet<ReleaseId> = objects.iter().map(|(release, _)| release.clone()).collect();
        for (release, object) in objects {
            self.drifts.suspect(&release, object, self.now);
        }
        releases.iter().for_each(|release| self.attend(release));
    }

    /// Looks at the releases that declare an object of a kind.
    fn attend_declaring(&mut self, scope: &Scope) {
        let declares = |release: &Release| release.objects.keys().any(|object| scope.holds(object));
        let declaring = self.known.releases().filter(|release| declares(release));
        let declaring: Vec<ReleaseId> = declaring.map(|release| release.id.clone()).collect();
        for release in declaring {
            // Objects that could not be read may be readable now.
            self.drifts.hurry(&release, |object| scope.holds(object));
            self.attend(&release);
        }
    }

    /// Once everything has been listed, each release has a report.
    fn note_listed(&mut self) {
        if self.scopes.are_listed() && !std::mem::replace(&mut self.listed, true) {
            self.act(Action::AllListed);
            self.attend_all_releases();
        }
    }
}
