//! The parts that report on the loop: GuardedReleases, events and notifications.
//!
//! Entry point: [`Telling::start`]. Invariant: each is a separate task, and none can delay the loop.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::leading::LeaderSession;
use super::parts::Parts;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::events::Events;
use kubemoor_cluster::client::guarded::{self, GuardedReleases, Remembered};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_guard::admin::Condition;
use kubemoor_guard::guard::announce::Announcer;
use kubemoor_guard::guard::fleet::FleetWriter;
use kubemoor_guard::guard::notices::Teller;
use kubemoor_guard::guard::orders::Command;
use kubemoor_guard::guard::state::State;
use kubemoor_guard::guard::status::{Statuses, Witness};
use kubemoor_ledger::Ledger;
use kubemoor_notify::{Notifiers, Worker};
use kubemoor_policy::settled::SettledValues;
use kubemoor_policy::signing::SigningKey;
use kubemoor_policy::suspension::Suspended;
use kubemoor_runtime::config;
use kubemoor_runtime::metrics::NoticeMetrics;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;

/// Writes of GuardedReleases per second.
const WRITES: NonZeroU32 = match NonZeroU32::new(20) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// From this number of statuses on, `/readyz` reports that they still have to be compared. After an upgrade
/// of the guard these are all statuses.
const MANY_DUE: usize = 100;

/// Changes of suspensions that wait to be kept in the ledger; the next one waits with its status.
const WITNESSED: usize = 1024;

/// The pause between attempts to read what an earlier guard knew.
const RETRY: Duration = Duration::from_secs(5);

/// The parts that report on the loop.
pub(super) struct Telling {
    pub(super) client: kube::Client,
    /// The uid of the namespace kube-system, if it may be read.
    pub(super) uid: Option<String>,
    pub(super) kinds: Arc<Kinds>,
    pub(super) releases: Arc<Releases>,
    pub(super) objects: Objects,
    pub(super) state: Arc<State>,
    pub(super) in_force: Arc<InForce>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) suspended: Suspended,
    pub(super) notifiers: Notifiers,
    /// Delivers notifications; `None` once it has started.
    pub(super) worker: Option<Worker>,
    pub(super) metrics: NoticeMetrics,
    pub(super) key: SigningKey,
    pub(super) settled: Arc<SettledValues>,
    /// The `/readyz` condition that reports how many statuses still have to be compared.
    pub(super) condition: Condition,
    pub(super) ledger: Ledger,
    pub(super) certificates: Certificates,
}

impl Telling {
    /// Starts all of it, as tasks of `parts`, which end by `stop`; what the loop has seen is written after `looped`, its
    /// end.
    pub(super) async fn start(
        mut self,
        cluster: &config::Cluster,
        session: &LeaderSession,
        parts: &mut Parts,
        (stop, looped): (&CancellationToken, CancellationToken),
    ) -> anyhow::Result<()> {
        // A read-only guard does not need to coordinate with others.
        let leadership = if cluster.read_only { Leadership::alone() } else { session.leadership.clone() };
        self.deliver(leadership.clone(), parts, stop)?;
        self.keep_fleet(cluster, leadership.clone(), parts, stop);
        let teller = Teller {
            state: Arc::clone(&self.state),
            notifiers: self.notifiers.clone(),
            resolver: Arc::clone(self.in_force.resolver()),
            metrics: self.metrics.clone(),
            ledger: self.ledger.clone(),
            leadership,
        };
        parts.spawn("telling notifiers", teller.run(stop.clone()));
        if !cluster.read_only {
            parts.spawn("telling of drifts and repairs", self.announcer(session).run(stop.clone()));
            self.keep_statuses(cluster, session, parts, (stop, looped)).await;
        }
        Ok(())
    }

    /// Starts to deliver notifications.
    fn deliver(
        &mut self,
        leadership: Leadership,
        parts: &mut Parts,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(worker) = self.worker.take() else { return Ok(()) };
        // Without it a receiver of several clusters cannot tell them apart.
        let source = format!("urn:kubemoor:{}", self.uid.as_deref().unwrap_or("unknown"));
        let delivered = worker.start(&source, move || leadership.holds(), stop.clone())?;
        parts.try_spawn("delivering notifications", async move { Ok(delivered.await?) });
        Ok(())
    }

    /// Starts to write the states of releases to a database that several clusters share.
    fn keep_fleet(
        &self,
        cluster: &config::Cluster,
        leadership: Leadership,
        parts: &mut Parts,
        stop: &CancellationToken,
    ) {
        if !self.ledger.keeps_fleet() {
            return;
        }
        let writer = FleetWriter {
            ledger: self.ledger.clone(),
            state: Arc::clone(&self.state),
            releases: Arc::clone(&self.releases),
            in_force: Arc::clone(&self.in_force),
            namespaces: cluster.namespaces.clone(),
            leadership,
            certificates: self.certificates.clone(),
        };
        parts.spawn("keeping the releases in the ledger", writer.run(stop.clone()));
    }

    /// The announcer that reports drift and repairs as events.
    fn announcer(&self, session: &LeaderSession) -> Announcer {
        let LeaderSession { leadership, identity, .. } = session;
        Announcer {
            state: Arc::clone(&self.state),
            events: Events::new(self.client.clone(), leadership.clone(), identity.clone()),
            kinds: Arc::clone(&self.kinds),
            releases: Arc::clone(&self.releases),
            objects: self.objects.clone(),
            leadership: leadership.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// Starts to keep GuardedReleases.
    async fn keep_statuses(
        self,
        cluster: &config::Cluster,
        session: &LeaderSession,
        parts: &mut Parts,
        (stop, looped): (&CancellationToken, CancellationToken),
    ) {
        let leadership = session.leadership.clone();
        self.metrics.leads(leadership.holds());
        let (due, counts) = watch::channel(0);
        parts.spawn("telling how many statuses are due", note_due(counts, self.condition, stop.clone()));
        let (seen, witnessed) = mpsc::channel(WITNESSED);
        let witness = Witness { ledger: self.ledger, releases: Arc::clone(&self.releases), seen: witnessed };
        parts.spawn("keeping suspensions in the ledger", witness.run(stop.clone()));
        let statuses = Statuses {
            guarded: GuardedReleases::new(self.client, leadership.clone(), WRITES)
                .within(cluster.namespaces.clone()),
            kinds: self.kinds,
            releases: self.releases,
            state: self.state,
            in_force: self.in_force,
            commands: self.commands,
            suspended: self.suspended,
            leadership,
            metrics: self.metrics,
            key: self.key,
            lease: session.place(),
            settled: self.settled,
            due,
            seen,
        };
        let stop = stop.clone();
        // Before the loop has judged anything.
        let first = statuses.guarded.remembered(&statuses.key).await;
        parts.spawn("keeping GuardedReleases", async move {
            // Before any status is written over.
            if remember(&statuses, first, &stop).await {
                statuses.run(looped).await;
            }
            // The loop may have ended by a failure, which is to be told first.
            stop.cancelled().await;
        });
    }
}

/// The guarded releases that users have suspended, once the API server answers. Without the right to read them there
/// are none.
pub(super) async fn suspended(client: &kube::Client, cluster: &config::Cluster) -> Suspended {
    loop {
        match guarded::suspended(client, &cluster.namespaces).await {
            Ok(suspended) => return suspended,
            Err(CallError::Refused { code: 401 | 403, .. }) => return Suspended::new(),
            Err(error) => {
                tracing::debug!("which releases are suspended cannot be read, trying again: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Reports in `/readyz` how many statuses still have to be compared, if there are many.
async fn note_due(mut counts: watch::Receiver<usize>, condition: Condition, stop: CancellationToken) {
    loop {
        let count = *counts.borrow_and_update();
        match count {
            MANY_DUE.. => condition.noted(format!(
                "{count} GuardedReleases have still to be compared, and written if they differ"
            )),
            _ => condition.met(),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = counts.changed() => if changed.is_err() {
                return stop.cancelled().await;
            },
        }
    }
}

/// Passes the knowledge of an earlier guard to the loop. Returns whether that finished before `stop`.
async fn remember(
    statuses: &Statuses,
    first: Result<Vec<Remembered>, CallError>,
    stop: &CancellationToken,
) -> bool {
    let (mut failures, mut read) = (FailureLog::default(), first);
    let telling = async {
        loop {
            match read {
                Ok(remembered) => {
                    for remembered in remembered {
                        // Without a loop there is no receiver.
                        drop(statuses.commands.send(remembered.into()).await);
                    }
                    return;
                }
                Err(error) => {
                    if failures.note_failure() {
                        tracing::warn!(
                            "what an earlier guard knew of releases cannot be read, trying again: {error}"
                        );
                    }
                    tokio::time::sleep(RETRY).await;
                    read = statuses.guarded.remembered(&statuses.key).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => false,
        () = telling => true,
    }
}
