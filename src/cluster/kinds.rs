//! What is known of kinds: where their objects live and how their fields
//! compare.
//!
//! Entry point: [`Kinds`]. Starts from the built-in catalog and discovery;
//! types are read from the API server for the kinds that releases declare, when
//! the first release declares them, and for custom kinds again when their
//! CustomResourceDefinition changes. Invariant: the catalog only grows; what
//! cannot be read now is tried again, while the built-in types serve.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::call::CallError;
use super::discovery::discover;
use super::objects::Target;
use super::queue::{Announcer, Changes};
use super::resource::Resource;
use super::schemas::{self, Custom, Documents, Edition, TypesError};
use super::watch::{Event, MetadataWatch};
use crate::declaration::catalog::{Catalog, KindFacts};
use crate::declaration::embedded;
use crate::model::{Gvk, ObjectId};

/// How long changes of CustomResourceDefinitions are gathered: a new one
/// changes several times before it is served.
const SETTLING: Duration = Duration::from_secs(1);

/// Discovery is not repeated sooner than this for the sake of unknown kinds.
const REDISCOVERY: Duration = Duration::from_secs(10);

/// The longest pause between attempts to learn of a kind.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The kinds of one cluster.
pub struct Kinds {
    client: kube::Client,
    current: ArcSwap<Snapshot>,
    /// Held while something is read, so that nothing is read twice.
    reading: Mutex<Reading>,
    /// Kinds that releases declare and of which not all is known yet.
    owed: parking_lot::Mutex<HashSet<Gvk>>,
    learned: Announcer<Gvk>,
    /// The names of CustomResourceDefinitions that came or changed.
    defined: Announcer<String>,
    owing: Notify,
    /// Whether the last attempt to learn failed, which was said then.
    complained: AtomicBool,
}

/// A catalog and how far it is to be trusted.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// Grows with every change.
    pub(super) generation: u64,
    pub(super) catalog: Arc<Catalog>,
    /// Kinds of which the API server has told all that it knows, with the
    /// generation in which it did.
    settled: HashMap<Gvk, u64>,
}

struct Reading {
    discovered: Instant,
    documents: Option<Documents>,
    /// By name, the edition whose types are in the catalog.
    customs: HashMap<String, Edition>,
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
        let snapshot = Snapshot { generation: 0, catalog: Arc::new(catalog), settled: HashMap::new() };
        let reading = Reading { discovered: Instant::now(), documents: None, customs: HashMap::new() };
        Ok(Arc::new(Self {
            client,
            current: ArcSwap::from_pointee(snapshot),
            reading: Mutex::new(reading),
            owed: parking_lot::Mutex::default(),
            learned: Announcer::default(),
            defined: Announcer::default(),
            owing: Notify::new(),
            complained: AtomicBool::new(false),
        }))
    }

    /// What is known now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load().catalog.clone()
    }

    /// Where objects of a kind live: in the version asked for when it is
    /// served, else in the one that the API server prefers. `None` for kinds
    /// that are not served.
    pub fn resource(&self, gvk: &Gvk) -> Option<Resource> {
        let snapshot = self.current.load();
        let facts = snapshot.catalog.facts(&gvk.group, &gvk.kind)?;
        let version = served(facts, &gvk.version)?;
        Some(Resource::new(&gvk.group, version, &gvk.kind, &facts.plural))
    }

    /// The place of the object `id`, in `version` when that is served.
    pub fn target(&self, id: &ObjectId, version: &str) -> Option<Target> {
        let gvk = Gvk { group: id.group.clone(), version: version.to_owned(), kind: id.kind.clone() };
        let resource = self.resource(&gvk)?;
        Some(Target { resource, namespace: id.namespace.clone(), name: id.name.clone() })
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

    /// Tells of every kind whose types become known or change from now on.
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
        let mut owed = self.owed.lock();
        let before = owed.len();
        owed.extend(kinds.into_iter().filter(|gvk| !snapshot.is_settled(gvk)));
        if owed.len() > before {
            self.owing.notify_one();
        }
    }

    /// Reads what the API server knows of `kinds` and has not told yet. What
    /// cannot be learned now is tried again in the background.
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
            Ok(()) => self.complained.store(false, Ordering::Relaxed),
            // Tried again soon, and said once.
            Err(error) if self.complained.swap(true, Ordering::Relaxed) => {
                tracing::debug!(%error, "the types of some kinds still cannot be read");
            }
            Err(error) => {
                tracing::warn!(%error, "the types of some kinds cannot be read; built-in ones serve meanwhile");
            }
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
        if !wanted.iter().all(|gvk| is_known(&draft.catalog, gvk))
            && reading.discovered.elapsed() > REDISCOVERY
        {
            reading.discovered = Instant::now();
            reading.documents = None;
            add(&mut draft.catalog, discover(&self.client).await?);
        }
        let core: HashSet<&str> = embedded::core().kinds().map(|facts| facts.group.as_str()).collect();
        let mut documented: HashMap<Gvk, Gvk> = HashMap::new();
        for gvk in wanted {
            let Some(facts) = draft.catalog.facts(&gvk.group, &gvk.kind) else { continue };
            let plural = facts.plural.clone();
            let version = served(facts, &gvk.version).unwrap_or_default().to_owned();
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
            for (gvk, schema) in documents.of(&self.client, documented.values().cloned().collect()).await? {
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
        let mut settled = before.settled.clone();
        settled.extend(draft.learned.iter().map(|gvk| (gvk.clone(), generation)));
        self.current.store(Arc::new(Snapshot { generation, catalog: Arc::new(draft.catalog), settled }));
        for gvk in draft.learned {
            self.owed.lock().remove(&gvk);
            self.learned.announce(&gvk);
        }
    }

    async fn follow(&self) {
        let definitions = Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let mut watch = MetadataWatch::new(self.client.clone(), &definitions, None, None);
        let mut seen: HashMap<String, String> = HashMap::new();
        let mut changed: HashSet<String> = HashSet::new();
        let mut settled_at: Option<Instant> = None;
        let mut pause = SETTLING;
        let mut retry_at: Option<Instant> = None;
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Event::Listed(meta) | Event::Applied(meta) => {
                        let known = seen.insert(meta.name.clone(), meta.resource_version.clone());
                        if known.as_ref() != Some(&meta.resource_version) {
                            changed.insert(meta.name);
                            settled_at.get_or_insert_with(|| Instant::now() + SETTLING);
                        }
                    }
                    Event::Deleted(meta) => drop(seen.remove(&meta.name)),
                    Event::Broken(error) => {
                        tracing::warn!(%error, "CustomResourceDefinitions cannot be watched");
                    }
                    Event::Relisting | Event::Synced | Event::Watching => {}
                },
                () = until(settled_at), if settled_at.is_some() => {
                    settled_at = None;
                    changed.iter().for_each(|name| self.defined.announce(name));
                    self.refresh(std::mem::take(&mut changed)).await;
                }
                () = self.owing.notified() => {
                    pause = SETTLING;
                    retry_at.get_or_insert_with(|| Instant::now() + pause);
                }
                () = until(retry_at), if retry_at.is_some() => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    retry_at = self.retry().await.then(|| Instant::now() + pause);
                }
            }
        }
    }

    /// Takes in changes of CustomResourceDefinitions, as far as releases
    /// declare their kinds.
    async fn refresh(&self, names: HashSet<String>) {
        let mut reading = self.reading.lock().await;
        let snapshot = self.snapshot();
        let owed = self.owed.lock().clone();
        let mut draft = Draft::of(&snapshot);
        for name in names {
            let Some((plural, group)) = name.split_once('.') else { continue };
            if !reading.customs.contains_key(&name) && !owed.iter().any(|gvk| gvk.group == group) {
                continue;
            }
            match schemas::crd(&self.client, plural, group).await {
                Ok(Some(custom)) if reading.customs.get(&name) != Some(&custom.edition) => {
                    let (kind, edition) = (custom.facts.kind.clone(), custom.edition.clone());
                    draft.add_custom(custom);
                    let of_kind = |gvk: &&Gvk| gvk.group == group && gvk.kind == kind;
                    let declared = snapshot.settled.keys().chain(&owed).filter(of_kind).cloned();
                    draft.learned.extend(declared);
                    reading.customs.insert(name, edition);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(definition = %name, %error, "a CustomResourceDefinition cannot be read");
                }
            }
        }
        if !draft.learned.is_empty() {
            self.publish(draft);
        }
    }

    /// Tries again to learn what is owed. Whether anything still is.
    async fn retry(&self) -> bool {
        let owed = self.owed.lock().clone();
        if owed.is_empty() {
            return false;
        }
        self.learn(owed).await;
        !self.owed.lock().is_empty()
    }
}

impl Snapshot {
    /// Whether the API server has told all that it knows of a kind.
    pub(super) fn is_settled(&self, gvk: &Gvk) -> bool {
        self.settled.contains_key(gvk)
    }

    /// Whether the types of a kind became known, or changed, after `generation`.
    pub(super) fn is_newer(&self, gvk: &Gvk, generation: u64) -> bool {
        self.settled.get(gvk).is_some_and(|settled| *settled > generation)
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

fn served<'f>(facts: &'f KindFacts, version: &str) -> Option<&'f str> {
    let exact = facts.versions.iter().find(|served| *served == version);
    exact.or_else(|| facts.versions.first()).map(String::as_str)
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}
