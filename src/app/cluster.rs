//! Serving a cluster: connects, follows the records and policies, takes part in the election, then judges, registers,
//! repairs and reports. What needs the index starts once it is whole.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::history::{
    ClusterNaming, ExceptionHistory, ScalingHistory, keep_emergency, keep_policy, keep_relabelling,
    keep_transitions, obey_emergency,
};
use super::registrar::{Registrar, note_unlabelled_namespaces};
use super::{Halt, Parts, Run, Services, follow};
use kubemoor_cluster::client::access;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::{self, ClusterConnection};
use kubemoor_cluster::client::events::Events;
use kubemoor_cluster::client::guarded::{self, GuardedReleases};
use kubemoor_cluster::client::lease::{Election, Leadership};
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::Progress;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::arbiter::Arbiter;
use kubemoor_cluster::mirror::autoscalers::AutoscalerMirror;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::policies::{Namespaces, PolicyWatch};
use kubemoor_cluster::mirror::releases::{IndexHealth, Releases};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_guard::admin::ReadinessCondition;
use kubemoor_guard::guard::announce::EventPublisher;
use kubemoor_guard::guard::fleet::FleetWriter;
use kubemoor_guard::guard::notices::Teller;
use kubemoor_guard::guard::status::{Statuses, Witness};
use kubemoor_guard::guard::{self, Guard};
use kubemoor_guard::webhook::look::{LiveCluster, ReleaseSource};
use kubemoor_guard::webhook::order::OrderDesk;
use kubemoor_guard::webhook::registration::emergency;
use kubemoor_guard::webhook::registration::shared_secrets::{Renewal, Rotation};
use kubemoor_guard::webhook::validate::Setup;
use kubemoor_notify::Worker;
use kubemoor_policy::agreement::SettledValues;
use kubemoor_policy::guarded::{LeaseReference, SuspendedReleases};
use kubemoor_policy::signing::{SigningKey, Verb};
use kubemoor_reconcile::event::LoopOrder;
use kubemoor_reconcile::report::DriftKind;
use kubemoor_runtime::callers::random_key;
use kubemoor_runtime::config;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::Certificates;

/// Writes of the guard's own, and of GuardedReleases, per second.
const WRITES: NonZeroU32 = at_least_one(50);
const STATUS_WRITES: NonZeroU32 = at_least_one(20);

const DRY_RUNS: NonZeroU32 = at_least_one(10);

/// Commands to the loop that wait at most; a sender of more waits.
const COMMANDS: usize = 1024;

/// From this number of statuses on, `/readyz` reports that they still have to be compared. After an upgrade
/// of the guard these are all statuses.
const MANY_DUE: usize = 100;

/// Changes of suspensions that wait to be kept in the ledger; the next one waits with its status.
const WITNESSED: usize = 1024;

/// The pause between attempts to read what an earlier guard knew.
const RETRY: Duration = Duration::from_secs(5);

struct ClusterWork {
    services: Services,
    cluster: config::ClusterSettings,
    rotation: Rotation,
    renewal: Option<Renewal>,
    worker: Option<Worker>,
    naming: Option<ClusterNaming>,
}

/// The handles that the parts share once a cluster answers.
struct ClusterHandles {
    client: kube::Client,
    uid: Option<String>,
    kinds: Arc<ServedKinds>,
    releases: Arc<Releases>,
    objects: Objects,
    /// None where no dry run may be made.
    arbiter: Option<Arc<Arbiter>>,
    leadership: Leadership,
    allowances: Arc<Allowances>,
    autoscalers: Arc<AutoscalerMirror>,
    /// How far the lists are of all that may change the verdict on an edit.
    listings: Vec<watch::Receiver<Progress>>,
    settled: Arc<SettledValues>,
    /// Whether the emergency switch is off; `None` until that is known.
    open: watch::Receiver<Option<bool>>,
}

impl Run {
    pub(super) async fn cluster(
        &mut self,
        cluster: config::ClusterSettings,
        rotation: Rotation,
        renewal: Option<Renewal>,
    ) -> anyhow::Result<()> {
        // Only the kubeconfig can be wrong here; the rest waits for the API server.
        let connection = connection::connect(cluster.kubeconfig.as_deref()).await?;
        let users = self.users.trust(connection.client.clone());
        let followed =
            access::follow_user_authority(connection.client.clone(), users, self.services.stop.child_token());
        self.parts.spawn("following the authorities of users", followed);
        let readiness = &self.services.readiness;
        for name in ["records", "policies"] {
            readiness.condition(name).unmet("the API server has not answered yet");
        }
        readiness.condition("emergency");
        // The webhook judges without the loop, and a replica that does not answer leaves edits unjudged.
        readiness.condition("loop").noted("the declared objects have not all been listed yet");
        // Nobody waits for these: how many statuses have still to be compared, and which namespaces lack a label.
        readiness.condition("statuses").met();
        readiness.condition("labels").met();
        // All parts that follow the cluster stop together.
        let stop = self.services.stop.child_token();
        let work = ClusterWork {
            services: Services { stop, ..self.services.clone() },
            cluster,
            rotation,
            renewal,
            worker: self.worker.take(),
            naming: self.naming.take(),
        };
        self.parts.try_spawn("following the cluster", work.run(connection));
        Ok(())
    }
}

impl ClusterWork {
    async fn run(mut self, connection: ClusterConnection) -> anyhow::Result<()> {
        let stop = self.services.stop.clone();
        let records = self.services.readiness.condition("records");
        let met = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            met = meet(connection, &records) => met,
        };
        let mut parts = Parts::default();
        if let Some(naming) = self.naming.take() {
            let named = naming.find(met.connection.clone(), met.uid.clone(), stop.clone());
            parts.spawn("naming the cluster in the ledger", named);
        }
        let mut session =
            LeaderSession::open(&met.connection.client, &self.cluster, &self.services.certificates);
        let halt = match self.start(met, &mut session, &mut parts).await {
            Err(halt) => halt,
            Ok(()) => tokio::select! {
                () = stop.cancelled() => Halt::Stopped,
                error = parts.ended() => Halt::Failed(error),
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
        met: FirstAnswers,
        session: &mut LeaderSession,
        parts: &mut Parts,
    ) -> Result<(), Halt> {
        let stop = self.services.stop.clone();
        let own_account = met.own_account.clone();
        let mut link = self.link(met, session, parts);
        let mut health = link.releases.health();
        // Policies say which records speak for which releases, and a release
        // that is not there loses its GuardedRelease.
        let known = policies_known(&mut link.listings, self.services.readiness.condition("policies"));
        parts.meanwhile(&stop, known).await?;
        let (releases, in_force) = (Arc::clone(&link.releases), Arc::clone(&self.services.in_force));
        releases.trust(in_force.resolver().policies().storage());
        let (changes, trusting) = (in_force.changes(), Arc::clone(&releases));
        let trust = move |_: &_| trusting.trust(in_force.resolver().policies().storage());
        parts.spawn("trusting records", follow(changes, stop.clone(), trust));
        parts.spawn("following the records", Arc::clone(&releases).run(stop.clone()));
        let records = self.services.readiness.condition("records");
        records.unmet("the records of all releases are still being read");
        drop(parts.meanwhile(&stop, health.wait_for(|health| health.indexed)).await?);
        // Nothing is denied or repaired before it is known whether it may be.
        let mut switch_known = link.open.clone();
        drop(parts.meanwhile(&stop, switch_known.wait_for(Option::is_some)).await?);
        self.judge(&link, own_account);
        records.met();
        link.autoscalers.claim(releases.index());
        session.seek(parts);
        self.keep_histories(&link, parts);
        // Nor is anything repaired that a person has suspended.
        let suspended = parts.meanwhile(&stop, suspended(&link.client, &self.cluster)).await?;
        let key = parts.meanwhile(&stop, self.signing(self.cluster.read_only)).await?;
        let key = key.map_err(Halt::Failed)?;
        self.repair(&link, session, (suspended, key), parts).await?;
        self.register(&link, session, parts);
        parts.spawn("watching over the records", report_outages(health, records, stop.clone()));
        Ok(())
    }

    /// Begins to follow what all else needs.
    fn link(&self, met: FirstAnswers, session: &LeaderSession, parts: &mut Parts) -> ClusterHandles {
        let Self { services, cluster, .. } = self;
        let FirstAnswers { connection: ClusterConnection { client, .. }, kinds, uid, .. } = met;
        let (stop, in_force) = (&services.stop, &services.in_force);
        let releases = Releases::new(
            client.clone(),
            cluster.record_driver,
            cluster.namespaces.clone(),
            Arc::clone(&kinds),
            Arc::clone(&services.metrics.index),
            services.metrics.records.clone(),
        );
        let (served, stopped) = (Arc::clone(&kinds), stop.clone());
        parts.spawn("following the kinds", async move { served.run(stopped).await });
        let (opened, open) = watch::channel(None);
        let keep = keep_emergency(services.ledger.clone(), services.notifiers.clone());
        let switch = emergency::follow(client.clone(), opened, keep, stop.clone());
        parts.spawn("following the emergency switch", switch);
        let (condition, metrics) =
            (services.readiness.condition("emergency"), services.metrics.emergency.clone());
        let obey = obey_emergency(Arc::clone(in_force), condition, metrics);
        parts.spawn("obeying the emergency switch", follow(open.clone(), stop.clone(), obey));
        let leadership = session.leadership.clone();
        let kept = self.rotation.clone().run(client.clone(), leadership.clone(), open.clone(), stop.clone());
        parts.spawn("keeping the callers' secret", kept);
        if let Some(renewal) = self.renewal.clone() {
            let kept = renewal.run(client.clone(), leadership.clone(), stop.clone());
            parts.spawn("keeping the certificate", kept);
        }
        let (allowances, autoscalers, listings) =
            self.follow_policies(&client, &kinds, &releases, &leadership, parts);
        let objects = Objects::new(client.clone(), WRITES).led(leadership.clone());
        let arbiter = (!cluster.read_only)
            .then(|| Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS))
            .map(Arc::new);
        ClusterHandles {
            client,
            uid,
            kinds,
            releases,
            objects,
            arbiter,
            leadership,
            allowances,
            autoscalers,
            listings,
            settled: Arc::default(),
            open,
        }
    }

    /// Starts to follow what may change the verdict on an edit: policies, allowances, labels of namespaces and autoscalers.
    fn follow_policies(
        &self,
        client: &kube::Client,
        kinds: &Arc<ServedKinds>,
        releases: &Arc<Releases>,
        leadership: &Leadership,
        parts: &mut Parts,
    ) -> (Arc<Allowances>, Arc<AutoscalerMirror>, Vec<watch::Receiver<Progress>>) {
        let Services { in_force, ledger, stop, .. } = &self.services;
        let watched = &self.cluster.namespaces;
        // While this replica leads, it writes policy statuses and deletes allowances that ended long ago.
        let leadership = (!self.cluster.read_only).then(|| leadership.clone());
        let policies = PolicyWatch::new(
            client.clone(),
            Arc::clone(kinds),
            Arc::clone(releases),
            Arc::clone(in_force),
            leadership.clone().unwrap_or_else(Leadership::never),
        )
        .keeping(keep_policy(ledger.clone()));
        let namespaces =
            Namespaces::new(client.clone(), Arc::clone(in_force)).keeping(keep_relabelling(ledger.clone()));
        let allowances = Allowances::new(client.clone(), Arc::clone(kinds), watched.clone(), leadership);
        let autoscalers = AutoscalerMirror::new(client.clone(), Arc::clone(kinds), watched.clone());
        let listings =
            vec![policies.progress(), namespaces.progress(), allowances.progress(), autoscalers.progress()];
        parts.spawn("following the policies", policies.run(stop.clone()));
        parts.spawn("following the namespaces", namespaces.run(stop.clone()));
        let (following, stopping) = (Arc::clone(&allowances), stop.clone());
        parts.spawn("following the allowances", async move { following.run(stopping).await });
        let (following, releases, stopping) = (Arc::clone(&autoscalers), Arc::clone(releases), stop.clone());
        parts.spawn(
            "following the autoscalers",
            async move { following.run(releases.index(), stopping).await },
        );
        (allowances, autoscalers, listings)
    }

    fn judge(&self, link: &ClusterHandles, own_account: Option<String>) {
        let live = LiveCluster {
            releases: Arc::clone(&link.releases),
            arbiter: link.arbiter.clone(),
            objects: link.objects.clone(),
            kinds: Arc::clone(&link.kinds),
            allowances: Arc::clone(&link.allowances),
            autoscalers: Arc::clone(&link.autoscalers),
            settled: Arc::clone(&link.settled),
            client: link.client.clone(),
        };
        self.services.answerer.begin(Setup {
            record_driver: self.cluster.record_driver,
            own_account,
            own_namespace: self.cluster.own_namespace.clone(),
            orders: Some(self.orders()),
            ..self.services.setup(ReleaseSource::Cluster(Box::new(live)))
        });
    }

    fn keep_histories(&self, link: &ClusterHandles, parts: &mut Parts) {
        let Services { resolver, ledger, notifiers, stop, .. } = &self.services;
        let releases = &link.releases;
        let transitions = keep_transitions(Arc::clone(releases), ledger.clone(), stop.clone());
        parts.spawn("keeping the records' history", transitions);
        let exceptions = ExceptionHistory {
            allowances: Arc::clone(&link.allowances),
            releases: Arc::clone(releases),
            ledger: ledger.clone(),
            notifiers: notifiers.clone(),
            resolver: Arc::clone(resolver),
        };
        parts.spawn("keeping the allowances' history", exceptions.run(stop.clone()));
        let scaling = ScalingHistory {
            autoscalers: Arc::clone(&link.autoscalers),
            releases: Arc::clone(releases),
            resolver: Arc::clone(resolver),
            ledger: ledger.clone(),
        };
        parts.spawn("keeping the autoscalers' history", scaling.run(stop.clone()));
    }

    /// Starts the loop and the parts that report on it.
    async fn repair(
        &mut self,
        link: &ClusterHandles,
        session: &LeaderSession,
        (suspended, key): (SuspendedReleases, SigningKey),
        parts: &mut Parts,
    ) -> Result<(), Halt> {
        let Services { resolver, in_force, state, metrics, ledger, stop, .. } = self.services.clone();
        let (listed, is_listed) = watch::channel(false);
        let condition = self.services.readiness.condition("loop");
        let met = move |is_listed: &bool| {
            if *is_listed {
                condition.met()
            }
        };
        parts.spawn("waiting for the loop", follow(is_listed, stop.clone(), met));
        let (commands, wishes) = mpsc::channel(COMMANDS);
        // Told once the loop has ended, or will not begin.
        let looped = CancellationToken::new();
        let ended = looped.clone().drop_guard();
        let reported = self.report_loop(link, session, parts);
        reported.context("nobody would be told of drifts and repairs").map_err(Halt::Failed)?;
        let read_only = self.cluster.read_only;
        if !read_only {
            self.keep_statuses(link, session, (commands, suspended.clone(), key.clone()), looped, parts)
                .await;
        }
        let leading = if read_only { Leadership::alone().watch() } else { link.leadership.watch() };
        let guard = Guard {
            releases: Arc::clone(&link.releases),
            kinds: Arc::clone(&link.kinds),
            objects: link.objects.clone(),
            arbiter: link.arbiter.clone(),
            allowances: Arc::clone(&link.allowances),
            autoscalers: Arc::clone(&link.autoscalers),
            settled: Arc::clone(&link.settled),
            in_force,
            namespaces: self.cluster.namespaces.clone(),
            read_only,
            resolver,
            metrics: metrics.guard,
            ledger,
            listed,
            state,
            key,
        };
        let orders = guard::LoopInputs { leading, commands: wishes, suspended };
        parts.try_spawn("the loop", async move {
            let outcome = guard.run(orders, stop).await;
            drop(ended);
            Ok(outcome?)
        });
        Ok(())
    }

    /// Starts to report on the loop to people and to other clusters. Each part is a task of its own: none can delay the loop.
    fn report_loop(
        &mut self,
        link: &ClusterHandles,
        session: &LeaderSession,
        parts: &mut Parts,
    ) -> anyhow::Result<()> {
        let Services { resolver, in_force, state, metrics, certificates, ledger, notifiers, stop, .. } =
            &self.services;
        let (metrics, read_only) = (&metrics.notices, self.cluster.read_only);
        // A read-only guard does not need to coordinate with others.
        let leadership = if read_only { Leadership::alone() } else { session.leadership.clone() };
        if let Some(worker) = self.worker.take() {
            // Without it a receiver of several clusters cannot tell them apart.
            let source = format!("urn:kubemoor:{}", link.uid.as_deref().unwrap_or("unknown"));
            let leads = leadership.clone();
            let delivered = worker.start(&source, move || leads.holds(), stop.clone())?;
            parts.try_spawn("delivering notifications", async move { Ok(delivered.await?) });
        }
        if ledger.keeps_fleet() {
            let writer = FleetWriter {
                ledger: ledger.clone(),
                state: Arc::clone(state),
                releases: Arc::clone(&link.releases),
                in_force: Arc::clone(in_force),
                namespaces: self.cluster.namespaces.clone(),
                leadership: leadership.clone(),
                certificates: certificates.clone(),
            };
            parts.spawn("keeping the releases in the ledger", writer.run(stop.clone()));
        }
        let teller = Teller {
            state: Arc::clone(state),
            notifiers: notifiers.clone(),
            resolver: Arc::clone(resolver),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            leadership,
        };
        parts.spawn("telling notifiers", teller.run(stop.clone()));
        if !read_only {
            let LeaderSession { leadership, identity, .. } = session;
            let announcer = EventPublisher {
                state: Arc::clone(state),
                events: Events::new(link.client.clone(), leadership.clone(), identity.clone()),
                kinds: Arc::clone(&link.kinds),
                releases: Arc::clone(&link.releases),
                objects: link.objects.clone(),
                leadership: leadership.clone(),
                metrics: metrics.clone(),
            };
            parts.spawn("telling of drifts and repairs", announcer.run(stop.clone()));
        }
        Ok(())
    }

    /// Starts to keep GuardedReleases; what the loop has seen is written after `looped`, its end.
    async fn keep_statuses(
        &self,
        link: &ClusterHandles,
        session: &LeaderSession,
        (commands, suspended, key): (mpsc::Sender<LoopOrder>, SuspendedReleases, SigningKey),
        looped: CancellationToken,
        parts: &mut Parts,
    ) {
        let Services { in_force, state, metrics, ledger, stop, .. } = self.services.clone();
        let (metrics, leadership) = (metrics.notices, session.leadership.clone());
        metrics.leads(leadership.holds());
        let (due, counts) = watch::channel(0);
        let condition = self.services.readiness.condition("statuses");
        let note = move |count: &usize| match count {
            MANY_DUE.. => condition.noted(format!(
                "{count} GuardedReleases have still to be compared, and written if they differ"
            )),
            _ => condition.met(),
        };
        parts.spawn("telling how many statuses are due", follow(counts, stop.clone(), note));
        let (seen, witnessed) = mpsc::channel(WITNESSED);
        let witness = Witness { ledger, releases: Arc::clone(&link.releases), seen: witnessed };
        parts.spawn("keeping suspensions in the ledger", witness.run(stop.clone()));
        let guarded = GuardedReleases::new(link.client.clone(), leadership.clone(), STATUS_WRITES);
        let statuses = Statuses {
            guarded: guarded.within(self.cluster.namespaces.clone()),
            kinds: Arc::clone(&link.kinds),
            releases: Arc::clone(&link.releases),
            state,
            in_force,
            commands,
            suspended,
            leadership,
            metrics,
            key,
            lease: session.place.clone(),
            settled: Arc::clone(&link.settled),
            due,
            seen,
        };
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

    /// Keeps the webhook configurations, where that is wanted.
    fn register(&self, link: &ClusterHandles, session: &LeaderSession, parts: &mut Parts) {
        let Some(registration) = self.cluster.registration.clone() else { return };
        let Services { answerer, certificates, resolver, in_force, ledger, stop, .. } = self.services.clone();
        if let Some(own) = self.cluster.own_namespace.clone() {
            let labels = self.services.readiness.condition("labels");
            let noted = note_unlabelled_namespaces(own, Arc::clone(&resolver), labels, stop.clone());
            parts.spawn("noting namespaces without their label", noted);
        }
        let client = link.client.clone();
        let registrar = Registrar {
            registration,
            callers: answerer.door.callers().clone(),
            own_namespace: self.cluster.own_namespace.clone(),
            record_driver: self.cluster.record_driver,
            certificates,
            withdrawn: session.withdrawn.clone(),
            releases: Arc::clone(&link.releases),
            resolver,
            open: link.open.clone(),
            leadership: link.leadership.clone(),
            in_force,
            ledger,
        };
        parts.spawn("the registration", registrar.run(client, stop));
    }

    /// The webhook's access to the loop when a user orders a repair.
    fn orders(&self) -> OrderDesk {
        let state = Arc::clone(&self.services.state);
        let unconfirmed = move |release: &ReleaseId| {
            let Some(report) = state.report(release) else { return Vec::new() };
            let is_missing = |object: &ObjectId| {
                report.drifted.iter().any(|it| it.kind == DriftKind::Missing && *it.object == *object)
            };
            let verb = |object: &ObjectId| if is_missing(object) { Verb::Create } else { Verb::Update };
            report.unconfirmed.iter().map(|object| (verb(object), object.clone())).collect()
        };
        OrderDesk {
            unconfirmed: Box::new(unconfirmed),
            callers: self.services.answerer.door.callers().clone(),
        }
    }

    /// The key with which this guard and its other replicas sign, once it is known. A read-only guard shares
    /// no key.
    async fn signing(&self, read_only: bool) -> anyhow::Result<SigningKey> {
        if read_only {
            return random_key().context("the loop cannot start");
        }
        Ok(self.services.answerer.door.callers().signing().await)
    }
}

/// Waits until all sources were listed, since each can turn a refusal into an allow. Meanwhile `condition` reports what is
/// missing.
async fn policies_known(listings: &mut [watch::Receiver<Progress>], condition: ReadinessCondition) {
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

/// The lead of this replica, or its candidacy.
struct LeaderSession {
    leadership: Leadership,
    /// The identity of this process, unique among all candidates.
    identity: String,
    /// Until when nothing is registered, because a person withdrew the webhooks.
    withdrawn: watch::Receiver<Option<Instant>>,
    /// The Lease that replicas share; `None` without an election.
    place: Option<LeaseReference>,
    /// The election, until this replica takes part in it.
    election: Option<Election>,
    /// Ends the election, which gives the lead up.
    resign: CancellationToken,
}

impl LeaderSession {
    /// Returns a session that knows whether there is an election. This replica is not a candidate yet.
    fn open(client: &kube::Client, cluster: &config::ClusterSettings, certificates: &Certificates) -> Self {
        let host = hostname::get().unwrap_or_default();
        let started = jiff::Timestamp::now().as_nanosecond();
        let identity = format!("{}_{}_{started:x}", host.to_string_lossy(), std::process::id());
        let resign = CancellationToken::new();
        let Some(service) = cluster.own_service.as_ref().filter(|_| !cluster.read_only) else {
            if !cluster.read_only {
                tracing::info!(
                    "no Service of its own is known (--service), so this guard looks for no other replica and acts alone"
                );
            }
            let leadership = if cluster.read_only { Leadership::never() } else { Leadership::alone() };
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

    fn seek(&mut self, parts: &mut Parts) {
        if let Some(election) = self.election.take() {
            parts.spawn("the election", election.run(self.resign.clone()));
        }
    }

    /// Waits for all parts, which were told to stop. The election is the last of them, so that the next leader
    /// meets no write of this one; it ends within its own time limits.
    async fn leave(self, parts: &mut Parts) {
        parts.all_but(1).await;
        self.resign.cancel();
        parts.all_but(0).await;
    }
}

/// The pause between attempts to reach an API server at the start.
const FIRST_RETRY: Duration = Duration::from_secs(2);

struct FirstAnswers {
    connection: ClusterConnection,
    kinds: Arc<ServedKinds>,
    own_account: Option<String>,
    /// The uid of the namespace kube-system.
    uid: Option<String>,
}

async fn meet(connection: ClusterConnection, records: &ReadinessCondition) -> FirstAnswers {
    loop {
        let met = async {
            let kinds = ServedKinds::read(connection.client.clone()).await?;
            let own_account = access::own_name(&connection.client, connection.claimed.clone()).await?;
            let uid = access::cluster_uid(&connection.client).await?;
            Ok::<_, kubemoor_cluster::client::call::ClusterError>((kinds, own_account, uid))
        };
        match met.await {
            Ok((kinds, own_account, uid)) => {
                tracing::info!(server = connection.url, account = own_account, "the API server answers");
                return FirstAnswers { connection, kinds, own_account, uid };
            }
            Err(error) => {
                records.unmet(format!("the API server does not answer: {error}"));
                tracing::warn!(
                    server = connection.url,
                    "the API server does not answer, trying again: {error}"
                );
                tokio::time::sleep(FIRST_RETRY).await;
            }
        }
    }
}

/// For how long the records may go unwatched before the guard is not ready.
const OUTAGE: Duration = Duration::from_secs(60);

const OUTAGE_LOOK: Duration = Duration::from_secs(5);

/// Says through readiness when the records go unwatched for long. The last
/// state serves meanwhile.
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

/// The guarded releases that users have suspended, once the API server answers. Without the right to read them there
/// are none.
async fn suspended(client: &kube::Client, cluster: &config::ClusterSettings) -> SuspendedReleases {
    loop {
        match guarded::suspended(client, &cluster.namespaces).await {
            Ok(suspended) => return suspended,
            Err(ClusterError::Refused { code: 401 | 403, .. }) => return SuspendedReleases::new(),
            Err(error) => {
                tracing::debug!("which releases are suspended cannot be read, trying again: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Passes the knowledge of an earlier guard to the loop. Returns whether that finished before `stop`.
async fn remember(
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

const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
mod tests;
