//! How the releases of a cluster stand, followed by a watch for as long as somebody looks.
//!
//! Entry points: [`ReleaseStates::follow`], then [`ReleaseStates::rows`]. Invariant: nothing is kept but what the visitor may
//! read; what a page costs does not depend on how many releases there are, beyond going through them;
//! a failure takes nothing away and is told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client::allowances;
use crate::client::call::CallError;
use crate::client::connection::Connection;
use crate::client::guarded;
use crate::client::labelled::Origin;
use crate::client::lease::pulse::pulse;
use crate::client::resource::{GROUP, Meta, Resource, VERSION};
use crate::client::watch::{Event, Form, Watch};
use crate::config::RecordDriver;
use crate::inspect::failure::failed;
use crate::inspect::reading::{self, Reader};
use crate::inspect::releases::{Row, unrecorded};
use crate::model::ReleaseId;
use crate::policy::guarded::{GuardedRelease, GuardedReleaseStatus, LeaseReference};
use crate::policy::resolver::Labels;
use crate::verdict::health::told::{Pulse, Told};

/// How long a page waits for the first listing; then it shows what is there.
const FIRST: Duration = Duration::from_secs(5);

/// How often it is looked whether the guards still keep their statuses.
const PULSE: Duration = Duration::from_secs(10);

/// After how many of these looks records are listed again.
const RECORDS: u32 = 6;

/// What is followed.
#[derive(Clone)]
pub(super) struct Scope {
    /// `None` for all.
    pub(super) namespace: Option<String>,
    pub(super) driver: RecordDriver,
    pub(super) labels: Labels,
}

/// How the releases stand.
pub(super) struct ReleaseStates {
    pub(super) namespace: Option<String>,
    known: Arc<RwLock<Known>>,
    changes: watch::Receiver<u64>,
    /// Whether somebody has looked since it was asked last.
    is_looked_at: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// What a page shows of the releases.
pub(super) struct Rows {
    pub(super) rows: Vec<Arc<Row>>,
    /// What could not be read, or not yet: a sentence each.
    pub(super) notes: Vec<String>,
    /// Whether nothing could be read.
    pub(super) is_blind: bool,
}

/// A field that drifts, and in how many objects.
pub(super) type Fields = BTreeMap<String, usize>;

#[derive(Default)]
struct Known {
    guarded: BTreeMap<ReleaseId, Guarded>,
    /// By records and by objects; with the origin where there is no record.
    others: BTreeMap<ReleaseId, Option<Origin>>,
    pulses: HashMap<(String, String), Pulse>,
    is_whole: bool,
    /// Whether records and objects were looked at.
    has_others: bool,
    is_forbidden: bool,
    /// Whether there is a definition of GuardedRelease.
    is_undefined: bool,
    /// Why the GuardedReleases cannot be followed.
    trouble: Option<String>,
    /// What else could not be read.
    notes: Vec<String>,
}

/// A release that a guard speaks of.
struct Guarded {
    row: Arc<Row>,
    /// Without what only the guard needs.
    status: GuardedReleaseStatus,
}

/// An object of the watch.
struct Wire {
    version: String,
    object: Option<Box<GuardedRelease>>,
}

/// Keeps a board.
struct Follower {
    connection: Connection,
    scope: Scope,
    known: Arc<RwLock<Known>>,
    changed: watch::Sender<u64>,
    is_looked_at: Arc<AtomicBool>,
}

impl Form for Wire {
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

impl ReleaseStates {
    /// Follows the releases with the credentials of `connection`, until it is dropped.
    pub(super) fn follow(connection: Connection, scope: Scope) -> Self {
        let known = Arc::new(RwLock::new(Known::default()));
        let (changed, changes) = watch::channel(0);
        let namespace = scope.namespace.clone();
        let is_looked_at = Arc::new(AtomicBool::new(true));
        let (kept, looked) = (Arc::clone(&known), Arc::clone(&is_looked_at));
        let follower = Follower { connection, scope, known: kept, changed, is_looked_at: looked };
        Self { namespace, known, changes, is_looked_at, task: tokio::spawn(follower.run()) }
    }

    /// Waits until the releases were listed, or could not be, for a while.
    pub(super) async fn ready(&self) {
        let mut changes = self.changes.clone();
        let is_ready = |known: &Known| known.has_others && (known.is_whole || known.trouble.is_some());
        let wait = async { while !is_ready(&self.known.read()) && changes.changed().await.is_ok() {} };
        // What is there by then is shown.
        let _ = timeout(FIRST, wait).await;
    }

    /// Whether the visitor may not list these releases.
    pub(super) fn is_forbidden(&self) -> bool {
        self.known.read().is_forbidden
    }

    /// Tells of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// How all releases stand, by namespace and name.
    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        self.is_looked_at.store(true, Ordering::Relaxed);
        let known = self.known.read();
        let mut rows: BTreeMap<&ReleaseId, Arc<Row>> = BTreeMap::new();
        for (release, guarded) in &known.guarded {
            rows.insert(release, known.row(release, guarded, now));
        }
        for (release, origin) in &known.others {
            rows.entry(release)
                .or_insert_with(|| Arc::new(Row::unguarded(release.clone(), why(*origin, release))));
        }
        let mut notes: Vec<_> = known.trouble.iter().chain(&known.notes).cloned().collect();
        if !known.has_others || (!known.is_whole && known.trouble.is_none()) {
            notes.push(format!("still reading: {} releases so far", rows.len()));
        }
        if known.is_undefined {
            notes.push("no guard is installed here: there is no definition of GuardedRelease".to_owned());
        }
        Rows {
            is_blind: rows.is_empty() && known.trouble.is_some(),
            rows: rows.into_values().collect(),
            notes,
        }
    }

    /// The fields that drift, by kind and path, of the releases of `namespace` (`None`: of all).
    pub(super) fn fields(&self, namespace: Option<&str>) -> Fields {
        let mut fields = Fields::new();
        let known = self.known.read();
        let here = known.guarded.iter().filter(|(id, _)| namespace.is_none_or(|it| it == id.namespace));
        for (_, guarded) in here {
            guarded.fields().for_each(|field| *fields.entry(field).or_default() += 1);
        }
        fields
    }

    /// The releases of which this field drifts.
    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        let known = self.known.read();
        let has = |guarded: &Guarded| guarded.fields().any(|it| it == field);
        known.guarded.iter().filter(|(_, it)| has(it)).map(|(release, _)| release.clone()).collect()
    }
}

impl Drop for ReleaseStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    fn row(&self, release: &ReleaseId, guarded: &Guarded, now: Timestamp) -> Arc<Row> {
        let lease = guarded.status.lease.as_ref();
        let pulse = lease.and_then(|lease| self.pulses.get(&(lease.namespace.clone(), lease.name.clone())));
        let is_kept = |pulse: &Pulse| match pulse {
            Pulse::Renewed(at) => now.duration_since(*at) <= crate::verdict::health::told::STALE_AFTER,
            Pulse::Gone => false,
            Pulse::Unknown => true,
        };
        match pulse.filter(|pulse| !is_kept(pulse)) {
            Some(pulse) => {
                Arc::new(Row::guarded(release.clone(), Told::of(guarded.status.clone(), pulse, now)))
            }
            None => Arc::clone(&guarded.row),
        }
    }
}

impl Guarded {
    fn new(object: GuardedRelease) -> Option<(ReleaseId, Self)> {
        let release = object.release()?;
        let mut status = object.status.unwrap_or_default();
        status.seen = Vec::new();
        let told = Told::of(status.clone(), &Pulse::Unknown, Timestamp::UNIX_EPOCH);
        Some((release.clone(), Self { row: Arc::new(Row::guarded(release, told)), status }))
    }

    fn fields(&self) -> impl Iterator<Item = String> {
        self.status.drifts.iter().flat_map(|drift| {
            let kind = &drift.object.kind;
            let missing =
                drift.fields.is_empty().then(|| format!("{kind} ({})", drift.r#type.to_lowercase()));
            let fields = drift.fields.iter().map(move |field| format!("{kind} {}", field.path));
            fields.chain(missing).collect::<Vec<_>>()
        })
    }
}

impl Follower {
    async fn run(self) {
        tokio::join!(self.watch(), self.watch_exceptions(), self.look());
    }

    async fn watch(&self) {
        let resource = Resource::new(GROUP, VERSION, guarded::KIND, guarded::PLURAL);
        let client = self.connection.client.clone();
        let mut watch = Watch::<Wire>::new(client, &resource, self.scope.namespace.as_deref(), None);
        // What the listing under way has named.
        let mut listed = HashSet::new();
        loop {
            self.take(watch.next().await, &mut listed);
        }
    }

    /// Tells of exceptions that come and go; the pages read them when they are shown.
    async fn watch_exceptions(&self) {
        let (client, namespace) = (self.connection.client.clone(), self.scope.namespace.as_deref());
        let mut watch = Watch::<Meta>::new(client, &allowances::defined(), namespace, None);
        loop {
            if let Event::Applied(_) | Event::Deleted(_) = watch.next().await {
                self.changed.send_modify(|version| *version = version.wrapping_add(1));
            }
        }
    }

    /// Looks again and again at what no watch tells of.
    async fn look(&self) {
        let mut ticks = interval(PULSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tick = 0_u32;
        loop {
            ticks.tick().await;
            // The board listens itself; every other listener is an open page.
            let is_open = self.changed.receiver_count() > 1;
            if tick.is_multiple_of(RECORDS) && (self.is_looked_at.swap(false, Ordering::Relaxed) || is_open) {
                self.read_others().await;
            }
            tick = tick.wrapping_add(1);
            self.read_pulses().await;
        }
    }

    fn take(&self, event: Event<Wire>, listed: &mut HashSet<ReleaseId>) {
        let mut known = self.known.write();
        match event {
            Event::Relisting => listed.clear(),
            Event::Listed(wire) => {
                if let Some((release, guarded)) = wire.object.and_then(|it| Guarded::new(*it)) {
                    listed.insert(release.clone());
                    known.guarded.insert(release, guarded);
                }
            }
            Event::Applied(wire) => known.guarded.extend(wire.object.and_then(|it| Guarded::new(*it))),
            Event::Deleted(wire) => {
                let release = wire.object.and_then(|it| it.release());
                release.into_iter().for_each(|release| drop(known.guarded.remove(&release)));
            }
            Event::Synced => {
                known.guarded.retain(|release, _| listed.contains(release));
                (known.is_whole, known.is_undefined, known.is_forbidden) = (true, false, false);
                known.trouble = None;
            }
            Event::Watching => return,
            Event::Broken(error) => self.fail(&mut known, error),
        }
        drop(known);
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn fail(&self, known: &mut Known, error: CallError) {
        if error.is_not_found() {
            (known.is_whole, known.is_undefined) = (true, true);
            known.guarded.clear();
            return;
        }
        known.is_forbidden = error.is_forbidden();
        // What was read with rights that are gone is not shown any more.
        if known.is_forbidden || error.is_unauthorized() {
            known.guarded.clear();
        }
        known.trouble = Some(failed(&self.connection, "list the GuardedReleases", error).to_string());
    }

    /// Reads which releases there are that no guard speaks of.
    async fn read_others(&self) {
        let Scope { namespace, driver, labels } = &self.scope;
        let kinds = match reading::kinds(&self.connection).await {
            Ok(kinds) => kinds,
            Err(error) => return self.set_others(BTreeMap::new(), vec![error.to_string()]),
        };
        let reader = Reader::of_kinds(self.connection.clone(), kinds, *driver, labels).await;
        let mut notes = Vec::new();
        let stored = reader.list(namespace.as_deref()).await.unwrap_or_else(|error| {
            notes.push(format!("releases without a guard may be missing: {error}"));
            Vec::new()
        });
        let found = unrecorded::find(&reader, namespace.as_deref()).await;
        let mut others: BTreeMap<_, _> =
            found.releases.into_iter().map(|(release, origin)| (release, Some(origin))).collect();
        others.extend(stored.into_iter().map(|release| (release, None)));
        notes.extend(found.notes);
        let unread = reader.unread_records(namespace.as_deref());
        notes.extend(unread.into_iter().map(|unread| format!("releases may be missing: {unread}")));
        self.set_others(others, notes);
    }

    fn set_others(&self, others: BTreeMap<ReleaseId, Option<Origin>>, notes: Vec<String>) {
        let mut known = self.known.write();
        if known.has_others && known.others == others && known.notes == notes {
            return;
        }
        (known.others, known.notes, known.has_others) = (others, notes, true);
        drop(known);
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
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
            let read = pulse(&self.connection.client, &lease).await.unwrap_or(Pulse::Unknown);
            pulses.insert((namespace, name), read);
        }
        self.known.write().pulses = pulses;
    }
}

/// Why no guard speaks of a release, as far as the list can tell.
fn why(origin: Option<Origin>, release: &ReleaseId) -> String {
    match origin {
        Some(origin) => unrecorded::why(origin, release),
        None => "not guarded: its page says why".to_owned(),
    }
}
