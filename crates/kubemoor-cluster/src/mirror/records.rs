//! The known records: the metadata of every revision of every release, from the watch, fresh lookups and single reads;
//! and their payloads, read from the API server on demand. A delayed watch event never undoes the result of a fresh
//! lookup. A record in another format than Helm's only causes a warning; one that was already being deleted when it was
//! first seen is ignored.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::client::call::{self, BODY_CAP, ClusterError};
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, Managed, Meta, segment};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::{PackedRecord, RecordError, ReleaseStatus, parse_record_name};
use kubemoor_helm::release::{Appearance, RecordHead, RecordPayload, RecordWriter};
use kubemoor_runtime::config::RecordDriver;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRecord {
    pub(super) head: Arc<RecordHead>,
    /// What is wrong with its labels. Such a record has the status `Unknown`, so its payload does not match either.
    pub(super) flaw: Option<Arc<str>>,
    is_deleted: bool,
}

/// An object with Helm's label that is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidRecordObject {
    #[error("its name is not `sh.helm.release.v1.NAME.vREVISION`")]
    Name,
    #[error("its label `name` is {label:?}, so Helm does not find it")]
    Label { label: String },
    #[error("it has no namespace")]
    Namespace,
}

#[derive(Default)]
pub(super) struct Records {
    releases: HashMap<ReleaseId, ReleaseRecords>,
    /// The namespaces (`None`: all) that were listed in full at least once.
    listed: HashSet<Option<String>>,
}

#[derive(Default)]
struct ReleaseRecords {
    /// By revision, lowest first.
    records: Vec<KnownRecord>,
    /// The API server's version at the last fresh lookup.
    as_of: Option<u64>,
    looked: Option<Instant>,
}

pub(super) struct RecordListing {
    releases: HashMap<ReleaseId, Vec<KnownRecord>>,
    began: Instant,
}

/// Reads a record from `meta`, the metadata of an object with the label `owner=helm`.
pub(super) fn read_record(meta: Meta) -> Result<(ReleaseId, KnownRecord), InvalidRecordObject> {
    let namespace = meta.namespace.ok_or(InvalidRecordObject::Namespace)?;
    let (name, revision) = parse_record_name(&meta.name).ok_or(InvalidRecordObject::Name)?;
    let labels = meta.labels.unwrap_or_default();
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    if label("name") != name {
        return Err(InvalidRecordObject::Label { label: label("name").to_owned() });
    }
    let flaw = if label("version") != revision.to_string() {
        Some(format!("its label `version` is {:?}, but its name says {revision}", label("version")))
    } else if label("status").is_empty() {
        Some("it has no label `status`".to_owned())
    } else {
        None
    };
    let created = meta.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    let touches = meta.managed_fields.unwrap_or_default();
    let status = match flaw {
        Some(_) => ReleaseStatus::Unknown,
        None => ReleaseStatus::from_str(label("status")).unwrap_or(ReleaseStatus::Unknown),
    };
    let head = RecordHead {
        secret: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        revision,
        status,
        created,
        last_written: touches.iter().filter_map(|entry| entry.time).fold(created, Timestamp::max),
        appearance: Appearance::Seen(status),
        writer: record_writer(&touches),
    };
    Ok((
        ReleaseId { namespace: namespace.into(), name: name.into() },
        KnownRecord { head: Arc::new(head), flaw: flaw.map(Arc::from), is_deleted: meta.deletion_timestamp },
    ))
}

/// A resourceVersion as a number: etcd's revision.
fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// The program that wrote the record's content, by its newest field manager.
fn record_writer(touches: &[Managed]) -> RecordWriter {
    let newest = touches.iter().max_by_key(|entry| entry.time);
    newest.and_then(|entry| entry.manager.as_deref()).map(RecordWriter::from_manager).unwrap_or_default()
}

impl KnownRecord {
    fn appear(&mut self, appearance: Appearance) {
        if self.head.appearance != appearance {
            Arc::make_mut(&mut self.head).appearance = appearance;
        }
    }

    /// Shares the memory of the same record `before`, if they are equal.
    fn share(&mut self, before: &Self) {
        if self.head == before.head {
            self.head = Arc::clone(&before.head);
        }
    }
}

impl Records {
    /// The records of a release, lowest revision first.
    pub(super) fn all(&self, release: &ReleaseId) -> Vec<KnownRecord> {
        self.releases.get(release).map(|entry| entry.records.clone()).unwrap_or_default()
    }

    /// The releases that have records in a namespace.
    pub(super) fn releases_in(&self, namespace: &str) -> Vec<ReleaseId> {
        self.releases.keys().filter(|release| release.namespace == namespace).cloned().collect()
    }

    pub(super) fn count(&self) -> (usize, usize) {
        (self.releases.values().map(|entry| entry.records.len()).sum(), self.releases.len())
    }

    /// Applies a watch event or a read: the record exists. Returns whether it changed anything.
    pub(super) fn apply(&mut self, release: ReleaseId, known: KnownRecord) -> bool {
        let entry = self.releases.entry(release.clone()).or_default();
        let is_covered = entry.covers(&known.head.resource_version);
        let changed = if is_covered { entry.apply_older_state(&known) } else { entry.put(known) };
        self.drop_empty(&release);
        changed
    }

    fn drop_empty(&mut self, release: &ReleaseId) {
        if self.releases.get(release).is_some_and(|entry| entry.records.is_empty()) {
            self.releases.remove(release);
        }
    }

    /// Applies an event of the watch: the record was deleted, at the version `at`. Returns whether it changed
    /// anything.
    pub(super) fn delete(&mut self, release: &ReleaseId, secret: &str, uid: &str, at: &str) -> bool {
        self.releases.get(release).is_some_and(|entry| !entry.covers(at)) && self.forget(release, secret, uid)
    }

    /// Applies a read that did not find the record. Returns whether it changed anything.
    pub(super) fn forget(&mut self, release: &ReleaseId, secret: &str, uid: &str) -> bool {
        let Some(entry) = self.releases.get_mut(release) else { return false };
        let before = entry.records.len();
        entry.records.retain(|known| known.head.secret != secret || known.head.uid != uid);
        let changed = entry.records.len() != before;
        if entry.records.is_empty() {
            self.releases.remove(release);
        }
        changed
    }

    /// Applies a fresh lookup that began at `began`: these are all records of `release` at the API server's version
    /// `at`. Returns whether it changed anything.
    pub(super) fn look(
        &mut self,
        release: &ReleaseId,
        records: Vec<KnownRecord>,
        at: &str,
        began: Instant,
    ) -> bool {
        if records.is_empty() {
            return self.releases.remove(release).is_some();
        }
        let is_first = !self.is_listed(&release.namespace);
        let entry = self.releases.entry(release.clone()).or_default();
        entry.as_of = parse_version(at);
        entry.looked = Some(began);
        let changed = entry.set(records, is_first);
        self.drop_empty(release);
        changed
    }

    /// Applies a full list of `namespace` (`None`: of all). Returns the releases that it changed.
    pub(super) fn replace(&mut self, namespace: Option<&str>, listing: RecordListing) -> Vec<ReleaseId> {
        let RecordListing { mut releases, began } = listing;
        let is_first = self.listed.insert(namespace.map(str::to_owned));
        let mut changed = Vec::new();
        self.releases.retain(|id, entry| {
            if namespace.is_some_and(|namespace| namespace != id.namespace) {
                return true;
            }
            let listed = releases.remove(id).unwrap_or_default();
            if entry.looked.is_some_and(|looked| looked > began) {
                // The list may be newer than the lookup, and the watch continues after the list.
                let mut is_news = false;
                for known in listed {
                    is_news |= !entry.covers(&known.head.resource_version) && entry.put(known);
                }
                if is_news {
                    changed.push(id.clone());
                }
                return true;
            }
            // After a restore of etcd, earlier versions cannot be compared.
            (entry.as_of, entry.looked) = (None, None);
            if entry.set(listed, is_first) {
                changed.push(id.clone());
            }
            !entry.records.is_empty()
        });
        for (id, records) in releases {
            let mut entry = ReleaseRecords::default();
            if entry.set(records, is_first) {
                changed.push(id.clone());
                self.releases.insert(id, entry);
            }
        }
        changed
    }

    fn is_listed(&self, namespace: &str) -> bool {
        self.listed.contains(&None) || self.listed.contains(&Some(namespace.to_owned()))
    }
}

impl RecordListing {
    pub(super) fn new(began: Instant) -> Self {
        Self { releases: HashMap::new(), began }
    }

    pub(super) fn add(&mut self, release: ReleaseId, known: KnownRecord) {
        self.releases.entry(release).or_default().push(known);
    }
}

impl ReleaseRecords {
    /// Whether a fresh lookup included the state at `version`.
    fn covers(&self, version: &str) -> bool {
        matches!((self.as_of, parse_version(version)), (Some(as_of), Some(version)) if version <= as_of)
    }

    /// Whether a record was already being deleted when it was first seen. A user who may write Secrets can make any
    /// object a record while a finalizer delays its deletion, so such a record is ignored.
    fn is_first_seen_deleting(&self, known: &KnownRecord) -> bool {
        known.is_deleted && self.records.iter().all(|before| before.head.uid != known.head.uid)
    }

    /// Replaces all records. Returns whether it changed anything.
    fn set(&mut self, mut records: Vec<KnownRecord>, is_first: bool) -> bool {
        records.retain(|known| !self.is_first_seen_deleting(known));
        records.sort_by_key(|known| known.head.revision);
        records.shrink_to_fit();
        for known in &mut records {
            let before = self.records.iter().find(|before| before.head.uid == known.head.uid);
            match before {
                Some(before) => {
                    known.appear(before.head.appearance);
                    known.share(before);
                }
                None if is_first => known.appear(Appearance::Listed),
                None => {}
            }
        }
        let changed = self.records != records;
        self.records = records;
        changed
    }

    /// Applies an older state of a known record: it may show that the record was pending when it appeared. Returns
    /// whether it did.
    fn apply_older_state(&mut self, older: &KnownRecord) -> bool {
        let known = self.records.iter_mut().find(|known| known.head.uid == older.head.uid);
        let Some(known) = known.filter(|_| older.head.status.is_pending()) else { return false };
        let appeared = matches!(known.head.appearance, Appearance::Seen(status) if !status.is_pending());
        if appeared {
            known.appear(older.head.appearance);
        }
        appeared
    }

    /// Adds or updates a record, unless a newer state of it is known. Returns whether it changed anything.
    fn put(&mut self, mut known: KnownRecord) -> bool {
        if self.is_first_seen_deleting(&known) {
            // It has the name of another record, which is gone.
            let before = self.records.len();
            self.records.retain(|present| present.head.secret != known.head.secret);
            return self.records.len() != before;
        }
        let Some(present) = self.records.iter_mut().find(|present| present.head.secret == known.head.secret)
        else {
            self.records.push(known);
            self.records.sort_by_key(|known| known.head.revision);
            return true;
        };
        if present.head.uid == known.head.uid {
            let versions =
                (parse_version(&present.head.resource_version), parse_version(&known.head.resource_version));
            if matches!(versions, (Some(present), Some(offered)) if offered < present) {
                return self.apply_older_state(&known);
            }
            known.appear(present.head.appearance);
        }
        let changed = *present != known;
        if changed {
            *present = known;
        }
        changed
    }
}

pub(super) const SELECTOR: &str = "owner=helm";

/// The maximum size of one record's object: the API server accepts Secrets and ConfigMaps of up to 1 MiB of data.
const OBJECT_CAP: usize = 4 << 20;

/// Records that are read and decoded at once. Each takes as much memory as its object.
const AT_ONCE: usize = 8;

/// The maximum number of pages of one release's records; Helm keeps 10 records by default.
const PAGES: usize = 40;

/// Reads records as Helm's storage driver stores them.
pub(super) struct Payloads {
    client: kube::Client,
    driver: RecordDriver,
    reading: Arc<Semaphore>,
    worker: OnceLock<mpsc::Sender<ManifestTask>>,
}

type ManifestTask = Box<dyn FnOnce() + Send>;

/// The result of reading a record.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Fetched<T> {
    /// The record in the requested version.
    Found(T),
    /// It has changed in the meantime.
    Moved(Meta),
    Gone,
}

/// All records of one release at one version of the API server.
pub(super) struct RecordLookup {
    pub(super) records: Vec<KnownRecord>,
    pub(super) version: String,
}

#[derive(Deserialize)]
struct RecordObject {
    metadata: Meta,
    data: Option<RecordData>,
}

#[derive(Deserialize)]
struct RecordData {
    release: Option<String>,
}

impl Payloads {
    pub(super) fn new(client: kube::Client, driver: RecordDriver) -> Self {
        Self { client, driver, reading: Arc::new(Semaphore::new(AT_ONCE)), worker: OnceLock::new() }
    }

    pub(super) fn resource(&self) -> ApiResource {
        match self.driver {
            RecordDriver::Secret => ApiResource::new("", "v1", "Secret", "secrets"),
            RecordDriver::Configmap => ApiResource::new("", "v1", "ConfigMap", "configmaps"),
        }
    }

    /// Reads the record `head` of a release in `namespace`, in exactly this version, without decoding it.
    pub(super) async fn packed(
        &self,
        namespace: &str,
        head: &RecordHead,
        within: Duration,
    ) -> Result<Fetched<Result<PackedRecord, RecordError>>, ClusterError> {
        let path = format!("{}/{}", self.resource().path(Some(namespace))?, segment(&head.secret)?);
        let request = call::get(&path)?;
        let body = match call::send(&self.client, request, OBJECT_CAP, within).await {
            Ok(body) => body,
            Err(ClusterError::TooLarge { cap }) => {
                return Ok(Fetched::Found(Err(RecordError::TooLarge { cap })));
            }
            Err(error) if error.proves_absence() => return Ok(Fetched::Gone),
            Err(error) => return Err(error),
        };
        let object: RecordObject = call::decode(&body)?;
        let meta = object.metadata;
        if meta.uid != head.uid || meta.resource_version != head.resource_version {
            return Ok(Fetched::Moved(meta));
        }
        let text = object.data.and_then(|data| data.release);
        let packed = text.map(|text| PackedRecord::new(text, self.driver == RecordDriver::Secret));
        Ok(Fetched::Found(packed.ok_or(RecordError::Missing { field: "data.release" })))
    }

    pub(super) async fn fetch(
        &self,
        stored: &ReleaseId,
        head: &RecordHead,
        within: Duration,
    ) -> Result<Fetched<RecordPayload>, ClusterError> {
        // The semaphore is never closed, so a permit always comes.
        let permit = Arc::clone(&self.reading).acquire_owned().await;
        let packed = match self.packed(&stored.namespace, head, within).await? {
            Fetched::Found(Ok(packed)) => packed,
            Fetched::Found(Err(error)) => return Ok(Fetched::Found(RecordPayload::whole(Err(error)))),
            Fetched::Moved(meta) => return Ok(Fetched::Moved(meta)),
            Fetched::Gone => return Ok(Fetched::Gone),
        };
        // Continues if the caller gives up, and keeps the permit until it ends.
        let unpacking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            RecordPayload::unpack(packed)
        });
        unpacking.await.map(Fetched::Found).map_err(|_| ClusterError::shutting_down())
    }

    /// Reads manifests, off the threads that answer requests. Heavy ones are read one after the other on one
    /// thread, since the allocator keeps the memory that a thread has used.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        is_heavy: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ClusterError> {
        if !is_heavy {
            return tokio::task::spawn_blocking(work).await.map_err(|_| ClusterError::shutting_down());
        }
        let (send, receive) = oneshot::channel();
        let work: ManifestTask = Box::new(move || {
            // Skipped if the caller has given up.
            if !send.is_closed() {
                drop(send.send(work()));
            }
        });
        let worker = self.worker.get_or_init(|| {
            let (send, receive) = mpsc::channel::<ManifestTask>();
            // A panic fails only its own task, whose caller gets an error, and not the following ones.
            let run = move || receive.into_iter().for_each(|work| drop(catch_unwind(AssertUnwindSafe(work))));
            // Without a thread the receiver is dropped, and the caller gets an error.
            let _ = thread::Builder::new().name("manifests".to_owned()).spawn(run);
            send
        });
        worker.send(work).map_err(|_| ClusterError::shutting_down())?;
        receive.await.map_err(|_| ClusterError::shutting_down())
    }

    /// The metadata of all records in `namespace` (`None`: in all) that match the label selector `labels`.
    pub(super) async fn list(
        &self,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<Meta>, ClusterError> {
        let selector = labels.map_or(SELECTOR.to_owned(), |labels| format!("{SELECTOR},{labels}"));
        let pages =
            Pages::metadata(&self.client, &self.resource(), namespace)?.selected(Some(&selector), None);
        Ok(pages.all().await?.into_iter().map(|item| item.metadata).collect())
    }

    /// Lists all records of a release from the API server itself, not from any of its caches.
    pub(super) async fn look(
        &self,
        release: &ReleaseId,
        within: Duration,
    ) -> Result<RecordLookup, ClusterError> {
        let selector = format!("{SELECTOR},name={}", release.name);
        let pages = Pages::metadata(&self.client, &self.resource(), Some(&release.namespace))?;
        let mut pages = pages.selected(Some(&selector), None).within(within);
        let mut looked = RecordLookup { records: Vec::new(), version: String::new() };
        for _ in 0..PAGES {
            let Some(page) = pages.next().await? else { break };
            looked.version.clone_from(&page.metadata.resource_version);
            let known = page.into_items().into_iter().filter_map(|item| read_record(item.metadata).ok());
            looked.records.extend(known.filter(|(id, _)| id == release).map(|(_, known)| known));
        }
        // An incomplete list may lack the latest record.
        if pages.is_over() { Ok(looked) } else { Err(ClusterError::TooLarge { cap: BODY_CAP }) }
    }
}

#[cfg(test)]
mod tests;
