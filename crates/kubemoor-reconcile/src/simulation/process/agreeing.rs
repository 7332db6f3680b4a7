//! What a guard has seen of objects while it knew a manifest that declares them.
//!
//! Entry points: `Guard::note_seen`, `manifests`. Invariant: only what the guard was told counts, in the order in which it was told.
//! Must not change what the guard does.

use std::sync::Arc;

use jiff::SignedDuration;

use super::super::super::event::{LiveObject, LoopEvent, ObjectNews, WorkOutcome};
use super::super::stored::{Field, Fields, fields};
use super::super::world::World;
use super::Guard;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;

/// The time within which a record is told after the object that Helm has written for it.
const LATELY: SignedDuration = SignedDuration::from_secs(10);

impl Guard {
    /// Notes which declared values an event shows in live objects.
    pub(super) fn note_seen(&mut self, event: &LoopEvent, world: &mut World) {
        match event {
            LoopEvent::Watch(_, ObjectNews::Object { live, .. })
            | LoopEvent::Outcome(_, WorkOutcome::Object { live: Some(live), .. }) => self.see(live, world),
            LoopEvent::Watch(_, ObjectNews::Gone { object, .. }) => {
                self.remember(object, Fields::new(), world)
            }
            LoopEvent::Release(_, Some(ruled)) | LoopEvent::Outcome(_, WorkOutcome::Records(Some(ruled))) => {
                let objects: Vec<ObjectId> = self.lives.keys().cloned().collect();
                objects.iter().for_each(|object| self.compare(&ruled.release, object, world));
            }
            _ => {}
        }
    }

    fn see(&mut self, live: &LiveObject, world: &mut World) {
        let object = live.sighting.id.clone();
        self.remember(&object, live.object.as_ref().map(fields).unwrap_or_default(), world);
        let known: Vec<Arc<Release>> = self.machine.known.releases().cloned().collect();
        known.iter().for_each(|release| self.compare(release, &object, world));
    }

    /// Keeps what was told of an object last, and lately: Helm's write of it may be told before the record.
    fn remember(&mut self, object: &ObjectId, fields: Fields, world: &World) {
        let now = self.now(world);
        let lives = self.lives.entry(object.clone()).or_default();
        lives.retain(|(at, _)| now.duration_since(*at).abs() <= LATELY);
        lives.push((now, fields));
    }

    /// Notes the values of an object that the records of a release declare, the latest one and the baseline.
    fn compare(&self, release: &Release, object: &ObjectId, world: &mut World) {
        let Some(lives) = self.lives.get(object) else { return };
        for manifest in manifests(release, world).into_iter().flatten() {
            let documents = world.documents(&release.id, &manifest);
            let Some((_, declared)) = documents.iter().find(|(of, _)| of == object) else { continue };
            let is_seen = |live: &Fields, field: &Field, value: &str| {
                live.get(field).map(String::as_str) == Some(world.admitted(value))
            };
            let seen: Vec<_> = declared
                .iter()
                .filter(|(field, value)| lives.iter().any(|(_, live)| is_seen(live, field, value)))
                .map(|(field, value)| (field.clone(), world.admitted(value).to_owned()))
                .collect();
            world.agreed.entry(object.clone()).or_default().extend(seen);
        }
    }
}

/// The manifests of a release as a guard knows it: the latest one and the baseline.
pub(super) fn manifests(release: &Release, world: &World) -> [Option<Arc<str>>; 2] {
    let latest = world.manifests.get(&release.state.digest).cloned();
    let records = world.records.get(&release.id).into_iter().flatten();
    let uid = release.baseline.as_ref().map(|head| head.uid.as_str());
    let mut baseline = records.filter(|record| Some(record.uid.as_str()) == uid);
    [latest, baseline.next().map(|record| Arc::clone(&record.manifest))]
}
