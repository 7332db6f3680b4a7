//! Watches the states of a cluster's releases while somebody views a page.
//!
//! It keeps only what the visitor may read. An API server does not close an open watch when the right to it ends, so
//! the rights are checked periodically; when they change, all state is dropped and read again. A failure is shown and
//! discards nothing. No release is shown as not guarded before all GuardedReleases are listed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::lease::read_pulse;
use kubemoor_cluster::client::objects::LabelOrigin;
use kubemoor_cluster::client::resource::{ApiResource, GROUP, Meta};
use kubemoor_cluster::client::watch::{ObjectEvent, Watch};
use kubemoor_cluster::client::{allowances, guarded};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::failed;
use kubemoor_inspect::reading::{self, ClusterReader};
use kubemoor_inspect::releases::{self, ListedRelease};
use kubemoor_policy::guarded::{GuardedReleaseStatus, LeaseReference};
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::health::{GuardLeaseState, ReportedHealth, STALE_AFTER};

/// How long a page waits for the first list before it shows what is there.
const FIRST: Duration = Duration::from_secs(5);

/// How often to check what the visitor may list, and whether the guards still update their statuses.
const PULSE: Duration = Duration::from_secs(10);

/// The maximum age of the list of releases without a guard.
const RECORDS: Duration = Duration::from_secs(60);

/// How long after a list the next one begins, for visitors who may not watch.
const AGAIN: Duration = Duration::from_secs(30);

/// After this time without a viewer, watching ends.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Changes that are buffered for a slow page. If there are more, the page treats everything as changed.
const CHANGES: usize = 256;

/// The message for a release that may or may not have a guard.
const UNREAD: &str = "it is not known whether a guard covers it: not all GuardedReleases were read";

/// The resources to list, by group and plural: Kubemoor's own kinds, and those that reveal releases without a guard.
const LISTED: [(&str, &str); 10] = [
    (GROUP, guarded::PLURAL),
    (GROUP, "driftallowances"),
    (GROUP, "driftpolicies"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "services"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "cronjobs"),
];

/// Which of [`LISTED`] the visitor may list.
type ListRights = [bool; LISTED.len()];

/// Notifies of changes: of one release, or of anything (`None`).
pub(super) type Changes = broadcast::Sender<Option<ReleaseId>>;

/// Receives all changes, or those of one release.
pub(super) struct ChangeFeed {
    pub(super) changes: broadcast::Receiver<Option<ReleaseId>>,
    pub(super) release: Option<ReleaseId>,
}

pub(super) fn changes() -> Changes {
    broadcast::Sender::new(CHANGES)
}

/// Notifies the subscribers, if there are any.
pub(super) fn notify_change(changes: &Changes, changed: Option<ReleaseId>) {
    drop(changes.send(changed));
}

impl ChangeFeed {
    /// Waits for the next change. Returns `false` if there will be no further changes. Cancel safe.
    pub(super) async fn next(&mut self) -> bool {
        loop {
            match self.changes.recv().await {
                Ok(Some(changed)) if self.release.as_ref().is_some_and(|own| *own != changed) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }

    /// Skips the changes so far, because they have been reported.
    pub(super) fn settle(&mut self) {
        self.changes = self.changes.resubscribe();
    }
}

pub(super) struct ReleaseStates {
    follower: Arc<Follower>,
    task: AbortOnDropHandle<()>,
}

/// The releases to watch: of a namespace, or of all (`None`).
pub(super) struct BoardScope {
    pub(super) namespace: Option<String>,
    pub(super) driver: RecordDriver,
    pub(super) labels: Labels,
}

struct Follower {
    connection: ClusterConnection,
    scope: BoardScope,
    known: RwLock<BoardState>,
    changes: Changes,
    looked_at: Mutex<Instant>,
}

impl ReleaseStates {
    /// Watches the releases with the credentials of `connection`, until dropped or without a viewer for [`IDLE`].
    pub(super) fn follow(connection: ClusterConnection, scope: BoardScope) -> Self {
        let follower = Arc::new(Follower {
            connection,
            scope,
            known: RwLock::default(),
            changes: changes(),
            looked_at: Mutex::new(Instant::now()),
        });
        let task = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&follower).run()));
        Self { follower, task }
    }

    /// Records that somebody views the page. Returns whether the watch still runs.
    pub(super) fn record_view(&self) -> bool {
        *self.follower.looked_at.lock() = Instant::now();
        !self.task.is_finished()
    }

    /// Waits until everything was listed, or could not be, but at most for [`FIRST`].
    pub(super) async fn ready(&self) {
        let mut changes = self.follower.changes.subscribe();
        let wait = async {
            while !self.follower.known.read().is_ready() {
                drop(changes.recv().await);
            }
        };
        // After the timeout, the page shows what is there.
        let _ = timeout(FIRST, wait).await;
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.follower.scope.namespace.as_deref()
    }

    /// The only namespace that is shown, if the user did not choose it.
    pub(super) fn only(&self, chosen: Option<&str>) -> Option<&str> {
        self.namespace().filter(|_| chosen.is_none())
    }

    pub(super) fn is_forbidden(&self) -> bool {
        self.follower.known.read().listing.is_forbidden
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        self.follower.known.read().listing.is_unauthorized
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.follower.changes
    }

    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        self.follower.known.read().rows(now)
    }

    /// The fields that drift, by kind and path.
    pub(super) fn fields(&self) -> DriftingFields {
        DriftingFields::count(self.follower.known.read().guarded.values().map(|it| &it.status))
    }

    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        let known = self.follower.known.read();
        let with = known.guarded.iter().filter(|(_, it)| named_fields(&it.status).contains(field));
        with.map(|(release, _)| release.clone()).collect()
    }
}

impl Follower {
    async fn run(self: Arc<Self>) {
        let mut rights = self.rights([true; LISTED.len()]).await;
        loop {
            let changed = tokio::select! {
                // The rights are checked first, so that an open watch adds nothing to dropped state.
                biased;
                changed = self.rights_change(rights) => changed,
                () = self.follow() => None,
            };
            *self.known.write() = BoardState::default();
            let Some(changed) = changed else { return };
            rights = changed;
            notify_change(&self.changes, None);
        }
    }

    /// Waits until the visitor's rights change; `None` once there is no viewer any more.
    async fn rights_change(&self, before: ListRights) -> Option<ListRights> {
        loop {
            sleep(PULSE).await;
            if self.looked_at.lock().elapsed() >= IDLE && self.changes.receiver_count() == 0 {
                return None;
            }
            let now = self.rights(before).await;
            if now != before {
                return Some(now);
            }
        }
    }

    /// What the visitor may list; as `before` if the API server does not answer.
    async fn rights(&self, before: ListRights) -> ListRights {
        let namespace = self.scope.namespace.as_deref();
        let answers = LISTED.map(|(group, resource)| async move {
            let right = Right { verb: "list", group, resource, namespace, name: None };
            access::is_self_allowed(&self.connection.client, &right).await
        });
        let mut rights = before;
        for (right, answer) in rights.iter_mut().zip(join_all(answers).await) {
            match answer {
                Ok(may) => *right = may,
                Err(error) if error.is_unauthorized() => *right = false,
                Err(_) => {}
            }
        }
        rights
    }

    async fn follow(&self) {
        let namespace = self.scope.namespace.as_deref();
        let policies = async {
            // Policies are cluster-scoped: a board of one namespace does not watch them.
            if namespace.is_none() {
                self.tell_of(&guarded::policy_resource(), None).await;
            }
        };
        let exceptions = allowances::allowance_resource();
        tokio::join!(
            self.watch(),
            self.tell_of(&exceptions, namespace),
            policies,
            self.read_others(),
            self.read_pulses()
        );
    }

    async fn watch(&self) {
        let (client, namespace) = (self.connection.client.clone(), self.scope.namespace.as_deref());
        let mut watch = Watch::<Value>::new(client, &guarded::resource(), namespace, None);
        // The releases of the list in progress, and whether the last event ended a list.
        let (mut listed, mut is_listed) = (HashSet::new(), false);
        loop {
            let event = watch.next().await;
            match &event {
                // The visitor may list but not watch, so the listed releases stay.
                ObjectEvent::Broken(error) if is_listed && error.is_forbidden() => sleep(AGAIN).await,
                _ => {
                    is_listed = matches!(event, ObjectEvent::Synced);
                    self.take(event, &mut listed);
                }
            }
        }
    }

    /// Notifies of changes of a kind; the pages read its objects when they are rendered.
    async fn tell_of(&self, resource: &ApiResource, namespace: Option<&str>) {
        let mut watch = Watch::<Meta>::new(self.connection.client.clone(), resource, namespace, None);
        loop {
            // Changes before the list have no event of their own.
            if let ObjectEvent::Applied(_) | ObjectEvent::Deleted(_) | ObjectEvent::Synced =
                watch.next().await
            {
                notify_change(&self.changes, None);
            }
        }
    }

    fn take(&self, event: ObjectEvent<Value>, listed: &mut HashSet<ReleaseId>) {
        let changed = match event {
            ObjectEvent::Relisting => return listed.clear(),
            // The end of the list notifies of all of them.
            ObjectEvent::Listed(object) => {
                let found = read_guarded(object);
                listed.extend(found.as_ref().map(|(release, _)| release.clone()));
                return self.known.write().guarded.extend(found);
            }
            ObjectEvent::Applied(object) => {
                let Some((release, guarded)) = read_guarded(object) else { return };
                self.known.write().guarded.insert(release.clone(), guarded);
                Some(release)
            }
            ObjectEvent::Deleted(object) => {
                let Some((release, _)) = read_guarded(object) else { return };
                self.known.write().guarded.remove(&release);
                Some(release)
            }
            ObjectEvent::Synced => {
                let mut known = self.known.write();
                known.guarded.retain(|release, _| listed.contains(release));
                known.listing = Listing { is_whole: true, ..Listing::default() };
                None
            }
            ObjectEvent::Watching => return,
            ObjectEvent::Broken(error) => match self.fail(error) {
                true => None,
                false => return,
            },
        };
        notify_change(&self.changes, changed);
    }

    /// Records why the GuardedReleases cannot be listed. Returns whether that is new.
    fn fail(&self, error: ClusterError) -> bool {
        let mut known = self.known.write();
        let (is_forbidden, is_unauthorized) = (error.is_forbidden(), error.is_unauthorized());
        let is_undefined = error.is_not_found();
        // What was read with revoked rights is no longer shown.
        if is_undefined || is_forbidden || is_unauthorized {
            known.guarded.clear();
        }
        let listing = if is_undefined {
            Listing { is_whole: true, is_undefined, ..Listing::default() }
        } else {
            let trouble = failed(&self.connection, "list the GuardedReleases", error).to_string();
            Listing { is_forbidden, is_unauthorized, trouble: Some(trouble), ..known.listing.clone() }
        };
        std::mem::replace(&mut known.listing, listing.clone()) != listing
    }

    /// Periodically reads which releases have no GuardedRelease.
    async fn read_others(&self) {
        loop {
            let (others, notes) = self.others().await;
            self.set_others(others, notes);
            sleep(RECORDS).await;
        }
    }

    fn set_others(&self, others: BTreeMap<ReleaseId, Option<LabelOrigin>>, notes: Vec<String>) {
        let mut known = self.known.write();
        if !known.has_others || known.others != others || known.notes != notes {
            (known.others, known.notes, known.has_others) = (others, notes, true);
            notify_change(&self.changes, None);
        }
    }

    async fn others(&self) -> (BTreeMap<ReleaseId, Option<LabelOrigin>>, Vec<String>) {
        let BoardScope { namespace, driver, labels } = &self.scope;
        let kinds = match reading::kinds(&self.connection).await {
            Ok(kinds) => kinds,
            Err(error) => return (BTreeMap::new(), vec![error.to_string()]),
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
        (others, notes)
    }

    /// Periodically reads the guards' Leases, to find stale statuses.
    async fn read_pulses(&self) {
        loop {
            let leases: HashSet<(String, String)> = {
                let known = self.known.read();
                let leases = known.guarded.values().filter_map(|it| it.status.lease.as_ref());
                leases.map(|lease| (lease.namespace.clone(), lease.name.clone())).collect()
            };
            let mut pulses = HashMap::new();
            for (namespace, name) in leases {
                let lease = LeaseReference { namespace: namespace.clone(), name: name.clone() };
                let read =
                    read_pulse(&self.connection.client, &lease).await.unwrap_or(GuardLeaseState::Unknown);
                pulses.insert((namespace, name), read);
            }
            self.known.write().pulses = pulses;
            sleep(PULSE).await;
        }
    }
}

pub(super) struct Rows {
    pub(super) rows: Vec<Arc<ListedRelease>>,
    pub(super) notes: Vec<String>,
    pub(super) is_unreadable: bool,
    /// Whether all releases are known.
    pub(super) is_complete: bool,
}

#[derive(Default)]
struct BoardState {
    guarded: BTreeMap<ReleaseId, Guarded>,
    listing: Listing,
    pulses: HashMap<(String, String), GuardLeaseState>,
    /// Found by records and by objects; with the origin if there is no record.
    others: BTreeMap<ReleaseId, Option<LabelOrigin>>,
    /// Whether records and objects were read.
    has_others: bool,
    notes: Vec<String>,
}

/// The state of the list of GuardedReleases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listing {
    is_whole: bool,
    is_forbidden: bool,
    is_unauthorized: bool,
    is_undefined: bool,
    trouble: Option<String>,
}

struct Guarded {
    row: Arc<ListedRelease>,
    /// Without the parts that only the guard needs.
    status: GuardedReleaseStatus,
}

fn read_guarded(object: Value) -> Option<(ReleaseId, Guarded)> {
    let object = guarded::typed(object)?;
    let release = object.release()?;
    let mut status = object.status.unwrap_or_default();
    status.seen = Vec::new();
    let told = ReportedHealth::new(status.clone(), &GuardLeaseState::Unknown, Timestamp::UNIX_EPOCH);
    let row = Arc::new(ListedRelease::guarded(release.clone(), told));
    Some((release, Guarded { row, status }))
}

impl BoardState {
    /// Whether everything was listed, or could not be.
    fn is_ready(&self) -> bool {
        self.has_others && (self.listing.is_whole || self.listing.trouble.is_some())
    }

    fn rows(&self, now: Timestamp) -> Rows {
        let Listing { is_whole, is_forbidden, is_unauthorized, is_undefined, trouble } = &self.listing;
        let mut rows: BTreeMap<&ReleaseId, Arc<ListedRelease>> = BTreeMap::new();
        for (release, guarded) in &self.guarded {
            rows.insert(release, self.row(release, guarded, now));
        }
        if !is_forbidden && !is_unauthorized {
            for (release, origin) in &self.others {
                rows.entry(release).or_insert_with(|| Arc::new(self.other(release, *origin)));
            }
        }
        let mut notes: Vec<_> = trouble.iter().chain(&self.notes).cloned().collect();
        if !self.is_ready() {
            notes.push(format!("still reading: {} releases so far", rows.len()));
        }
        if *is_undefined {
            let undefined =
                "no guard is installed here: the cluster has no CustomResourceDefinition of GuardedRelease";
            notes.push(undefined.to_owned());
        }
        Rows {
            is_unreadable: rows.is_empty() && trouble.is_some(),
            is_complete: self.has_others && *is_whole && trouble.is_none() && self.notes.is_empty(),
            rows: rows.into_values().collect(),
            notes,
        }
    }

    /// A release that no known GuardedRelease is about.
    fn other(&self, release: &ReleaseId, origin: Option<LabelOrigin>) -> ListedRelease {
        if !self.listing.is_whole || self.listing.trouble.is_some() {
            return ListedRelease::unread(release.clone(), UNREAD.to_owned());
        }
        let why = origin.map(|origin| releases::why_unrecorded(origin, release));
        ListedRelease::unguarded(
            release.clone(),
            why.unwrap_or_else(|| "not guarded: its page says why".to_owned()),
        )
    }

    fn row(&self, release: &ReleaseId, guarded: &Guarded, now: Timestamp) -> Arc<ListedRelease> {
        let lease = guarded.status.lease.as_ref();
        let pulse = lease.and_then(|lease| self.pulses.get(&(lease.namespace.clone(), lease.name.clone())));
        let is_kept = |pulse: &GuardLeaseState| match pulse {
            GuardLeaseState::Renewed(at) => now.duration_since(*at) <= STALE_AFTER,
            GuardLeaseState::Gone => false,
            GuardLeaseState::Unknown => true,
        };
        match pulse.filter(|pulse| !is_kept(pulse)) {
            Some(pulse) => Arc::new(ListedRelease::guarded(
                release.clone(),
                ReportedHealth::new(guarded.status.clone(), pulse, now),
            )),
            None => Arc::clone(&guarded.row),
        }
    }
}

/// The fields that drift, with the number of their releases, in descending order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DriftingFields {
    pub(super) ranked: Vec<(String, usize)>,
    /// Whether a status names only part of its drift, so that more releases may have a field.
    pub(super) is_cut: bool,
}

impl DriftingFields {
    fn count<'s>(statuses: impl Iterator<Item = &'s GuardedReleaseStatus>) -> Self {
        let (mut counts, mut is_cut): (BTreeMap<String, usize>, _) = (BTreeMap::new(), false);
        for status in statuses {
            let drifted = drifted(status);
            is_cut |= drifted > status.drifts.len()
                || status.drifts.iter().take(drifted).any(|it| it.more_fields > 0);
            for field in named_fields(status) {
                *counts.entry(field).or_default() += 1;
            }
        }
        let mut ranked: Vec<_> = counts.into_iter().collect();
        ranked.sort_by_key(|(_, releases)| std::cmp::Reverse(*releases));
        Self { ranked, is_cut }
    }
}

/// The fields that drift in a release, by kind and path.
fn named_fields(status: &GuardedReleaseStatus) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for drift in status.drifts.iter().take(drifted(status)) {
        let kind = &drift.object.kind;
        if drift.fields.is_empty() {
            names.insert(format!("{kind} ({})", drift.r#type.to_lowercase()));
        }
        names.extend(drift.fields.iter().map(|field| format!("{kind} {}", field.path)));
    }
    names
}

/// The number of drifted objects. The status lists them before objects that may differ.
fn drifted(status: &GuardedReleaseStatus) -> usize {
    usize::try_from(status.drifted).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
