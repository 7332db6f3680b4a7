//! Writes the states of this cluster's releases to the ledger that guards of many clusters share.
//!
//! Only the leader writes. No other task waits for the database, and a release that changes several times is queued
//! once. After a failure, all releases are written again; the database skips unchanged rows.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::number;
use crate::LiveCluster;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::mirror::policies::ActivePolicies;
use kubemoor_declare::model::{ReleaseId, build};
use kubemoor_helm::record::ChartVersion;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::fleet::{FleetReleaseState, GuardState};
use kubemoor_ledger::store::{ClusterFleet, StoreError};
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;
use kubemoor_verdict::health::ReleaseHealth;

const PATIENCE: Duration = Duration::from_secs(10);

/// The interval of the guard's heartbeats: several of them fit into the time after which the cluster counts as stale.
const BEAT: Duration = Duration::from_secs(30);

/// The shortest time between two writes: changes in between are written together.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause before a database that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The maximum number of releases in one write.
const MOST: usize = 500;

pub struct FleetWriter {
    pub ledger: LedgerHandle,
    pub cluster: Arc<LiveCluster>,
    pub in_force: Arc<ActivePolicies>,
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
        stop.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&self) {
        let (mut leading, mut failures) = (self.leadership.watch(), FailureLog::default());
        while leading.wait_for(|leads| *leads).await.is_ok() {
            tokio::select! {
                // Loss and regain of the lead may arrive as one change, and another guard may have written in between.
                changed = leading.changed() => if changed.is_err() {
                    return;
                },
                () = self.lead(&mut failures) => {}
            }
        }
    }

    /// Writes the rows until this replica no longer leads.
    async fn lead(&self, failures: &mut FailureLog) {
        loop {
            let Err(error) = self.write(failures).await;
            // The ledger's writer logs that the ledger cannot be opened.
            if !matches!(error, FleetWriteError::Closed) && failures.note_failure() {
                tracing::warn!("failed to write release states to the ledger; retrying: {error}");
            }
            sleep(RETRY).await;
        }
    }

    /// Writes all rows and then those that change, until the database fails.
    async fn write(&self, failures: &mut FailureLog) -> Result<Infallible, FleetWriteError> {
        // Both queues start with every known release.
        let (reports, records) = (self.cluster.state.changes(), self.cluster.releases.changes());
        let mut policies = self.in_force.changes();
        // Releases of an earlier guard's rows may no longer exist.
        let rows = within(self.fleet()?.releases()).await?;
        let mut marked: BTreeSet<_> = rows.into_iter().filter(|release| self.is_ours(release)).collect();
        self.beat().await?;
        let (mut beats, mut writes) = (ticks(BEAT), ticks(PAUSE));
        beats.reset();
        loop {
            tokio::select! {
                biased;
                _ = beats.tick() => {
                    self.beat().await?;
                    // Any rows since the last heartbeat were written too.
                    failures.note_success();
                }
                _ = writes.tick(), if !marked.is_empty() => self.write_some(&mut marked).await?,
                release = reports.next() => {
                    marked.insert(release);
                }
                release = records.next() => {
                    marked.insert(release);
                }
                // Every row holds the modes for edits and drift.
                Ok(()) = policies.changed() => {
                    marked.extend(self.cluster.releases.index().read().releases().map(|it| it.id.clone()));
                }
            }
        }
    }

    async fn beat(&self) -> Result<(), FleetWriteError> {
        let certificate_until = self.certificates.validity().ok().map(|(_, until)| until);
        let guard = GuardState { version: build::VERSION, certificate_until };
        within(self.fleet()?.beat(&guard)).await
    }

    async fn write_some(&self, marked: &mut BTreeSet<ReleaseId>) -> Result<(), FleetWriteError> {
        let (mut states, mut gone) = (Vec::new(), Vec::new());
        for release in std::iter::from_fn(|| marked.pop_first()).take(MOST) {
            match self.state_of(&release) {
                Some(state) => states.push(state),
                // Nothing is known of it yet.
                None if self.cluster.releases.index().read().installed(&release).is_some() => {}
                None => gone.push(release),
            }
        }
        within(self.fleet()?.write(&states, &gone)).await
    }

    /// The rows of this cluster, while this replica leads.
    fn fleet(&self) -> Result<ClusterFleet, FleetWriteError> {
        self.ledger.fleet().filter(|_| self.leadership.is_leader()).ok_or(FleetWriteError::Closed)
    }

    fn is_ours(&self, release: &ReleaseId) -> bool {
        let namespaces = &self.cluster.namespaces;
        namespaces.is_empty() || namespaces.iter().any(|it| *it == release.namespace)
    }

    /// The state of a release; `None` if it is gone, uninstalled or not known yet.
    fn state_of(&self, release: &ReleaseId) -> Option<FleetReleaseState> {
        // This replica does not know another leader's decisions about drifts before it has led
        // itself.
        let report =
            self.cluster.state.report(release).filter(|report| report.leads || report.drifted.is_empty())?;
        let (status, chart, values) = {
            let index = self.cluster.releases.index().read();
            let known = &index.installed(release)?.state;
            (known.status, known.chart.as_ref().map(ChartVersion::label), known.values)
        };
        let policy = self.in_force.resolver().policy(release);
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

async fn within<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, FleetWriteError> {
    Ok(timeout(PATIENCE, answer).await.map_err(|_| FleetWriteError::Late)??)
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
