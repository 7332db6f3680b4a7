//! Serving a cluster: connects, follows the records, then judges, registers
//! and repairs.
//!
//! Invariant: what needs the index starts once it is whole. An API server that
//! does not answer at the start is said and waited for.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::calling::Keeping;
use super::emergency::obey;
use super::leading::Office;
use super::policing::Policing;
use super::registrar::Registrar;
use super::telling::{self, Telling};
use super::{Judging, Naming, Run, permitting, transitions, trusting};
use crate::admin::Condition;
use crate::cluster::arbiter::Arbiter;
use crate::cluster::client::{self, Connection};
use crate::cluster::identity;
use crate::cluster::kinds::Kinds;
use crate::cluster::lease::Leadership;
use crate::cluster::objects::Objects;
use crate::cluster::policies::InForce;
use crate::cluster::releases::{Health, Releases};
use crate::config;
use crate::guard::Guard;
use crate::guard::orders;
use crate::guard::state::State;
use crate::ledger::Ledger;
use crate::notify::file::Notifier;
use crate::policy::settled::SettledValues;
use crate::tls::Certificates;
use crate::webhook::look::{Live, Truth};
use crate::webhook::registration::emergency;
use crate::webhook::validate::Setup;

/// Writes of the guard's own, per second.
const WRITES: NonZeroU32 = at_least_one(50);

/// Dry runs of the arbiter, per second.
const DRY_RUNS: NonZeroU32 = at_least_one(10);

/// The pause between attempts to reach an API server at the start.
const RETRY: Duration = Duration::from_secs(2);

/// Commands to the loop that wait at most; whoever sends more waits.
const COMMANDS: usize = 1024;

/// For how long the records may go unwatched before the guard is not ready.
const OUTAGE: Duration = Duration::from_secs(60);

/// How often it is looked whether an outage has lasted that long.
const OUTAGE_LOOK: Duration = Duration::from_secs(5);

/// What is known of the cluster once it answered.
struct Met {
    connection: Connection,
    kinds: Arc<Kinds>,
    own_account: Option<String>,
    /// The uid of the namespace kube-system.
    uid: Option<String>,
}

impl Run {
    /// Serves a cluster's releases.
    pub(super) async fn cluster(&mut self, cluster: config::Cluster, keeping: Keeping) -> anyhow::Result<()> {
        // Only the kubeconfig can be wrong here; the rest waits for the API server.
        let connection = client::connect(cluster.kubeconfig.as_deref()).await?;
        self.books.trust(connection.client.clone());
        let records = self.readiness.condition("records");
        records.unmet("the API server has not answered yet");
        let policies = self.readiness.condition("policies");
        policies.unmet("the API server has not answered yet");
        let switch = self.readiness.condition("emergency");
        let loop_listed = self.readiness.condition("loop");
        loop_listed.unmet("the declared objects have not been listed yet");
        let work = Work {
            cluster,
            keeping,
            book: Arc::clone(&self.book),
            in_force: Arc::clone(&self.in_force),
            state: Arc::clone(&self.state),
            notifiers: self.notifiers.clone(),
            notices: self.metrics.notices.clone(),
            index: Arc::clone(&self.metrics.index),
            record_metrics: self.metrics.records.clone(),
            guard_metrics: self.metrics.guard.clone(),
            admission: self.metrics.admission.clone(),
            certificates: self.certificates.clone(),
            judging: self.judging.clone(),
            records,
            policies,
            switch,
            emergency_metrics: self.metrics.emergency.clone(),
            loop_listed,
            ledger: self.ledger.clone(),
            naming: Naming { given: self.naming.given.take(), told: self.naming.told.take() },
            stop: self.stop.clone(),
        };
        self.tasks.spawn(async move {
            work.run(connection).await;
            "following the cluster"
        });
        Ok(())
    }
}

/// Everything that following a cluster takes.
pub(super) struct Work {
    cluster: config::Cluster,
    keeping: Keeping,
    book: Arc<crate::policy::book::Book>,
    in_force: Arc<InForce>,
    pub(super) state: Arc<State>,
    notifiers: Vec<Notifier>,
    notices: crate::metrics::NoticeMetrics,
    index: Arc<parking_lot::RwLock<crate::helm::index::Index>>,
    record_metrics: crate::metrics::RecordMetrics,
    guard_metrics: crate::metrics::GuardMetrics,
    admission: crate::metrics::AdmissionMetrics,
    certificates: Certificates,
    pub(super) judging: Judging,
    records: Condition,
    policies: Condition,
    switch: Condition,
    emergency_metrics: crate::metrics::EmergencyMetrics,
    loop_listed: Condition,
    ledger: Ledger,
    naming: Naming,
    pub(super) stop: CancellationToken,
}

impl Work {
    async fn run(self, connection: Connection) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            met = meet(connection, &self.records) => self.follow(met).await,
        }
    }

    async fn follow(mut self, met: Met) {
        self.naming.tell(|| met.uid.clone().unwrap_or_else(|| met.connection.url.clone()));
        let Self { cluster, book, index, record_metrics, guard_metrics, .. } = &self;
        let Met { connection, kinds, own_account, uid: _ } = met;
        let client = connection.client;
        let releases = Releases::new(
            client.clone(),
            cluster.record_driver,
            cluster.namespaces.clone(),
            Arc::clone(&kinds),
            Arc::clone(index),
            record_metrics.clone(),
        );
        let mut parts = tokio::task::JoinSet::new();
        parts.spawn({
            let (kinds, stop) = (Arc::clone(&kinds), self.stop.clone());
            async move { kinds.run(stop).await }
        });
        let (open, is_open) = watch::channel(None);
        parts.spawn(emergency::follow(client.clone(), open, self.stop.clone()));
        parts.spawn(obey(
            is_open.clone(),
            Arc::clone(&self.in_force),
            self.switch.clone(),
            self.emergency_metrics.clone(),
            self.stop.clone(),
        ));
        let mut office = Office::open(&client, cluster);
        let keeping = self.keeping.clone();
        let leadership = office.leadership.clone();
        parts.spawn(keeping.run(client.clone(), leadership, is_open.clone(), self.stop.clone()));
        let mut policing = Policing::start(
            &client,
            &kinds,
            &releases,
            &self.in_force,
            (&cluster.namespaces, (!cluster.read_only).then_some(&office.leadership)),
            &mut parts,
            &self.stop,
        );
        let mut health = releases.health();
        self.records.unmet("the first listing is not whole yet");
        // Policies say which records speak for which releases, and a release
        // that is not there loses its GuardedRelease.
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = policing.known(&self.policies) => {}
        }
        parts.spawn(trusting::run(Arc::clone(&releases), Arc::clone(&self.in_force), self.stop.clone()));
        releases.trust(book.policies().storage());
        parts.spawn(Arc::clone(&releases).run(self.stop.clone()));
        tokio::select! {
            () = self.stop.cancelled() => {}
            whole = health.wait_for(|health| health.indexed) => drop(whole),
        }
        policing.autoscalers.claim(releases.index());
        // Nothing is repaired before it is known whether it may be.
        let mut switch_known = is_open.clone();
        tokio::select! {
            () = self.stop.cancelled() => {}
            known = switch_known.wait_for(Option::is_some) => drop(known),
        }
        office.seek();
        let objects = Objects::new(client.clone(), WRITES).led(office.leadership.clone());
        if !self.stop.is_cancelled() {
            let arbiter = (!cluster.read_only)
                .then(|| Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS))
                .map(Arc::new);
            let settled = Arc::new(SettledValues::default());
            let live = Live {
                releases: Arc::clone(&releases),
                arbiter: arbiter.clone(),
                objects: objects.clone(),
                kinds: Arc::clone(&kinds),
                allowances: Arc::clone(&policing.allowances),
                autoscalers: Arc::clone(&policing.autoscalers),
                settled: Arc::clone(&settled),
                client: client.clone(),
            };
            self.judging.begin(Setup {
                door: self.judging.door(),
                truth: Truth::Cluster(Box::new(live)),
                book: Arc::clone(book),
                record_driver: cluster.record_driver,
                own_account,
                own_namespace: cluster.own_namespace.clone(),
                orders: Some(self.orders()),
                metrics: self.admission.clone(),
                ledger: self.ledger.clone(),
            });
            parts.spawn(transitions::run(Arc::clone(&releases), self.ledger.clone(), self.stop.clone()));
            parts.spawn(permitting::run(
                Arc::clone(&policing.allowances),
                Arc::clone(&releases),
                self.ledger.clone(),
                self.stop.clone(),
            ));
            let (listed, is_listed) = watch::channel(false);
            parts.spawn(meet_once(is_listed, self.loop_listed.clone(), self.stop.clone()));
            // Nor is anything repaired that a person has suspended.
            let suspended = tokio::select! {
                () = self.stop.cancelled() => HashSet::new(),
                suspended = telling::suspended(&client) => suspended,
            };
            let Some(key) = self.signing(cluster.read_only).await else {
                office.leave().await;
                return;
            };
            let (commands, wishes) = mpsc::channel(COMMANDS);
            let leading =
                if cluster.read_only { Leadership::alone().watch() } else { office.leadership.watch() };
            let telling = Telling {
                client: client.clone(),
                kinds: Arc::clone(&kinds),
                releases: Arc::clone(&releases),
                objects: objects.clone(),
                state: Arc::clone(&self.state),
                in_force: Arc::clone(&self.in_force),
                commands,
                suspended: suspended.clone(),
                notifiers: self.notifiers.clone(),
                metrics: self.notices.clone(),
                key: key.clone(),
                settled: Arc::clone(&settled),
            };
            if let Err(error) = telling.start(cluster, &office, &mut parts, &self.stop).await {
                tracing::error!("nobody is told of drifts and repairs: {error:#}");
            }
            let guard = Guard {
                releases: Arc::clone(&releases),
                kinds,
                objects,
                arbiter,
                allowances: Arc::clone(&policing.allowances),
                autoscalers: Arc::clone(&policing.autoscalers),
                settled,
                in_force: Arc::clone(&self.in_force),
                namespaces: cluster.namespaces.clone(),
                read_only: cluster.read_only,
                book: Arc::clone(book),
                metrics: guard_metrics.clone(),
                ledger: self.ledger.clone(),
                listed,
                state: Arc::clone(&self.state),
                key,
            };
            parts
                .spawn(guard.run(orders::Orders { leading, commands: wishes, suspended }, self.stop.clone()));
            if let Some(registration) = &cluster.registration {
                let registrar = Registrar {
                    registration: registration.clone(),
                    callers: self.judging.door().callers().clone(),
                    own_namespace: cluster.own_namespace.clone(),
                    record_driver: cluster.record_driver,
                    certificates: self.certificates.clone(),
                    releases: Arc::clone(&releases),
                    book: Arc::clone(book),
                    open: is_open,
                    leadership: office.leadership.clone(),
                    in_force: Arc::clone(&self.in_force),
                };
                parts.spawn(registrar.run(client, self.stop.clone()));
            }
            self.records.met();
        }
        let report = report(health, self.records, self.stop.clone());
        parts.spawn(report);
        while parts.join_next().await.is_some_and(|ended| ended.is_ok()) {}
        // Last, so that whoever leads next meets no write of this one.
        office.leave().await;
    }
}

/// Asks the API server until it answers.
async fn meet(connection: Connection, records: &Condition) -> Met {
    loop {
        let met = async {
            let kinds = Kinds::read(connection.client.clone()).await?;
            let own_account = identity::own_name(&connection).await?;
            let uid = identity::cluster_uid(&connection.client).await?;
            Ok::<_, crate::cluster::call::CallError>((kinds, own_account, uid))
        };
        match met.await {
            Ok((kinds, own_account, uid)) => {
                tracing::info!(server = connection.url, account = own_account, "the API server answers");
                return Met { connection, kinds, own_account, uid };
            }
            Err(error) => {
                records.unmet(format!("the API server does not answer: {error}"));
                tracing::warn!(
                    server = connection.url,
                    "the API server does not answer, trying again: {error}"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Meets a condition once the loop has listed what is declared.
async fn meet_once(mut is_listed: watch::Receiver<bool>, condition: Condition, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        listed = is_listed.wait_for(|listed| *listed) => {
            if listed.is_ok() {
                condition.met();
            }
        }
    }
}

/// Says through readiness when the records go unwatched for long. The last
/// state serves meanwhile.
async fn report(mut health: watch::Receiver<Health>, records: Condition, stop: CancellationToken) {
    loop {
        let outage = health.borrow_and_update().outage.clone();
        match outage {
            Some(outage) if outage.since + OUTAGE <= Instant::now() => {
                records.unmet(format!("records cannot be watched; the last state serves: {}", outage.reason));
            }
            Some(_) => {}
            None => records.met(),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(OUTAGE_LOOK) => {}
        }
    }
}

const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
