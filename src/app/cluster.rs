//! Serves a cluster: connects, watches release records and policies, joins the leader election, then judges changes,
//! registers the webhooks, repairs and reports. Parts that need the release index start when it is complete.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::history::{
    History, apply_emergency, record_emergencies, record_policy_changes, record_relabelling,
    send_cluster_name,
};
use super::registrar::{Registrar, note_unlabelled_namespaces};
use super::settings::Settings;
use super::{Halt, Services, SupervisedTasks, for_each_value};
use kubemoor_cluster::client::access;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::{self, ClusterConnection};
use kubemoor_cluster::client::events::Events;
use kubemoor_cluster::client::guarded::{self, GuardedReleases};
use kubemoor_cluster::client::lease::{Election, Leadership};
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::client::writer::at_least_one;
use kubemoor_cluster::mirror::Progress;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::arbiter::Arbiter;
use kubemoor_cluster::mirror::autoscalers::AutoscalerMirror;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::policies::{Namespaces, PolicyWatch};
use kubemoor_cluster::mirror::releases::{IndexHealth, Releases};
use kubemoor_guard::LiveCluster;
use kubemoor_guard::admin::{Authenticator, ReadinessCondition};
use kubemoor_guard::guard::DriftGuard;
use kubemoor_guard::guard::announce::EventPublisher;
use kubemoor_guard::guard::fleet::FleetWriter;
use kubemoor_guard::guard::notices::NotificationPublisher;
use kubemoor_guard::guard::status::{Statuses, SuspensionRecorder};
use kubemoor_guard::webhook::look::ReleaseSource;
use kubemoor_guard::webhook::registration::emergency;
use kubemoor_guard::webhook::registration::shared_secrets::{Renewal, Rotation};
use kubemoor_guard::webhook::validate::ValidatorContext;
use kubemoor_notify::Worker;
use kubemoor_policy::guarded::{LeaseReference, SuspendedReleases};
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::event::LoopOrder;
use kubemoor_runtime::callers::random_key;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;

/// The most writes per second: of the guard itself, and to GuardedReleases.
const WRITES: NonZeroU32 = at_least_one(50);
const STATUS_WRITES: NonZeroU32 = at_least_one(20);

const DRY_RUNS: NonZeroU32 = at_least_one(10);

/// The capacity of the loop's command channel.
const COMMANDS: usize = 1024;

/// From this number on, `/readyz` reports how many statuses still have to be compared. After an upgrade of the guard,
/// all statuses have to be.
const MANY_DUE: usize = 100;

/// The capacity of the channel with suspensions for the ledger. While it is full, status updates wait.
const SUSPENSION_QUEUE: usize = 1024;

/// The pause between attempts to read the state that an earlier guard saved, or the suspended releases.
const RETRY: Duration = Duration::from_secs(5);

pub(super) struct ClusterWork {
    pub(super) services: Services,
    pub(super) renewal: Option<Renewal>,
    pub(super) worker: Option<Worker>,
    /// Sends the cluster's name to the ledger's writer; `None` once it was sent.
    pub(super) cluster_name_sender: Option<oneshot::Sender<String>>,
}

/// The handles that the parts share once the API server answers.
struct ClusterHandles {
    cluster: Arc<LiveCluster>,
    uid: Option<String>,
    /// The progress of the initial lists of everything that can change a verdict.
    listings: Vec<watch::Receiver<Progress>>,
    /// Whether an emergency is open, which disables enforcement; `None` until that is known.
    enforcement_disabled: watch::Receiver<Option<bool>>,
}

impl ClusterWork {
    pub(super) async fn begin(
        mut self,
        users: &Authenticator,
        parts: &mut SupervisedTasks,
    ) -> anyhow::Result<()> {
        // This fails only on an invalid kubeconfig; no request is sent yet.
        let connection = connection::connect(self.services.settings.kubeconfig.as_deref()).await?;
        let users = users.trust(connection.client.clone());
        let followed =
            access::follow_user_authority(connection.client.clone(), users, self.services.stop.child_token());
        parts.spawn("following the authorities of users", followed);
        let readiness = &self.services.readiness;
        for name in ["records", "policies"] {
            readiness.condition(name).unmet("the API server has not answered yet");
        }
        readiness.condition("emergency");
        // This does not make the replica unready: the webhook does not need the loop to judge changes.
        readiness.condition("loop").noted("the declared objects have not all been listed yet");
        // These two only inform: how many statuses still have to be compared, and which namespaces lack a label.
        readiness.condition("statuses").met();
        readiness.condition("labels").met();
        // All parts that work with the cluster stop together.
        self.services.stop = self.services.stop.child_token();
        parts.try_spawn("following the cluster", self.run(connection));
        Ok(())
    }

    async fn run(mut self, connection: ClusterConnection) -> anyhow::Result<()> {
        let stop = self.services.stop.clone();
        let records = self.services.readiness.condition("records");
        let met = stop.run_until_cancelled(wait_for_api_server(connection, &records)).await;
        let Some(met) = met else { return Ok(()) };
        let mut parts = SupervisedTasks::default();
        if let Some(naming) = self.cluster_name_sender.take() {
            let named = send_cluster_name(naming, met.connection.clone(), met.uid.clone(), stop.clone());
            parts.spawn("naming the cluster in the ledger", named);
        }
        let Services { settings, certificates, .. } = &self.services;
        let mut session = LeaderSession::open(&met.connection.client, settings, certificates);
        let halt = match self.start(met, &mut session, &mut parts).await {
            Err(halt) => halt,
            Ok(()) => tokio::select! {
                () = stop.cancelled() => Halt::Stopped,
                error = parts.wait_for_failure() => Halt::Failed(error),
            },
        };
        stop.cancel();
        session.leave(&mut parts).await;
        match halt {
            Halt::Stopped => Ok(()),
            Halt::Failed(error) => Err(error),
        }
    }

    async fn start(
        &mut self,
        met: ApiServerFacts,
        session: &mut LeaderSession,
        parts: &mut SupervisedTasks,
    ) -> Result<(), Halt> {
        let stop = self.services.stop.clone();
        let own_account = met.own_account.clone();
        let mut link = self.start_watches(met, session, parts);
        let mut health = link.cluster.releases.health();
        // Policies decide which records are trusted, and the GuardedRelease of a release without a trusted record is
        // deleted.
        let known = wait_for_policies(&mut link.listings, self.services.readiness.condition("policies"));
        parts.wait_or_halt(&stop, known).await?;
        let (releases, in_force) = (Arc::clone(&link.cluster.releases), Arc::clone(&self.services.in_force));
        releases.trust(in_force.resolver().policies().storage());
        let (changes, trusting) = (in_force.changes(), Arc::clone(&releases));
        let trust = move |_: &_| trusting.trust(in_force.resolver().policies().storage());
        parts.spawn("trusting records", for_each_value(changes, stop.clone(), trust));
        parts.spawn("following the records", Arc::clone(&releases).run(stop.clone()));
        let records = self.services.readiness.condition("records");
        records.unmet("the records of all releases are still being read");
        drop(parts.wait_or_halt(&stop, health.wait_for(|health| health.indexed)).await?);
        // Nothing is denied or repaired until it is known whether an emergency is open.
        let mut switch_known = link.enforcement_disabled.clone();
        drop(parts.wait_or_halt(&stop, switch_known.wait_for(Option::is_some)).await?);
        self.services.answerer.start_judging(ValidatorContext {
            own_account,
            own_namespace: self.services.settings.own_namespace().map(str::to_owned),
            ..self.services.setup(ReleaseSource::Cluster(Arc::clone(&link.cluster)))
        });
        records.met();
        link.cluster.autoscalers.claim(releases.index());
        session.join_election(parts);
        let history = History { cluster: Arc::clone(&link.cluster), services: self.services.clone() };
        parts.spawn("keeping the records' history", history.clone().keep_transitions());
        parts.spawn("keeping the allowances' history", history.clone().keep_exceptions());
        parts.spawn("keeping the autoscalers' history", history.keep_scalings());
        // Nothing is repaired until the suspended releases are known.
        let suspended = parts.wait_or_halt(&stop, suspended(&link.cluster)).await?;
        let key = parts.wait_or_halt(&stop, self.wait_for_signing_key()).await?;
        let key = key.map_err(Halt::Failed)?;
        self.start_loop(&link, session, (suspended, key), parts).await?;
        self.register(&link, session, parts);
        parts.spawn("watching over the records", report_outages(health, records, stop.clone()));
        Ok(())
    }

    /// Starts the watches that all other parts need.
    fn start_watches(
        &self,
        met: ApiServerFacts,
        session: &LeaderSession,
        parts: &mut SupervisedTasks,
    ) -> ClusterHandles {
        let ApiServerFacts { connection: ClusterConnection { client, .. }, kinds, uid, .. } = met;
        let Services { settings, in_force, metrics, answerer, ledger, readiness, stop, .. } = &self.services;
        let releases = Releases::new(
            client.clone(),
            settings.record_driver(),
            settings.namespace.clone(),
            Arc::clone(&kinds),
            Arc::clone(&metrics.index),
            metrics.records.clone(),
        );
        parts.spawn("following the kinds", Arc::clone(&kinds).run(stop.clone()));
        let (opened, open) = watch::channel(None);
        let keep = record_emergencies(ledger.clone(), self.services.notifiers.clone());
        let switch = emergency::follow(client.clone(), opened, keep, stop.clone());
        parts.spawn("following the emergency switch", switch);
        let condition = readiness.condition("emergency");
        let obey = apply_emergency(Arc::clone(in_force), condition, metrics.emergency.clone());
        parts.spawn("obeying the emergency switch", for_each_value(open.clone(), stop.clone(), obey));
        let leadership = session.leadership.clone();
        let rotation = Rotation::new(
            &settings.caller_proof(),
            settings.own_namespace(),
            &settings.certificate(),
            answerer.caller_gate.callers().clone(),
            readiness.condition("callers"),
        );
        let kept = rotation.run(client.clone(), leadership.clone(), open.clone(), stop.clone());
        parts.spawn("keeping the callers' secret", kept);
        if let Some(renewal) = self.renewal.clone() {
            let kept = renewal.run(client.clone(), leadership.clone(), stop.clone());
            parts.spawn("keeping the certificate", kept);
        }
        let objects = Objects::new(client.clone(), WRITES).led(leadership.clone());
        let arbiter = (!settings.read_only)
            .then(|| Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS));
        // Everything that can change a verdict. While this replica leads, it writes policy statuses and deletes
        // allowances that ended long ago.
        let policies = PolicyWatch::new(
            client.clone(),
            Arc::clone(&kinds),
            Arc::clone(&releases),
            Arc::clone(in_force),
            leadership.clone(),
            record_policy_changes(ledger.clone()),
        );
        let labels =
            Namespaces::new(client.clone(), Arc::clone(in_force), record_relabelling(ledger.clone()));
        let namespaces = settings.namespace.clone();
        let writes = (!settings.read_only).then_some(leadership);
        let allowances = Allowances::new(client.clone(), Arc::clone(&kinds), namespaces.clone(), writes);
        let autoscalers = AutoscalerMirror::new(client.clone(), namespaces.clone());
        let listings =
            vec![policies.progress(), labels.progress(), allowances.progress(), autoscalers.progress()];
        parts.spawn("following the policies", policies.run(stop.clone()));
        parts.spawn("following the namespaces", labels.run(stop.clone()));
        parts.spawn("following the allowances", Arc::clone(&allowances).run(stop.clone()));
        let (scaling, index, stopping) = (Arc::clone(&autoscalers), Arc::clone(&metrics.index), stop.clone());
        parts.spawn("following the autoscalers", async move { scaling.run(&index, stopping).await });
        let (settled, state) = (Arc::default(), Arc::clone(&self.services.state));
        let cluster = LiveCluster {
            client,
            namespaces,
            releases,
            kinds,
            objects,
            arbiter,
            allowances,
            autoscalers,
            settled,
            state,
        };
        ClusterHandles { cluster: Arc::new(cluster), uid, listings, enforcement_disabled: open }
    }

    /// Starts the loop and the parts that report on it.
    async fn start_loop(
        &mut self,
        link: &ClusterHandles,
        session: &LeaderSession,
        (suspended, key): (SuspendedReleases, SigningKey),
        parts: &mut SupervisedTasks,
    ) -> Result<(), Halt> {
        let Services { in_force, metrics, ledger, stop, .. } = self.services.clone();
        let (listed, is_listed) = watch::channel(false);
        let condition = self.services.readiness.condition("loop");
        let met = move |is_listed: &bool| {
            if *is_listed {
                condition.met()
            }
        };
        parts.spawn("waiting for the loop", for_each_value(is_listed, stop.clone(), met));
        let (commands, orders) = mpsc::channel(COMMANDS);
        // Cancelled when the loop has ended, or cannot start.
        let looped = CancellationToken::new();
        let ended = looped.clone().drop_guard();
        let reported = self.report_loop(link, session, parts);
        reported.context("cannot report drift and repairs").map_err(Halt::Failed)?;
        let read_only = self.services.settings.read_only;
        if !read_only {
            self.keep_statuses(link, session, (commands, suspended.clone(), key.clone()), looped, parts)
                .await;
        }
        let leading = if read_only { Leadership::alone().watch() } else { session.leadership.watch() };
        let cluster = Arc::clone(&link.cluster);
        let guard = DriftGuard { cluster, in_force, read_only, metrics: metrics.guard, ledger, listed, key };
        parts.try_spawn("the loop", async move {
            let outcome = guard.run(leading, orders, suspended, stop).await;
            drop(ended);
            Ok(outcome?)
        });
        Ok(())
    }

    /// Starts the parts that report on the loop: notifications, Events and the fleet's rows. Each is a task of its own,
    /// so none can delay the loop.
    fn report_loop(
        &mut self,
        link: &ClusterHandles,
        session: &LeaderSession,
        parts: &mut SupervisedTasks,
    ) -> anyhow::Result<()> {
        let Services { settings, in_force, state, metrics, certificates, ledger, notifiers, stop, .. } =
            &self.services;
        let (metrics, read_only) = (&metrics.notices, settings.read_only);
        // A read-only guard does not need to coordinate with others.
        let leadership = if read_only { Leadership::alone() } else { session.leadership.clone() };
        if let Some(worker) = self.worker.take() {
            // A receiver tells several clusters apart by this.
            let source = format!("urn:kubemoor:{}", link.uid.as_deref().unwrap_or("unknown"));
            let leads = leadership.clone();
            let delivered = worker.start(&source, move || leads.is_leader(), stop.clone())?;
            parts.try_spawn("delivering notifications", async move { Ok(delivered.await?) });
        }
        if ledger.keeps_fleet() {
            let writer = FleetWriter {
                ledger: ledger.clone(),
                cluster: Arc::clone(&link.cluster),
                in_force: Arc::clone(in_force),
                leadership: leadership.clone(),
                certificates: certificates.clone(),
            };
            parts.spawn("keeping the releases in the ledger", writer.run(stop.clone()));
        }
        let teller = NotificationPublisher {
            state: Arc::clone(state),
            notifiers: notifiers.clone(),
            resolver: Arc::clone(in_force.resolver()),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            leadership,
        };
        parts.spawn("telling notifiers", teller.run(stop.clone()));
        if !read_only {
            let LeaderSession { leadership, identity, .. } = session;
            let announcer = EventPublisher {
                cluster: Arc::clone(&link.cluster),
                events: Events::new(link.cluster.client.clone(), leadership.clone(), identity.clone()),
                leadership: leadership.clone(),
                metrics: metrics.clone(),
            };
            parts.spawn("telling of drifts and repairs", announcer.run(stop.clone()));
        }
        Ok(())
    }

    /// Starts to keep GuardedReleases. When the loop has ended (`looped`), the last statuses are written.
    async fn keep_statuses(
        &self,
        link: &ClusterHandles,
        session: &LeaderSession,
        (commands, suspended, key): (mpsc::Sender<LoopOrder>, SuspendedReleases, SigningKey),
        looped: CancellationToken,
        parts: &mut SupervisedTasks,
    ) {
        let Services { in_force, metrics, ledger, stop, .. } = self.services.clone();
        let LiveCluster { client, namespaces, releases, .. } = &*link.cluster;
        let (metrics, leadership) = (metrics.notices, session.leadership.clone());
        metrics.leads(leadership.is_leader());
        let (due, counts) = watch::channel(0);
        let condition = self.services.readiness.condition("statuses");
        let note = move |count: &usize| match count {
            MANY_DUE.. => condition.noted(format!(
                "{count} GuardedReleases have still to be compared, and written if they differ"
            )),
            _ => condition.met(),
        };
        parts.spawn("telling how many statuses are due", for_each_value(counts, stop.clone(), note));
        let (seen, witnessed) = mpsc::channel(SUSPENSION_QUEUE);
        let witness = SuspensionRecorder { ledger, releases: Arc::clone(releases), seen: witnessed };
        parts.spawn("keeping suspensions in the ledger", witness.run(stop.clone()));
        let guarded = GuardedReleases::new(client.clone(), leadership.clone(), STATUS_WRITES);
        let statuses = Statuses {
            guarded: guarded.within(namespaces.clone()),
            cluster: Arc::clone(&link.cluster),
            in_force,
            commands,
            suspended,
            leadership,
            metrics,
            key,
            lease: session.place.clone(),
            due,
            seen,
        };
        // Read before the loop writes a new status.
        let first = statuses.guarded.remembered(&statuses.key).await;
        parts.spawn("keeping GuardedReleases", async move {
            // The saved state must reach the loop before any status is overwritten.
            if restore_saved_statuses(&statuses, first, &stop).await {
                statuses.run(looped).await;
            }
            // If the loop failed, its error must be the one that is reported.
            stop.cancelled().await;
        });
    }

    /// Keeps the webhook configurations registered, with `--register`.
    fn register(&self, link: &ClusterHandles, session: &LeaderSession, parts: &mut SupervisedTasks) {
        let Services { settings, in_force, readiness, stop, .. } = &self.services;
        let Some(endpoint) = settings.endpoint().filter(|_| settings.register) else { return };
        if let Some(own) = settings.own_namespace() {
            let (resolver, labels) = (Arc::clone(in_force.resolver()), readiness.condition("labels"));
            let noted = note_unlabelled_namespaces(own.to_owned(), resolver, labels, stop.clone());
            parts.spawn("noting namespaces without their label", noted);
        }
        let registrar = Registrar {
            endpoint,
            cluster: Arc::clone(&link.cluster),
            services: self.services.clone(),
            withdrawn: session.withdrawn.clone(),
            enforcement_disabled: link.enforcement_disabled.clone(),
            leadership: session.leadership.clone(),
        };
        parts.spawn("the registration", registrar.run());
    }

    /// Waits for the signing key that all replicas share. A read-only guard has a random key of its own.
    async fn wait_for_signing_key(&self) -> anyhow::Result<SigningKey> {
        if self.services.settings.read_only {
            return random_key().context("the loop cannot start");
        }
        Ok(self.services.answerer.caller_gate.callers().signing().await)
    }
}

/// Waits until all sources are listed, because each can turn a denial into an allow. Meanwhile `condition` reports what
/// is missing.
async fn wait_for_policies(listings: &mut [watch::Receiver<Progress>], condition: ReadinessCondition) {
    for listing in listings {
        loop {
            let reason = match &*listing.borrow_and_update() {
                Progress::Listed => break,
                Progress::Listing => "policies, allowances and autoscalers are not all listed yet".to_owned(),
                Progress::Failing(reason) => reason.clone(),
            };
            condition.unmet(reason);
            if listing.changed().await.is_err() {
                return;
            }
        }
    }
    condition.met();
}

/// This replica's part in the leader election.
struct LeaderSession {
    leadership: Leadership,
    /// The identity of this process, unique among all candidates.
    identity: String,
    /// Until when no webhook is registered, because a user withdrew them.
    withdrawn: watch::Receiver<Option<Instant>>,
    /// The Lease that replicas share; `None` without an election.
    place: Option<LeaseReference>,
    /// The election, until this replica joins it.
    election: Option<Election>,
    /// Ends the election and releases the Lease.
    resign: CancellationToken,
}

impl LeaderSession {
    /// Opens the session. This replica is not a candidate yet; with `--read-only` or without a Service it never is.
    fn open(client: &kube::Client, settings: &Settings, certificates: &Certificates) -> Self {
        let host = hostname::get().unwrap_or_default();
        let started = jiff::Timestamp::now().as_nanosecond();
        let identity = format!("{}_{}_{started:x}", host.to_string_lossy(), std::process::id());
        let resign = CancellationToken::new();
        let Some(service) = settings.service.as_ref().filter(|_| !settings.read_only) else {
            if !settings.read_only {
                tracing::info!("--service is not set; running without leader election");
            }
            let leadership = if settings.read_only { Leadership::never() } else { Leadership::alone() };
            let withdrawn = watch::channel(None).1;
            return Self { leadership, identity, withdrawn, place: None, election: None, resign };
        };
        let place = LeaseReference { namespace: service.namespace.clone(), name: service.name.clone() };
        let election =
            Election::new(client.clone(), place.clone(), identity.clone(), certificates.ca_bundle());
        Self {
            leadership: election.leadership(),
            withdrawn: election.withdrawn(),
            identity,
            place: Some(place),
            election: Some(election),
            resign,
        }
    }

    fn join_election(&mut self, parts: &mut SupervisedTasks) {
        if let Some(election) = self.election.take() {
            parts.spawn("the election", election.run(self.resign.clone()));
        }
    }

    /// Waits for all parts, which are already stopping. The election ends last, so that this replica writes nothing
    /// after the next leader has taken over.
    async fn leave(self, parts: &mut SupervisedTasks) {
        parts.join_until_left(1).await;
        self.resign.cancel();
        parts.join_until_left(0).await;
    }
}

/// The pause between attempts to reach an API server at the start.
const FIRST_RETRY: Duration = Duration::from_secs(2);

struct ApiServerFacts {
    connection: ClusterConnection,
    kinds: Arc<ServedKinds>,
    own_account: Option<String>,
    /// The uid of the namespace kube-system.
    uid: Option<String>,
}

async fn wait_for_api_server(connection: ClusterConnection, records: &ReadinessCondition) -> ApiServerFacts {
    loop {
        let met = async {
            let kinds = ServedKinds::read(connection.client.clone()).await?;
            let own_account = access::own_name(&connection.client, connection.claimed.clone()).await?;
            let uid = access::cluster_uid(&connection.client).await?;
            Ok::<_, kubemoor_cluster::client::call::ClusterError>((kinds, own_account, uid))
        };
        match met.await {
            Ok((kinds, own_account, uid)) => {
                tracing::info!(server = connection.url, account = own_account, "connected to the API server");
                return ApiServerFacts { connection, kinds, own_account, uid };
            }
            Err(error) => {
                records.unmet(format!("the API server does not answer: {error}"));
                tracing::warn!(server = connection.url, "failed to query the API server; retrying: {error}");
                tokio::time::sleep(FIRST_RETRY).await;
            }
        }
    }
}

/// How long the watch of records may fail before the guard is not ready.
const OUTAGE: Duration = Duration::from_secs(60);

const OUTAGE_LOOK: Duration = Duration::from_secs(5);

/// Makes the guard unready while the watch of records fails for long. The last known state stays in use.
async fn report_outages(
    mut health: watch::Receiver<IndexHealth>,
    records: ReadinessCondition,
    stop: CancellationToken,
) {
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

/// Reads the suspended releases, and retries until the API server answers. Without the right to read them, none is
/// suspended.
async fn suspended(cluster: &LiveCluster) -> SuspendedReleases {
    loop {
        match guarded::suspended(&cluster.client, &cluster.namespaces).await {
            Ok(suspended) => return suspended,
            Err(ClusterError::Refused { code: 401 | 403, .. }) => return SuspendedReleases::new(),
            Err(error) => {
                tracing::debug!("failed to read the suspended releases; retrying: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Sends the state that an earlier guard saved to the loop. Returns whether that finished before `stop`.
async fn restore_saved_statuses(
    statuses: &Statuses,
    first: Result<Vec<LoopOrder>, ClusterError>,
    stop: &CancellationToken,
) -> bool {
    let (mut failures, mut read) = (FailureLog::default(), first);
    let telling = async {
        loop {
            match read {
                Ok(remembered) => {
                    for remembered in remembered {
                        // Without a loop there is no receiver.
                        drop(statuses.commands.send(remembered).await);
                    }
                    return;
                }
                Err(error) => {
                    if failures.note_failure() {
                        tracing::warn!(
                            "failed to read release states saved by an earlier guard; retrying: {error}"
                        );
                    }
                    tokio::time::sleep(RETRY).await;
                    read = statuses.guarded.remembered(&statuses.key).await;
                }
            }
        }
    };
    stop.run_until_cancelled(telling).await.is_some()
}

#[cfg(test)]
mod tests;
