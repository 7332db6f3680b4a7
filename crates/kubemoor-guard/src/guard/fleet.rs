//! Writes the states of this cluster's releases to the ledger that guards of many clusters share.
//!
//! Only the leader writes, at its own pace: no other task waits for the database, a failed write is tried again, and at most
//! one mark per release is pending. [`PendingRows`] is pure: a written row is due again only when its
//! content changes; failed work is never forgotten.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::state::LoopState;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ReleaseId, build};
use kubemoor_helm::record::{ChartVersion, ReleaseStatus};
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::fleet::{FleetReleaseState, GuardState};
use kubemoor_ledger::store::{ClusterFleet, StoreError};
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;
use kubemoor_verdict::health::ReleaseHealth;

const PATIENCE: Duration = Duration::from_secs(10);

pub struct FleetWriter {
    pub ledger: LedgerHandle,
    pub state: Arc<LoopState>,
    pub releases: Arc<Releases>,
    pub in_force: Arc<InForce>,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    pub leadership: Leadership,
    pub certificates: Certificates,
}

#[derive(Debug, thiserror::Error)]
enum FleetWriteError {
    #[error("the ledger is not open")]
    Closed,
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Late,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetWriter {
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        let (mut leading, mut failures) = (self.leadership.watch(), FailureLog::default());
        while leading.wait_for(|leads| *leads).await.is_ok() {
            tokio::select! {
                // The end may be told together with the next beginning, and another guard have written in between.
                changed = leading.changed() => if changed.is_err() {
                    return;
                },
                () = self.lead(&mut failures) => {}
            }
        }
    }

    /// Writes the rows until this replica no longer leads.
    async fn lead(&self, failures: &mut FailureLog) {
        let (reports, records) = (self.state.changes(), self.releases.changes());
        let mut policies = self.in_force.changes();
        // A new leader looks at everything.
        let mut pending = PendingRows::new(self.known(), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(pending.due()) => self.attempt(&mut pending, failures).await,
                release = reports.next() => pending.note([release], Instant::now()),
                release = records.next() => pending.note([release], Instant::now()),
                // Every row holds the modes for edits and drift.
                Ok(()) = policies.changed() => pending.note(self.known(), Instant::now()),
            }
        }
    }

    async fn attempt(&self, pending: &mut PendingRows, failures: &mut FailureLog) {
        if !self.leadership.holds() {
            // The watch tells so in a moment.
            return std::future::pending().await;
        }
        let work = pending.take(Instant::now());
        let done = match self.ledger.fleet() {
            None => Err(FleetWriteError::Closed),
            Some(fleet) => match timeout(PATIENCE, self.carry_out(&fleet, &work, pending)).await {
                Ok(done) => done.map_err(FleetWriteError::from),
                Err(_) => Err(FleetWriteError::Late),
            },
        };
        match done {
            Ok(()) => failures.note_success(),
            Err(error) => {
                pending.fail(work, Instant::now());
                // The ledger's writer reports that it cannot be opened.
                if !matches!(error, FleetWriteError::Closed) && failures.note_failure() {
                    tracing::warn!("the ledger does not take how releases stand, trying again: {error}");
                }
            }
        }
    }

    async fn carry_out(
        &self,
        fleet: &ClusterFleet,
        work: &DueRows,
        pending: &mut PendingRows,
    ) -> Result<(), StoreError> {
        if work.beats {
            let validity = self.certificates.validity().ok();
            let certificate_until = validity.map(|(_, until)| until);
            fleet.beat(&GuardState { version: build::VERSION, certificate_until }).await?;
        }
        let mut looked_at = work.releases.clone();
        if work.rereads {
            // Rows of an earlier guard whose releases no longer exist.
            let rows = fleet.releases().await?;
            looked_at
                .extend(rows.into_iter().filter(|release| self.is_ours(release) && !self.is_there(release)));
        }
        let (mut states, mut gone) = (Vec::new(), Vec::new());
        for release in &looked_at {
            match self.state_of(release) {
                Some(state) if pending.is_news(&state) => states.push(state),
                // Nothing is known of it yet, or nothing has changed.
                Some(_) => {}
                None if self.is_there(release) => {}
                None => gone.push(release.clone()),
            }
        }
        if !states.is_empty() || !gone.is_empty() {
            fleet.write(&states, &gone).await?;
        }
        pending.written(&states, &gone);
        Ok(())
    }

    fn known(&self) -> Vec<ReleaseId> {
        self.releases.index().read().releases().map(|release| release.id.clone()).collect()
    }

    fn is_there(&self, release: &ReleaseId) -> bool {
        let index = self.releases.index().read();
        index.release(release).is_some_and(|release| release.state.status != ReleaseStatus::Uninstalled)
    }

    fn is_ours(&self, release: &ReleaseId) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|it| *it == release.namespace)
    }

    /// The state of a release; `None` if it is gone or not known yet.
    fn state_of(&self, release: &ReleaseId) -> Option<FleetReleaseState> {
        // This replica does not know another leader's decisions about drifts before it has led
        // itself.
        let report = self.state.report(release).filter(|report| report.leads || report.drifted.is_empty())?;
        let (status, chart, values) = {
            let index = self.releases.index().read();
            let known = &index.release(release)?.state;
            (known.status, known.chart.as_ref().map(ChartVersion::label), known.values)
        };
        if status == ReleaseStatus::Uninstalled {
            return None;
        }
        let policy = self.in_force.resolver().of(release);
        let ReleaseHealth { ready, reason, counts, message, .. } = report.health();
        Some(FleetReleaseState {
            release: release.clone(),
            revision: report.records.revision,
            declared: number(counts.declared),
            drifted: number(counts.drifted),
            oldest_drift: report.drifted.iter().filter(|it| it.state().is_drift()).map(|it| it.since).min(),
            ready: ready.as_str(),
            reason: reason.as_str(),
            status: status.as_str(),
            chart,
            values: Some(values).filter(|digest| *digest != [0; 32]),
            edits: format!("{:?}", policy.edits),
            drift: format!("{:?}", policy.drift),
            message,
        })
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The interval of the guard's sign of life: several of them fit into the time after which the
/// guard counts as silent.
const BEAT: Duration = Duration::from_secs(30);

/// The shortest time between two writes: changes in between are written together.
const PAUSE: Duration = Duration::from_secs(1);

const MOST: usize = 500;

/// The pauses between attempts at a database that fails.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

#[derive(Debug)]
struct PendingRows {
    /// The releases whose rows may be outdated.
    marked: BTreeSet<ReleaseId>,
    rows: HashMap<ReleaseId, u64>,
    /// Whether the rows of guards before have been looked through.
    has_reread: bool,
    beat_at: Instant,
    write_at: Instant,
    /// Set while the database fails: when it is tried again, and the pause then.
    failing: Option<(Instant, Duration)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DueRows {
    beats: bool,
    /// Whether to check the rows of earlier guards.
    rereads: bool,
    releases: Vec<ReleaseId>,
}

impl PendingRows {
    fn new(known: Vec<ReleaseId>, now: Instant) -> Self {
        Self {
            marked: known.into_iter().collect(),
            rows: HashMap::new(),
            has_reread: false,
            beat_at: now,
            write_at: now,
            failing: None,
        }
    }

    fn note(&mut self, releases: impl IntoIterator<Item = ReleaseId>, now: Instant) {
        if self.marked.is_empty() {
            self.write_at = self.write_at.max(now);
        }
        self.marked.extend(releases);
    }

    fn due(&self) -> Instant {
        let has_work = !self.marked.is_empty() || !self.has_reread;
        let next = if has_work { self.beat_at.min(self.write_at) } else { self.beat_at };
        self.failing.map_or(next, |(at, _)| at)
    }

    fn take(&mut self, now: Instant) -> DueRows {
        if self.failing.is_some_and(|(at, _)| at > now) {
            return DueRows::default();
        }
        let mut work = DueRows { beats: self.beat_at <= now, ..DueRows::default() };
        if self.write_at <= now {
            work.rereads = !self.has_reread;
            while work.releases.len() < MOST
                && let Some(release) = self.marked.pop_first()
            {
                work.releases.push(release);
            }
        }
        // Until the result is known.
        self.beat_at = if work.beats { now + BEAT } else { self.beat_at };
        self.has_reread |= work.rereads;
        self.write_at = if work.rereads || !work.releases.is_empty() { now + PAUSE } else { self.write_at };
        work
    }

    fn is_news(&self, state: &FleetReleaseState) -> bool {
        self.rows.get(&state.release) != Some(&hash(state))
    }

    fn written(&mut self, states: &[FleetReleaseState], gone: &[ReleaseId]) {
        self.failing = None;
        self.rows.extend(states.iter().map(|state| (state.release.clone(), hash(state))));
        for release in gone {
            self.rows.remove(release);
        }
    }

    fn fail(&mut self, work: DueRows, now: Instant) {
        if self.failing.is_none() {
            // The database that answers next may be a copy that lacks the last rows.
            self.marked.extend(self.rows.drain().map(|(release, _)| release));
        }
        let (shortest, longest) = RETRY;
        let pause = self.failing.map_or(shortest, |(_, pause)| (pause * 2).min(longest));
        self.failing = Some((now + pause, pause));
        self.marked.extend(work.releases);
        self.has_reread &= !work.rereads;
        if work.beats {
            self.beat_at = now;
        }
        self.write_at = self.write_at.min(now);
    }
}

fn hash(state: &FleetReleaseState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
