//! The running loop: turns changes in the cluster into events of the `Reconciler`, and carries out
//! the actions that it requests.
//!
//! [`DriftGuard::run`] is one task that owns the loop's state and processes one event after the other; no other task decides
//! anything, and only writes that the loop requests are made. One task per declared kind watches its objects and does
//! not cache them; each call of the API server runs in a task that always returns an outcome. `publish` logs, counts
//! and records, [`state`] holds the reports.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::LiveCluster;
use kubemoor_cluster::client::call::{ClusterError, RefusalKind};
use kubemoor_cluster::client::objects::{LiveObjectWatch, ObjectTarget};
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_cluster::client::watch::ObjectEvent as WatchEvent;
use kubemoor_cluster::mirror::arbiter::DryRunQuestion;
use kubemoor_cluster::mirror::autoscalers::is_autoscaler;
use kubemoor_cluster::mirror::policies::ActivePolicies;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_cluster::mirror::{ChangeQueue, until};
use kubemoor_declare::model::{Gvk, MANAGED_BY, ObjectId, ReleaseId};
use kubemoor_helm::index::DeclaredResource;
use kubemoor_helm::release::{DeclaredObject, ObjectDeclarations};
use kubemoor_ledger::LedgerHandle;
use kubemoor_policy::guarded::SuspendedReleases;
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::event::{
    ApiWork, Fault, GovernedRelease, LoopAction, LoopEvent, LoopOrder, ObjectWatchEvent, Secret,
    WatchedContext, WorkFailure, WorkId, WorkOutcome, Write,
};
use kubemoor_reconcile::machine::{LoopSettings, Reconciler};
use kubemoor_reconcile::scopes::WatchScope;
use kubemoor_runtime::metrics::GuardMetrics;
use kubemoor_verdict::edit::ObjectContext;

pub mod announce;
pub mod fleet;
pub mod notices;
mod publish;
pub mod state;
pub mod status;

/// The capacity of the queue of [`LoopInput`]; if it is full, senders wait.
const NEWS: usize = 16;

/// How long a stopping loop still processes watch events. Helm may just have written what it declares, and this guard
/// may be the only one that can remember it.
const LAST_NEWS: Duration = Duration::from_millis(200);

/// The longest sleep of the loop: its timers follow the wall clock, which may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

pub struct DriftGuard {
    pub cluster: Arc<LiveCluster>,
    pub in_force: Arc<ActivePolicies>,
    /// Whether drift is only reported, and nothing is written.
    pub read_only: bool,
    pub metrics: GuardMetrics,
    pub ledger: LedgerHandle,
    /// Set when everything that was declared at the start has been listed, or could not be: objects
    /// that go missing later were seen alive.
    pub listed: channel::Sender<bool>,
    /// The key that signs agreements, the same for all replicas and after a restart.
    pub key: SigningKey,
}

struct GuardLoop {
    guard: Arc<DriftGuard>,
    machine: Reconciler,
    fed: ForwardedState,
    news: mpsc::Sender<LoopInput>,
    watches: HashMap<WatchScope, CancellationToken>,
    /// Counts the requests to all watches to list again.
    relists: channel::Sender<u64>,
    timer: Option<Instant>,
    /// The time at which the watches are adapted to the declared kinds.
    follow_at: Option<Instant>,
    tasks: JoinSet<()>,
    unwatch: CancellationToken,
}

enum LoopInput {
    Watch(WatchScope, ObjectWatchEvent),
    Outcome(WorkId, WorkOutcome),
    /// A release's records were read, and the index is up to date.
    Records(WorkId, ReleaseId),
}

impl DriftGuard {
    /// Runs until `stop`; then finishes the repairs under way. A replica that is not `leading` still watches and judges, so
    /// that a hand-over is instant, but writes nothing and reports nothing as repaired. Repairs of the `suspended` releases
    /// begin once an order resumes them.
    ///
    /// # Errors
    /// A watch task panicked: the loop would no longer see its objects.
    pub async fn run(
        self,
        mut leading: channel::Receiver<bool>,
        mut orders: mpsc::Receiver<LoopOrder>,
        suspended: SuspendedReleases,
        stop: CancellationToken,
    ) -> Result<(), JoinError> {
        let LiveCluster { releases, allowances, autoscalers, .. } = &*self.cluster;
        let (changes, allowed, scaled) = (releases.changes(), allowances.changes(), autoscalers.changes());
        let mut policies = self.in_force.changes();
        let (news, mut told) = mpsc::channel(NEWS);
        let settings = LoopSettings {
            key: self.key.clone(),
            read_only: self.read_only,
            dry_runs: self.cluster.arbiter.is_some(),
        };
        let mut shell = GuardLoop {
            machine: Reconciler::new(settings, suspended),
            fed: ForwardedState::default(),
            news,
            watches: HashMap::new(),
            relists: channel::Sender::default(),
            timer: None,
            follow_at: Some(Instant::now()),
            tasks: JoinSet::new(),
            unwatch: CancellationToken::new(),
            guard: Arc::new(self),
        };
        shell.apply_policies();
        shell.handle(LoopEvent::Leads(*leading.borrow_and_update()));
        let broken = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break None,
                error = wait_for_panic(&mut shell.tasks) => break Some(error),
                // First, because the remembered state decides about repairs.
                Some(order) = orders.recv() => shell.handle_order(order),
                // The surroundings of an object must be known before the object is judged.
                release = changes.next() => shell.on_release_change(release),
                object = allowed.next() => shell.on_surroundings_change(&object),
                object = scaled.next() => shell.on_surroundings_change(&object),
                Ok(()) = policies.changed() => shell.apply_policies(),
                Ok(()) = leading.changed() => shell.handle(LoopEvent::Leads(*leading.borrow_and_update())),
                () = until(shell.follow_at) => {
                    shell.follow_at = None;
                    shell.update_watch_scopes();
                }
                () = until(shell.timer) => {
                    shell.timer = None;
                    shell.handle(LoopEvent::Due);
                }
                Some(news) = told.recv() => shell.on_news(news),
            }
        };
        let finished = shell.finish(told, &changes).await;
        broken.map_or(finished, Err)
    }
}

impl GuardLoop {
    fn handle(&mut self, event: LoopEvent) {
        for action in self.machine.handle(event, Timestamp::now()) {
            match action {
                LoopAction::Watch(scope) => self.watch(scope),
                LoopAction::Unwatch(scope) => {
                    if let Some(stop) = self.watches.remove(&scope) {
                        stop.cancel();
                    }
                }
                LoopAction::Relist => self.relists.send_modify(|count| *count += 1),
                LoopAction::Do(errand, release, work) => {
                    let (guard, news) = (Arc::clone(&self.guard), self.news.clone());
                    let done = tokio::spawn(async move { carry_out(&guard, errand, &release, work).await });
                    self.tasks.spawn(async move {
                        // The release waits for an answer, even if the task panics.
                        let told = done.await.unwrap_or_else(|error| {
                            let failure = WorkFailure::unanswered(&format!("the task failed: {error}"));
                            LoopInput::Outcome(errand, WorkOutcome::Failed(failure))
                        });
                        // There is no receiver after the loop has stopped.
                        drop(news.send(told).await);
                    });
                }
                LoopAction::SetTimer(at) => {
                    self.timer = at.and_then(|at| {
                        let left = at.duration_since(Timestamp::now());
                        Instant::now()
                            .checked_add(Duration::try_from(left).unwrap_or_default().min(LONGEST_SLEEP))
                    });
                }
                LoopAction::AllListed => drop(self.guard.listed.send_replace(true)),
                LoopAction::Report(report) => publish::report(&self.guard, *report),
                LoopAction::Withdraw(release) => self.guard.cluster.state.withdraw(&release),
                LoopAction::Tell(told) => publish::publish(&self.guard, told),
                LoopAction::InheritReplicas(object) => {
                    self.guard.cluster.autoscalers.record_earlier_autoscaler(&object);
                    self.remember_surroundings(&object);
                }
                LoopAction::ForgetScaledReplicas(object) => {
                    self.guard.cluster.autoscalers.forget_departed(&object);
                    self.remember_surroundings(&object);
                }
                LoopAction::Settle(object, settled) => {
                    self.guard.cluster.settled.write().record(&object, settled);
                }
            }
        }
    }

    /// Finishes the repairs under way, processes the remaining watch events, and ends the watches.
    async fn finish(
        mut self,
        mut told: mpsc::Receiver<LoopInput>,
        changes: &ChangeQueue<ReleaseId>,
    ) -> Result<(), JoinError> {
        self.handle(LoopEvent::Stop);
        let end = Instant::now() + LAST_NEWS;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end), if self.machine.is_idle() => break,
                release = changes.next() => self.on_release_change(release),
                Some(news) = told.recv() => self.on_news(news),
            }
        }
        drop(told);
        self.unwatch.cancel();
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            outcome = outcome.and(ended);
        }
        outcome
    }

    fn on_news(&mut self, news: LoopInput) {
        match news {
            LoopInput::Watch(scope, event) => self.handle(LoopEvent::Watch(scope, event)),
            LoopInput::Outcome(errand, outcome) => self.handle(LoopEvent::Outcome(errand, outcome)),
            LoopInput::Records(errand, release) => {
                let outcome = WorkOutcome::Records(self.governed(&release));
                self.handle(LoopEvent::Outcome(errand, outcome));
            }
        }
    }

    fn watch(&mut self, scope: WatchScope) {
        let Some(resource) = self.fed.wanted.get(&scope) else { return };
        let stop = self.unwatch.child_token();
        if let Some(earlier) = self.watches.insert(scope.clone(), stop.clone()) {
            earlier.cancel();
        }
        let selector = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let objects = self.guard.cluster.objects.watch(resource, scope.namespace.as_deref(), Some(&selector));
        let watch = (objects, self.relists.subscribe());
        self.tasks.spawn(follow_objects(scope, watch, Arc::clone(&self.guard), self.news.clone(), stop));
    }

    fn on_release_change(&mut self, id: ReleaseId) {
        let declares =
            self.guard.cluster.releases.index().read().release(&id).map(|it| Arc::clone(&it.objects));
        let before = match &declares {
            Some(now) => self.fed.declared.insert(id.clone(), Arc::clone(now)),
            None => self.fed.declared.remove(&id),
        };
        let is_same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
        let is_new = !before.as_ref().zip(declares.as_ref()).is_some_and(is_same);
        // An autoscaler that a release declares may have other rights than one that no release
        // declares.
        let scalers = [&before, &declares].into_iter().flatten().filter(|_| is_new).flat_map(|it| it.keys());
        let scaled: BTreeSet<Option<SmolStr>> =
            scalers.filter(|it| is_autoscaler(it)).map(|it| it.namespace.clone()).collect();
        let surrounded = self.fed.surroundings.keys().filter(|object| scaled.contains(&object.namespace));
        let surrounded: Vec<ObjectId> = surrounded.cloned().collect();
        for object in surrounded {
            let now = self.surroundings(&object);
            if self.fed.note(&object, &now) {
                self.handle(LoopEvent::Circumstances(object, now));
            }
        }
        let is_declared =
            |object: &ObjectId| declares.as_ref().is_some_and(|declares| declares.contains_key(object));
        let dropped: Vec<&ObjectId> = before
            .iter()
            .flat_map(|before| before.keys())
            .map(|object| &**object)
            .filter(|object| is_new && !is_declared(object))
            .collect();
        if !dropped.is_empty() {
            let mut settled = self.guard.cluster.settled.write();
            dropped.into_iter().for_each(|object| settled.forget(&id, object));
        }
        let governed = self.governed(&id);
        self.handle(LoopEvent::Release(id, governed));
        if is_new {
            self.follow_at.get_or_insert_with(|| Instant::now() + SETTLING);
        }
    }

    fn governed(&self, id: &ReleaseId) -> Option<GovernedRelease> {
        let release = self.guard.cluster.releases.index().read().release(id).cloned()?;
        Some(GovernedRelease { release, policy: self.guard.in_force.resolver().policy(id) })
    }

    /// Handles new, changed or removed allowances or autoscalers of an object.
    fn on_surroundings_change(&mut self, object: &ObjectId) {
        let now = self.remember_surroundings(object);
        self.handle(LoopEvent::Circumstances(object.clone(), now));
    }

    /// Records the surroundings of an object, including changes that the loop made itself and so knows.
    fn remember_surroundings(&mut self, object: &ObjectId) -> WatchedContext {
        let now = self.surroundings(object);
        self.fed.note(object, &now);
        now
    }

    fn apply_policies(&mut self) {
        let releases: Vec<ReleaseId> = {
            let index = self.guard.cluster.releases.index().read();
            index.releases().map(|release| release.id.clone()).collect()
        };
        let resolver = self.guard.in_force.resolver();
        let policies = releases.into_iter().map(|id| (id.clone(), resolver.policy(&id))).collect();
        let open = resolver.is_enforcement_disabled();
        self.handle(LoopEvent::Policies { policies, open });
    }

    fn update_watch_scopes(&mut self) {
        let declared = self.guard.cluster.releases.index().read().resources();
        let unserved = declared
            .iter()
            .filter(|it| self.guard.cluster.kinds.resource(&gvk(it)).is_none())
            .map(|it| (it.group.clone(), it.kind.clone()))
            .collect();
        let scopes = self.scopes(&declared);
        let before = std::mem::replace(&mut self.fed.wanted, scopes);
        let wanted = self.fed.wanted.keys().cloned().collect();
        self.handle(LoopEvent::Scopes { wanted, unserved });
        // A CustomResourceDefinition may have been re-created with another plural.
        let has_moved = |scope: &&WatchScope| {
            before.get(scope).is_some_and(|resource| self.fed.wanted.get(scope) != Some(resource))
        };
        let moved: Vec<WatchScope> = self.watches.keys().filter(has_moved).cloned().collect();
        moved.into_iter().for_each(|scope| self.watch(scope));
    }

    /// Passes on an order, after the current state of its release: changes of the release may still be queued.
    fn handle_order(&mut self, order: LoopOrder) {
        match &order {
            LoopOrder::Remember { release, .. } | LoopOrder::Reconcile { release, .. } => {
                self.on_release_change(release.clone());
            }
            // The loop keeps only values of what a release declares.
            LoopOrder::Settled(_, settled) if !self.fed.declared.contains_key(settled.release()) => {
                self.on_release_change(settled.release().clone());
            }
            LoopOrder::Settled(..) | LoopOrder::Suspend(..) => {}
        }
        self.handle(LoopEvent::Order(order));
    }

    fn surroundings(&self, object: &ObjectId) -> WatchedContext {
        let autoscalers = {
            let index = self.guard.cluster.releases.index().read();
            self.guard.cluster.autoscalers.of_workload(object, &index)
        };
        let allowances = self.guard.cluster.allowances.named(object);
        let departed = self.guard.cluster.autoscalers.departed(object);
        WatchedContext {
            now: ObjectContext { allowances, autoscalers, ..ObjectContext::default() },
            departed,
        }
    }

    /// The scopes to watch: each declared kind in the versions of the manifests, in all namespaces
    /// or in each guarded one.
    fn scopes(&self, declared: &BTreeSet<DeclaredResource>) -> HashMap<WatchScope, ApiResource> {
        let mut scopes = HashMap::new();
        for resource in declared {
            let gvk = gvk(resource);
            let facts = self.guard.cluster.kinds.catalog();
            let namespaced = facts.facts(&gvk.group, &gvk.kind).is_some_and(|facts| facts.namespaced);
            let Some(served) = self.guard.cluster.kinds.resource(&gvk) else { continue };
            let namespaces = self.guard.cluster.namespaces.iter().cloned().map(Some);
            let everywhere = namespaces.len() == 0 || !namespaced;
            for namespace in namespaces.filter(|_| !everywhere).chain(everywhere.then_some(None)) {
                let scope = WatchScope {
                    group: gvk.group.clone(),
                    version: served.version.clone(),
                    kind: gvk.kind.clone(),
                    namespace,
                };
                scopes.entry(scope).or_insert_with(|| served.clone());
            }
        }
        scopes
    }
}

/// The time in which changes of the declared kinds are collected before the watches change.
const SETTLING: Duration = Duration::from_millis(200);

#[derive(Default)]
struct ForwardedState {
    surroundings: HashMap<ObjectId, WatchedContext>,
    wanted: HashMap<WatchScope, ApiResource>,
    declared: HashMap<ReleaseId, Arc<HashMap<Arc<ObjectId>, ObjectDeclarations>>>,
}

impl ForwardedState {
    /// Records the surroundings of an object. Returns whether they changed.
    fn note(&mut self, object: &ObjectId, now: &WatchedContext) -> bool {
        if *now == WatchedContext::default() {
            return self.surroundings.remove(object).is_some();
        }
        self.surroundings.insert(object.clone(), now.clone()).as_ref() != Some(now)
    }
}

/// Waits until a task panics. Tasks that end normally are ignored.
async fn wait_for_panic(tasks: &mut JoinSet<()>) -> JoinError {
    loop {
        match tasks.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return error,
            None => std::future::pending().await,
        }
    }
}

async fn follow_objects(
    scope: WatchScope,
    (mut objects, mut relists): (LiveObjectWatch, channel::Receiver<u64>),
    guard: Arc<DriftGuard>,
    news: mpsc::Sender<LoopInput>,
    stop: CancellationToken,
) {
    // The last reported failure of the watch.
    let mut broken: Option<Fault> = None;
    // Whether the objects were judged since the loop last requested a list.
    let mut is_judged = false;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = relists.changed() => {
                objects.relist();
                is_judged = false;
                continue;
            }
            event = objects.next() => event,
        };
        // For example after an upgrade to an API server without this version.
        if event.is_not_found() {
            guard.cluster.kinds.report_kind_not_found();
        }
        let seen = match event {
            WatchEvent::Relisting => ObjectWatchEvent::ListStarted,
            WatchEvent::Listed(live) => {
                if !is_judged {
                    read_declared(&guard.cluster.releases, &live.sighting.id);
                }
                ObjectWatchEvent::Object { live: Box::new(live), is_listed: true }
            }
            WatchEvent::Applied(live) => ObjectWatchEvent::Object { live: Box::new(live), is_listed: false },
            WatchEvent::Deleted(live) => {
                ObjectWatchEvent::Gone { object: live.sighting.id, version: live.sighting.resource_version }
            }
            WatchEvent::Synced => {
                is_judged = true;
                ObjectWatchEvent::ListCompleted
            }
            WatchEvent::Watching => {
                broken = None;
                ObjectWatchEvent::Established
            }
            WatchEvent::Broken(error) => {
                let fault = fault(&error);
                if broken.is_none() {
                    tracing::warn!(
                        watch.group = scope.group,
                        watch.kind = scope.kind,
                        watch.namespace = scope.namespace,
                        "failed to watch {} objects; their drift is not detected: {error}",
                        scope.kind
                    );
                }
                if broken.replace(fault.clone()).as_ref() == Some(&fault) {
                    continue;
                }
                ObjectWatchEvent::Failed(WorkFailure { fault, message: error.to_string() })
            }
        };
        let told = news.send(LoopInput::Watch(scope.clone(), seen));
        tokio::select! {
            () = stop.cancelled() => return,
            told = told => if told.is_err() { return },
        }
    }
}

/// Parses what the latest manifests declare of an object, so that the loop finds it in the cache.
fn read_declared(releases: &Releases, object: &ObjectId) {
    let declared: Vec<Arc<DeclaredObject>> = {
        let index = releases.index().read();
        let claims = index.claims(object).into_iter();
        claims.filter_map(|release| release.objects.get(object)?.latest.clone()).collect()
    };
    declared.iter().for_each(|declared| drop(declared.fields()));
}

const READ_TIME: Duration = Duration::from_secs(10);

/// Carries out a piece of work for a release, and returns the outcome.
async fn carry_out(guard: &DriftGuard, errand: WorkId, release: &ReleaseId, work: ApiWork) -> LoopInput {
    let done = match work {
        ApiWork::ReadRecords { release } => {
            match guard.cluster.releases.refresh_release(&release, READ_TIME).await {
                Ok(_) => return LoopInput::Records(errand, release),
                Err(error) => Err(WorkFailure::unanswered(&error.to_string())),
            }
        }
        ApiWork::ReadObject { object, version } => read_object(guard, &object, &version).await,
        ApiWork::ReadDocument { revision, object } => read_document(guard, release, revision, &object).await,
        ApiWork::ReadDefinition { object } => is_definition_being_deleted(guard, &object).await,
        ApiWork::Ask { object, uid, revision, digest } => {
            let question = DryRunQuestion { object, uid, release: release.clone(), revision, digest };
            ask_arbiter(guard, &question).await
        }
        ApiWork::Probe { object, version, document } => probe(guard, &object, &version, document).await,
        ApiWork::Write { object, version, write } => match target(guard, &object, &version) {
            Ok(target) => write_object(guard, &target, write).await,
            Err(failure) => Err(failure),
        },
    };
    LoopInput::Outcome(errand, done.unwrap_or_else(WorkOutcome::Failed))
}

fn fault(error: &ClusterError) -> Fault {
    match error {
        ClusterError::Unserved => Fault::Unserved,
        error if error.is_forbidden() => Fault::Forbidden,
        _ => Fault::Unanswered,
    }
}

fn target(guard: &DriftGuard, object: &ObjectId, version: &str) -> Result<ObjectTarget, WorkFailure> {
    let unserved = || WorkFailure { fault: Fault::Unserved, message: ClusterError::Unserved.to_string() };
    guard.cluster.kinds.target(object, version).ok_or_else(unserved)
}

async fn read_object(
    guard: &DriftGuard,
    object: &ObjectId,
    version: &str,
) -> Result<WorkOutcome, WorkFailure> {
    let target = target(guard, object, version)?;
    let live = guard.cluster.objects.read(&target).await.map_err(call_failure)?;
    Ok(WorkOutcome::Object { live: live.map(Box::new), version: target.resource.version })
}

async fn read_document(
    guard: &DriftGuard,
    release: &ReleaseId,
    revision: u64,
    object: &ObjectId,
) -> Result<WorkOutcome, WorkFailure> {
    let document = guard.cluster.releases.document(release, revision, object, READ_TIME).await;
    document.map(WorkOutcome::Document).map_err(|error| WorkFailure {
        fault: match error {
            ClusterError::NoRecord { .. } | ClusterError::InvalidRecord { .. } => Fault::NoRecord,
            _ => Fault::Unanswered,
        },
        message: error.to_string(),
    })
}

async fn is_definition_being_deleted(
    guard: &DriftGuard,
    object: &ObjectId,
) -> Result<WorkOutcome, WorkFailure> {
    let plural = target(guard, object, "")?.resource.plural;
    let name = format!("{plural}.{}", object.group);
    let definition = ObjectId::cluster_scoped("apiextensions.k8s.io", "CustomResourceDefinition", &name);
    let sighting =
        guard.cluster.objects.sight(&target(guard, &definition, "v1")?).await.map_err(call_failure)?;
    Ok(WorkOutcome::Definition { deleting: sighting.is_some_and(|sighting| sighting.deleting) })
}

async fn ask_arbiter(guard: &DriftGuard, question: &DryRunQuestion) -> Result<WorkOutcome, WorkFailure> {
    let Some(arbiter) = &guard.cluster.arbiter else {
        return Err(WorkFailure::unanswered("the guard makes no dry runs"));
    };
    match arbiter.canonical(question, READ_TIME).await {
        Ok(canonical) => Ok(WorkOutcome::Canonical(Arc::new(Secret((*canonical).clone())))),
        Err(error) => {
            let error = arbiter.cause(question, error, READ_TIME).await;
            let fault = match &error {
                ClusterError::BlockedByLiveObject { .. } => Fault::Obstructed,
                error if error.is_refusal() => Fault::Refused,
                _ => Fault::Unanswered,
            };
            Err(WorkFailure { fault, message: error.to_string() })
        }
    }
}

async fn probe(
    guard: &DriftGuard,
    object: &ObjectId,
    version: &str,
    Secret(document): Secret,
) -> Result<WorkOutcome, WorkFailure> {
    let target = target(guard, object, version)?;
    guard.cluster.objects.dry_run_create(&target, &document).await.map_err(write_failure)?;
    Ok(WorkOutcome::Written(Secret(Value::Null)))
}

async fn write_object(
    guard: &DriftGuard,
    target: &ObjectTarget,
    write: Write,
) -> Result<WorkOutcome, WorkFailure> {
    let objects = &guard.cluster.objects;
    let written = match write {
        Write::Create { document, manager } => objects.create(target, &document.0, &manager).await,
        Write::Apply { document, manager } => objects.apply(target, &document.0, &manager, true).await,
        Write::Merge { patch, manager } => objects.merge(target, &patch.0, &manager).await,
        Write::Delete { uid } => objects.delete(target, &uid).await.map(|()| Value::Null),
    };
    written.map(|now| WorkOutcome::Written(Secret(now))).map_err(write_failure)
}

fn call_failure(error: ClusterError) -> WorkFailure {
    WorkFailure { fault: fault(&error), message: error.to_string() }
}

fn write_failure(error: ClusterError) -> WorkFailure {
    let message = error.to_string();
    let fault = match (error.refusal(), error) {
        (Some(RefusalKind::NotFound), _) => Fault::NotFound,
        (Some(RefusalKind::AlreadyExists), _) => Fault::AlreadyExists,
        (Some(RefusalKind::Conflict), _) => Fault::Conflict,
        (Some(RefusalKind::Forbidden), _) => Fault::Forbidden,
        (Some(RefusalKind::Terminating), _) => Fault::Terminating,
        (_, ClusterError::Refused { code: 422, message, causes, .. }) => {
            Fault::Invalid { said: message, causes }
        }
        (_, ClusterError::NotLeading) => Fault::NotLeading,
        (_, ClusterError::Unserved) => Fault::Unserved,
        _ => Fault::Unanswered,
    };
    WorkFailure { fault, message }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn gvk(resource: &DeclaredResource) -> Gvk {
    let DeclaredResource { group, version, kind, .. } = resource;
    Gvk { group: group.clone(), version: version.clone(), kind: kind.clone() }
}

#[cfg(test)]
mod tests;
