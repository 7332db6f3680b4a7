//! The end of trouble: what guards do when nobody does anything new, and how far they come.
//!
//! Entry points: `Run::settle`, `Run::recover`. Invariant: nothing happens but what guards do and, once trouble has
//! ended, what brings each release into order.

use jiff::SignedDuration;

use super::helm::{clean, insist, meddle};
use super::plan::SEALS;
use super::process::Guard;
use super::{BOUND, Run};

/// The time in which the loop accounts for all drift: no hold and no wait between two repairs lasts longer.
const WHILE: SignedDuration = SignedDuration::from_mins(15);

impl Run {
    /// Nothing happens any more but what guards do; until nothing is left to do, or
    /// for so long.
    pub(super) fn settle(&mut self, bound: SignedDuration) {
        let end = self.world.now + bound;
        while self.world.now < end && self.world.violation.is_none() {
            self.arrive();
            if let Some(object) = self.insists {
                insist(&mut self.world, object);
            }
            for place in 0..self.guards.len() {
                let guard = &mut self.guards[place];
                guard.hear_orders(&self.world);
                guard.lead(&mut self.world);
                guard.note_lead(&mut self.world);
                guard.wake(&mut self.world);
                while guard.is_behind(&self.world) {
                    guard.hear_record(&mut self.world);
                    guard.hear_object(&mut self.world);
                }
                for _ in 0..200 {
                    if !guard.has_work() {
                        break;
                    }
                    guard.work(&mut self.world, &mut self.random, false);
                    guard.tell(&mut self.world, &mut self.random);
                }
            }
            let due = self.guards.iter().filter_map(Guard::due).chain(self.world.next_arrival()).min();
            let is_over = self.insists.is_none() && self.world.orders.is_empty();
            if is_over && due.is_none() && self.guards.iter().all(|guard| guard.is_at_rest(&self.world)) {
                self.world.now = end;
                return;
            }
            let lease = self.world.now + SignedDuration::from_secs(5);
            let next = due.map_or(lease, |due| due.clamp(self.world.now, lease));
            let soonest = self.world.now + SignedDuration::from_millis(5);
            self.world.now = next.max(soonest);
        }
    }

    /// Trouble has ended. Helm ends its work, and each release is written once more.
    pub(super) fn recover(&mut self) {
        self.world.trouble = 0;
        // Nobody does anything new for a while.
        let is_long = self.random.chance(30);
        self.settle(if is_long { WHILE } else { SignedDuration::from_mins(1) });
        if is_long && self.insists.is_none() && !self.world.terminating && !self.world.is_lenient {
            self.check_drift_is_accounted_for("after trouble");
            self.check_nothing_dropped_is_back("after trouble");
        }
        if self.world.violation.is_some() {
            return;
        }
        self.world.say(|| "trouble ends".to_owned());
        for guard in self.guards.iter_mut().filter(|guard| !guard.jumped.is_zero()) {
            guard.jump(-guard.jumped, &mut self.world);
        }
        self.insists = None;
        self.rule(false);
        while self.world.terminating {
            self.world.go_on_terminating(&mut self.random);
        }
        for place in 0..self.helms.len() {
            while self.helms[place].is_at_work() {
                self.helms[place].step(&mut self.world);
            }
            if self.world.records.contains_key(&self.helms[place].id) {
                let chart = self.helms[place].chart(&mut self.random);
                self.helms[place].upgrade(&mut self.world, &chart);
                while self.helms[place].is_at_work() {
                    self.helms[place].step(&mut self.world);
                    self.settle(SignedDuration::from_millis(10));
                }
            }
        }
        if self.has(SEALS) {
            clean(&mut self.world);
        }
        self.settle(BOUND);
        self.check_synced("after the last upgrade");
        for _ in 0..3 {
            meddle(&mut self.world, &mut self.random, "kubectl-edit");
        }
        self.settle(BOUND);
        self.check_synced("after the last edits");
    }
}
