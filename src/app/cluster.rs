//! Serving a cluster: connects, follows the records, then judges, registers and repairs.
//!
//! Invariant: what needs the index starts once it is whole. An API server that
//! does not answer at the start is said and waited for.

mod histories;
mod missed;
mod scaling;

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::emergency::{keep, obey};
use super::leading::LeaderSession;
use super::meeting::{Met, meet};
use super::parts::{Halt, Parts};
use super::policing::{Policing, PolicySources};
use super::registrar::{Registrar, note_unlabelled_namespaces};
use super::telling::{self, Telling};
use super::waiting::{meet_once, report};
use super::{Naming, Run, Services, trusting};
use kubemoor_cluster::client::connection::{self, Connection};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::client::user_authority;
use kubemoor_cluster::mirror::arbiter::Arbiter;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::releases::{RecordSource, Releases};
use kubemoor_guard::admin::Condition;
use kubemoor_guard::guard::Guard;
use kubemoor_guard::guard::orders;
use kubemoor_guard::webhook::look::{Live, ReleaseSource};
use kubemoor_guard::webhook::registration::emergency;
use kubemoor_guard::webhook::registration::shared_secrets::{Renewal, Rotation};
use kubemoor_guard::webhook::validate::Setup;
use kubemoor_notify::Worker;
use kubemoor_policy::settled::SettledValues;
use kubemoor_policy::signing::SigningKey;
use kubemoor_policy::suspension::Suspended;
use kubemoor_runtime::config;

/// Writes of the guard's own, per second.
const WRITES: NonZeroU32 = at_least_one(50);

/// Dry runs of the arbiter, per second.
const DRY_RUNS: NonZeroU32 = at_least_one(10);

/// Commands to the loop that wait at most; a sender of more waits.
const COMMANDS: usize = 1024;

/// The parts that follow a cluster.
pub(super) struct Work {
    pub(super) services: Services,
    cluster: config::Cluster,
    rotation: Rotation,
    /// None where the certificate is not shared.
    renewal: Option<Renewal>,
    worker: Option<Worker>,
    conditions: Conditions,
    naming: Naming,
}

/// The readiness conditions of a cluster.
struct Conditions {
    records: Condition,
    policies: Condition,
    switch: Condition,
    /// Not waited for: it says that deletions may go unnoticed.
    loop_listed: Condition,
    /// Not waited for: it says which namespaces lack a label.
    labels: Condition,
    /// Not waited for: it says how many statuses have still to be compared.
    statuses: Condition,
}

/// The handles that the parts share once a cluster answers.
struct Link {
    client: kube::Client,
    uid: Option<String>,
    kinds: Arc<Kinds>,
    releases: Arc<Releases>,
    objects: Objects,
    /// None where no dry run may be made.
    arbiter: Option<Arc<Arbiter>>,
    leadership: Leadership,
    policing: Policing,
    /// The results of dry runs.
    settled: Arc<SettledValues>,
    /// Whether the emergency switch is off; `None` until that is known.
    open: watch::Receiver<Option<bool>>,
}

impl Run {
    /// Serves a cluster's releases.
    pub(super) async fn cluster(
        &mut self,
        cluster: config::Cluster,
        rotation: Rotation,
        renewal: Option<Renewal>,
    ) -> anyhow::Result<()> {
        // Only the kubeconfig can be wrong here; the rest waits for the API server.
        let connection = connection::connect(cluster.kubeconfig.as_deref()).await?;
        let users = self.users.trust(connection.client.clone());
        let followed =
            user_authority::follow(connection.client.clone(), users, self.services.stop.child_token());
        self.parts.spawn("following the authorities of users", followed);
        let [records, policies, switch, loop_listed, labels, statuses] =
            ["records", "policies", "emergency", "loop", "labels", "statuses"]
                .map(|name| self.readiness.condition(name));
        records.unmet("the API server has not answered yet");
        policies.unmet("the API server has not answered yet");
        // The webhook judges without the loop, and a replica that does not answer leaves edits unjudged.
        loop_listed.noted("the declared objects have not all been listed yet");
        // Nobody waits for them.
        statuses.met();
        labels.met();
        // All parts that follow the cluster stop together.
        let stop = self.services.stop.child_token();
        let work = Work {
            services: Services { stop, ..self.services.clone() },
            cluster,
            rotation,
            renewal,
            worker: self.worker.take(),
            conditions: Conditions { records, policies, switch, loop_listed, labels, statuses },
            naming: self.naming.take(),
        };
        self.parts.try_spawn("following the cluster", work.run(connection));
        Ok(())
    }
}

impl Work {
    async fn run(mut self, connection: Connection) -> anyhow::Result<()> {
        let stop = self.services.stop.clone();
        let met = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            met = meet(connection, &self.conditions.records) => met,
        };
        let mut parts = Parts::default();
        let named = self.naming.take().find(met.connection.clone(), met.uid.clone(), stop.clone());
        parts.spawn("naming the cluster in the ledger", named);
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

    /// Starts each part as soon as what it needs is known.
    async fn start(&mut self, met: Met, session: &mut LeaderSession, parts: &mut Parts) -> Result<(), Halt> {
        let stop = self.services.stop.clone();
        let own_account = met.own_account.clone();
        let mut link = self.link(met, session, parts);
        let mut health = link.releases.health();
        // Policies say which records speak for which releases, and a release
        // that is not there loses its GuardedRelease.
        parts.meanwhile(&stop, link.policing.known(&self.conditions.policies)).await?;
        let (releases, in_force) = (Arc::clone(&link.releases), Arc::clone(&self.services.in_force));
        parts.spawn("trusting records", trusting::run(Arc::clone(&releases), in_force, stop.clone()));
        releases.trust(self.services.resolver.policies().storage());
        parts.spawn("following the records", Arc::clone(&releases).run(stop.clone()));
        self.conditions.records.unmet("the records of all releases are still being read");
        drop(parts.meanwhile(&stop, health.wait_for(|health| health.indexed)).await?);
        // Nothing is denied or repaired before it is known whether it may be.
        let mut switch_known = link.open.clone();
        drop(parts.meanwhile(&stop, switch_known.wait_for(Option::is_some)).await?);
        self.judge(&link, own_account);
        self.conditions.records.met();
        link.policing.autoscalers.claim(releases.index());
        session.seek(parts);
        self.keep_histories(&link, parts);
        // Nor is anything repaired that a person has suspended.
        let suspended = parts.meanwhile(&stop, telling::suspended(&link.client, &self.cluster)).await?;
        let key = parts.meanwhile(&stop, self.signing(self.cluster.read_only)).await?;
        let key = key.map_err(Halt::Failed)?;
        self.repair(&link, session, (suspended, key), parts).await?;
        self.register(&link, session, parts);
        let records = self.conditions.records.clone();
        parts.spawn("watching over the records", report(health, records, stop.clone()));
        Ok(())
    }

    /// Begins to follow what all else needs.
    fn link(&self, met: Met, session: &LeaderSession, parts: &mut Parts) -> Link {
        let Self { services, cluster, .. } = self;
        let Met { connection: Connection { client, .. }, kinds, uid, .. } = met;
        let (stop, in_force) = (&services.stop, &services.in_force);
        let releases = Releases::new(
            client.clone(),
            RecordSource { driver: cluster.record_driver, namespaces: cluster.namespaces.clone() },
            Arc::clone(&kinds),
            Arc::clone(&services.metrics.index),
            services.metrics.records.clone(),
        );
        let (served, stopped) = (Arc::clone(&kinds), stop.clone());
        parts.spawn("following the kinds", async move { served.run(stopped).await });
        let (opened, open) = watch::channel(None);
        let keep = keep(services.ledger.clone(), services.notifiers.clone());
        let switch = emergency::follow(client.clone(), opened, keep, stop.clone());
        parts.spawn("following the emergency switch", switch);
        let obeyed = obey(
            open.clone(),
            Arc::clone(in_force),
            self.conditions.switch.clone(),
            services.metrics.emergency.clone(),
            stop.clone(),
        );
        parts.spawn("obeying the emergency switch", obeyed);
        let leadership = session.leadership.clone();
        let kept = self.rotation.clone().run(client.clone(), leadership.clone(), open.clone(), stop.clone());
        parts.spawn("keeping the callers' secret", kept);
        if let Some(renewal) = self.renewal.clone() {
            let kept = renewal.run(client.clone(), leadership.clone(), stop.clone());
            parts.spawn("keeping the certificate", kept);
        }
        let sources = PolicySources {
            client: &client,
            kinds: &kinds,
            releases: &releases,
            in_force,
            namespaces: &cluster.namespaces,
            leadership: (!cluster.read_only).then_some(&leadership),
            ledger: &self.services.ledger,
        };
        let policing = sources.follow(parts, stop);
        let objects = Objects::new(client.clone(), WRITES).led(leadership.clone());
        let arbiter = (!cluster.read_only)
            .then(|| Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS))
            .map(Arc::new);
        let settled = Arc::default();
        Link { client, uid, kinds, releases, objects, arbiter, leadership, policing, settled, open }
    }

    /// Starts to judge reviews.
    fn judge(&self, link: &Link, own_account: Option<String>) {
        let Services { judging, resolver, metrics, ledger, notifiers, .. } = &self.services;
        let Link { releases, policing, .. } = link;
        let live = Live {
            releases: Arc::clone(releases),
            arbiter: link.arbiter.clone(),
            objects: link.objects.clone(),
            kinds: Arc::clone(&link.kinds),
            allowances: Arc::clone(&policing.allowances),
            autoscalers: Arc::clone(&policing.autoscalers),
            settled: Arc::clone(&link.settled),
            client: link.client.clone(),
        };
        judging.begin(Setup {
            door: judging.door(),
            source: ReleaseSource::Cluster(Box::new(live)),
            resolver: Arc::clone(resolver),
            record_driver: self.cluster.record_driver,
            own_account,
            own_namespace: self.cluster.own_namespace.clone(),
            orders: Some(self.orders()),
            metrics: metrics.admission.clone(),
            ledger: ledger.clone(),
            notifiers: notifiers.clone(),
        });
    }

    /// Starts the loop and the parts that report on it.
    async fn repair(
        &mut self,
        link: &Link,
        session: &LeaderSession,
        (suspended, key): (Suspended, SigningKey),
        parts: &mut Parts,
    ) -> Result<(), Halt> {
        let Services { resolver, in_force, state, metrics, certificates, ledger, notifiers, stop, .. } =
            self.services.clone();
        let Link { releases, kinds, objects, policing, .. } = link;
        let (listed, is_listed) = watch::channel(false);
        let condition = self.conditions.loop_listed.clone();
        parts.spawn("waiting for the loop", meet_once(is_listed, condition, stop.clone()));
        let (commands, wishes) = mpsc::channel(COMMANDS);
        let telling = Telling {
            client: link.client.clone(),
            uid: link.uid.clone(),
            kinds: Arc::clone(kinds),
            releases: Arc::clone(releases),
            objects: objects.clone(),
            state: Arc::clone(&state),
            in_force: Arc::clone(&in_force),
            commands,
            suspended: suspended.clone(),
            notifiers,
            worker: self.worker.take(),
            metrics: metrics.notices.clone(),
            key: key.clone(),
            settled: Arc::clone(&link.settled),
            condition: self.conditions.statuses.clone(),
            ledger: ledger.clone(),
            certificates,
        };
        // Told once the loop has ended, or will not begin.
        let looped = CancellationToken::new();
        let ended = looped.clone().drop_guard();
        let told = telling.start(&self.cluster, session, parts, (&stop, looped)).await;
        told.context("nobody would be told of drifts and repairs").map_err(Halt::Failed)?;
        let read_only = self.cluster.read_only;
        let leading = if read_only { Leadership::alone().watch() } else { link.leadership.watch() };
        let guard = Guard {
            releases: Arc::clone(releases),
            kinds: Arc::clone(kinds),
            objects: objects.clone(),
            arbiter: link.arbiter.clone(),
            allowances: Arc::clone(&policing.allowances),
            autoscalers: Arc::clone(&policing.autoscalers),
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
        let orders = orders::Orders { leading, commands: wishes, suspended };
        parts.try_spawn("the loop", async move {
            let outcome = guard.run(orders, stop).await;
            drop(ended);
            Ok(outcome?)
        });
        Ok(())
    }

    /// Keeps the webhook configurations, where that is wanted.
    fn register(&self, link: &Link, session: &LeaderSession, parts: &mut Parts) {
        let Some(registration) = self.cluster.registration.clone() else { return };
        let Services { judging, certificates, resolver, in_force, ledger, stop, .. } = self.services.clone();
        if let Some(own) = self.cluster.own_namespace.clone() {
            let labels = self.conditions.labels.clone();
            let noted = note_unlabelled_namespaces(own, Arc::clone(&resolver), labels, stop.clone());
            parts.spawn("noting namespaces without their label", noted);
        }
        let client = link.client.clone();
        let registrar = Registrar {
            registration,
            callers: judging.door().callers().clone(),
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
}

const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
