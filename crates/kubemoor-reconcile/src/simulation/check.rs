//! What has to be so once trouble has ended.

use super::Run;
use super::stored::Stored;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_verdict::health::HealthReason;

impl Run {
    /// Everything is as declared, and that is said.
    pub(super) fn check_synced(&mut self, when: &str) {
        let drift = self.world.drift();
        let leader = self.world.lease.holder.unwrap_or_default();
        let reports: Vec<_> = self.guards[leader].reports.values().cloned().collect();
        for report in &reports {
            let health = report.health();
            let own = format!("{}:", report.release);
            let is_synced = drift.iter().all(|line| !line.starts_with(&own));
            let latest = self.world.records.get(&report.release).and_then(|records| records.last());
            let is_deployed = latest.is_some_and(|it| it.status == ReleaseStatus::Deployed);
            if is_deployed && (health.reason == HealthReason::InSync) != is_synced {
                let message = health.message.clone();
                self.world.break_down(format!(
                    "{when}: {} is said to be {} ({message}), and: {drift:?}",
                    report.release,
                    health.reason.as_str()
                ));
            }
        }
        let reported = reports.len();
        if !drift.is_empty() {
            let said: Vec<String> = reports
                .iter()
                .map(|it| format!("{}: {} {:?}", it.release, it.health().message, it.drifted))
                .collect();
            self.world.break_down(format!("{when}: {drift:?}; {said:?}"));
        }
        if reported != self.world.records.len() {
            self.world.break_down(format!("{when}: {reported} reports of {}", self.world.records.len()));
        }
        if !self.world.orders.is_empty() {
            let orders = self.world.orders.clone();
            self.world.break_down(format!("{when}: orders are not answered: {orders:?}"));
        }
        self.check_nothing_dropped_is_back(when);
        self.check_nothing_gone_is_remembered(when);
    }

    /// Checks that the report names each object that drifts after the trouble, with a repair that was tried or the
    /// reason for none.
    pub(super) fn check_drift_is_accounted_for(&mut self, when: &str) {
        let leader = self.world.lease.holder.unwrap_or_default();
        for (id, names) in self.world.drifting() {
            let guard = &self.guards[leader];
            let Some(report) = guard.reports.get(&id) else { continue };
            // With a clock that is behind, a record is new for as long.
            if guard.is_held(&id, &self.world) {
                continue;
            }
            for name in names {
                let is_excused = report.excused.iter().any(|it| it.object.name == name)
                    || report.foreign.iter().any(|(object, _)| object.name == name);
                let found = report.drifted.iter().find(|it| it.object.name == name);
                let has_reason = found.is_some_and(|it| {
                    it.kept.is_some() || it.repaired.is_some() || it.contested_by.is_some() || it.doubt
                });
                if !is_excused && !has_reason {
                    self.world
                        .break_down(format!("{when}: {id}: {name} drifts, and nothing is done: {found:?}"));
                }
            }
        }
    }

    /// What Helm dropped is not there again by a guard's hand, unless the guard ended before it looked.
    pub(super) fn check_nothing_dropped_is_back(&mut self, when: &str) {
        let runs = |process: &usize| self.guards.iter().any(|guard| guard.process == *process);
        let is_made = |stored: &&Stored| self.world.made.get(&stored.uid).is_some_and(runs);
        let made: Vec<_> = self.world.objects.values().filter(is_made).cloned().collect();
        for stored in made {
            let Some(id) = stored.release().filter(|id| !self.world.unsure.contains(id)) else { continue };
            let latest = self.world.records.get(&id).and_then(|records| records.last());
            if latest.is_some_and(|latest| latest.status != ReleaseStatus::Deployed) {
                continue;
            }
            let is_declared = latest.is_some_and(|latest| {
                let documents = self.world.documents(&id, &latest.manifest);
                documents.iter().any(|(object, _)| *object == stored.id)
            });
            if !is_declared {
                self.world.break_down(format!("{when}: {} is back", stored.id.name));
            }
        }
    }

    /// A guard remembers objects that are there or that a release declares, and no others: their number has no bound.
    fn check_nothing_gone_is_remembered(&mut self, when: &str) {
        for guard in &self.guards {
            let is_needed = |object: &ObjectId| {
                self.world.objects.contains_key(object) || !guard.machine.known.claims(object).is_empty()
            };
            let machine = &guard.machine;
            if let Some(object) = machine.drifts.remembered().find(|object| !is_needed(object)) {
                let message = format!("{when}: guard {} remembers {}", guard.number, object.name);
                return self.world.break_down(message);
            }
            let concerned = machine.drifts.concerned();
            if let Some(release) = concerned.iter().find(|id| machine.known.release(id).is_none()) {
                let message = format!("{when}: guard {} has something to do for {release}", guard.number);
                return self.world.break_down(message);
            }
        }
    }
}
