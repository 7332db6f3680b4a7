//! The composition root: builds everything, owns the tasks and the order of
//! shutdown.
//!
//! Entry point: [`serve`]. Invariant: the only module that knows everybody.
//! The webhook answers from the start, with an error until the
//! index is whole, so that the webhook's `failurePolicy` decides and not a
//! connection that hangs. Must not hold a rule.

mod calling;
mod certifying;
mod cluster;
mod emergency;
mod leading;
mod lifetime;
mod meeting;
mod memory;
mod metrics;
mod naming;
mod ordering;
mod parts;
mod permitting;
mod policing;
mod ports;
mod registrar;
mod signals;
mod telling;
mod transitions;
mod trusting;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use self::calling::{Calling, Judging, Keeping};
use self::certifying::Certifying;
use self::lifetime::Lifetime;
use self::metrics::Metrics;
use self::naming::Naming;
use self::parts::Parts;
use self::ports::{Ports, Serving};
use self::signals::Signals;
use kubemoor_cluster::mirror::directory;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::policies::files::Folder;
use kubemoor_declare::catalog::Catalog;
use kubemoor_guard::admin::{self, Authenticator, Condition, LedgerReader, Readiness};
use kubemoor_guard::guard::state::State;
use kubemoor_guard::webhook::look::ReleaseSource;
use kubemoor_guard::webhook::validate::Setup;
use kubemoor_helm::index::Index;
use kubemoor_ledger::Ledger;
use kubemoor_notify as notify;
use kubemoor_notify::{Notifiers, Worker};
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::config::{self, RecordDriver, Source, Tls};
use kubemoor_runtime::metrics::{ConnectionMetrics, LedgerMetrics, registry};
use kubemoor_runtime::server::{Ending, descriptors};
use kubemoor_runtime::telemetry::traces;
use kubemoor_runtime::tls::{Certificates, UserAuthority};

/// The services that the parts of the program share, built once.
#[derive(Clone)]
struct Services {
    resolver: Arc<PolicyResolver>,
    in_force: Arc<InForce>,
    /// The loop's knowledge of releases.
    state: Arc<State>,
    metrics: Metrics,
    certificates: Certificates,
    judging: Judging,
    ledger: Ledger,
    notifiers: Notifiers,
    /// Stops the guard's own work.
    stop: CancellationToken,
}

/// A program that runs.
struct Run {
    services: Services,
    worker: Option<Worker>,
    readiness: Readiness,
    /// Told the cluster, it authenticates users.
    users: Authenticator,
    /// Told the cluster's name, the ledger's writer begins.
    naming: Naming,
    parts: Parts,
    lifetime: Lifetime,
}

/// The tokens that stop the parts which outlive the guard's own work.
#[derive(Default)]
struct Stops {
    /// Answering, and health.
    serving: Ending,
    /// The ledger.
    closing: CancellationToken,
}

/// The secrets with which the webhook and its callers authenticate each other.
struct Secured<'a> {
    callers: &'a config::Callers,
    tls: &'a Tls,
    /// None where the certificate is not shared.
    certifying: Option<Certifying>,
}

/// Serves until SIGTERM or SIGINT, then finishes what is under way. A second
/// signal ends the process at once.
///
/// # Errors
/// When serving cannot start, or a part of it failed.
pub fn serve(config: config::Serve) -> anyhow::Result<()> {
    kubemoor_runtime::telemetry::init(config.log.as_str())?;
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let settings = lifetime::settings(&config);
    runtime.block_on(run(config, settings))
}

/// Serves by this configuration, whose `settings` decide what is enforced.
async fn run(config: config::Serve, settings: Vec<String>) -> anyhow::Result<()> {
    let config::Serve {
        source,
        listen,
        admin_listen,
        tls,
        callers,
        edits,
        drift,
        policies,
        cluster_labels,
        operation_timeout,
        ledger,
        notifiers,
        release_metrics,
        anonymous_metrics,
        collector,
        shutdown_delay,
        log: _,
    } = config;
    collector.as_ref().map(traces::init).transpose()?;
    let resolver = Arc::new(PolicyResolver::new(Policy::new(edits, drift, operation_timeout)));
    let in_force = InForce::new(Arc::clone(&resolver), cluster_labels);
    let folder = policies.map(|path| Folder::open(&path, &in_force)).transpose()?;
    let notifiers = notifiers.map(|path| notify::file::read(&path)).transpose()?.unwrap_or_default();
    in_force.set_notifiers(notifiers.iter().map(|notifier| notifier.name.clone()));
    let ports = Ports::bind(listen, admin_listen).await?;
    let certificates = Certificates::load(certifying::source(&tls), jiff::Timestamp::now())?;
    let (readiness, stops, authority) = (Readiness::new(), Stops::default(), UserAuthority::default());
    let users = Authenticator::new(authority.clone());
    let mut registry = registry();
    waiting::measure(&mut registry, &readiness, &certificates);
    let connections = ConnectionMetrics::register(&mut registry);
    let (state, cluster_name) = (Arc::new(State::default()), ledger.cluster_name.clone());
    let metrics = Metrics::register(&mut registry, &state, release_metrics);
    let (notifiers, worker) = Notifiers::new(notifiers, &metrics.notices);
    let (ledger, writer) = Ledger::new(ledger, LedgerMetrics::register(&mut registry))?;
    // Registered before the port opens: without any condition the guard would report ready.
    let records = readiness.condition("records");
    let certifying = Certifying::new(&tls, &certificates, &readiness, &ledger);
    let calling = Calling::open(&callers, &metrics.admission, &readiness)?;
    let judging = Judging::new(calling.door.clone());
    let books = LedgerReader::new(ledger.clone(), users.clone());
    let scrapers = (!anonymous_metrics).then(|| users.clone());
    let served = admin::Metrics { registry: Arc::new(registry), users: scrapers };
    let router = admin::router(readiness.clone(), served, books);
    let mut parts = Parts::default();
    let serving = Serving { certificates: &certificates, connections, ending: stops.serving.clone() };
    serving.admin(ports.admin, router, &authority, &mut parts)?;
    serving.webhook(ports.webhook, &calling, &judging, &mut parts)?;
    let (naming, named) = Naming::new(cluster_name);
    let written = writer.start(named, stops.closing.clone()).context("cannot start the ledger's writer")?;
    parts.spawn("the ledger's writer", written);

    let stop = CancellationToken::new();
    let lifetime = Lifetime::begin(&ledger, settings, folder.as_ref());
    let services =
        Services { resolver, in_force, state, metrics, certificates, judging, ledger, notifiers, stop };
    services.follow_files(calling, folder, &mut parts);
    let mut run = Run { services, worker: Some(worker), readiness, users, naming, parts, lifetime };
    run.begin(source, Secured { callers: &callers, tls: &tls, certifying }, &records).await?;
    let ended = run.until_told(stops, shutdown_delay).await;
    traces::finish().await;
    ended
}

impl Services {
    /// Begins to follow what comes from files: callers, certificates and policies.
    fn follow_files(&self, calling: Calling, folder: Option<Folder>, parts: &mut Parts) {
        calling.keep(parts, &self.stop);
        let (certificates, stop) = (self.certificates.clone(), self.stop.clone());
        let renewed = certifying::keep_files(self.ledger.clone());
        parts.spawn("the certificate's renewal", async move { certificates.keep(renewed, stop).await });
        if let Some(folder) = folder {
            let folder = folder.keeping(policing::keep_files(self.ledger.clone()));
            let (in_force, stop) = (Arc::clone(&self.in_force), self.stop.clone());
            parts.spawn("following the policy files", async move { folder.keep(in_force, stop).await });
        }
    }
}

impl Run {
    /// Starts to serve the releases of a source.
    async fn begin(
        &mut self,
        source: Source,
        secured: Secured<'_>,
        records: &Condition,
    ) -> anyhow::Result<()> {
        match source {
            Source::Directory(path) => self.directory(&path, records),
            Source::Cluster(cluster) => {
                let own = cluster.own_namespace.as_deref();
                let Secured { callers, tls, certifying } = secured;
                let keeping = Keeping::new(callers, own, tls, self.services.judging.door().callers().clone());
                self.cluster(cluster, keeping, certifying).await
            }
        }
    }

    /// Serves the releases of a directory.
    fn directory(&mut self, path: &std::path::Path, releases: &Condition) -> anyhow::Result<()> {
        let catalog = Catalog::with_core();
        let directory = directory::load(path, &catalog)?;
        for unreadable in &directory.unreadable {
            let unreadable = anyhow::Error::msg(unreadable.to_string());
            tracing::warn!("a release is not guarded: {unreadable:#}");
        }
        let mut index = Index::default();
        for assembled in directory.releases {
            for skipped in &assembled.skipped {
                tracing::warn!(
                    release.id = %assembled.release.id, document = skipped.index,
                    "a manifest document is no object and is not guarded: {}", skipped.reason
                );
            }
            index.set(assembled.release);
        }
        tracing::info!(releases = index.releases().count(), objects = index.objects(), "releases are loaded");
        let Services { judging, resolver, metrics, ledger, notifiers, .. } = &self.services;
        judging.begin(Setup {
            door: judging.door(),
            source: ReleaseSource::Fixed(RwLock::new(index)),
            resolver: Arc::clone(resolver),
            record_driver: RecordDriver::Secret,
            own_account: None,
            own_namespace: None,
            orders: None,
            metrics: metrics.admission.clone(),
            ledger: ledger.clone(),
            notifiers: notifiers.clone(),
        });
        self.naming.tell(|| format!("dir:{}", path.display()));
        releases.met();
        Ok(())
    }

    /// Waits for a signal, or for a part that fails; then stops in order: the
    /// guard's own work, then answering and health, then the ledger. Answering goes on
    /// for the delay, since a Service or a load balancer notices only after a moment that
    /// this replica is not ready any more.
    async fn until_told(mut self, stops: Stops, shutdown_delay: Duration) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let failed = tokio::select! {
            signal = signals.next() => {
                tracing::info!("{signal}: finishing what is under way");
                self.lifetime.end(signal);
                None
            }
            error = self.parts.ended() => {
                self.lifetime.end(&format!("{error:#}"));
                Some(error)
            }
        };
        self.readiness.condition("serving").unmet("it is shutting down");
        stops.serving.leaving.cancel();
        self.services.stop.cancel();
        let finish = async {
            if failed.is_none() {
                tokio::time::sleep(shutdown_delay).await;
            }
            stops.serving.stop.cancel();
            // Parts that still work may record.
            self.parts.all_but(1).await;
            stops.closing.cancel();
            self.parts.all_but(0).await;
        };
        tokio::select! {
            () = finish => {}
            signal = signals.next() => anyhow::bail!("{signal} again: ended at once"),
        }
        failed.map_or(Ok(()), Err)
    }
}
