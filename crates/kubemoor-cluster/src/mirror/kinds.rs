//! The known kinds: the places of their objects, and the types of their fields.
//!
//! Entry point: [`Kinds`]. Starts with the built-in catalog and discovery. Reads types from the API server
//! when the first release declares a kind, and for custom kinds again when their CustomResourceDefinition
//! changes. Invariant: the catalog only grows. Types that cannot be read now are retried, and the built-in
//! types are used meanwhile.

mod attempts;
mod doubts;
mod follow;
mod owed;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::attempts::Discovery;
use self::doubts::Doubts;
pub use self::doubts::{Doubt, WatchDoubt};
use self::owed::Owed;
use super::queue::{Announcer, Changes};
use crate::client::call::CallError;
use crate::client::discovery::discover;
use crate::client::objects::Target;
use crate::client::resource::Resource;
use crate::client::schemas::{self, Custom, Documents, Edition, TypesError};
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::embedded;
use kubemoor_declare::model::{Gvk, ObjectId};
use kubemoor_declare::schema::KindSchema;
use kubemoor_runtime::telemetry::FailureLog;

/// The kinds of one cluster.
pub struct Kinds {
    client: kube::Client,
    current: ArcSwap<Snapshot>,
    /// Held while something is read, so that nothing is read twice.
    reading: Mutex<Reading>,
    /// Kinds that releases declare and that are not completely known yet.
    owed: parking_lot::Mutex<Owed>,
    learned: Announcer<Gvk>,
    /// The names of CustomResourceDefinitions that came or changed.
    defined: Announcer<String>,
    doubts: Doubts,
    /// Something is owed or doubted.
    owing: Notify,
}

/// A catalog and how far it is to be trusted.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Grows with every change.
    pub(super) generation: u64,
    pub(super) catalog: Arc<Catalog>,
    /// Kinds for which the API server has given all its information, with the generation at which it did.
    settled: HashMap<Gvk, u64>,
    /// Kinds that releases declared before their place was known, or that moved, with the generation at which
    /// it became known.
    found: HashMap<Gvk, u64>,
}

struct Reading {
    discovery: Discovery,
    documents: Option<Documents>,
    /// By name, the edition whose types are in the catalog.
    customs: HashMap<String, Edition>,
    failures: FailureLog,
}

struct Draft {
    catalog: Catalog,
    learned: HashSet<Gvk>,
}

impl Kinds {
    /// The kinds that the API server behind `client` serves.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn read(client: kube::Client) -> Result<Arc<Self>, CallError> {
        let mut catalog = Catalog::with_core();
        add(&mut catalog, discover(&client).await?);
        let snapshot = Snapshot {
            generation: 0,
            catalog: Arc::new(catalog),
            settled: HashMap::new(),
            found: HashMap::new(),
        };
        let reading = Reading {
            discovery: Discovery::made(Instant::now()),
            documents: None,
            customs: HashMap::new(),
            failures: FailureLog::default(),
        };
        Ok(Arc::new(Self {
            client,
            current: ArcSwap::from_pointee(snapshot),
            reading: Mutex::new(reading),
            owed: parking_lot::Mutex::default(),
            learned: Announcer::default(),
            defined: Announcer::default(),
            doubts: Doubts::default(),
            owing: Notify::new(),
        }))
    }

    /// What is known now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load().catalog.clone()
    }

    /// The place of a kind's objects: in the requested version when it is served, else in the one that the
    /// API server prefers. `None` for kinds that are not served.
    pub fn resource(&self, gvk: &Gvk) -> Option<Resource> {
        let snapshot = self.current.load();
        let facts = snapshot.catalog.facts(&gvk.group, &gvk.kind)?;
        let version = facts.served(&gvk.version)?;
        Some(Resource::new(&gvk.group, version, &gvk.kind, &facts.plural))
    }

    /// The place of the object `id`, in `version` when that is served.
    pub fn target(&self, id: &ObjectId, version: &str) -> Option<Target> {
        let gvk = Gvk { group: id.group.to_string(), version: version.to_owned(), kind: id.kind.to_string() };
        let resource = self.resource(&gvk)?;
        Some(Target {
            resource,
            namespace: id.namespace.as_deref().map(str::to_owned),
            name: id.name.to_string(),
        })
    }

    /// A kind was not found at its [`Kinds::resource`]. Until it is found there, or the doubt is dropped, all
    /// kinds are listed again, with growing pauses.
    pub fn doubt(&self) -> Doubt {
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

    /// Follows the cluster's CustomResourceDefinitions, and learns what could
    /// not be learned before, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    /// What is known now, with its generation.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Tells of every kind whose place or types become known or change from
    /// now on.
    pub(super) fn changes(&self) -> Changes<Gvk> {
        self.learned.subscribe([])
    }

    /// Tells the name of every CustomResourceDefinition that comes or changes
    /// from now on, and of those that are there when they are first listed.
    pub(super) fn definitions(&self) -> Changes<String> {
        self.defined.subscribe([])
    }

    /// Has `kinds` learned soon.
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
        let mut draft = Draft::of(&snapshot);
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
        reading: &mut Reading,
        wanted: HashSet<Gvk>,
    ) -> Result<(), TypesError> {
        let is_known = |catalog: &Catalog, gvk: &Gvk| catalog.facts(&gvk.group, &gvk.kind).is_some();
        if !wanted.iter().all(|gvk| is_known(&draft.catalog, gvk)) && reading.discovery.is_due(Instant::now())
        {
            reading.discovery = Discovery::made(Instant::now());
            reading.documents = None;
            add(&mut draft.catalog, discover(&self.client).await?);
        }
        let core: HashSet<&str> = embedded::core().kinds().map(|facts| facts.group.as_str()).collect();
        let mut documented: HashMap<Gvk, Gvk> = HashMap::new();
        for gvk in wanted {
            let Some(facts) = draft.catalog.facts(&gvk.group, &gvk.kind) else { continue };
            let plural = facts.plural.clone();
            let version = facts.served(&gvk.version).unwrap_or_default().to_owned();
            if !core.contains(gvk.group.as_str())
                && let Some(custom) = schemas::crd(&self.client, &plural, &gvk.group).await?
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
                None => reading.documents.insert(Documents::find(&self.client).await?),
            };
            // Their addresses name contents, so an upgraded API server has others.
            let types = documents.of(&self.client, documented.values().cloned().collect()).await;
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
        let found: Vec<Gvk> = (owed.kinds().iter().chain(before.settled.keys()))
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

    /// Whether the place or the types of a kind became known, or changed, after
    /// `generation`.
    pub(super) fn is_newer(&self, gvk: &Gvk, generation: u64) -> bool {
        [&self.settled, &self.found]
            .into_iter()
            .any(|known| known.get(gvk).is_some_and(|at| *at > generation))
    }
}

impl Draft {
    fn of(snapshot: &Snapshot) -> Self {
        Self { catalog: (*snapshot.catalog).clone(), learned: HashSet::new() }
    }

    fn add_custom(&mut self, custom: Custom) {
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
