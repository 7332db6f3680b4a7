//! The known kinds: the places of their objects, and the types of their fields. Starts with the built-in catalog and
//! discovery. Reads types from the API server when the first release declares a kind, and for custom kinds again when
//! their CustomResourceDefinition changes. The catalog only grows. Types that cannot be read now are retried, and the
//! built-in types are used meanwhile. No hot loop, however many kinds are never served; and these never delay a new kind.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::call::ClusterError;
use crate::client::discovery::{self, CustomKind, Edition, OpenApiDocuments, discover};
use crate::client::objects::ObjectTarget;
use crate::client::resource::{ApiResource, Meta};
use crate::client::watch::{MetadataWatch, ObjectEvent};
use crate::mirror::reflect::{ChangeAnnouncer, ChangeQueue, Mirror, Reflector, until};
use kubemoor_declare::catalog::{self, Catalog, KindFacts};
use kubemoor_declare::model::{Gvk, ObjectId, Sweep};
use kubemoor_declare::schema::KindSchema;
use kubemoor_runtime::telemetry::FailureLog;

/// The kinds of one cluster.
pub struct ServedKinds {
    client: kube::Client,
    current: ArcSwap<Snapshot>,
    /// Held while something is read, so that nothing is read twice.
    reading: Mutex<ReadState>,
    /// Kinds that releases declare and that are not completely known yet.
    owed: parking_lot::Mutex<Owed>,
    learned: ChangeAnnouncer<Gvk>,
    /// The names of CustomResourceDefinitions that came or changed.
    defined: ChangeAnnouncer<String>,
    doubts: Doubts,
    owing: Notify,
}

/// A catalog and how far it is to be trusted.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) generation: u64,
    pub(super) catalog: Arc<Catalog>,
    /// Kinds for which the API server has given all its information, with the generation at which it did.
    settled: HashMap<Gvk, u64>,
    /// Kinds that releases declared before their place was known, or that moved, with the generation at which
    /// it became known.
    found: HashMap<Gvk, u64>,
}

struct ReadState {
    discovery: Discovery,
    documents: Option<OpenApiDocuments>,
    /// By name, the edition whose types are in the catalog.
    customs: HashMap<String, Edition>,
    failures: FailureLog,
}

struct Draft {
    catalog: Catalog,
    learned: HashSet<Gvk>,
}

impl ServedKinds {
    /// The kinds that the API server behind `client` serves.
    pub async fn read(client: kube::Client) -> Result<Arc<Self>, ClusterError> {
        let mut catalog = Catalog::with_core();
        add(&mut catalog, discover(&client).await?);
        let snapshot = Snapshot {
            generation: 0,
            catalog: Arc::new(catalog),
            settled: HashMap::new(),
            found: HashMap::new(),
        };
        let reading = ReadState {
            discovery: Discovery::new(Instant::now()),
            documents: None,
            customs: HashMap::new(),
            failures: FailureLog::default(),
        };
        Ok(Arc::new(Self {
            client,
            current: ArcSwap::from_pointee(snapshot),
            reading: Mutex::new(reading),
            owed: parking_lot::Mutex::default(),
            learned: ChangeAnnouncer::default(),
            defined: ChangeAnnouncer::default(),
            doubts: Doubts::default(),
            owing: Notify::new(),
        }))
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load().catalog.clone()
    }

    /// The place of a kind's objects: in the requested version when it is served, else in the one that the
    /// API server prefers. `None` for kinds that are not served.
    pub fn resource(&self, gvk: &Gvk) -> Option<ApiResource> {
        let snapshot = self.current.load();
        let facts = snapshot.catalog.facts(&gvk.group, &gvk.kind)?;
        let version = facts.served(&gvk.version)?;
        Some(ApiResource::new(&gvk.group, version, &gvk.kind, &facts.plural))
    }

    /// The place of the object `id`, in `version` when that is served.
    pub fn target(&self, id: &ObjectId, version: &str) -> Option<ObjectTarget> {
        let gvk = Gvk { group: id.group.to_string(), version: version.to_owned(), kind: id.kind.to_string() };
        let resource = self.resource(&gvk)?;
        Some(ObjectTarget {
            resource,
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
        })
    }

    /// A kind was not found at its [`ServedKinds::resource`]. Until it is found there, or the doubt is dropped, all
    /// kinds are listed again, with growing pauses.
    pub fn doubt(&self) -> KindDoubt {
        let doubt = self.doubts.raise();
        self.owing.notify_one();
        doubt
    }

    /// The API server's types of a kind; `None` if it gives none.
    pub async fn schema(&self, gvk: &Gvk) -> Option<Arc<KindSchema>> {
        self.learn([gvk.clone()]).await;
        let snapshot = self.snapshot();
        snapshot.is_settled(gvk).then(|| snapshot.catalog.schema(gvk)).flatten()
    }

    /// Follows the cluster's CustomResourceDefinitions, and learns what could not be learned before, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Tells of every kind whose place or types become known or change from now on.
    pub(super) fn changes(&self) -> ChangeQueue<Gvk> {
        self.learned.subscribe([])
    }

    /// Tells the name of every CustomResourceDefinition that comes or changes
    /// from now on, and of those that are there when they are first listed.
    pub(super) fn definitions(&self) -> ChangeQueue<String> {
        self.defined.subscribe([])
    }

    pub(super) fn owe(&self, kinds: impl IntoIterator<Item = Gvk>) {
        let snapshot = self.snapshot();
        if self.owed.lock().add(kinds.into_iter().filter(|gvk| !snapshot.is_settled(gvk))) {
            self.owing.notify_one();
        }
    }

    /// Whether so many kinds are owed that it is time to drop those that no release declares any more.
    pub(super) fn is_crowded(&self) -> bool {
        self.owed.lock().is_crowded()
    }

    /// Has no kinds learned any more that are not `declared`.
    pub(super) fn drop_undeclared(&self, declared: &HashSet<Gvk>) {
        self.owed.lock().drop_undeclared(|gvk| declared.contains(gvk));
    }

    /// Reads the API server's unknown facts about `kinds`. A read that fails is retried in the background.
    pub(super) async fn learn(&self, kinds: impl IntoIterator<Item = Gvk>) {
        let kinds: Vec<Gvk> = kinds.into_iter().collect();
        // Owed until learned, also when this call is given up half-way.
        self.owe(kinds.iter().cloned());
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let wanted: HashSet<Gvk> = kinds.into_iter().filter(|gvk| !snapshot.is_settled(gvk)).collect();
        if wanted.is_empty() {
            return;
        }
        let mut draft = Draft::from_snapshot(&snapshot);
        match self.learn_into(&mut draft, &mut reading, wanted).await {
            Ok(()) => reading.failures.note_success(),
            // Tried again soon.
            Err(error) if reading.failures.note_failure() => {
                tracing::warn!(%error, "the types of some kinds cannot be read; built-in ones serve meanwhile");
            }
            Err(error) => tracing::debug!(%error, "the types of some kinds still cannot be read"),
        }
        self.publish(draft);
    }

    async fn learn_into(
        &self,
        draft: &mut Draft,
        reading: &mut ReadState,
        wanted: HashSet<Gvk>,
    ) -> Result<(), ClusterError> {
        let is_known = |catalog: &Catalog, gvk: &Gvk| catalog.facts(&gvk.group, &gvk.kind).is_some();
        if !wanted.iter().all(|gvk| is_known(&draft.catalog, gvk)) && reading.discovery.is_due(Instant::now())
        {
            reading.discovery = Discovery::new(Instant::now());
            reading.documents = None;
            add(&mut draft.catalog, discover(&self.client).await?);
        }
        let core: HashSet<&str> = catalog::core().kinds().map(|facts| facts.group.as_str()).collect();
        let mut documented: HashMap<Gvk, Gvk> = HashMap::new();
        for gvk in wanted {
            let Some(facts) = draft.catalog.facts(&gvk.group, &gvk.kind) else { continue };
            let plural = facts.plural.clone();
            let version = facts.served(&gvk.version).unwrap_or_default().to_owned();
            if !core.contains(gvk.group.as_str())
                && let Some(custom) = discovery::crd(&self.client, &plural, &gvk.group).await?
            {
                reading.customs.insert(format!("{plural}.{}", gvk.group), custom.edition.clone());
                draft.add_custom(custom);
                draft.learned.insert(gvk);
            } else {
                documented.insert(gvk.clone(), Gvk { version, ..gvk });
            }
        }
        if !documented.is_empty() {
            let documents = match &reading.documents {
                Some(documents) => documents,
                None => reading.documents.insert(OpenApiDocuments::find(&self.client).await?),
            };
            // Their addresses name contents, so an upgraded API server has others.
            let types = documents.schemas(&self.client, documented.values().cloned().collect()).await;
            let types = types.inspect_err(|_| reading.documents = None)?;
            for (gvk, schema) in types {
                draft.catalog.insert_schema(gvk, schema);
            }
            draft.learned.extend(documented.into_keys());
        }
        Ok(())
    }

    /// The caller holds `reading`.
    fn publish(&self, draft: Draft) {
        let before = self.snapshot();
        let generation = before.generation + 1;
        let Draft { catalog, learned } = draft;
        let mut settled = before.settled.clone();
        settled.extend(learned.iter().map(|gvk| (gvk.clone(), generation)));
        let mut owed = self.owed.lock();
        owed.drop_learned(&learned);
        // Their objects can be looked at there, though their types cannot be read yet.
        let place = |catalog: &Catalog, gvk: &Gvk| {
            let facts = catalog.facts(&gvk.group, &gvk.kind)?;
            Some((facts.served(&gvk.version)?.to_owned(), facts.plural.clone()))
        };
        let found: Vec<Gvk> = (owed.kinds.iter().chain(before.settled.keys()))
            .filter(|gvk| !learned.contains(*gvk) && place(&catalog, gvk) != place(&before.catalog, gvk))
            .cloned()
            .collect();
        drop(owed);
        let mut all_found = before.found.clone();
        all_found.extend(found.iter().map(|gvk| (gvk.clone(), generation)));
        let catalog = Arc::new(catalog);
        self.current.store(Arc::new(Snapshot { generation, catalog, settled, found: all_found }));
        learned.iter().chain(&found).for_each(|gvk| self.learned.announce(gvk));
    }
}

impl Snapshot {
    /// Whether the API server has given all its information about a kind.
    pub(super) fn is_settled(&self, gvk: &Gvk) -> bool {
        self.settled.contains_key(gvk)
    }

    /// Whether the place or the types of a kind became known, or changed, after `generation`.
    pub(super) fn is_newer(&self, gvk: &Gvk, generation: u64) -> bool {
        [&self.settled, &self.found]
            .into_iter()
            .any(|known| known.get(gvk).is_some_and(|at| *at > generation))
    }
}

impl Draft {
    fn from_snapshot(snapshot: &Snapshot) -> Self {
        Self { catalog: (*snapshot.catalog).clone(), learned: HashSet::new() }
    }

    fn add_custom(&mut self, custom: CustomKind) {
        self.catalog.insert(custom.facts);
        for (gvk, schema) in custom.types {
            self.catalog.insert_schema(gvk, schema);
        }
    }
}

/// Adds what discovery tells; it does not tell where `scale` keeps replicas.
fn add(catalog: &mut Catalog, kinds: Vec<KindFacts>) {
    for mut facts in kinds {
        let known = catalog.facts(&facts.group, &facts.kind);
        facts.scale_replicas_path = known.and_then(|known| known.scale_replicas_path.clone());
        catalog.insert(facts);
    }
}

impl ServedKinds {
    async fn follow(&self) {
        let definitions = ApiResource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let watch = MetadataWatch::new(self.client.clone(), &definitions, None, None);
        let mut reflector = Reflector::new(watch.into_events());
        let mut definitions = Definitions::default();
        let mut attempts = LearningAttempts::none();
        loop {
            tokio::select! {
                event = reflector.next() => reflector.take(event, &mut definitions),
                () = until(definitions.settled_at) => {
                    let changed = definitions.take_changed();
                    changed.iter().for_each(|name| self.defined.announce(name));
                    let (unread, error) = self.refresh(changed).await;
                    if definitions.put_back(unread) {
                        tracing::warn!(error, "some CustomResourceDefinitions cannot be read, trying again");
                    }
                }
                () = self.owing.notified() => attempts.owe(Instant::now()),
                () = until(attempts.at) => {
                    let left = self.retry().await;
                    attempts.tried(left, Instant::now());
                }
            }
        }
    }

    /// Takes in changes of CustomResourceDefinitions, as far as releases declare their kinds. Returns the names of those
    /// that could not be read, with the last reason.
    async fn refresh(&self, names: HashSet<String>) -> (HashSet<String>, Option<String>) {
        let mut unread = (HashSet::new(), None);
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let owed = self.owed.lock().kinds.clone();
        let mut draft = Draft::from_snapshot(&snapshot);
        for name in names {
            let Some((plural, group)) = name.split_once('.') else { continue };
            if !reading.customs.contains_key(&name) {
                // A release that declares its kind, now or in a moment, finds it at once.
                reading.discovery.outdate();
                if !owed.iter().any(|gvk| gvk.group == group) {
                    continue;
                }
            }
            match discovery::crd(&self.client, plural, group).await {
                Ok(Some(custom)) if reading.customs.get(&name) != Some(&custom.edition) => {
                    let (kind, edition) = (custom.facts.kind.clone(), custom.edition.clone());
                    let of_kind = |gvk: &&Gvk| gvk.group == group && gvk.kind == kind;
                    let declared: Vec<Gvk> =
                        snapshot.settled.keys().chain(&owed).filter(of_kind).cloned().collect();
                    // If no release declares its kinds, the result is not published, and so not known.
                    if !declared.is_empty() {
                        draft.add_custom(custom);
                        draft.learned.extend(declared);
                        reading.customs.insert(name, edition);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    unread.1 = Some(error.to_string());
                    unread.0.insert(name);
                }
            }
        }
        if !draft.learned.is_empty() {
            self.publish(draft);
        }
        unread
    }

    /// Tries again to find what is doubted and to learn what is owed. Returns what is left.
    async fn retry(&self) -> Left {
        let is_doubted = self.doubts.sweep();
        if is_doubted {
            self.find_again().await;
        }
        let owed = self.owed.lock().kinds.clone();
        if !owed.is_empty() {
            self.learn(owed).await;
        }
        match self.owed.lock().kinds.is_empty() {
            _ if is_doubted => Left::Doubts,
            false => Left::Owed,
            true => Left::Nothing,
        }
    }

    /// Lists all kinds again: some may be served elsewhere by now.
    async fn find_again(&self) {
        let mut reading = self.reading.lock().await;
        let mut draft = Draft::from_snapshot(&self.snapshot());
        match discover(&self.client).await {
            Ok(kinds) => {
                reading.discovery = Discovery::new(Instant::now());
                reading.documents = None;
                add(&mut draft.catalog, kinds);
                self.publish(draft);
            }
            Err(error) => tracing::debug!(%error, "the kinds of the API server cannot be listed again"),
        }
    }
}

/// The longest pause before definitions that could not be read are read again.
const LONGEST_REREAD: Duration = Duration::from_secs(60);

/// CustomResourceDefinitions in the versions in which they came by.
#[derive(Default)]
struct Definitions {
    seen: HashMap<String, String>,
    changed: HashSet<String>,
    /// When the changes of now have settled.
    settled_at: Option<Instant>,
    /// How often in a row some could not be read.
    failures: u32,
}

impl Definitions {
    /// The names of those that changed since this was asked.
    fn take_changed(&mut self) -> HashSet<String> {
        self.settled_at = None;
        std::mem::take(&mut self.changed)
    }

    /// Takes back the names of those that could not be read: they are read again after a pause, which grows. Returns
    /// whether that is the first failure in a row.
    fn put_back(&mut self, unread: HashSet<String>) -> bool {
        if unread.is_empty() {
            self.failures = 0;
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.changed.extend(unread);
        let pause = SETTLING.saturating_mul(1 << self.failures.min(10)).min(LONGEST_REREAD);
        self.settled_at.get_or_insert_with(|| Instant::now() + pause);
        self.failures == 1
    }
}

impl Mirror for Definitions {
    type Object = Meta;
    type Key = String;
    const OBJECTS: &'static str = "CustomResourceDefinitions";
    const UNWATCHED: &'static str = "CustomResourceDefinitions cannot be watched";

    fn set(&mut self, meta: Meta) -> Option<String> {
        let Meta { name, resource_version, .. } = meta;
        let known = self.seen.insert(name.clone(), resource_version.clone());
        if known != Some(resource_version) {
            self.changed.insert(name.clone());
            self.settled_at.get_or_insert_with(|| Instant::now() + SETTLING);
        }
        Some(name)
    }

    fn remove(&mut self, meta: Meta) {
        self.seen.remove(&meta.name);
    }

    fn retain(&mut self, listed: &HashSet<String>) {
        self.seen.retain(|name, _| listed.contains(name));
    }
}

/// How long changes of CustomResourceDefinitions are gathered: a new one changes several times before it is served.
const SETTLING: Duration = Duration::from_secs(1);

/// Discovery is not repeated sooner than this for the sake of unknown kinds, unless a definition came.
const REDISCOVERY: Duration = Duration::from_secs(10);

/// The longest pause between attempts to learn of a kind.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The longest pause while a known kind is not found: objects that were guarded are not, as long as that lasts.
const LONGEST_DOUBT: Duration = Duration::from_secs(60);

/// After so many attempts, about a quarter of an hour, the kind is probably gone for good.
const DOUBTS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Kinds that are not known completely.
    Owed,
    /// Kinds that are known and not found.
    Doubts,
}

#[derive(Debug)]
struct LearningAttempts {
    pause: Duration,
    /// Attempts since the last new question.
    tries: u32,
    at: Option<Instant>,
}

/// When all kinds were listed, and whether there may be others by now.
#[derive(Debug)]
struct Discovery {
    at: Instant,
    outdated: bool,
}

impl LearningAttempts {
    fn none() -> Self {
        Self { pause: SETTLING, tries: 0, at: None }
    }

    /// Another kind is owed: it does not wait for those that were tried often.
    fn owe(&mut self, now: Instant) {
        (self.pause, self.tries) = (SETTLING, 0);
        let soon = now + SETTLING;
        self.at = Some(self.at.map_or(soon, |at| at.min(soon)));
    }

    /// An attempt was made, and this is left.
    fn tried(&mut self, left: Left, now: Instant) {
        self.tries = self.tries.saturating_add(1);
        let is_urgent = left == Left::Doubts && self.tries < DOUBTS;
        let longest = if is_urgent { LONGEST_DOUBT } else { LONGEST_PAUSE };
        self.pause = (self.pause * 2).min(longest);
        self.at = (left != Left::Nothing).then(|| now + self.pause);
    }
}

impl Discovery {
    fn new(now: Instant) -> Self {
        Self { at: now, outdated: false }
    }

    fn outdate(&mut self) {
        self.outdated = true;
    }

    /// Whether to list them again, for a kind that is not among them.
    fn is_due(&self, now: Instant) -> bool {
        self.outdated || now.duration_since(self.at) > REDISCOVERY
    }
}

/// One kind is not found where discovery said that it is: an API server that has just started does not list all kinds
/// yet, and one that was upgraded serves some of them in other versions. Keep it until the kind is found.
#[derive(Debug)]
pub struct KindDoubt {
    _held: Arc<()>,
}

/// The doubt about the kind of one watch.
#[derive(Debug, Default)]
pub struct WatchDoubt(Option<KindDoubt>);

#[derive(Default)]
struct Doubts(parking_lot::Mutex<Vec<Weak<()>>>);

impl WatchDoubt {
    /// Takes in what the watch tells: the doubt begins when the kind is not found, and ends when the watch is open.
    /// Whether the kind is not found now.
    pub fn take<T>(&mut self, event: &ObjectEvent<T>, raise: impl FnOnce() -> KindDoubt) -> bool {
        match event {
            ObjectEvent::Broken(error) if error.is_not_found() => {
                self.0.get_or_insert_with(raise);
                return true;
            }
            ObjectEvent::Watching => self.0 = None,
            _ => {}
        }
        false
    }
}

impl Doubts {
    fn raise(&self) -> KindDoubt {
        let held = Arc::new(());
        self.0.lock().push(Arc::downgrade(&held));
        KindDoubt { _held: held }
    }

    /// Forgets the doubts that nobody keeps. Whether any is left.
    fn sweep(&self) -> bool {
        let mut doubts = self.0.lock();
        doubts.retain(|doubt| doubt.strong_count() > 0);
        !doubts.is_empty()
    }
}

/// The number of kinds below which nothing is dropped.
const MANY: usize = 1000;

/// Kinds that releases declare and that are not completely known yet. Those that no release declares any more are
/// dropped whenever their number may have doubled, so that records which come and go take no memory.
#[derive(Debug)]
struct Owed {
    kinds: HashSet<Gvk>,
    /// Of kinds that are not declared any more.
    sweep: Sweep,
}

impl Owed {
    /// Adds kinds. Returns whether one of them is new.
    fn add(&mut self, kinds: impl IntoIterator<Item = Gvk>) -> bool {
        let before = self.kinds.len();
        self.kinds.extend(kinds);
        self.kinds.len() > before
    }

    fn drop_learned(&mut self, learned: &HashSet<Gvk>) {
        self.kinds.retain(|gvk| !learned.contains(gvk));
    }

    /// Whether so many are owed that it is time to drop those that nobody declares.
    fn is_crowded(&self) -> bool {
        self.sweep.is_due(self.kinds.len())
    }

    /// Drops the kinds that are not declared any more.
    fn drop_undeclared(&mut self, is_declared: impl Fn(&Gvk) -> bool) {
        self.kinds.retain(is_declared);
        self.sweep.note_left(self.kinds.len());
    }
}

impl Default for Owed {
    fn default() -> Self {
        Self { kinds: HashSet::new(), sweep: Sweep::above(MANY) }
    }
}

#[cfg(test)]
mod tests;
