//! What a guard hears by its watches, which may lag, break and repeat themselves.
//!
//! Entry points: `Guard::hear_record`, `hear_object`. Invariant: what is told of records is as it is by then.
//! Must not decide when the guard hears.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::event::{LoopEvent, ObjectNews};
use super::super::world::{Change, World};
use super::Guard;

impl Guard {
    /// The watch of records tells the next change; before that, policies that have changed.
    pub(in super::super) fn hear_record(&mut self, world: &mut World) {
        if self.is_lenient != world.is_lenient {
            (self.is_lenient, self.policy) = (world.is_lenient, world.policy());
            self.is_newly_ruled = true;
            let policies = self.releases.keys().map(|id| (id.clone(), Arc::clone(&self.policy))).collect();
            return self.handle(LoopEvent::Policies { policies, open: false }, world);
        }
        if !self.follows {
            return self.list_records(world);
        }
        while let Some(change) = world.log.get(self.records).cloned() {
            self.records += 1;
            if let Change::Record(id) = change {
                let ruled = self.ruled(&id, world);
                self.handle(LoopEvent::Release(id, ruled), world);
                return;
            }
        }
    }

    /// The watch of GuardedReleases tells which orders are open by now.
    pub(in super::super) fn hear_orders(&mut self, world: &World) {
        self.open = world.orders.clone();
    }

    /// The watch of objects tells the next change, or lists everything.
    pub(in super::super) fn hear_object(&mut self, world: &mut World) {
        if !self.watching {
            return self.list(world);
        }
        while let Some(change) = world.log.get(self.cursor).cloned() {
            self.cursor += 1;
            let Change::Object { object, version, stored } = change else { continue };
            let tidings = match stored.filter(|stored| stored.is_labelled()) {
                Some(stored) => ObjectNews::Object { live: Box::new(stored.live()), is_listed: false },
                None => ObjectNews::Gone { object, version: version.to_string() },
            };
            return self.handle(LoopEvent::Watch(self.scope.clone(), tidings), world);
        }
    }

    /// The watch breaks, and what happened meanwhile is not told.
    pub(in super::super) fn expire(&mut self) {
        self.watching = false;
    }

    /// The watch tells once more what it has told.
    pub(in super::super) fn repeat(&mut self, count: usize) {
        self.cursor = self.cursor.saturating_sub(count);
    }

    /// The watch of records breaks, and what happened meanwhile is not told.
    pub(in super::super) fn expire_records(&mut self) {
        self.follows = false;
    }

    /// The watch of records tells once more what it has told.
    pub(in super::super) fn repeat_records(&mut self, count: usize) {
        self.records = self.records.saturating_sub(count);
    }

    /// Everything is told as it is by now, and what is gone.
    fn list_records(&mut self, world: &mut World) {
        (self.follows, self.records) = (true, world.log.len());
        // A read may have found that the last record of a release has gone, of which the loop knows nothing yet.
        let known = self.machine.known.releases().map(|release| &release.id);
        let known: BTreeSet<_> =
            known.chain(self.releases.keys()).chain(world.records.keys()).cloned().collect();
        for id in known {
            let ruled = self.ruled(&id, world);
            self.handle(LoopEvent::Release(id, ruled), world);
        }
    }

    fn list(&mut self, world: &mut World) {
        self.watching = true;
        let lives: Vec<_> = world
            .objects
            .values()
            .filter(|stored| stored.is_labelled())
            .map(|stored| stored.live())
            .collect();
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectNews::Relisting), world);
        for live in lives {
            let tidings = ObjectNews::Object { live: Box::new(live), is_listed: true };
            self.handle(LoopEvent::Watch(self.scope.clone(), tidings), world);
        }
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectNews::Listed), world);
        (self.cursor, self.is_newly_ruled) = (world.log.len(), false);
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectNews::Watching), world);
    }
}
