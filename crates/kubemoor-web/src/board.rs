//! How the releases of a cluster stand, followed by a watch for as long as somebody looks.
//!
//! Entry points: [`ReleaseStates::follow`], then [`ReleaseStates::rows`]. Invariant: nothing is kept but what the visitor may
//! read, and after a right has ended, what it permitted is shown for at most some seconds; what a page costs does not depend
//! on how many releases there are, beyond going through them; a failure takes nothing away and is told.

mod changes;
mod exceptions;
mod follower;
mod known;
mod permitted;
mod wire;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub(super) use self::changes::Changes;
use self::follower::Follower;
pub(super) use self::follower::Scope;
use self::known::Known;
pub(super) use self::known::{Followed, Rows};
use super::drifting_fields::Fields;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::allowances;

/// How long a page waits for the first listing; then it shows what is there.
const FIRST: Duration = Duration::from_secs(5);

/// How long it is believed that the visitor may list the releases.
const BELIEVED: Duration = Duration::from_secs(15);

/// How the releases stand.
pub(super) struct ReleaseStates {
    pub(super) namespace: Option<String>,
    known: Arc<RwLock<Known>>,
    changes: watch::Receiver<u64>,
    /// Whether somebody has looked since it was asked last.
    is_looked_at: Arc<AtomicBool>,
    /// Asks for an answer about the visitor's rights.
    wish: Arc<Notify>,
    /// When it came last.
    asked: watch::Receiver<Option<Instant>>,
    task: JoinHandle<()>,
}

impl ReleaseStates {
    /// Follows the releases with the credentials of `connection`, until it is dropped.
    pub(super) fn follow(connection: Connection, scope: Scope) -> Self {
        let known = Arc::new(RwLock::new(Known::default()));
        let (changed, changes) = watch::channel(0);
        let (answered, asked) = watch::channel(None);
        let namespace = scope.namespace.clone();
        let (is_looked_at, wish) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let follower = Follower {
            connection,
            scope,
            known: Arc::clone(&known),
            changed,
            is_looked_at: Arc::clone(&is_looked_at),
            wish: Arc::clone(&wish),
            asked: answered,
        };
        let task = tokio::spawn(follower.run());
        Self { namespace, known, changes, is_looked_at, wish, asked, task }
    }

    /// Waits until it is known of late what the visitor may list, and until that was listed, or could not be; but not for
    /// long.
    pub(super) async fn ready(&self) {
        let (mut changes, mut asked) = (self.changes.clone(), self.asked.clone());
        let is_believed = |asked: &Option<Instant>| asked.is_some_and(|at| at.elapsed() < BELIEVED);
        let wait = async {
            if !is_believed(&self.asked.borrow()) {
                self.wish.notify_one();
                drop(asked.wait_for(is_believed).await);
            }
            while !self.known.read().is_ready() && changes.changed().await.is_ok() {}
        };
        // What is there by then is shown.
        let _ = timeout(FIRST, wait).await;
    }

    /// The only namespace that is shown, where nobody chose it.
    pub(super) fn only(&self, chosen: Option<&str>) -> Option<&str> {
        self.namespace.as_deref().filter(|_| chosen.is_none())
    }

    /// Whether the visitor may not list these releases.
    pub(super) fn is_forbidden(&self) -> bool {
        self.known.read().is_forbidden
    }

    /// Whether the API server does not know the visitor any more.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.known.read().is_unauthorized
    }

    /// The changes of all releases, or of one.
    pub(super) fn changes(&self, release: Option<Followed>) -> Changes {
        match release {
            Some(release) => Changes::of_release(self.changes.clone(), Arc::clone(&self.known), release),
            None => Changes::of_all(self.changes.clone()),
        }
    }

    /// How all releases stand, by namespace and name.
    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        self.is_looked_at.store(true, Ordering::Relaxed);
        self.known.read().rows(now)
    }

    /// The exceptions, as far as the watch tells of them at this moment.
    pub(super) fn exceptions(&self, now: Timestamp) -> Option<Vec<allowances::Row>> {
        // They are judged without the lock.
        let exceptions = self.known.read().exceptions.all();
        exceptions.map(|exceptions| allowances::rows(exceptions, now))
    }

    /// The fields that drift, by kind and path, of the releases of `namespace` (`None`: of all).
    pub(super) fn fields(&self, namespace: Option<&str>) -> Fields {
        self.known.read().fields(namespace)
    }

    /// The releases of which this field drifts.
    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        self.known.read().with_field(field)
    }
}

impl Drop for ReleaseStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}
