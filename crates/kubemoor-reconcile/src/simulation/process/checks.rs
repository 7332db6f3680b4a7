//! What no guard may do, whatever happens.
//!
//! Entry points: `Guard::count`, `check_write`, `check_decision`, `check_report`, `check_answer`. Invariant: a fault breaks the world down, with words.
//! Must not change what the guard does.

use std::sync::Arc;

use jiff::SignedDuration;

use super::super::super::event::Write;
use super::super::super::plan::HOLD;
use super::super::super::report::{DriftKind, Drifted, LoopReport};
use super::super::standings::View;
use super::super::world::World;
use super::Guard;
use super::agreeing::manifests;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::Appearance;
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_verdict::health::{HealthReason, ReleaseHealth};

/// The most writes to one object within [`WHILE`] that nobody ordered.
const MOST_WRITES: usize = 40;

const WHILE: SignedDuration = SignedDuration::from_mins(10);

/// The most pieces of work that one second of the world's may lead to.
const MOST_WORK: usize = 600;

impl Guard {
    /// Counts a piece of work.
    pub(super) fn count(&mut self, world: &mut World) {
        let second = world.now.as_second();
        if self.load.0 != second {
            self.load = (second, 0);
        }
        self.load.1 += 1;
        if self.load.1 > MOST_WORK {
            world.break_down(format!("guard {} is hot", self.number));
        }
    }

    /// Nobody writes who does not lead, nor again and again.
    pub(super) fn check_write(&mut self, object: &ObjectId, world: &mut World) {
        let (number, now) = (self.number, world.now);
        if !self.leads {
            world.break_down(format!("guard {number} wants to write {} and does not lead", object.name));
        }
        let times = self.pace.entry(object.clone()).or_default();
        times.push_back(now);
        while times.front().is_some_and(|first| now.duration_since(*first) > WHILE) {
            times.pop_front();
        }
        if times.len() > MOST_WRITES {
            world.break_down(format!("guard {number} writes {} again and again", object.name));
        }
    }

    /// What is written was decided on what was read in the right order, and not for a record that
    /// came out of nothing a moment ago.
    pub(super) fn check_decision(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        write: &Write,
        world: &mut World,
    ) {
        let (number, name) = (self.number, &object.name);
        if let Some(fault) = self.reads.fault(release, object, write) {
            world.break_down(format!("guard {number} writes {name} {fault}"));
        }
        // Not what the mirror of the records says by now: the loop has still to be told of that.
        let Some(known) = self.machine.known.release(release) else { return };
        let is_pending = known.state.status.is_pending();
        if is_pending && !matches!(write, Write::Delete { .. }) {
            world.break_down(format!("guard {number} writes {name} and knows that Helm is at work"));
        }
        // What was decided before the clock was set back is finished.
        let is_held = self.is_held(release, world) && !self.decided.contains(release);
        // What the guard has just made itself is taken back all the same.
        if is_held && self.ordered.is_empty() && !matches!(write, Write::Delete { .. }) {
            world.break_down(format!("guard {number} writes {name} for a record that Helm has not made"));
        }
    }

    /// What a leader has seen objects agree with is stored once it has ended: the next one repairs towards nothing else.
    pub(super) fn check_kept(&self, world: &mut World) {
        if !self.leads || world.lease.holder != Some(self.number) {
            return;
        }
        // What this guard has told before it led is stored once it leads, which is not simulated.
        let is_told = |id: &ReleaseId| self.reports.get(id).is_some_and(|report| report.leads);
        let releases = self.machine.known.releases();
        let told: Vec<_> =
            releases.filter(|it| is_told(&it.id) && world.records.contains_key(&it.id)).collect();
        for release in told {
            let stored = world.kept.get(&release.id).map(|kept| kept.seen.as_slice()).unwrap_or_default();
            let is_stored = |seen: &SeenAlive| {
                let mut stored = stored.iter();
                stored.any(|it| it.object == seen.object && it.agreement == seen.agreement)
            };
            let seen = self.machine.drifts.seen_alive(release);
            if let Some(lost) = seen.iter().find(|seen| !is_stored(seen)) {
                let (number, name) = (self.number, &lost.object.name);
                return world
                    .break_down(format!("guard {number} ends and forgets what it has seen of {name}"));
            }
        }
    }

    /// Whether the loop waits before it acts on a record that came out of nothing a moment ago, by its own clock.
    pub(in super::super) fn is_held(&self, release: &ReleaseId, world: &World) -> bool {
        self.machine.known.release(release).is_some_and(|known| {
            let age = self.now(world).duration_since(known.state.created);
            known.state.appearance == Appearance::Seen(ReleaseStatus::Deployed) && age < HOLD
        })
    }

    /// What is said of a release was so at some time since the watch told last.
    pub(super) fn check_report(&mut self, report: &LoopReport, world: &mut World) {
        self.check_standing(report, world);
    }

    /// An order that was answered is carried out by no leader again. An answer that came too late to be stored stays in
    /// the reports of its guard.
    pub(super) fn check_answer(&self, report: &LoopReport, world: &mut World) {
        let before = self.reports.get(&report.release).and_then(|before| before.answer.as_ref());
        let new = report.answer.as_ref().filter(|answer| before != Some(answer));
        let new = new.filter(|_| self.leads);
        let Some((answer, first)) = new.and_then(|new| Some((new, world.answered.get(&new.at)?))) else {
            return;
        };
        if first != answer {
            let message = format!("{:?} and {:?}", first.message, answer.message);
            world.break_down(format!("guard {} answers {} twice: {message}", self.number, answer.at));
        }
    }

    /// Each object is held to the manifest that the loop knows, after a failed operation to that or the one before:
    /// somebody may have put another one in its place of which no news has come yet.
    fn check_standing(&mut self, report: &LoopReport, world: &mut World) {
        let (id, number, from) = (&report.release, self.number, self.cursor);
        let Some(known) = self.machine.known.release(id) else { return };
        let [latest, baseline] = manifests(known, world);
        let manifests: Vec<_> = match known.state.status {
            ReleaseStatus::Deployed => latest.into_iter().collect(),
            // Before an installation nothing was there.
            ReleaseStatus::Failed if known.baseline.is_none() => {
                latest.into_iter().chain([Arc::default()]).collect()
            }
            ReleaseStatus::Failed if baseline.is_some() => latest.into_iter().chain(baseline).collect(),
            _ => return,
        };
        let view = |is_lenient| View { release: id, manifests: &manifests, from, is_lenient };
        // Under new policies everything is listed and judged anew, and until then stands as by the old ones.
        let views = [self.is_lenient, self.is_lenient ^ self.is_newly_ruled].map(view);
        if is_said_to_match(report) && !views.iter().any(|view| world.was_in_sync(view)) {
            world.break_down(format!("guard {number} says of {id} that it is in sync, and it is not"));
        }
        let certain = report.drifted.iter().filter(|drifted| !drifted.doubt);
        for Drifted { object, kind, .. } in certain {
            let is_missing = match kind {
                DriftKind::Missing => true,
                DriftKind::Changed => false,
                _ => continue,
            };
            if !views.iter().any(|view| world.was_drifting(object, is_missing, view)) {
                let name = &object.name;
                world.break_down(format!(
                    "guard {number} says that {name} drifts ({kind:?}), and it does not"
                ));
            }
        }
    }
}

/// Whether a report says that each object is as the release declares it, or was never created.
fn is_said_to_match(report: &LoopReport) -> bool {
    let ReleaseHealth { reason, counts, .. } = report.health();
    match reason {
        HealthReason::ReleaseFailed => counts.matching + counts.not_created == counts.declared,
        reason => reason == HealthReason::InSync,
    }
}
