//! What the loop knows of each release, for its readers: the last [`LoopReport`] of each release, a queue of releases
//! with a changed report, and a stream of [`LoopAnnouncement`]s. An unchanged report is not announced, values appear
//! only as redacted findings, and a slow listener does not delay the loop.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use kubemoor_cluster::mirror::{ChangeAnnouncer, ChangeQueue};
use kubemoor_declare::model::ReleaseId;
use kubemoor_reconcile::report::{LoopAnnouncement, LoopReport};
use kubemoor_runtime::metrics::ReleaseMetricState;
use kubemoor_verdict::health::ReleaseHealth;

/// How many happenings a listener may fall behind before it loses some.
const HAPPENINGS: usize = 1024;

#[derive(Debug)]
pub struct LoopState {
    reports: Mutex<HashMap<ReleaseId, PublishedReport>>,
    changed: ChangeAnnouncer<ReleaseId>,
    agreed: ChangeAnnouncer<ReleaseId>,
    happenings: broadcast::Sender<Arc<LoopAnnouncement>>,
}

/// The last report of a release, and its metrics, which are read far more often than it changes.
#[derive(Debug)]
struct PublishedReport {
    report: Arc<LoopReport>,
    standing: ReleaseMetricState,
}

impl Default for LoopState {
    fn default() -> Self {
        Self {
            reports: Mutex::default(),
            changed: ChangeAnnouncer::default(),
            agreed: ChangeAnnouncer::default(),
            happenings: broadcast::Sender::new(HAPPENINGS),
        }
    }
}

impl LoopState {
    /// Every release with a report, then each one whose report changes or goes.
    pub fn changes(&self) -> ChangeQueue<ReleaseId> {
        let known: Vec<_> = self.reports.lock().keys().cloned().collect();
        self.changed.subscribe(known)
    }

    /// Each release, from now on, of which the loop has seen something that it has to know after a restart.
    pub fn agreements(&self) -> ChangeQueue<ReleaseId> {
        self.agreed.subscribe([])
    }

    /// The last report of a release; `None` for releases that are gone.
    pub fn report(&self, release: &ReleaseId) -> Option<Arc<LoopReport>> {
        self.reports.lock().get(release).map(|known| Arc::clone(&known.report))
    }

    pub fn standings(&self) -> Vec<ReleaseMetricState> {
        self.reports.lock().values().map(|known| known.standing.clone()).collect()
    }

    /// Subscribes to happenings. A listener that falls behind loses the oldest and receives their
    /// number.
    pub fn happenings(&self) -> broadcast::Receiver<Arc<LoopAnnouncement>> {
        self.happenings.subscribe()
    }

    /// Stores a report, and announces it if it has changed.
    pub fn publish(&self, report: LoopReport) {
        let release = report.release.clone();
        let (changed, agrees) = {
            let mut reports = self.reports.lock();
            let before = reports.get(&release).map(|known| &known.report);
            let same = before.is_some_and(|before| **before == report);
            let agrees = !same
                && match before {
                    Some(before) => {
                        before.seen_alive != report.seen_alive || before.manager != report.manager
                    }
                    None => !report.seen_alive.is_empty(),
                };
            if !same {
                let standing = standing(&report);
                reports.insert(release.clone(), PublishedReport { report: Arc::new(report), standing });
            }
            (!same, agrees)
        };
        if agrees {
            self.agreed.announce(&release);
        }
        if changed {
            self.changed.announce(&release);
        }
    }

    pub fn withdraw(&self, release: &ReleaseId) {
        if self.reports.lock().remove(release).is_some() {
            self.changed.announce(release);
        }
    }

    /// Sends to all listeners; there may be none.
    pub fn tell(&self, happening: LoopAnnouncement) {
        drop(self.happenings.send(Arc::new(happening)));
    }
}

fn standing(report: &LoopReport) -> ReleaseMetricState {
    let ReleaseHealth { reason, counts, .. } = report.health();
    let (release, drifted) = (report.release.clone(), super::number(counts.drifted));
    ReleaseMetricState { release, reason: reason.as_str(), drifted }
}

#[cfg(test)]
mod tests;
