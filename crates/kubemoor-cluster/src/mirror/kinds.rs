//! The known kinds: their API resources and their schemas. Starts with the built-in catalog and discovery. Reads
//! schemas from the API server when the first release declares a kind, and for custom kinds again when their
//! CustomResourceDefinition changes. The catalog only grows. If schemas cannot be read now, callers use the built-in
//! ones and retry by `LearningAttempts`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::call::ClusterError;
use crate::client::discovery::{self, CustomKind, Edition, OpenApiDocuments, discover};
use crate::client::objects::ObjectTarget;
use crate::client::resource::{ApiResource, Meta};
use crate::client::watch::MetadataWatch;
use crate::mirror::reflect::{ChangeAnnouncer, ChangeQueue, Mirror, Reflector, until};
use kubemoor_declare::catalog::{self, Catalog, KindFacts};
use kubemoor_declare::model::{Gvk, ObjectId};
use kubemoor_declare::schema::KindSchema;
use kubemoor_runtime::telemetry::FailureLog;

/// The kinds of one cluster.
pub struct ServedKinds {
    client: kube::Client,
    current: ArcSwap<Snapshot>,
    /// Held while something is read, so that nothing is read twice.
    reading: Mutex<ReadState>,
    learned: ChangeAnnouncer<Gvk>,
    /// The names of CustomResourceDefinitions that were added or changed.
    defined: ChangeAnnouncer<String>,
    /// Notified when a kind is not found that discovery reported.
    doubted: Notify,
}

/// A catalog, and which of its kinds are complete.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) generation: u64,
    pub(super) catalog: Arc<Catalog>,
    /// Kinds for which the API server has given all its information, with the generation at which it did.
    settled: HashMap<Gvk, u64>,
    /// By group and kind, the generation at which its resource was added or changed.
    found: HashMap<(String, String), u64>,
}

struct ReadState {
    discovery: Discovery,
    documents: Option<OpenApiDocuments>,
    /// By name, the edition whose schemas are in the catalog.
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
            learned: ChangeAnnouncer::default(),
            defined: ChangeAnnouncer::default(),
            doubted: Notify::new(),
        }))
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load().catalog.clone()
    }

    /// The API resource of a kind: in the requested version if it is served, else in the one that the API server
    /// prefers. `None` for kinds that are not served.
    pub fn resource(&self, gvk: &Gvk) -> Option<ApiResource> {
        let snapshot = self.current.load();
        let facts = snapshot.catalog.facts(&gvk.group, &gvk.kind)?;
        let version = facts.served(&gvk.version)?;
        Some(ApiResource::new(&gvk.group, version, &gvk.kind, &facts.plural))
    }

    /// The request target for the object `id`, in `version` if that is served.
    pub fn target(&self, id: &ObjectId, version: &str) -> Option<ObjectTarget> {
        let gvk = Gvk { group: id.group.to_string(), version: version.to_owned(), kind: id.kind.to_string() };
        let resource = self.resource(&gvk)?;
        Some(ObjectTarget {
            resource,
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
        })
    }

    /// Reports that a kind was not found at its [`ServedKinds::resource`]: an API server that has just started does not
    /// list all kinds yet, and one that was upgraded serves some of them in other versions. Discovery is repeated, with
    /// growing pauses while it finds nothing new. Call this for as long as the kind is not found.
    pub fn report_kind_not_found(&self) {
        self.doubted.notify_one();
    }

    /// The API server's schema of a kind; `None` if it has none.
    pub async fn schema(&self, gvk: &Gvk) -> Option<Arc<KindSchema>> {
        self.learn([gvk.clone()]).await;
        let snapshot = self.snapshot();
        snapshot.is_settled(gvk).then(|| snapshot.catalog.schema(gvk)).flatten()
    }

    /// Follows CustomResourceDefinitions, and repeats discovery for kinds that are not found, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Every kind whose resource or schema becomes known or changes from now on.
    pub(super) fn changes(&self) -> ChangeQueue<Gvk> {
        self.learned.subscribe([])
    }

    /// The name of every CustomResourceDefinition that is added or changed from now on, and of those in the first list.
    pub(super) fn definitions(&self) -> ChangeQueue<String> {
        self.defined.subscribe([])
    }

    /// Reads what is not yet known about `kinds` from the API server.
    pub(super) async fn learn(&self, kinds: impl IntoIterator<Item = Gvk>) {
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
                tracing::warn!(%error, "failed to read the schemas of some kinds; using built-in types");
            }
            Err(error) => tracing::debug!(%error, "still failing to read the schemas of some kinds"),
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
            reading.discovery.begin(Instant::now());
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
            // Their URLs contain a hash of the content, so they change when the API server is upgraded.
            let types = documents.schemas(&self.client, documented.values().cloned().collect()).await;
            let types = types.inspect_err(|_| reading.documents = None)?;
            for (gvk, schema) in types {
                draft.catalog.insert_schema(gvk, schema);
            }
            draft.learned.extend(documented.into_keys());
        }
        Ok(())
    }

    /// The caller holds `reading`. Returns whether kinds were added or their resources changed.
    fn publish(&self, draft: Draft) -> bool {
        let before = self.snapshot();
        let generation = before.generation + 1;
        let Draft { catalog, learned } = draft;
        let mut settled = before.settled.clone();
        settled.extend(learned.iter().map(|gvk| (gvk.clone(), generation)));
        // The objects of such kinds can be read even while their schemas cannot.
        let place = |facts: &KindFacts| {
            (facts.plural.clone(), facts.namespaced, facts.versions.iter().cloned().collect::<BTreeSet<_>>())
        };
        let is_moved = |facts: &&KindFacts| {
            let known = before.catalog.facts(&facts.group, &facts.kind);
            known.is_none_or(|known| place(known) != place(facts))
        };
        let moved: Vec<(String, String)> =
            catalog.kinds().filter(is_moved).map(|facts| (facts.group.clone(), facts.kind.clone())).collect();
        let mut found = before.found.clone();
        found.extend(moved.iter().map(|kind| (kind.clone(), generation)));
        let catalog = Arc::new(catalog);
        self.current.store(Arc::new(Snapshot { generation, catalog, settled, found }));
        learned.iter().for_each(|gvk| self.learned.announce(gvk));
        for (group, kind) in &moved {
            let (group, kind) = (group.clone(), kind.clone());
            self.learned.announce(&Gvk { group, version: String::new(), kind });
        }
        !moved.is_empty()
    }
}

impl Snapshot {
    /// Whether the API server has given all its information about a kind.
    pub(super) fn is_settled(&self, gvk: &Gvk) -> bool {
        self.settled.contains_key(gvk)
    }

    /// Whether the resource or the schema of a kind was added or changed after `generation`.
    pub(super) fn is_newer(&self, gvk: &Gvk, generation: u64) -> bool {
        let found = self.found.get(&(gvk.group.clone(), gvk.kind.clone()));
        self.settled.get(gvk).into_iter().chain(found).any(|at| *at > generation)
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

/// Adds discovered kinds. Discovery does not report where `scale` keeps replicas.
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
        loop {
            tokio::select! {
                event = reflector.next() => reflector.take(event, &mut definitions),
                () = until(definitions.settled_at) => {
                    let changed = definitions.take_changed();
                    definitions.put_back(self.refresh(&changed).await);
                    changed.iter().for_each(|name| self.defined.announce(name));
                }
                () = self.doubted.notified() => self.find_again().await,
            }
        }
    }

    /// Reads changed CustomResourceDefinitions of kinds that releases declare. Returns the names of those that could
    /// not be read, with the last error.
    async fn refresh(&self, names: &HashSet<String>) -> (HashSet<String>, Option<ClusterError>) {
        let mut unread = (HashSet::new(), None);
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let mut draft = Draft::from_snapshot(&snapshot);
        for name in names {
            let Some((plural, group)) = name.split_once('.') else { continue };
            let Some(known) = reading.customs.get_mut(name) else {
                // Lets a release that declares its kind repeat discovery at once.
                reading.discovery.outdated = true;
                continue;
            };
            match discovery::crd(&self.client, plural, group).await {
                Ok(Some(custom)) if *known != custom.edition => {
                    let of_kind = |gvk: &&Gvk| gvk.group == group && gvk.kind == custom.facts.kind;
                    draft.learned.extend(snapshot.settled.keys().filter(of_kind).cloned());
                    known.clone_from(&custom.edition);
                    draft.add_custom(custom);
                }
                Ok(_) => {}
                Err(error) => {
                    unread.1 = Some(error);
                    unread.0.insert(name.clone());
                }
            }
        }
        if !draft.learned.is_empty() {
            self.publish(draft);
        }
        unread
    }

    /// Repeats discovery if it is due: some kinds may have other versions by now.
    async fn find_again(&self) {
        let mut reading = self.reading.lock().await;
        let now = Instant::now();
        if !reading.discovery.is_due_again(now) {
            return;
        }
        reading.discovery.begin(now);
        reading.documents = None;
        let mut draft = Draft::from_snapshot(&self.snapshot());
        match discover(&self.client).await {
            Ok(kinds) => {
                add(&mut draft.catalog, kinds);
                reading.discovery.note_found(self.publish(draft));
            }
            Err(error) => tracing::debug!(%error, "failed to repeat API discovery"),
        }
    }
}

/// The pause before definitions that could not be read are read again.
const REREAD: Duration = Duration::from_secs(15);

/// The last known resourceVersions of CustomResourceDefinitions.
#[derive(Default)]
struct Definitions {
    seen: HashMap<String, String>,
    changed: HashSet<String>,
    /// When the gathered changes are processed.
    settled_at: Option<Instant>,
    failures: FailureLog,
}

impl Definitions {
    /// Returns the names of those that changed since the last call.
    fn take_changed(&mut self) -> HashSet<String> {
        self.settled_at = None;
        std::mem::take(&mut self.changed)
    }

    /// Adds the names of those that could not be read again, with the last error: they are read again after a pause.
    fn put_back(&mut self, (unread, reason): (HashSet<String>, Option<ClusterError>)) {
        let Some(error) = reason else { return self.failures.note_success() };
        self.changed.extend(unread);
        self.settled_at.get_or_insert_with(|| Instant::now() + REREAD);
        if self.failures.note_failure() {
            tracing::warn!(%error, "failed to read some CustomResourceDefinitions; retrying");
        }
    }
}

impl Mirror for Definitions {
    type Object = Meta;
    type Key = String;
    const OBJECTS: &'static str = "CustomResourceDefinitions";
    const UNWATCHED: &'static str = "failed to watch CustomResourceDefinitions";

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

/// The shortest time between discoveries for unknown kinds, unless a definition was added.
const REDISCOVERY: Duration = Duration::from_secs(10);

/// The longest pause between attempts to learn of a kind.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The same for a kind that is no longer found: until it is found again, its objects are not guarded.
const MAX_REDISCOVERY_PAUSE: Duration = Duration::from_secs(60);

/// When to retry reading kinds. Never a hot loop, even if some kinds are never served; these never delay a new kind.
#[derive(Debug)]
pub(super) struct LearningAttempts {
    pause: Duration,
    pub(super) at: Option<Instant>,
}

/// When discovery was last made, and whether it may be outdated.
#[derive(Debug)]
struct Discovery {
    at: Instant,
    /// A definition was added since.
    outdated: bool,
    /// How many discoveries in a row found nothing new while a kind was missing.
    fruitless: u32,
}

impl LearningAttempts {
    pub(super) fn none() -> Self {
        Self { pause: SETTLING, at: None }
    }

    /// A new kind or definition does not wait for kinds that were tried often.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.pause = SETTLING;
        self.at = Some(self.at.map_or(now + SETTLING, |at| at.min(now + SETTLING)));
    }

    /// Records an attempt, and whether kinds are left.
    pub(super) fn note(&mut self, is_left: bool, now: Instant) {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if is_left {
            self.at.get_or_insert(now + self.pause);
        }
    }
}

impl Discovery {
    fn new(now: Instant) -> Self {
        Self { at: now, outdated: false, fruitless: 0 }
    }

    fn begin(&mut self, now: Instant) {
        (self.at, self.outdated) = (now, false);
    }

    fn note_found(&mut self, is_any: bool) {
        self.fruitless = if is_any { 0 } else { self.fruitless.saturating_add(1) };
    }

    /// Whether to repeat discovery for an unknown kind.
    fn is_due(&self, now: Instant) -> bool {
        self.outdated || now.duration_since(self.at) > REDISCOVERY
    }

    /// Whether to repeat discovery for a known kind that is not found.
    fn is_due_again(&self, now: Instant) -> bool {
        let pause = REDISCOVERY.saturating_mul(1 << self.fruitless.min(10)).min(MAX_REDISCOVERY_PAUSE);
        now.duration_since(self.at) > pause
    }
}

#[cfg(test)]
mod tests;
