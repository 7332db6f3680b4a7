//! How the releases of a cluster stand, followed by a watch for as long as somebody looks.
//!
//! Nothing is kept but what the visitor may read, and after a right has ended, what it permitted is shown for at most some
//! seconds. What a page costs does not depend on how many releases there are, beyond going through them. A failure takes
//! nothing away and is told. No release counts as not guarded before all GuardedReleases are known.

mod follower;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub(super) use self::follower::BoardScope;
use self::follower::Follower;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::objects::LabelOrigin;
use kubemoor_cluster::client::watch::{ObjectEvent, ObjectForm};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::exceptions;
use kubemoor_inspect::releases::{self, ListedRelease};
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseStatus};
use kubemoor_policy::resource::DriftAllowance;
use kubemoor_verdict::health::{Pulse, ReportedHealth, STALE_AFTER};

/// How long a page waits for the first listing; then it shows what is there.
const FIRST: Duration = Duration::from_secs(5);

/// How long it is believed that the visitor may list the releases.
const BELIEVED: Duration = Duration::from_secs(15);

/// Of a release that may have a guard.
const UNREAD: &str = "it is not known if a guard covers it: not all GuardedReleases are read";

pub(super) struct ReleaseStates {
    pub(super) namespace: Option<String>,
    known: Arc<RwLock<BoardState>>,
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
    pub(super) fn follow(connection: ClusterConnection, scope: BoardScope) -> Self {
        let known = Arc::new(RwLock::new(BoardState::default()));
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

    pub(super) fn is_forbidden(&self) -> bool {
        self.known.read().is_forbidden
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        self.known.read().is_unauthorized
    }

    pub(super) fn changes(&self, release: Option<Followed>) -> ChangeFeed {
        match release {
            Some(release) => ChangeFeed::of_release(self.changes.clone(), Arc::clone(&self.known), release),
            None => ChangeFeed::of_all(self.changes.clone()),
        }
    }

    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        self.is_looked_at.store(true, Ordering::Relaxed);
        self.known.read().rows(now)
    }

    /// The exceptions, as far as the watch tells of them at this moment.
    pub(super) fn exceptions(&self, now: Timestamp) -> Option<Vec<exceptions::ListedAllowance>> {
        // They are judged without the lock.
        let exceptions = self.known.read().exceptions.all();
        exceptions.map(|exceptions| exceptions::rows(exceptions, now))
    }

    /// The fields that drift, by kind and path, of the releases of `namespace` (`None`: of all).
    pub(super) fn fields(&self, namespace: Option<&str>) -> DriftingFields {
        let mut fields = DriftingFields::default();
        let known = self.known.read();
        let here = known.guarded.iter().filter(|(id, _)| namespace.is_none_or(|it| it == id.namespace));
        here.for_each(|(_, guarded)| fields.add(&guarded.status));
        fields
    }

    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        let known = self.known.read();
        let with = known.guarded.iter().filter(|(_, it)| named_fields(&it.status).contains(field));
        with.map(|(release, _)| release.clone()).collect()
    }
}

impl Drop for ReleaseStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The changes of all that is followed, or of one release.
pub(super) struct ChangeFeed {
    changes: watch::Receiver<u64>,
    one: Option<FollowedRelease>,
}

struct FollowedRelease {
    known: Arc<RwLock<BoardState>>,
    followed: Followed,
    /// Its state when it was told of last.
    told: ReleaseMark,
}

impl ChangeFeed {
    pub(super) fn of_all(mut changes: watch::Receiver<u64>) -> Self {
        changes.mark_unchanged();
        Self { changes, one: None }
    }

    fn of_release(changes: watch::Receiver<u64>, known: Arc<RwLock<BoardState>>, followed: Followed) -> Self {
        let told = known.read().mark(&followed);
        Self { one: Some(FollowedRelease { known, followed, told }), ..Self::of_all(changes) }
    }

    /// Waits for the next change; an error once nobody follows any more. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<(), RecvError> {
        loop {
            self.changes.changed().await?;
            if self.one.as_mut().is_none_or(FollowedRelease::note_state) {
                return Ok(());
            }
        }
    }

    /// What has changed so far is told.
    pub(super) fn settle(&mut self) {
        self.changes.mark_unchanged();
        if let Some(one) = &mut self.one {
            one.note_state();
        }
    }
}

impl FollowedRelease {
    /// Notes its state. Returns whether it had another one the last time.
    fn note_state(&mut self) -> bool {
        let now = self.known.read().mark(&self.followed);
        let has_changed = now != self.told;
        self.told = now;
        has_changed
    }
}

pub(super) struct Rows {
    pub(super) rows: Vec<Arc<ListedRelease>>,
    pub(super) notes: Vec<String>,
    pub(super) is_blind: bool,
    /// Whether there are no other releases.
    pub(super) is_complete: bool,
}

/// A release whose page is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) release: ReleaseId,
    /// The namespaces of its objects, in which exceptions may be for them.
    pub(super) namespaces: BTreeSet<String>,
}

#[derive(Default)]
struct BoardState {
    guarded: BTreeMap<ReleaseId, Guarded>,
    /// By records and by objects; with the origin where there is no record.
    others: BTreeMap<ReleaseId, Option<LabelOrigin>>,
    pulses: HashMap<(String, String), Pulse>,
    exceptions: ExceptionIndex,
    is_whole: bool,
    /// Whether records and objects were looked at.
    has_others: bool,
    is_forbidden: bool,
    is_unauthorized: bool,
    is_undefined: bool,
    trouble: Option<String>,
    notes: Vec<String>,
}

struct Guarded {
    row: Arc<ListedRelease>,
    /// Without what only the guard needs.
    status: GuardedReleaseStatus,
    version: String,
}

/// What is another one once the page of a release would show something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReleaseMark {
    version: Option<String>,
    /// By what it was found, if it has no guard.
    other: Option<Option<LabelOrigin>>,
    /// How often exceptions may have changed that may be for its objects.
    exceptions: u64,
    is_forbidden: bool,
}

impl BoardState {
    /// Whether everything was listed, or could not be.
    fn is_ready(&self) -> bool {
        self.has_others && (self.is_whole || self.trouble.is_some())
    }

    fn rows(&self, now: Timestamp) -> Rows {
        let mut rows: BTreeMap<&ReleaseId, Arc<ListedRelease>> = BTreeMap::new();
        for (release, guarded) in &self.guarded {
            rows.insert(release, self.row(release, guarded, now));
        }
        if !self.is_forbidden && !self.is_unauthorized {
            for (release, origin) in &self.others {
                rows.entry(release).or_insert_with(|| Arc::new(self.other(release, *origin)));
            }
        }
        let mut notes: Vec<_> = self.trouble.iter().chain(&self.notes).cloned().collect();
        if !self.has_others || (!self.is_whole && self.trouble.is_none()) {
            notes.push(format!("still reading: {} releases so far", rows.len()));
        }
        if self.is_undefined {
            notes.push("no guard is installed here: there is no definition of GuardedRelease".to_owned());
        }
        Rows {
            is_blind: rows.is_empty() && self.trouble.is_some(),
            is_complete: self.has_others && self.is_whole && self.trouble.is_none() && self.notes.is_empty(),
            rows: rows.into_values().collect(),
            notes,
        }
    }

    fn mark(&self, Followed { release, namespaces }: &Followed) -> ReleaseMark {
        ReleaseMark {
            version: self.guarded.get(release).map(|guarded| guarded.version.clone()),
            other: self.others.get(release).copied(),
            exceptions: self.exceptions.changes(namespaces),
            is_forbidden: self.is_forbidden,
        }
    }

    /// A release that no known GuardedRelease speaks of.
    fn other(&self, release: &ReleaseId, origin: Option<LabelOrigin>) -> ListedRelease {
        if !self.is_whole || self.trouble.is_some() {
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
        let is_kept = |pulse: &Pulse| match pulse {
            Pulse::Renewed(at) => now.duration_since(*at) <= STALE_AFTER,
            Pulse::Gone => false,
            Pulse::Unknown => true,
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

struct WatchedRelease {
    version: String,
    object: Option<Box<GuardedRelease>>,
}

impl ObjectForm for WatchedRelease {
    type Wire = Value;
    const PAGE: u32 = 250;
    const METADATA: bool = false;

    fn read(wire: Value) -> Self {
        let version = wire.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Self { version: version.unwrap_or_default().to_owned(), object: guarded::typed(wire) }
    }

    fn version(&self) -> &str {
        &self.version
    }
}

impl WatchedRelease {
    fn guarded(self) -> Option<(ReleaseId, Guarded)> {
        let object = self.object?;
        let release = object.release()?;
        let mut status = object.status.unwrap_or_default();
        status.seen = Vec::new();
        let told = ReportedHealth::new(status.clone(), &Pulse::Unknown, Timestamp::UNIX_EPOCH);
        let row = Arc::new(ListedRelease::guarded(release.clone(), told));
        Some((release, Guarded { row, status, version: self.version }))
    }
}

#[derive(Debug, Default)]
pub(super) struct DriftingFields {
    counts: BTreeMap<String, Count>,
    /// The releases whose statuses name only a part of their drift.
    cut: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DriftingField {
    pub(super) name: String,
    pub(super) releases: usize,
    /// Whether further ones may have it.
    pub(super) is_least: bool,
}

#[derive(Debug, Default)]
struct Count {
    releases: usize,
    /// Those among them whose statuses name only a part of their drift.
    cut: usize,
}

impl DriftingFields {
    fn add(&mut self, status: &GuardedReleaseStatus) {
        let is_cut = is_cut(status);
        self.cut += usize::from(is_cut);
        for field in named_fields(status) {
            let count = self.counts.entry(field).or_default();
            count.releases += 1;
            count.cut += usize::from(is_cut);
        }
    }

    pub(super) fn ranked(self) -> Vec<DriftingField> {
        let Self { counts, cut } = self;
        let of = |(name, count): (String, Count)| DriftingField {
            name,
            releases: count.releases,
            is_least: cut > count.cut,
        };
        let mut fields: Vec<_> = counts.into_iter().map(of).collect();
        fields.sort_by(|left, right| {
            right.releases.cmp(&left.releases).then_with(|| left.name.cmp(&right.name))
        });
        fields
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

/// Whether a status names only a part of the drift.
fn is_cut(status: &GuardedReleaseStatus) -> bool {
    let drifted = drifted(status);
    drifted > status.drifts.len() || status.drifts.iter().take(drifted).any(|it| it.more_fields > 0)
}

/// The number of drifted objects. They come before objects that may differ.
fn drifted(status: &GuardedReleaseStatus) -> usize {
    usize::try_from(status.drifted).unwrap_or(usize::MAX)
}

type ExceptionKey = (String, String);

#[derive(Default)]
struct ExceptionIndex {
    /// None where one cannot be read.
    objects: BTreeMap<ExceptionKey, Option<Box<DriftAllowance>>>,
    /// What the listing under way has named.
    listed: BTreeSet<ExceptionKey>,
    is_whole: bool,
    /// How often those of a namespace have changed.
    changes: HashMap<String, u64>,
    /// How often those of all namespaces may have changed: by the right to them, or before they were listed anew.
    all_changes: u64,
}

struct WatchedException {
    version: String,
    place: ExceptionKey,
    object: Option<Box<DriftAllowance>>,
}

impl ObjectForm for WatchedException {
    type Wire = Value;
    const PAGE: u32 = 250;
    const METADATA: bool = false;

    fn read(mut wire: Value) -> Self {
        let text =
            |pointer: &str| wire.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = (text("/metadata/namespace"), text("/metadata/name"));
        let version = text("/metadata/resourceVersion");
        // Whoever may create exceptions chooses how long these are, and no page shows them.
        if let Some(metadata) = wire.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !matches!(&**name, "annotations" | "labels" | "managedFields"));
        }
        Self { version, place, object: serde_json::from_value(wire).ok() }
    }

    fn version(&self) -> &str {
        &self.version
    }
}

impl ExceptionIndex {
    /// All of them; `None` where the watch does not know them at this moment.
    fn all(&self) -> Option<Vec<DriftAllowance>> {
        // Why one cannot be read, says who asks for it.
        self.objects
            .values()
            .map(|object| object.as_deref().cloned())
            .collect::<Option<_>>()
            .filter(|_| self.is_whole)
    }

    /// How often those of these namespaces may have changed.
    fn changes<'n>(&self, namespaces: impl IntoIterator<Item = &'n String>) -> u64 {
        let own = namespaces.into_iter().filter_map(|namespace| self.changes.get(namespace));
        own.fold(self.all_changes, |sum, changes| sum.wrapping_add(*changes))
    }

    /// The right to them has begun or ended. They are listed anew where it goes on.
    fn forget(&mut self) {
        let (changes, all_changes) = (std::mem::take(&mut self.changes), self.all_changes.wrapping_add(1));
        *self = Self { changes, all_changes, ..Self::default() };
    }

    /// Takes what the watch brings. Whether that is a change.
    fn take(&mut self, event: ObjectEvent<WatchedException>) -> bool {
        match event {
            ObjectEvent::Relisting => self.listed.clear(),
            ObjectEvent::Listed(WatchedException { place, object, .. }) => {
                self.listed.insert(place.clone());
                self.objects.insert(place, object);
            }
            ObjectEvent::Synced => {
                let listed = std::mem::take(&mut self.listed);
                self.objects.retain(|place, _| listed.contains(place));
                (self.is_whole, self.all_changes) = (true, self.all_changes.wrapping_add(1));
                return true;
            }
            ObjectEvent::Applied(WatchedException { place, object, .. }) => {
                self.note_change(&place.0);
                self.objects.insert(place, object);
                return true;
            }
            ObjectEvent::Deleted(WatchedException { place, .. }) => {
                self.note_change(&place.0);
                self.objects.remove(&place);
                return true;
            }
            ObjectEvent::Watching => {}
            // Until they are listed again, a page asks for them, and says why it gets no answer.
            ObjectEvent::Broken(_) => self.is_whole = false,
        }
        false
    }

    fn note_change(&mut self, namespace: &str) {
        let changes = self.changes.entry(namespace.to_owned()).or_default();
        *changes = changes.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
