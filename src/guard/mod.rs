//! The loop: watches what releases declare, finds what is not as declared and
//! puts it right.
//!
//! Entry point: [`Guard::run`]. Data flows one way: `follow` opens a watch of
//! each declared kind, `watch` hands over whole objects, `observe` holds each
//! against its release, `drifts` remembers what is wrong, and for one release at
//! a time `pass` looks again, `plan` says what may be done, `repair` does it.
//! [`state`] tells others, [`orders`] is how they tell the loop.
//!
//! Invariant: objects are judged as they stream by and none is kept. Nothing is
//! written to what was not seen alive with its release's annotations, and no value
//! that was not once seen in the live object or ordered by somebody who may write it,
//! so that a forged record lends nobody the guard's rights. One object of a release
//! at a time.

mod alarms;
pub mod announce;
mod circumstances;
mod follow;
mod observe;
pub mod orders;
mod pass;
mod repair;
mod report;
pub mod state;
pub mod status;
mod watch;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch as channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::alarms::Alarms;
use self::follow::Watches;
use self::orders::{Command, Orders};
use self::repair::Repairer;
use self::state::State;
use crate::cluster::allowances::Allowances;
use crate::cluster::arbiter::Arbiter;
use crate::cluster::autoscalers::Autoscalers;
use crate::cluster::kinds::Kinds;
use crate::cluster::objects::Objects;
use crate::cluster::policies::InForce;
use crate::cluster::releases::Releases;
use crate::helm::release::Release;
use crate::ledger::Ledger;
use crate::metrics::GuardMetrics;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::book::Book;
use crate::policy::settled::{Settled, SettledValues};
use crate::policy::signing::SigningKey;
use crate::reconcile::asked::Asked;
use crate::reconcile::drifts::{Drifts, First};
use crate::reconcile::recent::Recent;

/// Releases that are worked on at one time.
const RELEASES_AT_ONCE: usize = 8;

/// How long changes of the declared kinds are gathered before watches follow.
const SETTLING: Duration = Duration::from_millis(200);

/// What the loop works with.
pub struct Guard {
    /// The releases.
    pub releases: Arc<Releases>,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// Single objects.
    pub objects: Objects,
    /// Settles doubts; none where no dry run may be made.
    pub arbiter: Option<Arc<Arbiter>>,
    /// Local changes that are allowed.
    pub allowances: Arc<Allowances>,
    /// Who scales what.
    pub autoscalers: Arc<Autoscalers>,
    /// What dry runs have settled.
    pub settled: Arc<SettledValues>,
    /// Tells that policies have changed.
    pub in_force: Arc<InForce>,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    /// Whether nothing may be written: what could be repaired is reported.
    pub read_only: bool,
    /// The policies in force.
    pub book: Arc<Book>,
    /// Where the loop counts.
    pub metrics: GuardMetrics,
    /// Where repairs are kept.
    pub ledger: Ledger,
    /// Told once everything that was declared at the start has been listed, or
    /// could not be: what goes missing from then on was seen alive.
    pub listed: channel::Sender<bool>,
    /// Where the loop says what it knows.
    pub state: Arc<State>,
    /// What agreements are sealed with, the same for all replicas and after a
    /// restart.
    pub key: SigningKey,
}

/// What the tasks of the loop share.
struct Shared {
    guard: Guard,
    /// Never locked before the index is, only after or without it.
    drifts: Mutex<Drifts>,
    recent: Mutex<Recent>,
    repairer: Repairer,
    alarms: Alarms,
    watches: Watches,
    leading: channel::Receiver<bool>,
    suspended: Mutex<HashSet<ReleaseId>>,
    asked: Mutex<Asked>,
    /// Releases at which somebody works, and whether to look again after.
    busy: Mutex<HashMap<ReleaseId, bool>>,
    /// When releases are looked at again by themselves.
    due: Mutex<HashMap<ReleaseId, Instant>>,
    room: Semaphore,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Guard {
    /// Runs until `stop`; then finishes the writes under way.
    pub async fn run(self, orders: Orders, stop: CancellationToken) {
        let Orders { leading, mut commands, suspended } = orders;
        let changes = self.releases.changes();
        let (allowed, scaled) = (self.allowances.changes(), self.autoscalers.changes());
        let mut policies = self.in_force.changes();
        let mut lead = leading.clone();
        let shared = Arc::new(Shared {
            drifts: Mutex::new(Drifts::new(self.key.clone())),
            recent: Mutex::default(),
            repairer: Repairer::default(),
            alarms: Alarms::default(),
            watches: Watches::default(),
            leading,
            suspended: Mutex::new(suspended),
            asked: Mutex::default(),
            busy: Mutex::default(),
            due: Mutex::default(),
            room: Semaphore::new(RELEASES_AT_ONCE),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            guard: self,
        });
        let mut follow_at: Option<Instant> = Some(Instant::now());
        loop {
            let follow = async {
                match follow_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Before anything else: what is remembered decides what is repaired.
                Some(command) = commands.recv() => shared.obey(command),
                release = changes.next() => {
                    shared.notice(&release);
                    shared.attend(release);
                    follow_at.get_or_insert_with(|| Instant::now() + SETTLING);
                }
                () = follow => {
                    follow_at = None;
                    shared.follow();
                }
                object = allowed.next() => shared.judge_again(vec![object]),
                object = scaled.next() => shared.judge_again(vec![object]),
                Ok(()) = policies.changed() => shared.judge_all(),
                Ok(()) = lead.changed() => {
                    if *lead.borrow_and_update() {
                        shared.attend_all();
                    }
                }
                due = shared.alarms.due() => {
                    for (release, object) in due {
                        shared.drifts.lock().suspect(&release, object, Timestamp::now());
                        shared.attend(release);
                    }
                }
            }
        }
        shared.tasks.close();
        shared.tasks.wait().await;
    }
}

impl Shared {
    fn release(&self, id: &ReleaseId) -> Option<Arc<Release>> {
        self.guard.releases.index().read().release(id).cloned()
    }

    fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    /// A release has changed, came or went.
    fn notice(&self, id: &ReleaseId) {
        let current = self.release(id);
        let now = Timestamp::now();
        self.drifts.lock().notice(id, current.as_ref(), |object| self.watches.shows(object), now);
        match &current {
            Some(release) => observe::recall(self, release),
            None => self.guard.settled.forget(id),
        }
    }

    fn obey(self: &Arc<Self>, command: Command) {
        match command {
            Command::Suspend(release, suspend) => {
                let mut suspended = self.suspended.lock();
                if suspend {
                    suspended.insert(release.clone())
                } else {
                    suspended.remove(&release)
                };
                drop(suspended);
                self.attend(release);
            }
            Command::Reconcile { release, at, ticket } => {
                let eased = repair::ease(self, &release);
                self.take_back_replicas(&release);
                self.asked.lock().all_of(release.clone(), at, ticket);
                self.suspect_all(&release);
                self.attend(release);
                if eased {
                    self.attend_all();
                }
            }
            Command::Remember { release, revision, record, digest, seen_alive, contested } => {
                let first = First { uid: record, revision, digest };
                for seen in &seen_alive {
                    if let Some(settled) = &seen.settled {
                        self.guard.settled.learn(&seen.object, Settled::clone(settled));
                    }
                }
                let current = self.release(&release);
                if current.as_ref().is_none_or(|release| !first.is_outlived_by(release)) {
                    let (mut backoff, now) = (self.repairer.backoff.lock(), Timestamp::now());
                    contested.iter().for_each(|object| backoff.contest(object, now));
                    drop(backoff);
                    self.drifts.lock().remember(&release, first, seen_alive, current.as_deref());
                }
                self.attend(release);
            }
            Command::Judge(objects) => self.judge_again(objects),
            Command::JudgeAll => self.judge_all(),
        }
    }

    /// Something other than these objects has changed what is said of them.
    fn judge_again(self: &Arc<Self>, objects: Vec<ObjectId>) {
        for object in objects {
            let claims = self.guard.releases.index().read().claims(&object).to_vec();
            for claim in claims {
                self.drifts.lock().suspect(&claim.id, object.clone(), Timestamp::now());
                self.attend(claim.id.clone());
            }
        }
    }

    /// The same for all objects: they are listed once more.
    fn judge_all(self: &Arc<Self>) {
        self.watches.relist();
        self.attend_all();
    }

    fn attend_all(self: &Arc<Self>) {
        let concerned = self.drifts.lock().concerned();
        concerned.into_iter().for_each(|release| self.attend(release));
    }

    /// Has somebody look at what concerns a release, once at a time.
    fn attend(self: &Arc<Self>, release: ReleaseId) {
        // Under one lock, or two tasks would work on one release.
        match self.busy.lock().entry(release.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                return;
            }
            Entry::Vacant(vacant) => vacant.insert(false),
        };
        let shared = Arc::clone(self);
        self.tasks.spawn(async move { shared.attend_until_done(release).await });
    }

    async fn attend_until_done(self: Arc<Self>, release: ReleaseId) {
        loop {
            let later = {
                let Ok(_room) = self.room.acquire().await else { return };
                pass::pass(&self, &release).await
            };
            let mut busy = self.busy.lock();
            let again = busy.insert(release.clone(), false).unwrap_or_default();
            if again && !self.stop.is_cancelled() {
                continue;
            }
            busy.remove(&release);
            drop(busy);
            if let Some(delay) = later {
                self.attend_later(release, delay);
            }
            return;
        }
    }

    /// Looks at a release again after `delay`, unless that is done sooner.
    fn attend_later(self: &Arc<Self>, release: ReleaseId, delay: Duration) {
        let at = Instant::now() + delay;
        let mut due = self.due.lock();
        if due.get(&release).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        due.insert(release.clone(), at);
        drop(due);
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = shared.stop.cancelled() => {}
                () = tokio::time::sleep_until(at) => {
                    let mut due = shared.due.lock();
                    // An earlier look may have taken its place.
                    if due.get(&release) == Some(&at) {
                        due.remove(&release);
                        drop(due);
                        shared.attend(release);
                    }
                }
            }
        });
    }
}
