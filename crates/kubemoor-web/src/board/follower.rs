//! Follows the releases of a cluster for a page. Nothing is followed that the visitor may not list: an API server goes on
//! with a watch that is open when the right to it ends, so it is asked again and again. A failure takes nothing away and
//! is told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{BoardState, WatchedException, WatchedRelease};
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::lease::read_pulse;
use kubemoor_cluster::client::objects::LabelOrigin;
use kubemoor_cluster::client::pages::Pages;
use kubemoor_cluster::client::resource::{ApiResource, GROUP, Meta, VERSION};
use kubemoor_cluster::client::watch::{ObjectEvent, Watch};
use kubemoor_cluster::client::{allowances, guarded};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::failed;
use kubemoor_inspect::reading::{self, ClusterReader};
use kubemoor_inspect::releases;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::health::Pulse;

/// How often the follower checks whether the guards still update their statuses, and, while somebody looks, what the
/// visitor may list.
const PULSE: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(10);

/// How old the list of records may become while somebody looks.
const RECORDS: Duration = Duration::from_secs(60);

/// How long after a listing the next one begins, for visitors who may not watch.
const AGAIN: Duration = Duration::from_secs(30);

/// What releases without a guard are found by: group and plural.
const OTHERS: [(&str, &str); 7] = [
    ("", "secrets"),
    ("", "configmaps"),
    ("", "services"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "cronjobs"),
];

#[derive(Clone)]
pub(crate) struct BoardScope {
    /// `None` for all.
    pub(crate) namespace: Option<String>,
    pub(crate) driver: RecordDriver,
    pub(crate) labels: Labels,
}

pub(super) struct Follower {
    pub(super) connection: ClusterConnection,
    pub(super) scope: BoardScope,
    pub(super) known: Arc<RwLock<BoardState>>,
    pub(super) changed: watch::Sender<u64>,
    /// Whether a page was shown since it was looked at last.
    pub(super) is_looked_at: Arc<AtomicBool>,
    /// A page waits for an answer about the rights.
    pub(super) wish: Arc<Notify>,
    /// When the API server was asked last what the visitor may list.
    pub(super) asked: watch::Sender<Option<Instant>>,
}

/// The reading of releases without a guard. It may take longer than a question about rights may wait.
#[derive(Default)]
struct UnguardedReading {
    /// Begins it, again if it is under way.
    start: Notify,
    is_under_way: AtomicBool,
}

impl Follower {
    pub(super) async fn run(self) {
        let policies = self.scope.namespace.is_none();
        let (permitted, rights) = watch::channel(ListRights { releases: true, exceptions: true, policies });
        let others = UnguardedReading::default();
        tokio::join!(
            while_permitted(rights.clone(), |may| may.releases, || self.watch()),
            while_permitted(rights.clone(), |may| may.exceptions, || self.watch_exceptions()),
            while_permitted(rights, |may| may.policies, || self.watch_policies()),
            self.look(permitted, &others),
            self.read(&others),
        );
    }

    async fn watch(&self) {
        let client = self.connection.client.clone();
        let mut watch =
            Watch::<WatchedRelease>::new(client, &releases(), self.scope.namespace.as_deref(), None);
        // What the listing under way has named, and whether the last one has just ended.
        let (mut listed, mut is_listed) = (HashSet::new(), false);
        loop {
            let event = watch.next().await;
            match &event {
                // The visitor may list, and not watch: what was listed is theirs to see.
                ObjectEvent::Broken(error) if is_listed && error.is_forbidden() => sleep(AGAIN).await,
                _ => {
                    is_listed = matches!(event, ObjectEvent::Synced);
                    self.take(event, &mut listed);
                }
            }
        }
    }

    async fn watch_exceptions(&self) {
        let (client, namespace) = (self.connection.client.clone(), self.scope.namespace.as_deref());
        let mut watch = Watch::<WatchedException>::new(client, &allowances::defined(), namespace, None);
        loop {
            let event = watch.next().await;
            let has_changed = self.known.write().exceptions.take(event);
            if has_changed {
                self.tell();
            }
        }
    }

    /// Tells of policies that change; the pages read them when they are shown.
    async fn watch_policies(&self) {
        let client = self.connection.client.clone();
        let mut watch = Watch::<Meta>::new(client, &guarded::policy_resource(), None, None);
        loop {
            // What changed before the listing has no event of its own.
            if let ObjectEvent::Applied(_) | ObjectEvent::Deleted(_) | ObjectEvent::Synced =
                watch.next().await
            {
                self.tell();
            }
        }
    }

    /// Looks again and again at what no watch tells of.
    async fn look(&self, permitted: watch::Sender<ListRights>, others: &UnguardedReading) {
        let mut ticks = interval(PULSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut rights, mut read) = ([false; OTHERS.len()], None::<Instant>);
        loop {
            let is_wished = tokio::select! {
                _ = ticks.tick() => false,
                () = self.wish.notified() => true,
            };
            // The board listens itself; every other listener is an open page.
            let is_open = self.changed.receiver_count() > 1;
            if self.is_looked_at.swap(false, Ordering::Relaxed) || is_open || is_wished {
                self.ask(&permitted).await;
                let now = self.ask_others(rights).await;
                let has_changed = std::mem::replace(&mut rights, now) != now;
                let is_old = read.is_none_or(|at| at.elapsed() >= RECORDS);
                if has_changed {
                    self.forget_others();
                }
                if has_changed || (is_old && !others.is_under_way.load(Ordering::Relaxed)) {
                    others.start.notify_one();
                    read = Some(Instant::now());
                }
                self.asked.send_replace(Some(Instant::now()));
            }
            if !is_wished {
                self.read_pulses().await;
            }
        }
    }

    async fn read(&self, others: &UnguardedReading) {
        others.start.notified().await;
        loop {
            others.is_under_way.store(true, Ordering::Relaxed);
            tokio::select! {
                // What is read by rights that are gone is given up.
                biased;
                () = others.start.notified() => continue,
                () = self.read_others() => others.is_under_way.store(false, Ordering::Relaxed),
            }
            others.start.notified().await;
        }
    }

    /// Asks what the visitor may list, and forgets the rest.
    async fn ask(&self, permitted: &watch::Sender<ListRights>) {
        let (exceptions, releases, policies) =
            (allowances::defined(), releases(), guarded::policy_resource());
        let here = self.scope.namespace.as_deref();
        let (releases, exceptions, policies) = tokio::join!(
            self.list_one(&releases, here),
            self.list_one(&exceptions, here),
            OptionFuture::from(here.is_none().then(|| self.list_one(&policies, None)))
        );
        let before = *permitted.borrow();
        let may = |answer: &Result<(), ClusterError>, before| match answer {
            Ok(()) => true,
            Err(error) if error.is_forbidden() || error.is_unauthorized() => false,
            Err(_) => before,
        };
        let now = ListRights {
            releases: may(&releases, before.releases),
            exceptions: may(&exceptions, before.exceptions),
            policies: policies.is_some_and(|policies| may(&policies, before.policies)),
        };
        // Before anything is forgotten, so that a watch adds nothing to it afterwards.
        permitted.send_replace(now);
        if now.exceptions != before.exceptions {
            self.known.write().exceptions.forget();
        }
        if (now.exceptions, now.policies) != (before.exceptions, before.policies) {
            self.tell();
        }
        if let Err(error) = releases
            && !now.releases
        {
            self.refuse(error);
        }
    }

    /// Lists one object: only the API server knows what the visitor may list.
    async fn list_one(&self, resource: &ApiResource, namespace: Option<&str>) -> Result<(), ClusterError> {
        let pages = Pages::metadata(&self.connection.client, resource, namespace)?;
        let mut pages = pages.starting_with(1).within(PATIENCE);
        pages.next().await.map(drop)
    }

    /// Asks by which kinds releases without a guard may be found; as `before` where there is no answer.
    async fn ask_others(&self, before: [bool; OTHERS.len()]) -> [bool; OTHERS.len()] {
        let namespace = self.scope.namespace.as_deref();
        let answers = OTHERS.map(|(group, resource)| async move {
            let right = Right { verb: "list", group, resource, namespace, name: None };
            access::may_self(&self.connection.client, &right).await.ok()
        });
        let mut rights = before;
        for (right, answer) in rights.iter_mut().zip(join_all(answers).await) {
            *right = answer.unwrap_or(*right);
        }
        rights
    }

    fn tell(&self) {
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn take(&self, event: ObjectEvent<WatchedRelease>, listed: &mut HashSet<ReleaseId>) {
        let mut known = self.known.write();
        match event {
            ObjectEvent::Relisting => listed.clear(),
            ObjectEvent::Listed(wire) => {
                if let Some((release, guarded)) = wire.guarded() {
                    let version = guarded.version.clone();
                    listed.insert(release.clone());
                    let before = known.guarded.insert(release, guarded);
                    // All are listed again every few minutes, and most are as they were.
                    if before.is_some_and(|before| before.version == version) {
                        return;
                    }
                }
            }
            ObjectEvent::Applied(wire) => known.guarded.extend(wire.guarded()),
            ObjectEvent::Deleted(wire) => {
                let release = wire.object.and_then(|it| it.release());
                release.into_iter().for_each(|release| drop(known.guarded.remove(&release)));
            }
            ObjectEvent::Synced => {
                known.guarded.retain(|release, _| listed.contains(release));
                (known.is_whole, known.is_undefined, known.is_forbidden) = (true, false, false);
                (known.trouble, known.is_unauthorized) = (None, false);
            }
            ObjectEvent::Watching => return,
            ObjectEvent::Broken(error) => self.fail(&mut known, error),
        }
        drop(known);
        self.tell();
    }

    fn refuse(&self, error: ClusterError) {
        let mut known = self.known.write();
        let before = (known.is_forbidden, known.guarded.len(), known.trouble.clone());
        self.fail(&mut known, error);
        let is_same = before == (known.is_forbidden, known.guarded.len(), known.trouble.clone());
        drop(known);
        if !is_same {
            self.tell();
        }
    }

    fn fail(&self, known: &mut BoardState, error: ClusterError) {
        if error.is_not_found() {
            (known.is_whole, known.is_undefined, known.is_forbidden) = (true, true, false);
            (known.trouble, known.is_unauthorized) = (None, false);
            known.guarded.clear();
            return;
        }
        (known.is_forbidden, known.is_unauthorized) = (error.is_forbidden(), error.is_unauthorized());
        // What was read with rights that are gone is not shown any more.
        if known.is_forbidden || known.is_unauthorized {
            known.guarded.clear();
        }
        known.trouble = Some(failed(&self.connection, "list the GuardedReleases", error).to_string());
    }

    /// Reads which releases there are that no guard speaks of.
    async fn read_others(&self) {
        let BoardScope { namespace, driver, labels } = &self.scope;
        let kinds = match reading::kinds(&self.connection).await {
            Ok(kinds) => kinds,
            Err(error) => return self.set_others(BTreeMap::new(), vec![error.to_string()]),
        };
        let reader = ClusterReader::of_kinds(self.connection.clone(), kinds, *driver, labels).await;
        let mut notes = Vec::new();
        let stored = reader.list(namespace.as_deref()).await.unwrap_or_else(|error| {
            notes.push(format!("releases without a guard may be missing: {error}"));
            Vec::new()
        });
        let found = releases::find_unrecorded(&reader, namespace.as_deref()).await;
        let mut others: BTreeMap<_, _> =
            found.releases.into_iter().map(|(release, origin)| (release, Some(origin))).collect();
        others.extend(stored.into_iter().map(|release| (release, None)));
        notes.extend(found.notes);
        let unread = reader.unread_records(namespace.as_deref());
        notes.extend(unread.into_iter().map(|unread| format!("releases may be missing: {unread}")));
        self.set_others(others, notes);
    }

    fn set_others(&self, others: BTreeMap<ReleaseId, Option<LabelOrigin>>, notes: Vec<String>) {
        let mut known = self.known.write();
        if known.has_others && known.others == others && known.notes == notes {
            return;
        }
        (known.others, known.notes, known.has_others) = (others, notes, true);
        drop(known);
        self.tell();
    }

    fn forget_others(&self) {
        let mut known = self.known.write();
        known.others.clear();
        known.notes.clear();
        let had_others = std::mem::take(&mut known.has_others);
        drop(known);
        if had_others {
            self.tell();
        }
    }

    /// Reads whether the guards still keep their statuses.
    async fn read_pulses(&self) {
        let leases: HashSet<(String, String)> = {
            let known = self.known.read();
            let leases = known.guarded.values().filter_map(|it| it.status.lease.as_ref());
            leases.map(|lease| (lease.namespace.clone(), lease.name.clone())).collect()
        };
        let mut pulses = HashMap::new();
        for (namespace, name) in leases {
            let lease = LeaseReference { namespace: namespace.clone(), name: name.clone() };
            let read = read_pulse(&self.connection.client, &lease).await.unwrap_or(Pulse::Unknown);
            pulses.insert((namespace, name), read);
        }
        self.known.write().pulses = pulses;
    }
}

fn releases() -> ApiResource {
    ApiResource::new(GROUP, VERSION, guarded::KIND, guarded::PLURAL)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListRights {
    releases: bool,
    exceptions: bool,
    /// Policies belong to no namespace: whoever follows one namespace does not follow them.
    policies: bool,
}

/// Follows for as long as the visitor may list it, and anew once they may again.
async fn while_permitted<F: Future<Output = ()>>(
    mut rights: watch::Receiver<ListRights>,
    may: fn(ListRights) -> bool,
    follow: impl Fn() -> F,
) {
    loop {
        tokio::select! {
            // A watch that is open adds nothing to what was forgotten.
            biased;
            () = wait_until(&mut rights, |now| !may(now)) => {}
            () = follow() => {}
        }
        wait_until(&mut rights, may).await;
    }
}

async fn wait_until(rights: &mut watch::Receiver<ListRights>, is: impl Fn(ListRights) -> bool) {
    drop(rights.wait_for(|now| is(*now)).await);
}
