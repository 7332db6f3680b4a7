//! The running loop: turns changes in the cluster into events of the `Reconciler`, and carries out
//! the actions that it requests.
//!
//! Entry point: [`Guard::run`]. `watch` follows the objects of each declared kind, `feed` passes on
//! releases, policies and other knowledge about objects, [`orders`] the orders of people; `work`
//! calls the API server and returns the outcome; `tell` logs, counts and stores. [`state`]
//! publishes the reports.
//!
//! Invariant: one task owns the loop's state and processes one event after the other; no other task
//! decides anything. Only writes that the loop requests are made. Must not judge.

pub mod announce;
mod feed;
pub mod fleet;
pub mod notices;
pub mod orders;
pub mod state;
pub mod status;
mod tasks;
mod tell;
mod watch;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::feed::Fed;
use self::orders::Orders;
use self::state::State;
use self::tasks::Tasks;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::Changes;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::arbiter::Arbiter;
use kubemoor_cluster::mirror::autoscalers::Autoscalers;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::ReleaseId;
use kubemoor_ledger::Ledger;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::settled::SettledValues;
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::event::{Action, Event, Failure, ObjectNews, Outcome, WorkId};
use kubemoor_reconcile::machine::{Reconciler, Settings};
use kubemoor_reconcile::scopes::Scope;
use kubemoor_runtime::metrics::GuardMetrics;

/// News that wait at most; a sender of more waits.
const NEWS: usize = 16;

/// How long a loop that ends still takes in what its watches tell. Helm may just have written what it declares, and this
/// guard may be the only one that can remember that.
const LAST_NEWS: Duration = Duration::from_millis(200);

/// The longest sleep of the loop: its timers follow a clock that may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What the loop works with.
pub struct Guard {
    /// The releases.
    pub releases: Arc<Releases>,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// Single objects.
    pub objects: Objects,
    /// Settles doubts; `None` where dry runs are not allowed.
    pub arbiter: Option<Arc<Arbiter>>,
    /// Local changes that are allowed.
    pub allowances: Arc<Allowances>,
    /// Who scales what.
    pub autoscalers: Arc<Autoscalers>,
    /// What dry runs have settled, for others that judge.
    pub settled: Arc<SettledValues>,
    /// Signals changes of policies.
    pub in_force: Arc<InForce>,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    /// Whether nothing may be written: what could be repaired is reported.
    pub read_only: bool,
    /// The policies in force.
    pub resolver: Arc<PolicyResolver>,
    /// Where the loop counts.
    pub metrics: GuardMetrics,
    /// Where repairs are kept.
    pub ledger: Ledger,
    /// Set when everything that was declared at the start has been listed, or could not be: objects
    /// that go missing later were seen alive.
    pub listed: channel::Sender<bool>,
    /// Where the loop publishes its reports.
    pub state: Arc<State>,
    /// The key that signs agreements, the same for all replicas and after a restart.
    pub key: SigningKey,
}

/// The loop, and the tasks around it.
struct Shell {
    guard: Arc<Guard>,
    machine: Reconciler,
    fed: Fed,
    news: mpsc::Sender<News>,
    /// The watches that are open.
    watches: HashMap<Scope, CancellationToken>,
    /// How often all of them were told to list again.
    relists: channel::Sender<u64>,
    timer: Option<Instant>,
    /// The time at which the watches are adapted to the declared kinds.
    follow_at: Option<Instant>,
    tasks: Tasks,
    /// Ends the watches.
    unwatch: CancellationToken,
}

/// The news of watches and workers.
enum News {
    Watch(Scope, ObjectNews),
    Outcome(WorkId, Outcome),
    /// A release's records were read, and the index is up to date.
    Records(WorkId, ReleaseId),
}

impl Guard {
    /// Runs until `stop`; then finishes the repairs under way.
    ///
    /// # Errors
    /// When a watch broke down: the loop would not see its objects any more.
    pub async fn run(self, orders: Orders, stop: CancellationToken) -> Result<(), JoinError> {
        let Orders { mut leading, mut commands, suspended } = orders;
        let changes = self.releases.changes();
        let (allowed, scaled) = (self.allowances.changes(), self.autoscalers.changes());
        let mut policies = self.in_force.changes();
        let (news, mut told) = mpsc::channel(NEWS);
        let settings =
            Settings { key: self.key.clone(), read_only: self.read_only, dry_runs: self.arbiter.is_some() };
        let mut shell = Shell {
            machine: Reconciler::new(settings, suspended),
            fed: Fed::default(),
            news,
            watches: HashMap::new(),
            relists: channel::Sender::default(),
            timer: None,
            follow_at: Some(Instant::now()),
            tasks: Tasks::default(),
            unwatch: CancellationToken::new(),
            guard: Arc::new(self),
        };
        shell.rule();
        shell.handle(Event::Leads(*leading.borrow_and_update()));
        let broken = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break None,
                error = shell.tasks.broken() => break Some(error),
                // First, because the remembered state decides about repairs.
                Some(command) = commands.recv() => shell.obey(command),
                // The surroundings of an object come before the object is judged.
                release = changes.next() => shell.notice(release),
                object = allowed.next() => shell.surround(&object),
                object = scaled.next() => shell.surround(&object),
                Ok(()) = policies.changed() => shell.rule(),
                Ok(()) = leading.changed() => shell.handle(Event::Leads(*leading.borrow_and_update())),
                () = until(shell.follow_at) => {
                    shell.follow_at = None;
                    shell.follow();
                }
                () = until(shell.timer) => {
                    shell.timer = None;
                    shell.handle(Event::Due);
                }
                Some(news) = told.recv() => shell.hear(news),
            }
        };
        let finished = shell.finish(told, &changes).await;
        broken.map_or(finished, Err)
    }
}

impl Shell {
    /// Passes an event to the loop and carries out its actions.
    fn handle(&mut self, event: Event) {
        for action in self.machine.handle(event, Timestamp::now()) {
            match action {
                Action::Watch(scope) => self.watch(scope),
                Action::Unwatch(scope) => {
                    if let Some(stop) = self.watches.remove(&scope) {
                        stop.cancel();
                    }
                }
                Action::Relist => self.relists.send_modify(|count| *count += 1),
                Action::Do(errand, release, work) => {
                    let (guard, news) = (Arc::clone(&self.guard), self.news.clone());
                    let done =
                        tokio::spawn(async move { work::carry_out(&guard, errand, &release, work).await });
                    self.tasks.spawn(async move {
                        // The release waits for an answer even if the work fails.
                        let told = done.await.unwrap_or_else(|error| {
                            let failure = Failure::unanswered(&format!("the work broke off: {error}"));
                            News::Outcome(errand, Outcome::Failed(failure))
                        });
                        // There is no receiver after the loop has stopped.
                        drop(news.send(told).await);
                    });
                }
                Action::SetTimer(at) => {
                    self.timer = at.and_then(|at| {
                        let left = at.duration_since(Timestamp::now());
                        Instant::now()
                            .checked_add(Duration::try_from(left).unwrap_or_default().min(LONGEST_SLEEP))
                    });
                }
                Action::AllListed => drop(self.guard.listed.send_replace(true)),
                Action::Report(report) => tell::report(&self.guard, *report),
                Action::Withdraw(release) => self.guard.state.withdraw(&release),
                Action::Tell(told) => tell::tell(&self.guard, told),
                Action::InheritReplicas(object) => {
                    self.guard.autoscalers.inherit_departed(&object);
                    self.remember_surroundings(&object);
                }
                Action::TakeBackReplicas(object) => {
                    self.guard.autoscalers.forget_departed(&object);
                    self.remember_surroundings(&object);
                }
                Action::Settle(object, settled) => {
                    self.guard.settled.learn(&object, settled);
                }
            }
        }
    }

    /// Finishes the repairs under way, takes in what the watches still tell, and ends them.
    async fn finish(
        mut self,
        mut told: mpsc::Receiver<News>,
        changes: &Changes<ReleaseId>,
    ) -> Result<(), JoinError> {
        self.handle(Event::Stop);
        let end = Instant::now() + LAST_NEWS;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end), if self.machine.is_idle() => break,
                release = changes.next() => self.notice(release),
                Some(news) = told.recv() => self.hear(news),
            }
        }
        drop(told);
        self.unwatch.cancel();
        self.tasks.finish().await
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Watch(scope, tidings) => self.handle(Event::Watch(scope, tidings)),
            News::Outcome(errand, outcome) => self.handle(Event::Outcome(errand, outcome)),
            News::Records(errand, release) => {
                let outcome = Outcome::Records(self.ruled(&release));
                self.handle(Event::Outcome(errand, outcome));
            }
        }
    }

    fn watch(&mut self, scope: Scope) {
        let Some(resource) = self.fed.resource(&scope) else { return };
        let stop = self.unwatch.child_token();
        if let Some(earlier) = self.watches.insert(scope.clone(), stop.clone()) {
            earlier.cancel();
        }
        let objects = watch::objects(&self.guard.objects, &scope, resource);
        let watch = (objects, self.relists.subscribe());
        self.tasks.spawn(watch::run(scope, watch, Arc::clone(&self.guard), self.news.clone(), stop));
    }
}

/// Sleeps until `time`; without one, forever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
