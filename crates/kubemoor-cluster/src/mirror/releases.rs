//! The releases of a cluster: the index of their declarations, updated by a watch of their records and by a fresh
//! lookup before a denial. For the index only the latest record and the baseline are read in full, and only their
//! manifests are kept. An invalid record causes one warning and does not change its release. The index never returns
//! from a newer state of a release to an older one. Records are addressed by the namespace that stores them, which may
//! not be the release's ([`Releases::trust`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use kube::runtime::watcher::DefaultBackoff;
use moka::future::Cache;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::client::call::{ClusterError, PATIENCE};
use crate::client::resource::Meta;
use crate::client::watch::{MetadataWatch, ObjectEvent};
use crate::client::writer::at_least_one;
use crate::mirror::kinds::{LearningAttempts, ServedKinds};
use crate::mirror::records::{Fetched, KnownRecord, Payloads, RecordListing, Records, SELECTOR, read_record};
use crate::mirror::reflect::{ChangeAnnouncer, ChangeQueue, scopes, until};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Gvk, ObjectId, ReleaseId};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_helm::index::Index;
use kubemoor_helm::record::{ChartSource, RecordError, ReleaseStatus};
use kubemoor_helm::release::{self, Assembled, RecordHead, RecordMismatch, RecordPayload, Release};
use kubemoor_helm::storage::TrustedRecordNamespaces;
use kubemoor_reconcile::event::{ManifestDocument, Secret};
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{RecheckResult, RecordFault, RecordMetrics};

/// The part of a lookup's time that the API server may use to answer; the rest is for processing the answer.
const ANSWERING: f64 = 0.9;

pub struct Releases {
    payloads: Payloads,
    kinds: Arc<ServedKinds>,
    metrics: RecordMetrics,
    client: kube::Client,
    namespaces: Vec<String>,
    index: Arc<RwLock<Index>>,
    records: Mutex<Records>,
    standings: Mutex<HashMap<ReleaseId, IndexedRecords>>,
    /// By release, a lock for one task at a time to work on it, for as long as any task holds it.
    gates: Mutex<HashMap<ReleaseId, Weak<Gate>>>,
    /// Releases for which the index had no room, by where their records are stored.
    left_out: Mutex<HashSet<ReleaseId>>,
    /// Which records are trusted for releases in other namespaces.
    storage: RwLock<Arc<TrustedRecordNamespaces>>,
    /// Releases of the first lists whose records have not been read yet.
    unread: Mutex<HashSet<ReleaseId>>,
    dirty: ChangeQueue<ReleaseId>,
    /// Notified when a release declares a kind that is not completely known.
    unlearned: Notify,
    announcer: ChangeAnnouncer<ReleaseId>,
    health: watch::Sender<IndexHealth>,
    outages: Mutex<BTreeMap<usize, Outage>>,
    /// The chart sources that recent messages used.
    sources: ChartSources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexHealth {
    /// Every release of the first full list is in the index, or the start took too long to wait for all.
    pub indexed: bool,
    /// Set while records cannot be listed or watched; the last state is used.
    pub outage: Option<Outage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub since: Instant,
    pub reason: ClusterError,
}

/// The records from which the index was last updated for a release.
struct IndexedRecords {
    latest: Arc<RecordHead>,
    /// The baseline by Helm's order; another record may have been read instead.
    baseline: Option<Arc<RecordHead>>,
    generation: u64,
}

struct LastLook {
    began: Instant,
    outcome: Result<bool, ClusterError>,
}

type Gate = tokio::sync::Mutex<Option<LastLook>>;

impl Releases {
    /// The releases whose records `driver` stores in `namespaces` (empty: in all), kept in `index`. Nothing is read
    /// before [`Self::run`].
    pub fn new(
        client: kube::Client,
        driver: RecordDriver,
        namespaces: Vec<String>,
        kinds: Arc<ServedKinds>,
        index: Arc<RwLock<Index>>,
        metrics: RecordMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            payloads: Payloads::new(client.clone(), driver),
            kinds,
            metrics,
            client,
            namespaces,
            index,
            records: Mutex::default(),
            standings: Mutex::default(),
            gates: Mutex::default(),
            left_out: Mutex::default(),
            storage: RwLock::default(),
            unread: Mutex::default(),
            dirty: ChangeQueue::new(),
            unlearned: Notify::new(),
            announcer: ChangeAnnouncer::default(),
            health: watch::Sender::new(IndexHealth::default()),
            outages: Mutex::default(),
            sources: ChartSources::default(),
        })
    }

    /// The index. Lock it for no longer than a lookup, and across no `await`.
    pub fn index(&self) -> &RwLock<Index> {
        &self.index
    }

    pub fn health(&self) -> watch::Receiver<IndexHealth> {
        self.health.subscribe()
    }

    /// Every release of the index, then each one whose entry changes.
    pub fn changes(&self) -> ChangeQueue<ReleaseId> {
        self.announcer
            .subscribe(self.index.read().releases().map(|release| release.id.clone()).collect::<Vec<_>>())
    }

    pub fn count(&self) -> (usize, usize) {
        self.records.lock().count()
    }

    /// Looks up the records of `release` at the API server, in all trusted places, and updates the index. Returns
    /// whether that changed the index. Another task may have updated it just before, so evaluate again in both cases.
    ///
    /// A lookup is shared by all callers that asked before it began.
    pub async fn refresh_release(&self, release: &ReleaseId, within: Duration) -> Result<bool, ClusterError> {
        let places = self.storage().places(release);
        let looks = places.iter().map(|stored| self.fresh_at(stored, within));
        let outcomes = join_all(looks).await;
        let changed = outcomes.into_iter().collect::<Result<Vec<bool>, _>>()?;
        Ok(changed.contains(&true))
    }

    async fn fresh_at(&self, stored: &ReleaseId, within: Duration) -> Result<bool, ClusterError> {
        if !self.can_exist(stored) {
            return Ok(false);
        }
        let arrived = Instant::now();
        // Requests end before the whole does, so that the error can tell what took so long.
        let until = arrived + within.mul_f64(ANSWERING);
        let outcome = match timeout(within, self.look_once(stored, arrived, until)).await {
            Err(_) => {
                let what = format!("the records of release {stored} are too large or too many to be read");
                Err(ClusterError::Slow { what, within })
            }
            Ok(Err(error)) if error.is_late() => Err(ClusterError::Late { within }.of_records(stored)),
            Ok(outcome) => outcome,
        };
        self.metrics.count_recheck(match &outcome {
            Ok(false) => RecheckResult::Unchanged,
            Ok(true) => RecheckResult::Changed,
            Err(ClusterError::Slow { .. }) => RecheckResult::TimedOut,
            Err(error) if error.is_late() => RecheckResult::TimedOut,
            Err(_) => RecheckResult::Failed,
        });
        outcome
    }

    async fn look_once(
        &self,
        release: &ReleaseId,
        arrived: Instant,
        until: Instant,
    ) -> Result<bool, ClusterError> {
        let gate = self.gate(release);
        let within = until.saturating_duration_since(arrived);
        let late = || ClusterError::Late { within }.of_records(release);
        let mut last = timeout_at(until, gate.lock()).await.map_err(|_| late())?;
        // A lookup that began before this call may have missed the change that led to it.
        if let Some(look) = last.as_ref().filter(|look| look.began >= arrived) {
            return look.outcome.clone();
        }
        let began = Instant::now();
        let look = async {
            let looked = self.payloads.look(release, until.saturating_duration_since(began)).await;
            let looked = looked.map_err(|error| error.of_records(release))?;
            // The watch does not report it again, and the caller may give up before the index is updated.
            if self.records.lock().look(release, looked.records, &looked.version, began) {
                self.dirty.add(release.clone());
            }
            self.update_index(release, Some(until)).await
        };
        let outcome = look.await;
        *last = Some(LastLook { began, outcome: outcome.clone() });
        outcome
    }

    /// Whether a release of that name can exist in the watched namespaces. Names come from annotations that every user
    /// can write. A text that cannot be a label value or a namespace is not sent to the API server.
    fn can_exist(&self, release: &ReleaseId) -> bool {
        let is_label = |text: &str| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            text.len() <= 63
                && edge(text.as_bytes().first())
                && edge(text.as_bytes().last())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        is_label(&release.name)
            && is_label(&release.namespace)
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|it| *it == release.namespace))
    }

    fn gate(&self, release: &ReleaseId) -> Arc<Gate> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(release).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::default();
        gates.insert(release.clone(), Arc::downgrade(&gate));
        gate
    }
}

const AT_ONCE: usize = 16;

/// How long a start waits for the records of all releases: users who may write Secrets must not be able to delay it
/// without limit.
const LONGEST_START: Duration = Duration::from_secs(180);

/// How many releases of one namespace are read at once, so that one with many or long records leaves room for others.
const OF_ONE: usize = 4;

/// The releases that are being read, and those that wait for others of their namespace.
#[derive(Default)]
struct NamespaceReadQueue {
    running: HashMap<String, usize>,
    waiting: VecDeque<ReleaseId>,
}

impl NamespaceReadQueue {
    fn begin(&mut self, release: ReleaseId) -> Option<ReleaseId> {
        let running = self.running.entry(release.namespace.to_string()).or_default();
        if *running < OF_ONE {
            *running += 1;
            return Some(release);
        }
        if !self.waiting.contains(&release) {
            self.waiting.push_back(release);
        }
        None
    }

    /// Records that the release was read; returns the release of its namespace that has waited longest.
    fn end(&mut self, release: &ReleaseId) -> Option<ReleaseId> {
        let namespace = &release.namespace;
        let next = self.waiting.iter().position(|it| it.namespace == *namespace);
        let next = next.and_then(|next| self.waiting.remove(next));
        if next.is_some() {
            return next;
        }
        if let Some(running) = self.running.get_mut(namespace.as_str()) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(namespace.as_str());
            }
        }
        next
    }
}

impl Releases {
    /// Follows the cluster's records until `stop`. Failures are reported by [`Releases::health`] and tried again.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let scopes = scopes(&self.namespaces);
        let unlisted = watch::Sender::new(scopes.len());
        let feeds =
            scopes.iter().enumerate().map(|(scope, namespace)| self.feed(scope, *namespace, &unlisted));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(feeds) => {}
            () = self.work(unlisted.subscribe()) => {}
        }
    }

    async fn feed(&self, scope: usize, namespace: Option<&str>, unlisted: &watch::Sender<usize>) {
        let resource = self.payloads.resource();
        let mut watch = MetadataWatch::new(self.client.clone(), &resource, namespace, Some(SELECTOR));
        let mut listing = RecordListing::new(Instant::now());
        let mut is_listed = false;
        loop {
            match watch.next().await {
                ObjectEvent::Relisting => listing = RecordListing::new(Instant::now()),
                ObjectEvent::Listed(meta) => {
                    if let Some((release, known)) = self.read(meta, !is_listed) {
                        listing.add(release, known);
                    }
                }
                ObjectEvent::Synced => {
                    let whole = std::mem::replace(&mut listing, RecordListing::new(Instant::now()));
                    let changed = self.records.lock().replace(namespace, whole);
                    if !std::mem::replace(&mut is_listed, true) {
                        self.unread.lock().extend(changed.iter().cloned());
                        unlisted.send_modify(|unlisted| *unlisted -= 1);
                    }
                    changed.into_iter().for_each(|release| self.dirty.add(release));
                }
                ObjectEvent::Applied(meta) => self.apply(meta),
                ObjectEvent::Deleted(meta) => self.delete(meta),
                ObjectEvent::Watching => self.recovered(scope),
                ObjectEvent::Broken(error) => self.broken(scope, error),
            }
        }
    }

    fn apply(&self, meta: Meta) {
        if let Some((release, known)) = self.read(meta, true)
            && self.records.lock().apply(release.clone(), known)
        {
            self.dirty.add(release);
        }
    }

    fn delete(&self, meta: Meta) {
        let Ok((release, known)) = read_record(meta) else { return };
        let head = &known.head;
        let is_gone = self.records.lock().delete(&release, &head.secret, &head.uid, &head.resource_version);
        if is_gone {
            self.dirty.add(release);
        }
    }

    async fn work(&self, mut unlisted: watch::Receiver<usize>) {
        let (kinds, definitions) = (self.kinds.changes(), self.kinds.definitions());
        let (mut attempts, mut learning) = (LearningAttempts::none(), FuturesUnordered::new());
        let mut running = FuturesUnordered::new();
        let mut turns = NamespaceReadQueue::default();
        let mut resting = FuturesUnordered::new();
        let mut failures: HashMap<ReleaseId, DefaultBackoff> = HashMap::new();
        let mut late_at = None;
        loop {
            if *unlisted.borrow() == 0 {
                let late_at = *late_at.get_or_insert_with(|| Instant::now() + LONGEST_START);
                self.note_progress(Instant::now() >= late_at);
            }
            tokio::select! {
                release = self.dirty.next(), if running.len() < AT_ONCE => {
                    running.extend(turns.begin(release).map(|release| self.settle_in_turn(release)));
                }
                Some((release, outcome)) = running.next() => {
                    running.extend(turns.end(&release).map(|release| self.settle_in_turn(release)));
                    match outcome {
                        Ok(_) => drop(failures.remove(&release)),
                        Err(error) => {
                            if !failures.contains_key(&release) {
                                tracing::warn!(release.id = %release, %error, "failed to read a release; retrying");
                            }
                            let pause = failures.entry(release.clone()).or_default().next().unwrap_or_default();
                            resting.push(async move {
                                sleep(pause).await;
                                release
                            });
                        }
                    }
                }
                Some(release) = resting.next() => self.dirty.add(release),
                gvk = kinds.next() => self.outdate_kind(&gvk),
                _ = definitions.next() => attempts.hasten(Instant::now()),
                () = self.unlearned.notified() => attempts.hasten(Instant::now()),
                () = until(attempts.at), if learning.is_empty() => {
                    attempts.at = None;
                    learning.push(self.learn_declared());
                }
                Some(is_left) = learning.next() => attempts.note(is_left, Instant::now()),
                Ok(()) = unlisted.changed() => {}
                () = sleep_until(late_at.unwrap_or_else(Instant::now)), if late_at.is_some_and(|at| Instant::now() < at) => {}
            }
        }
    }

    /// Settles a release under its lock. A release whose records keep changing counts as read, so that nobody can delay
    /// the start by writing one record again and again.
    async fn settle_in_turn(&self, stored: ReleaseId) -> (ReleaseId, Result<bool, ClusterError>) {
        let outcome = {
            let gate = self.gate(&stored);
            let _turn = gate.lock().await;
            self.update_index(&stored, None).await
        };
        if matches!(outcome, Ok(_) | Err(ClusterError::RecordsChanging { .. })) {
            self.unread.lock().remove(&stored);
        }
        (stored, outcome)
    }

    /// Reports that the index is complete, once it holds all releases of the first lists, or once that is late.
    fn note_progress(&self, is_late: bool) {
        if self.health.borrow().indexed {
            return;
        }
        let unread = self.unread.lock().len();
        if unread > 0 && !is_late {
            return;
        }
        if unread > 0 {
            tracing::warn!(
                releases = unread,
                "some releases have not been read yet; checking changes without them"
            );
        }
        *self.unread.lock() = HashSet::default();
        self.health.send_modify(|health| health.indexed = true);
        let (records, releases) = self.count();
        tracing::info!(releases, records, objects = self.index.read().objects(), "the releases are indexed");
    }

    /// Reads the record. With `is_news`, warns of an object with Helm's label that is not one.
    fn read(&self, meta: Meta, is_news: bool) -> Option<(ReleaseId, KnownRecord)> {
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone());
        match read_record(meta) {
            Ok(record) => Some(record),
            Err(stray) => {
                if is_news {
                    self.metrics.undecodable(RecordFault::Disagrees);
                    tracing::warn!(
                        %namespace, record = %name, reason = %stray,
                        "object with Helm's label is not a release record"
                    );
                }
                None
            }
        }
    }

    fn broken(&self, scope: usize, reason: ClusterError) {
        let mut outages = self.outages.lock();
        if !outages.contains_key(&scope) {
            tracing::warn!(%reason, "failed to watch release records; using the last known state");
        }
        let outage = outages.entry(scope).or_insert(Outage { since: Instant::now(), reason: reason.clone() });
        outage.reason = reason;
        self.tell(outages.values());
    }

    fn recovered(&self, scope: usize) {
        let mut outages = self.outages.lock();
        if let Some(outage) = outages.remove(&scope) {
            let seconds = outage.since.elapsed().as_secs();
            tracing::info!(seconds, "release records are watched again");
            self.tell(outages.values());
        }
    }

    fn tell<'o>(&self, outages: impl Iterator<Item = &'o Outage>) {
        let longest = outages.min_by_key(|outage| outage.since).cloned();
        self.health.send_modify(|health| health.outage = longest);
    }
}

/// How often a release is read again because its records changed meanwhile.
const ATTEMPTS: usize = 5;

/// How long a release waits for the types of its declared kinds.
const LEARNING: Duration = Duration::from_secs(10);

struct AssemblyInput {
    stored: ReleaseId,
    storage: Arc<TrustedRecordNamespaces>,
    latest: (Arc<RecordHead>, RecordPayload),
    baseline: Option<(Arc<RecordHead>, RecordPayload)>,
    previous: Option<Arc<Release>>,
}

impl Releases {
    /// Schedules every release for a new assembly that declares objects of a kind and was assembled before the kind
    /// last changed.
    fn outdate_kind(&self, gvk: &Gvk) {
        let current = self.kinds.snapshot();
        let declaring: Vec<ReleaseId> = {
            let index = self.index.read();
            let declares = |release: &&Arc<Release>| {
                release.objects.keys().any(|object| object.kind == gvk.kind && object.group == gvk.group)
            };
            index.histories().filter(declares).map(|release| release.stored()).collect()
        };
        for id in declaring {
            let generation = self.standings.lock().get(&id).map(|standing| standing.generation);
            if generation.is_some_and(|generation| current.is_newer(gvk, generation)) {
                self.outdate(&id);
            }
        }
    }

    /// Schedules a release for a new assembly although its records are unchanged.
    fn outdate(&self, id: &ReleaseId) {
        self.standings.lock().remove(id);
        self.dirty.add(id.clone());
    }

    /// Tries to complete the kinds that releases declare. Returns whether any is still incomplete.
    async fn learn_declared(&self) -> bool {
        let snapshot = self.kinds.snapshot();
        let releases: Vec<Arc<Release>> = self.index.read().histories().cloned().collect();
        let declared = releases.iter().flat_map(|release| declared_kinds(release));
        let unknown: HashSet<Gvk> = declared.filter(|gvk| !snapshot.is_settled(gvk)).collect();
        drop(releases);
        if !unknown.is_empty() {
            self.kinds.learn(unknown.iter().cloned()).await;
        }
        let snapshot = self.kinds.snapshot();
        unknown.iter().any(|gvk| !snapshot.is_settled(gvk))
    }

    /// Updates the index from the known records at `id`, whose gate the caller holds. Returns whether the index
    /// changed. With `until`, waits for the API server no longer than that: built-in schemas are used for kinds with
    /// unknown schemas, which are fetched in the background. Without it they are fetched first.
    async fn update_index(&self, id: &ReleaseId, until: Option<Instant>) -> Result<bool, ClusterError> {
        let called = |error: ClusterError| error.of_records(id);
        let storage = self.storage();
        for _ in 0..ATTEMPTS {
            let known = self.records.lock().all(id);
            let heads: Vec<Arc<RecordHead>> = known.iter().map(|known| Arc::clone(&known.head)).collect();
            let Some(latest) = release::latest(&heads) else {
                return Ok(self.remove(id));
            };
            let baseline = release::baseline(&heads);
            if self.is_index_current(id, latest, baseline) {
                return Ok(false);
            }
            let Some(payload) = self.fetch(id, latest, until).await.map_err(called)? else { continue };
            let base = match baseline {
                None if release::validate_record(id, latest, &payload, &storage).is_err() => {
                    next_best(&heads, latest)
                }
                baseline => baseline.cloned(),
            };
            let base = match base {
                None => None,
                Some(head) => match self.fetch(id, &head, until).await.map_err(called)? {
                    Some(payload) => Some((head, payload)),
                    None => continue,
                },
            };
            let standing =
                IndexedRecords { latest: latest.clone(), baseline: baseline.cloned(), generation: 0 };
            let previous = self.index.read().stored(id).cloned();
            let latest = (latest.clone(), payload);
            let material = AssemblyInput { stored: id.clone(), storage, latest, baseline: base, previous };
            return self.take_in(Arc::new(material), &known, standing, until).await.map_err(called);
        }
        Err(ClusterError::RecordsChanging { release: id.clone() })
    }

    async fn take_in(
        &self,
        material: Arc<AssemblyInput>,
        known: &[KnownRecord],
        mut standing: IndexedRecords,
        until: Option<Instant>,
    ) -> Result<bool, ClusterError> {
        let mut snapshot = self.kinds.snapshot();
        let cache = Arc::clone(self.index.read().cache());
        let assemble = |catalog: Arc<Catalog>| {
            Arc::clone(&material).assemble(catalog, &self.payloads, Arc::clone(&cache))
        };
        let mut assembled = assemble(snapshot.catalog.clone()).await?;
        let kinds = declared_kinds(&assembled.release);
        let missing: Vec<Gvk> = kinds.iter().filter(|gvk| !snapshot.is_settled(gvk)).cloned().collect();
        if until.is_none() && !missing.is_empty() {
            // It will be assembled again; free its memory until then.
            drop(assembled);
            // Schemas that arrive later are reported as a change of the kinds.
            let _ = tokio::time::timeout(LEARNING, self.kinds.learn(missing)).await;
            snapshot = self.kinds.snapshot();
            assembled = assemble(snapshot.catalog.clone()).await?;
        }
        self.report(&material, &assembled, known);
        standing.generation = snapshot.generation;
        let stored = &material.stored;
        let release = assembled.release.id.clone();
        self.standings.lock().insert(stored.clone(), standing);
        let is_trusted = self.put(assembled.release, &material.storage);
        self.announcer.announce(&release);
        // These records belonged to another release until now.
        if let Some(before) = material.previous.as_ref().filter(|before| before.id != release) {
            self.announcer.announce(&before.id);
        }
        // Kinds may have changed after the snapshot and before the index held this release.
        let current = self.kinds.snapshot();
        if kinds.iter().any(|gvk| !current.is_settled(gvk)) {
            self.unlearned.notify_one();
        }
        if !is_trusted || kinds.iter().any(|gvk| current.is_newer(gvk, snapshot.generation)) {
            self.outdate(stored);
        }
        Ok(true)
    }

    /// Whether the index is already up to date with these records. Also updates the facts that can change
    /// without a record's content.
    fn is_index_current(
        &self,
        id: &ReleaseId,
        latest: &Arc<RecordHead>,
        baseline: Option<&Arc<RecordHead>>,
    ) -> bool {
        let mut standings = self.standings.lock();
        let Some(standing) = standings.get_mut(id) else { return false };
        let stands = standing.latest.is_same_version(latest)
            && match (&standing.baseline, baseline) {
                (Some(a), Some(b)) => a.is_same_version(b),
                (None, None) => true,
                _ => false,
            };
        if stands && standing.latest.appearance != latest.appearance {
            standing.latest = Arc::clone(latest);
            let mut index = self.index.write();
            if let Some(mut release) = index.stored(id).map(|release| Release::clone(release)) {
                release.latest = Arc::clone(latest);
                if release.state.revision == latest.revision {
                    release.state.appearance = latest.appearance;
                }
                let id = release.id.clone();
                index.set(release);
                drop(index);
                self.announcer.announce(&id);
            }
        }
        stands
    }

    fn remove(&self, stored: &ReleaseId) -> bool {
        self.standings.lock().remove(stored);
        let mut index = self.index.write();
        let Some(release) = index.stored(stored).map(|release| release.id.clone()) else { return false };
        index.remove(stored);
        drop(index);
        self.left_out.lock().remove(stored);
        self.make_room(&stored.namespace);
        tracing::info!(release.id = %release, "the release no longer has any records");
        self.announcer.announce(&release);
        true
    }

    /// The payload of a record; `None` if the record has changed or is gone, which is then applied.
    async fn fetch(
        &self,
        id: &ReleaseId,
        head: &RecordHead,
        until: Option<Instant>,
    ) -> Result<Option<RecordPayload>, ClusterError> {
        match self
            .payloads
            .fetch(id, head, until.map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now())))
            .await
        {
            Ok(Fetched::Found(payload)) => return Ok(Some(payload)),
            Ok(Fetched::Gone) => self.forget(id, head),
            Ok(Fetched::Moved(meta)) => match read_record(meta) {
                Ok((release, known)) if release == *id => {
                    if self.records.lock().apply(release, known) {
                        self.dirty.add(id.clone());
                    }
                }
                _ => self.forget(id, head),
            },
            Err(error) => {
                self.metrics.undecodable(RecordFault::Unread);
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Removes a record that is gone. The watch does not report it again, and the caller may give up before the index
    /// is updated.
    fn forget(&self, id: &ReleaseId, head: &RecordHead) {
        if self.records.lock().forget(id, &head.secret, &head.uid) {
            self.dirty.add(id.clone());
        }
    }

    /// Logs once what is invalid in a release's records.
    fn report(&self, material: &AssemblyInput, assembled: &Assembled, known: &[KnownRecord]) {
        let AssemblyInput { stored: id, storage, latest, baseline, previous } = material;
        let told = |head: &RecordHead| {
            previous.as_ref().is_some_and(|previous| {
                [Some(&previous.latest), previous.baseline.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|known| known.is_same_version(head))
            })
        };
        for (head, payload) in std::iter::once(latest).chain(baseline).filter(|(head, _)| !told(head)) {
            let Err(disbelief) = release::validate_record(id, head, payload, storage) else { continue };
            self.metrics.undecodable(fault(payload, &disbelief));
            let flaw =
                known.iter().find(|known| known.head.uid == head.uid).and_then(|known| known.flaw.as_deref());
            let reason = flaw.map_or_else(|| disbelief.to_string(), str::to_owned);
            tracing::warn!(
                release.id = %id, record = %head.secret, %reason,
                "invalid release record; using the last valid one"
            );
        }
        if !told(&latest.0) {
            let kept = &assembled.release;
            if let (Some(invalid), Ok(_)) =
                (&kept.invalid, release::validate_record(id, &latest.0, &latest.1, storage))
            {
                self.metrics.undecodable(RecordFault::TooLarge);
                tracing::warn!(
                    release.id = %id, record = %invalid.secret, reason = %invalid.reason, "a release is not judged"
                );
            }
            for skipped in &assembled.skipped {
                let source = skipped.source.as_deref().unwrap_or("unknown");
                tracing::warn!(
                    release.id = %id, release.revision = latest.0.revision, document = skipped.index, %source,
                    reason = %skipped.reason, "manifest document is not an object and is not guarded"
                );
            }
        }
    }
}

impl AssemblyInput {
    async fn assemble(
        self: Arc<Self>,
        catalog: Arc<Catalog>,
        payloads: &Payloads,
        cache: Arc<FieldsCache>,
    ) -> Result<Assembled, ClusterError> {
        let baseline = self.baseline.as_ref().map(|(_, payload)| payload);
        let is_heavy = baseline.into_iter().chain([&self.latest.1]).any(RecordPayload::is_heavy);
        let assemble = move || {
            release::assemble(
                release::StoredRecords {
                    stored: &self.stored,
                    latest: (&self.latest.0, &self.latest.1),
                    baseline: self.baseline.as_ref().map(|(head, payload)| (head, payload)),
                },
                self.previous.as_deref(),
                &self.storage,
                &catalog,
                &cache,
            )
        };
        payloads.read(is_heavy, assemble).await
    }
}

fn declared_kinds(release: &Release) -> BTreeSet<Gvk> {
    let declared = release.objects.iter().flat_map(|(object, declarations)| {
        declarations.all().map(|declared| Gvk {
            group: object.group.to_string(),
            version: declared.version.to_string(),
            kind: object.kind.to_string(),
        })
    });
    declared.collect()
}

/// The record to use when the latest one is invalid and there is no baseline: the last deployed revision below it, or
/// else the last superseded one.
fn next_best(heads: &[Arc<RecordHead>], latest: &RecordHead) -> Option<Arc<RecordHead>> {
    let below = heads.iter().filter(|head| head.revision < latest.revision);
    let in_force =
        below.filter(|head| matches!(head.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded));
    in_force.max_by_key(|head| (head.status == ReleaseStatus::Deployed, head.revision)).cloned()
}

fn fault(payload: &RecordPayload, disbelief: &RecordMismatch) -> RecordFault {
    match (&payload.record, disbelief) {
        (_, RecordMismatch::Disagree { .. }) | (Ok(_), _) => RecordFault::Disagrees,
        (Err(RecordError::Base64(_)), _) => RecordFault::Encoding,
        (Err(RecordError::Decompress(_)), _) => RecordFault::Compression,
        (Err(RecordError::TooLarge { .. } | RecordError::LongManifest { .. }), _) => RecordFault::TooLarge,
        (Err(_), _) => RecordFault::Syntax,
    }
}

impl Releases {
    /// Trusts only these records from now on. The index is updated soon after.
    pub fn trust(&self, storage: &TrustedRecordNamespaces) {
        // A namespace that is not watched cannot be trusted.
        let storage = Arc::new(storage.clone().within(&self.namespaces));
        let before = {
            let mut current = self.storage.write();
            if **current == *storage {
                return;
            }
            std::mem::replace(&mut *current, Arc::clone(&storage))
        };
        let is_distrusted = |it: &&Arc<Release>| !storage.can_store(&it.storage, &it.id.namespace);
        let distrusted: Vec<_> = self.index.read().histories().filter(is_distrusted).cloned().collect();
        for release in distrusted {
            let stored = release.stored();
            self.standings.lock().remove(&stored);
            self.index.write().remove(&stored);
            self.announcer.announce(&release.id);
        }
        for namespace in before.changed(&storage) {
            let concerned = self.records.lock().releases_in(&namespace);
            concerned.iter().for_each(|stored| self.outdate(stored));
        }
    }

    fn storage(&self) -> Arc<TrustedRecordNamespaces> {
        Arc::clone(&self.storage.read())
    }

    /// Adds a release to the index that was read under `storage`, if it is still trusted. Returns whether `storage` is
    /// still the current one.
    fn put(&self, release: Release, storage: &Arc<TrustedRecordNamespaces>) -> bool {
        // Held, so that the trust does not change before the release is added.
        let current = self.storage.read();
        if current.can_store(&release.storage, &release.id.namespace) {
            self.enter(release);
        }
        Arc::ptr_eq(&current, storage)
    }

    /// Schedules releases that had no room to be read again, after others have freed some.
    fn make_room(&self, namespace: &str) {
        let waiting: Vec<ReleaseId> = self.left_out.lock().iter().cloned().collect();
        let (own, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|it| it.namespace == namespace);
        own.iter().chain(&others).for_each(|stored| self.outdate(stored));
    }

    /// Where the records are stored that the index uses for `release`; without records, its own namespace.
    fn stored(&self, release: &ReleaseId) -> ReleaseId {
        self.index.read().release(release).map_or_else(|| release.clone(), |release| release.stored())
    }

    /// Adds a release to the index, without its declarations if there is no memory for them.
    fn enter(&self, mut release: Release) {
        let stored = release.stored();
        let mut index = self.index.write();
        let before = index.stored(&stored).map_or(0, |before| before.weight);
        let room = index.check_room_for(&release);
        if let Err(full) = &room {
            tracing::warn!(release.id = %release.id, reason = %full, "a release is not judged");
            self.metrics.undecodable(RecordFault::TooLarge);
            release.drop_declarations(full.to_string());
        }
        let shrinks = release.weight < before;
        index.set(release);
        drop(index);
        match room {
            Ok(()) => self.left_out.lock().remove(&stored),
            Err(_) => self.left_out.lock().insert(stored.clone()),
        };
        if shrinks && room.is_ok() {
            self.make_room(&stored.namespace);
        }
    }
}

/// How often a record is read again because it changed meanwhile.
const DOCUMENT_ATTEMPTS: usize = 3;

impl Releases {
    /// The declaration of `object` in the manifest of `revision` of `release`, read from its record now.
    pub async fn document(
        &self,
        release: &ReleaseId,
        revision: u64,
        object: &ObjectId,
        within: Duration,
    ) -> Result<ManifestDocument, ClusterError> {
        // Requests end before the whole does, so that the error can tell what took so long.
        let reading = self.read_document(release, revision, object, within.mul_f64(ANSWERING));
        timeout(within, reading).await.unwrap_or_else(|_| {
            let what = format!("revision {revision} of release {release} is too large to be read");
            Err(ClusterError::Slow { what, within })
        })
    }

    fn head(&self, release: &ReleaseId, revision: u64) -> Option<Arc<RecordHead>> {
        let records = self.records.lock().all(release);
        records.into_iter().map(|known| known.head).find(|head| head.revision == revision)
    }

    async fn read_document(
        &self,
        release: &ReleaseId,
        revision: u64,
        object: &ObjectId,
        within: Duration,
    ) -> Result<ManifestDocument, ClusterError> {
        let called = |error: ClusterError| {
            error.during(format!("revision {revision} of release {release} could not be read"))
        };
        let none = || ClusterError::NoRecord { release: release.clone(), revision };
        let (stored, storage) = (self.stored(release), self.storage());
        let mut head = self.head(&stored, revision).ok_or_else(none)?;
        for _ in 0..DOCUMENT_ATTEMPTS {
            match self.payloads.fetch(&stored, &head, within).await.map_err(called)? {
                Fetched::Gone => return Err(none()),
                Fetched::Moved(meta) => {
                    // The watch will update the index.
                    head = read_record(meta).ok().filter(|(id, _)| *id == stored).ok_or_else(none)?.1.head;
                }
                Fetched::Found(payload) => {
                    let (id, object, catalog) = (release.clone(), object.clone(), self.kinds.catalog());
                    let reading = self.payloads.read(payload.is_heavy(), move || {
                        let unbelievable = |reason| ClusterError::InvalidRecord {
                            release: id.clone(),
                            record: head.secret.clone(),
                            reason,
                        };
                        let record = release::validate_record(&stored, &head, &payload, &storage)
                            .map_err(|disbelief| unbelievable(disbelief.to_string()))?;
                        if record.namespace != id.namespace {
                            return Err(unbelievable(format!(
                                "it belongs to namespace {}",
                                record.namespace
                            )));
                        }
                        let object =
                            payload.with_text(record, |text| release::document(&id, text, &object, &catalog));
                        Ok(ManifestDocument {
                            status: record.status,
                            apply_method: record.apply_method,
                            digest: record.digest,
                            object: object.map_err(|error| unbelievable(error.to_string()))?.map(Secret),
                        })
                    });
                    return reading.await.map_err(called)?;
                }
            }
        }
        Err(none())
    }
}

/// The maximum size of all cached sources, in bytes.
const KEPT: u64 = 4 << 20;

/// How many records are read per second for messages. Reading one takes milliseconds of CPU time.
const SOURCES: NonZeroU32 = at_least_one(4);

struct ChartSources {
    rate: DefaultDirectRateLimiter,
    kept: Cache<(String, String), Arc<ChartSource>>,
}

impl Releases {
    /// The revisions of a release with a record, newest first.
    pub fn revisions(&self, release: &ReleaseId) -> Vec<u64> {
        let records = self.records.lock().all(&self.stored(release));
        records.iter().rev().map(|known| known.head.revision).collect()
    }

    pub async fn source(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Result<ChartSource, ClusterError> {
        let stored = self.stored(release);
        let none = || ClusterError::NoRecord { release: release.clone(), revision };
        let head = self.head(&stored, revision).ok_or_else(none)?;
        self.read_source(&stored, &head, within).await
    }

    /// The same if it is cached, or can be read within this time; `None` otherwise, and when the rate limit is reached.
    pub async fn source_at_hand(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Option<Arc<ChartSource>> {
        let stored = self.stored(release);
        let head = self.head(&stored, revision)?;
        let read = async {
            self.sources.rate.check().ok()?;
            let read = self.read_source(&stored, &head, within).await;
            let unknown = |error: &ClusterError| {
                tracing::debug!("failed to read the chart of release {release}: {error}");
            };
            read.inspect_err(unknown).ok().map(Arc::new)
        };
        let key = (head.uid.clone(), head.resource_version.clone());
        timeout(within, self.sources.kept.optionally_get_with(key, read)).await.ok()?
    }

    async fn read_source(
        &self,
        stored: &ReleaseId,
        head: &RecordHead,
        within: Duration,
    ) -> Result<ChartSource, ClusterError> {
        let revision = head.revision;
        let unread = |reason: RecordError| ClusterError::BadRecord { revision, reason: reason.to_string() };
        let called =
            |error: ClusterError| error.during(format!("the record of revision {revision} cannot be read"));
        match self.payloads.packed(&stored.namespace, head, within).await.map_err(called)? {
            Fetched::Gone | Fetched::Moved(_) => {
                Err(ClusterError::NoRecord { release: stored.clone(), revision })
            }
            Fetched::Found(Err(reason)) => Err(unread(reason)),
            Fetched::Found(Ok(packed)) => {
                let read = self.payloads.read(false, move || packed.source()).await;
                read.map_err(called)?.map_err(unread)
            }
        }
    }
}

impl Default for ChartSources {
    fn default() -> Self {
        let weigh = |_: &(String, String), source: &Arc<ChartSource>| {
            u32::try_from(source.weight()).unwrap_or(u32::MAX)
        };
        Self {
            rate: RateLimiter::direct(Quota::per_second(SOURCES)),
            kept: Cache::builder().max_capacity(KEPT).weigher(weigh).build(),
        }
    }
}

pub struct PartialRead<T> {
    pub found: T,
    /// Other namespaces that are trusted to hold its records, but may not be read.
    pub closed: Vec<UnreadableNamespace>,
}

pub struct UnreadableNamespace {
    pub records: String,
    pub reason: ClusterError,
}

impl Releases {
    /// For reads without a watch: the releases whose records `driver` keeps, in an index of their own.
    pub fn once(client: kube::Client, driver: RecordDriver, kinds: Arc<ServedKinds>) -> Arc<Self> {
        let index = Arc::new(RwLock::new(Index::default()));
        Self::new(client, driver, Vec::new(), kinds, index, RecordMetrics::default())
    }

    /// The releases in `namespace` (`None`: in all), sorted, from all places that their records are trusted
    /// in. Reads only metadata, except for records in namespaces that may hold those of other namespaces. Records in
    /// another namespace that may not be read are skipped, and reported in the result.
    pub async fn list(&self, namespace: Option<&str>) -> Result<PartialRead<Vec<ReleaseId>>, ClusterError> {
        let storage = self.storage();
        let mut closed = Vec::new();
        let mut stored = self.list_stored(namespace).await?;
        if let Some(namespace) = namespace {
            for other in storage.namespaces_for(namespace) {
                match self.list_stored(Some(other)).await {
                    Ok(listed) => stored.extend(listed),
                    Err(reason) if reason.is_forbidden() => {
                        closed.push(UnreadableNamespace { records: other.to_owned(), reason });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let mut releases = Vec::with_capacity(stored.len());
        for stored in stored {
            // A record that cannot be read is listed under its own place.
            if storage.is_shared(&stored.namespace) && self.update_index(&stored, None).await.is_ok() {
                let index = self.index.read();
                releases.push(index.stored(&stored).map_or(stored, |release| release.id.clone()));
            } else {
                releases.push(stored);
            }
        }
        releases.retain(|release| namespace.is_none_or(|namespace| release.namespace == namespace));
        releases.sort();
        releases.dedup();
        Ok(PartialRead { found: releases, closed })
    }

    /// The releases that [`Self::list`] has found in `namespace` whose newest record has matching labels, as in `helm
    /// list --selector`.
    pub async fn labelled(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<BTreeSet<ReleaseId>, ClusterError> {
        let mut places = vec![namespace.map(str::to_owned)];
        let storage = self.storage();
        places.extend(
            namespace.into_iter().flat_map(|it| storage.namespaces_for(it)).map(|it| Some(it.to_owned())),
        );
        let mut found = BTreeSet::new();
        for place in places {
            let metas = match self.payloads.list(place.as_deref(), Some(labels)).await {
                Ok(metas) => metas,
                // `list` has skipped it too.
                Err(error) if error.is_forbidden() && place.as_deref() != namespace => continue,
                Err(error) => return Err(error),
            };
            for (stored, known) in metas.into_iter().filter_map(|meta| read_record(meta).ok()) {
                let records = self.records.lock().all(&stored);
                // An older record may have other labels.
                if records.last().is_some_and(|newest| newest.head.uid == known.head.uid) {
                    let index = self.index.read();
                    found.insert(index.stored(&stored).map_or(stored, |release| release.id.clone()));
                }
            }
        }
        Ok(found)
    }

    /// The release from its records; learns the types of its kinds first. `None` when it has no records. A
    /// release from [`Self::list`] is not listed again. The place of its records also works as its name. Records in
    /// another namespace that may not be read are skipped, and reported in the result.
    pub async fn read_once(
        &self,
        release: &ReleaseId,
    ) -> Result<PartialRead<Option<Arc<Release>>>, ClusterError> {
        let mut closed = Vec::new();
        for stored in self.storage().places(release) {
            match self.read_stored(&stored).await {
                Err(ClusterError::Records { source, .. }) if source.is_forbidden() && stored != *release => {
                    closed
                        .push(UnreadableNamespace { records: stored.namespace.to_string(), reason: *source });
                }
                read => read?,
            }
        }
        let index = self.index.read();
        Ok(PartialRead { found: index.release(release).or_else(|| index.stored(release)).cloned(), closed })
    }

    async fn list_stored(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, ClusterError> {
        let mut listing = RecordListing::new(Instant::now());
        for meta in self.payloads.list(namespace, None).await? {
            if let Ok((release, known)) = read_record(meta) {
                listing.add(release, known);
            }
        }
        Ok(self.records.lock().replace(namespace, listing))
    }

    async fn read_stored(&self, stored: &ReleaseId) -> Result<(), ClusterError> {
        if self.records.lock().all(stored).is_empty() {
            let began = Instant::now();
            let looked = self.payloads.look(stored, PATIENCE).await;
            let looked = looked.map_err(|error| error.of_records(stored))?;
            self.records.lock().look(stored, looked.records, &looked.version, began);
        }
        self.update_index(stored, None).await.map(drop)
    }
}
