//! Writes the states of this cluster's releases to the ledger that guards of many clusters share.
//!
//! Entry point: [`FleetWriter::run`]. Invariant: only the leader writes, at its own pace: no other
//! task waits for the database, a failed write is tried again, and at most one mark per release is
//! pending. The pure module `pending` decides which rows are due. Must not judge.

mod pending;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::pending::{Pending, Work};
use super::state::State;
use super::until;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ReleaseId, build};
use kubemoor_helm::record::{ChartVersion, Status};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::fleet::{GuardState, ReleaseState};
use kubemoor_ledger::store::{ClusterFleet, StoreError};
use kubemoor_reconcile::report::ReleaseReport;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;
use kubemoor_verdict::health::Health;

/// How long the database may take for one attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// What keeps the rows of this cluster.
pub struct FleetWriter {
    /// The ledger that many clusters share.
    pub ledger: Ledger,
    /// What the loop knows of releases.
    pub state: Arc<State>,
    /// The releases.
    pub releases: Arc<Releases>,
    /// The policies in force.
    pub in_force: Arc<InForce>,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    /// Whether this replica writes.
    pub leadership: Leadership,
    /// The certificate that is served.
    pub certificates: Certificates,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// The database could not be opened yet; the ledger's writer reports that.
    #[error("the ledger is not open")]
    Closed,
    /// It does not answer.
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Late,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetWriter {
    /// Writes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        let (mut pending, mut failures) = (Pending::default(), FailureLog::default());
        let (reports, records) = (self.state.changes(), self.releases.changes());
        let mut leading = self.leadership.watch();
        leading.mark_changed();
        let mut policies = self.in_force.changes();
        loop {
            let due = until(pending.due());
            tokio::select! {
                biased;
                changed = leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    match *leading.borrow_and_update() {
                        true => pending.lead(self.known(), Instant::now()),
                        false => pending.follow(),
                    }
                }
                () = due => self.attempt(&mut pending, &mut failures).await,
                release = reports.next() => pending.note([release], Instant::now()),
                release = records.next() => pending.note([release], Instant::now()),
                // Every row holds the modes for edits and drift.
                Ok(()) = policies.changed() => pending.note(self.known(), Instant::now()),
            }
        }
    }

    /// Does what is due.
    async fn attempt(&self, pending: &mut Pending, failures: &mut FailureLog) {
        let work = pending.take(Instant::now());
        if !self.leadership.holds() {
            // A new leader looks at everything.
            return pending.follow();
        }
        let done = match self.ledger.fleet() {
            None => Err(WriteError::Closed),
            Some(fleet) => match timeout(PATIENCE, self.carry_out(&fleet, &work, pending)).await {
                Ok(done) => done.map_err(WriteError::from),
                Err(_) => Err(WriteError::Late),
            },
        };
        match done {
            Ok(()) => failures.note_success(),
            Err(error) => {
                pending.fail(work, Instant::now());
                // The ledger's writer reports that it cannot be opened.
                if !matches!(error, WriteError::Closed) && failures.note_failure() {
                    tracing::warn!("the ledger does not take how releases stand, trying again: {error}");
                }
            }
        }
    }

    async fn carry_out(
        &self,
        fleet: &ClusterFleet,
        work: &Work,
        pending: &mut Pending,
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

    /// All known releases.
    fn known(&self) -> Vec<ReleaseId> {
        self.releases.index().read().releases().map(|release| release.id.clone()).collect()
    }

    /// Whether the release exists and is not uninstalled.
    fn is_there(&self, release: &ReleaseId) -> bool {
        let index = self.releases.index().read();
        index.release(release).is_some_and(|release| release.state.status != Status::Uninstalled)
    }

    fn is_ours(&self, release: &ReleaseId) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|it| *it == release.namespace)
    }

    /// The state of a release; `None` if it is gone or not known yet.
    fn state_of(&self, release: &ReleaseId) -> Option<ReleaseState> {
        // This replica does not know another leader's decisions about drifts before it has led
        // itself.
        let report = self.state.of(release).filter(|report| report.leads || report.drifted.is_empty())?;
        let (status, chart, values) = {
            let index = self.releases.index().read();
            let known = &index.release(release)?.state;
            (known.status, known.chart.as_ref().map(ChartVersion::label), known.values)
        };
        if status == Status::Uninstalled {
            return None;
        }
        let policy = self.in_force.resolver().of(release);
        let Health { ready, reason, counts, message, .. } = report.health();
        Some(ReleaseState {
            release: release.clone(),
            revision: report.records.revision,
            declared: number(counts.declared),
            drifted: number(counts.drifted),
            oldest_drift: oldest(&report),
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

/// The beginning of a release's oldest drift.
fn oldest(report: &ReleaseReport) -> Option<jiff::Timestamp> {
    report.drifted.iter().filter(|it| it.state().is_drift()).map(|it| it.since).min()
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
