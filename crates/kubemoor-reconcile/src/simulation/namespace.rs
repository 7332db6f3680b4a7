//! The deletion of the namespace: it takes its objects and records one after the other, and nothing new comes into it.
//!
//! Entry points: `World::begin_termination`, `World::go_on_terminating`. Invariant: once nothing is left, the namespace
//! is there again, empty.

use super::admission::NAMESPACE_CONTROLLER;
use super::random::Random;
use super::world::World;

impl World {
    /// Somebody deletes the namespace.
    pub(super) fn begin_termination(&mut self) {
        self.say(|| "the namespace is being deleted".to_owned());
        self.terminating = true;
    }

    /// One more object or release goes.
    pub(super) fn go_on_terminating(&mut self, random: &mut Random) {
        let objects: Vec<_> = self.objects.keys().cloned().collect();
        let releases: Vec<_> = self.records.keys().cloned().collect();
        let place = random.below(objects.len() + releases.len());
        if let Some(object) = objects.get(place) {
            self.remove(object, NAMESPACE_CONTROLLER);
        } else if let Some(release) = releases.get(place - objects.len()) {
            self.purge(release);
        } else {
            self.say(|| "the namespace is gone".to_owned());
            self.terminating = false;
        }
    }
}
