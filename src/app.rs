//! The composition root: builds everything, supervises every long-running part and owns the order of shutdown.
//!
//! The webhook answers from the start. Until the index is complete it answers with an error, so that `failurePolicy`
//! applies instead of a timeout. If a part ends before the shutdown, the process ends; no part is restarted.

mod cluster;
mod history;
mod registrar;
pub(crate) mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use http::{Request, Response};
use hyper::body::Incoming;
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::cluster::ClusterWork;
use self::settings::Settings;
use kubemoor_cluster::mirror::directory;
use kubemoor_cluster::mirror::policies::ActivePolicies;
use kubemoor_cluster::mirror::policy_files::PolicyDirectory;
use kubemoor_declare::catalog::Catalog;
use kubemoor_guard::admin::{self, Authenticator, LedgerApi, Readiness, ReadinessCondition};
use kubemoor_guard::guard::state::LoopState;
use kubemoor_guard::webhook::intake::{self, BodyLimits, CallerGate, Intake};
use kubemoor_guard::webhook::look::ReleaseSource;
use kubemoor_guard::webhook::registration::shared_secrets::Renewal;
use kubemoor_guard::webhook::review;
use kubemoor_guard::webhook::validate::{Validator, ValidatorContext};
use kubemoor_helm::index::Index;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::Act;
use kubemoor_notify::{self as notify, Notifiers};
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::callers::{CallerSecrets, follow_tokens, read_tokens};
use kubemoor_runtime::config::CallerProof;
use kubemoor_runtime::metrics::{
    self, AdmissionMetrics, ConnectionMetrics, EmergencyMetrics, GuardMetrics, LedgerMetrics, NoticeMetrics,
    Port, RecordMetrics, ServingState, registry,
};
use kubemoor_runtime::server::{self, Limits, Peer, ServerShutdown, TlsPort, raise_descriptor_limit};
use kubemoor_runtime::telemetry::traces;
use kubemoor_runtime::tls::{Certificates, ClientAuthority, UserAuthority};

/// The services that the parts of the program share, built once.
#[derive(Clone)]
struct Services {
    settings: Arc<Settings>,
    in_force: Arc<ActivePolicies>,
    /// What the reconcile loop knows about releases.
    state: Arc<LoopState>,
    metrics: PartMetrics,
    certificates: Certificates,
    answerer: ReviewAnswerer,
    ledger: LedgerHandle,
    notifiers: Notifiers,
    readiness: Readiness,
    /// Stops everything except the two ports and the ledger.
    stop: CancellationToken,
}

/// Serves until SIGTERM or SIGINT, then shuts down gracefully. A second signal ends the process at once.
pub(crate) fn serve(settings: Settings) -> anyhow::Result<()> {
    settings.check()?;
    kubemoor_runtime::telemetry::init(settings.log.as_str())?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(run(settings))
}

async fn run(settings: Settings) -> anyhow::Result<()> {
    settings.otlp_endpoint.as_ref().map(traces::init).transpose()?;
    let defaults = Policy::new(settings.edits, settings.drift, settings.operation_timeout);
    let in_force = ActivePolicies::new(Arc::new(PolicyResolver::new(defaults)), settings.cluster_labels());
    let folder =
        settings.policies.as_deref().map(|path| PolicyDirectory::open(path, &in_force)).transpose()?;
    let notifiers = settings.notifiers.as_deref().map(notify::file::read).transpose()?.unwrap_or_default();
    in_force.set_notifiers(notifiers.iter().map(|notifier| notifier.name.clone()));
    // Fail on a port that is in use before anything is served.
    let webhook_listener = bind(settings.listen, "--listen").await?;
    let admin_listener = bind(settings.admin_listen, "--admin-listen").await?;
    let source = settings.certificate();
    let certificates = Certificates::load(source.clone(), Timestamp::now())?;
    let (readiness, authority) = (Readiness::default(), UserAuthority::default());
    // The parts that stop last: the two ports, then the ledger.
    let (serving, closing) = (ServerShutdown::default(), CancellationToken::new());
    let users = Authenticator::new(authority.clone());
    let mut registry = registry();
    let (ready, served) = (readiness.clone(), certificates.clone());
    metrics::register_serving(&mut registry, move || ServingState {
        is_ready: ready.is_ready(),
        validity: served.validity().ok().filter(|_| !served.has_placeholder()),
    });
    let connections = ConnectionMetrics::register(&mut registry);
    let state = Arc::new(LoopState::default());
    let metrics = PartMetrics::register(&mut registry, &state, !settings.no_release_metrics);
    let (notifiers, worker) = Notifiers::new(notifiers, &metrics.notices);
    let (ledger, writer) = LedgerHandle::new(settings.ledger(), LedgerMetrics::register(&mut registry))?;
    // Registered before the port opens: without any condition the guard would report ready.
    let records = readiness.condition("records");
    let renewal = Renewal::new(&certificates, &source, &readiness, &ledger);
    let door = build_caller_gate(&settings.caller_proof(), &metrics.admission, &readiness)?;
    let answerer = ReviewAnswerer { caller_gate: door, validator: Arc::default() };
    let api_server = settings.client_ca.as_deref().map(ClientAuthority::load).transpose()?;
    let ledger_reader = LedgerApi::new(ledger.clone(), users.clone());
    let scrapers = (!settings.anonymous_metrics).then(|| users.clone());
    let scraped = admin::MetricsApi { registry: Arc::new(registry), users: scrapers };
    let router = admin::router(readiness.clone(), scraped, ledger_reader);

    let mut parts = SupervisedTasks::default();
    let (tls, listened) = (certificates.server_config_asking(&authority)?, connections.for_port(Port::Admin));
    let port = TlsPort { listener: admin_listener, tls, metrics: listened };
    parts.spawn("serving health and metrics", admin::serve(port, router, serving.clone()));
    let tls = match &api_server {
        Some(authority) => certificates.server_config_for(authority)?,
        None => certificates.server_config()?,
    };
    let port = TlsPort { listener: webhook_listener, tls, metrics: connections };
    let asked = answerer.clone();
    let answer = move |peer: Peer, request| asked.clone().answer(peer.address, request);
    parts.spawn("the webhook", server::serve(port, answer, Limits::default(), serving.clone()));
    // The ledger's writer starts when it receives the cluster's name on this channel.
    let (naming, named) = oneshot::channel();
    let naming = match &settings.cluster_name {
        Some(name) => {
            let _ = naming.send(name.clone());
            None
        }
        None => Some(naming),
    };
    let written = writer.start(named, closing.clone()).context("cannot start the ledger's writer")?;
    parts.spawn("the ledger's writer", written);

    let stop = CancellationToken::new();
    history::record_start(&ledger, &settings, folder.as_ref());
    let services = Services {
        settings: Arc::new(settings),
        in_force,
        state,
        metrics,
        certificates,
        answerer,
        ledger,
        notifiers,
        readiness,
        stop,
    };
    services.follow_files(folder, &mut parts);
    match &services.settings.store {
        Some(path) => services.serve_directory(path, &records, naming)?,
        None => {
            let work = ClusterWork {
                services: services.clone(),
                renewal,
                worker: Some(worker),
                cluster_name_sender: naming,
            };
            work.begin(&users, &mut parts).await?;
        }
    }
    let ended = services.run_until_shutdown(parts, serving, closing).await;
    traces::finish().await;
    ended
}

impl Services {
    /// The webhook's setup for the releases of `source`, without the account and the namespace of a guard in a cluster.
    fn setup(&self, source: ReleaseSource) -> ValidatorContext {
        ValidatorContext {
            caller_gate: self.answerer.caller_gate.clone(),
            source,
            resolver: Arc::clone(self.in_force.resolver()),
            record_driver: self.settings.record_driver(),
            own_account: None,
            own_namespace: None,
            metrics: self.metrics.admission.clone(),
            ledger: self.ledger.clone(),
            notifiers: self.notifiers.clone(),
        }
    }

    /// Starts watching the files with caller tokens, certificates and policies.
    fn follow_files(&self, folder: Option<PolicyDirectory>, parts: &mut SupervisedTasks) {
        if let Some(file) = self.settings.caller_token_file.clone() {
            let kept = follow_tokens(file, self.answerer.caller_gate.callers().clone(), self.stop.clone());
            parts.spawn("following the caller token file", kept);
        }
        let (certificates, stop) = (self.certificates.clone(), self.stop.clone());
        let ledger = self.ledger.clone();
        let renewed = move |until: Timestamp| {
            history::record(&ledger, Act::RenewCertificate, format!("from files: valid until {until}"));
        };
        parts.spawn("the certificate's renewal", async move { certificates.keep(renewed, stop).await });
        if let Some(folder) = folder {
            let folder = folder.keeping(history::record_policy_files(self.ledger.clone()));
            let (in_force, stop) = (Arc::clone(&self.in_force), self.stop.clone());
            parts.spawn("following the policy files", async move { folder.keep(in_force, stop).await });
        }
    }

    fn serve_directory(
        &self,
        path: &Path,
        releases: &ReadinessCondition,
        naming: Option<oneshot::Sender<String>>,
    ) -> anyhow::Result<()> {
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
                    "manifest document is not an object and is not guarded: {}", skipped.reason
                );
            }
            index.set(assembled.release);
        }
        tracing::info!(releases = index.releases().count(), objects = index.objects(), "releases are loaded");
        let source = ReleaseSource::Fixed(RwLock::new(index));
        self.answerer.start_judging(self.setup(source));
        if let Some(naming) = naming {
            let _ = naming.send(format!("dir:{}", path.display()));
        }
        releases.met();
        Ok(())
    }

    /// Waits for a signal or the end of a part, then stops in order: the guard's own work, the two ports, the ledger.
    /// After a signal the ports keep answering for the shutdown delay, because a Service or load balancer takes a
    /// moment to notice that this replica is not ready.
    async fn run_until_shutdown(
        self,
        mut parts: SupervisedTasks,
        serving: ServerShutdown,
        closing: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let failed = tokio::select! {
            signal = signals.next() => {
                tracing::info!("{signal}: shutting down after the work in progress");
                history::record(&self.ledger, Act::Stop, signal.to_owned());
                None
            }
            error = parts.wait_for_failure() => {
                history::record(&self.ledger, Act::Stop, format!("{error:#}"));
                Some(error)
            }
        };
        self.readiness.condition("serving").unmet("it is shutting down");
        serving.leaving.cancel();
        self.stop.cancel();
        let finish = async {
            if failed.is_none() {
                tokio::time::sleep(self.settings.shutdown_delay()).await;
            }
            serving.stop.cancel();
            // Parts that are still running may write to the ledger.
            parts.join_until_left(1).await;
            closing.cancel();
            parts.join_until_left(0).await;
        };
        tokio::select! {
            () = finish => {}
            signal = signals.next() => anyhow::bail!("second {signal}: exiting at once"),
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Answers admission reviews, with an error until it has a [`Validator`].
#[derive(Clone)]
struct ReviewAnswerer {
    caller_gate: CallerGate,
    validator: Arc<OnceLock<Validator>>,
}

impl ReviewAnswerer {
    /// Starts judging reviews. Only the first call has an effect.
    fn start_judging(&self, setup: ValidatorContext) {
        let _ = self.validator.set(Validator::new(Intake::new(BodyLimits::default()), setup));
    }

    async fn answer(self, peer: IpAddr, request: Request<Incoming>) -> Response<review::Body> {
        match self.validator.get() {
            Some(validator) => validator.answer(peer, request).await,
            None if self.caller_gate.stage(request.uri().path()).is_none() => review::nothing(),
            None => review::failed("the guard does not know all releases yet; try again in a moment"),
        }
    }
}

/// Creates the webhook's gate and registers its readiness condition: without any condition the guard would report
/// ready.
fn build_caller_gate(
    proof: &CallerProof,
    metrics: &AdmissionMetrics,
    readiness: &Readiness,
) -> anyhow::Result<CallerGate> {
    let (callers, known) = (CallerSecrets::default(), readiness.condition("callers"));
    let shown = match proof {
        CallerProof::Certificate => intake::ApiServerProof::Certificate,
        CallerProof::File(_) | CallerProof::Kept { .. } => intake::ApiServerProof::Token,
    };
    if let CallerProof::File(path) = proof {
        let (registered, other) = read_tokens(path)?;
        callers.accept(registered, other);
    }
    match proof {
        CallerProof::Kept { .. } => known.unmet("the token of callers is not available yet"),
        CallerProof::Certificate | CallerProof::File(_) => known.met(),
    }
    Ok(CallerGate::new(shown, callers, metrics.clone()))
}

/// Calls `act` with the current value and with each later one, until `stop`.
async fn for_each_value<T>(mut values: watch::Receiver<T>, stop: CancellationToken, mut act: impl FnMut(&T)) {
    loop {
        act(&values.borrow_and_update());
        tokio::select! {
            () = stop.cancelled() => return,
            changed = values.changed() => if changed.is_err() {
                return stop.cancelled().await;
            },
        }
    }
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    let cannot = || format!("cannot listen on {address}; choose another address with {flag}");
    TcpListener::bind(address).await.with_context(cannot)
}

/// Why the start of parts was aborted.
enum Halt {
    Stopped,
    Failed(anyhow::Error),
}

#[derive(Default)]
pub(super) struct SupervisedTasks(JoinSet<(&'static str, anyhow::Result<()>)>);

impl SupervisedTasks {
    pub(super) fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.try_spawn(name, async move {
            part.await;
            Ok(())
        });
    }

    fn try_spawn(
        &mut self,
        name: &'static str,
        part: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.0.spawn(async move { (name, part.await) });
    }

    /// Waits until a part ends, and returns the error that explains why the process must stop.
    pub(super) async fn wait_for_failure(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(ended) => part_error(ended),
            None => std::future::pending().await,
        }
    }

    /// Awaits `wait`, unless the program stops or a part ends first.
    async fn wait_or_halt<T>(
        &mut self,
        stop: &CancellationToken,
        wait: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        tokio::select! {
            () = stop.cancelled() => Err(Halt::Stopped),
            error = self.wait_for_failure() => Err(Halt::Failed(error)),
            value = wait => Ok(value),
        }
    }

    /// Waits until at most `left` parts are running.
    async fn join_until_left(&mut self, left: usize) {
        while self.0.len() > left && self.0.join_next().await.is_some() {}
    }
}

fn part_error(ended: Result<(&'static str, anyhow::Result<()>), JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow::anyhow!("{name} ended unexpectedly; the log says why"),
        Ok((name, Err(error))) => error.context(format!("{name} failed")),
        Err(error) => anyhow::Error::new(error).context("a part of the program failed"),
    }
}

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts listening for both signals.
    pub(super) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[derive(Clone)]
struct PartMetrics {
    admission: AdmissionMetrics,
    records: RecordMetrics,
    guard: GuardMetrics,
    emergency: EmergencyMetrics,
    notices: NoticeMetrics,
    /// The index of releases, which some metrics count by state.
    index: Arc<RwLock<Index>>,
}

impl PartMetrics {
    /// Registers all metrics; with `of_releases` also those that have a series for each release.
    fn register(registry: &mut Registry, state: &Arc<LoopState>, of_releases: bool) -> Self {
        let index = Arc::new(RwLock::new(Index::within(declaration_cache_budget())));
        let (counted, reports) = (Arc::clone(&index), Arc::clone(state));
        let cache = Arc::clone(index.read().cache());
        metrics::register_declarations(registry, move || [cache.asked(), cache.read()]);
        let metrics = Self {
            admission: AdmissionMetrics::register(registry),
            records: RecordMetrics::register(registry, move || states(&counted.read())),
            guard: GuardMetrics::register(registry),
            emergency: EmergencyMetrics::register(registry),
            notices: NoticeMetrics::register(registry),
            index,
        };
        metrics::register_releases(registry, of_releases, move || reports.standings());
        metrics
    }
}

/// Counts the releases in each state.
fn states(index: &Index) -> Vec<(&'static str, u64)> {
    let mut counts = BTreeMap::new();
    for release in index.releases() {
        let state = match &release.invalid {
            Some(_) => "record-invalid",
            None => release.state.status.as_str(),
        };
        *counts.entry(state).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// The files that hold the container's memory limit, for cgroups of version 2 and 1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// More memory than any machine has: cgroups v1 reports a higher number if there is no limit.
const NO_LIMIT: usize = 1 << 50;

/// The memory budget for declared fields in bytes; `None` where the container has no limit.
fn declaration_cache_budget() -> Option<usize> {
    let texts = LIMITS.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.into_iter().find_map(|text| half(&text))
}

fn half(limit: &str) -> Option<usize> {
    limit.trim().parse().ok().filter(|limit| *limit < NO_LIMIT).map(|limit: usize| limit / 2)
}

#[cfg(test)]
mod tests;
