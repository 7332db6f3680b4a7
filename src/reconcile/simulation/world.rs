//! The simulated API server: objects, records, the lease, what guards have stored,
//! and everything that has happened, in order.
//!
//! Every write of a guard is held to the invariants here.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;

use super::super::drifts::First;
use super::super::event::{Document, Failure, Fault, Outcome, Secret};
use super::stored::{Field, Fields, Stored, fields};
use crate::declaration::catalog::Catalog;
use crate::helm::record::{ApplyMethod, Record, Status};
use crate::helm::release::{self, Appearance, Head, Payload, Release, StoredRecords, assemble};
use crate::helm::storage::Storage;
use crate::model::{ObjectId, PROBE_MANAGER, ReleaseId};
use crate::policy::agreement::SeenAlive;

pub(super) const NAMESPACE: &str = "shop";

static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::with_core);

/// Something that watches tell of.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Object { object: ObjectId, version: u64, stored: Option<Box<Stored>> },
    Record(ReleaseId),
}

/// One revision of a release.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub(super) revision: u64,
    pub(super) status: Status,
    pub(super) manifest: Arc<str>,
    method: ApplyMethod,
    uid: String,
    version: u64,
    created: Timestamp,
    touched: Timestamp,
}

/// What the leader has stored of a release.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) first: First,
    pub(super) seen: Vec<SeenAlive>,
}

/// Who leads.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    pub(super) holder: Option<usize>,
    pub(super) renewals: u64,
}

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) version: u64,
    pub(super) objects: BTreeMap<ObjectId, Stored>,
    pub(super) records: BTreeMap<ReleaseId, Vec<Revision>>,
    pub(super) log: Vec<Change>,
    pub(super) lease: Lease,
    pub(super) kept: BTreeMap<ReleaseId, Kept>,
    /// The orders that are not answered yet.
    pub(super) orders: BTreeMap<ReleaseId, String>,
    /// How often each order was answered.
    pub(super) answers: BTreeMap<String, usize>,
    /// The values that somebody else than a guard has written.
    pub(super) once: BTreeMap<ObjectId, BTreeSet<(Field, String)>>,
    /// The values that a manifest has declared.
    pub(super) declared: BTreeMap<ObjectId, BTreeSet<(Field, String)>>,
    /// Below which fields nobody may add any, and which value a webhook rewrites.
    pub(super) sealed: bool,
    pub(super) rewrites: bool,
    /// Documents of manifests that were read.
    parsed: RefCell<BTreeMap<Manifest, Rc<Documents>>>,
    /// The uids of what guards have created.
    pub(super) made: BTreeSet<String>,
    pub(super) terminating: bool,
    /// What was done, for people.
    pub(super) history: Vec<String>,
    pub(super) violation: Option<String>,
    /// Writes of guards.
    pub(super) writes: usize,
}

pub(super) fn object(name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        name: name.to_owned(),
    }
}

/// A release's manifest.
type Manifest = (ReleaseId, Arc<str>);

/// What tells one state of a release's records from another.
pub(super) type Records = Vec<(u64, u64)>;

/// The fields of a manifest's objects as Helm sends them.
pub(super) type Documents = Vec<(ObjectId, Fields)>;

impl Revision {
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            now: "2026-05-01T12:00:00Z".parse().unwrap(),
            version: 0,
            objects: BTreeMap::new(),
            records: BTreeMap::new(),
            log: Vec::new(),
            lease: Lease::default(),
            kept: BTreeMap::new(),
            orders: BTreeMap::new(),
            answers: BTreeMap::new(),
            once: BTreeMap::new(),
            declared: BTreeMap::new(),
            sealed: false,
            rewrites: false,
            parsed: RefCell::default(),
            made: BTreeSet::new(),
            terminating: false,
            history: Vec::new(),
            violation: None,
            writes: 0,
        }
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        let line = format!("{} {}", self.now, what());
        self.history.push(line);
    }

    pub(super) fn break_down(&mut self, what: String) {
        self.say(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The objects of a manifest as Helm sends them.
    pub(super) fn documents(&self, id: &ReleaseId, manifest: &Arc<str>) -> Rc<Documents> {
        let mut parsed = self.parsed.borrow_mut();
        let documents = parsed.entry((id.clone(), Arc::clone(manifest))).or_insert_with(|| {
            let (documents, _) = release::documents(id, manifest, &CATALOG);
            Rc::new(documents.into_iter().map(|(object, it)| (object, fields(&it))).collect())
        });
        Rc::clone(documents)
    }

    /// A value as the webhook leaves it.
    pub(super) fn admitted<'v>(&self, value: &'v str) -> &'v str {
        if self.rewrites && value == "v0" { "w0" } else { value }
    }

    pub(super) fn admit(&self, stored: &mut Stored) {
        for value in stored.fields.values_mut() {
            *value = self.admitted(value).to_owned();
        }
    }

    /// Stores an object as it is now, and tells of it.
    pub(super) fn store(&mut self, mut stored: Stored) -> Value {
        stored.version = self.next_version();
        let (object, version, value) = (stored.id.clone(), stored.version, stored.value());
        self.objects.insert(object.clone(), stored.clone());
        self.log.push(Change::Object { object, version, stored: Some(Box::new(stored)) });
        value
    }

    pub(super) fn delete(&mut self, object: &ObjectId) {
        if self.objects.remove(object).is_some() {
            let version = self.next_version();
            self.log.push(Change::Object { object: object.clone(), version, stored: None });
        }
    }

    // ---- what others do

    /// Somebody else than a guard changes an object, which is made if need be.
    pub(super) fn change(
        &mut self,
        object: &ObjectId,
        by: &str,
        change: impl FnOnce(&mut Stored, Timestamp),
    ) {
        let mut stored = match self.objects.get(object) {
            Some(stored) => stored.clone(),
            None => Stored::new(object.clone(), format!("u{}", self.version + 1)),
        };
        let before = stored.fields.clone();
        change(&mut stored, self.now);
        self.admit(&mut stored);
        let once = self.once.entry(object.clone()).or_default();
        once.extend(stored.fields.iter().map(|(field, value)| (field.clone(), value.clone())));
        if stored.fields != before {
            let data: Vec<String> = stored
                .fields
                .iter()
                .filter(|((part, _), _)| *part == "data")
                .map(|((_, key), value)| format!("{key}={value}"))
                .collect();
            let version = self.version + 1;
            self.say(|| format!("{by} writes {} v{version}: {}", object.name, data.join(" ")));
            self.store(stored);
        }
    }

    /// Somebody else deletes an object.
    pub(super) fn remove(&mut self, object: &ObjectId, by: &str) {
        if self.objects.contains_key(object) {
            self.say(|| format!("{by} deletes {}", object.name));
            self.delete(object);
        }
    }

    /// Helm stores a revision.
    pub(super) fn put_record(
        &mut self,
        id: &ReleaseId,
        manifest: &Arc<str>,
        status: Status,
        method: ApplyMethod,
    ) {
        let version = self.next_version();
        let records = self.records.entry(id.clone()).or_default();
        let revision = records.last().map_or(1, |last| last.revision + 1);
        records.push(Revision {
            revision,
            status,
            manifest: Arc::clone(manifest),
            method,
            uid: format!("r{version}"),
            version,
            created: self.now,
            touched: self.now,
        });
        for (object, fields) in self.documents(id, manifest).iter() {
            let admitted: Vec<_> = fields
                .iter()
                .flat_map(|(field, value)| {
                    [value.as_str(), self.admitted(value)].map(|it| (field.clone(), it.to_owned()))
                })
                .collect();
            self.declared.entry(object.clone()).or_default().extend(admitted);
        }
        self.say(|| format!("helm stores {id} revision {revision} {status}"));
        self.log.push(Change::Record(id.clone()));
    }

    /// Somebody who may write Secrets puts other values into the record in force.
    pub(super) fn tamper(&mut self, id: &ReleaseId) {
        let version = self.next_version();
        let latest = self.records.get_mut(id).and_then(|records| records.last_mut());
        if let Some(record) = latest.filter(|record| record.status == Status::Deployed) {
            record.manifest = record.manifest.replace("\"v", "\"e").into();
            record.version = version;
            self.say(|| format!("somebody rewrites the record of {id}"));
            self.log.push(Change::Record(id.clone()));
        }
    }

    /// Helm sets the status of a revision.
    pub(super) fn set_status(&mut self, id: &ReleaseId, revision: u64, status: Status) {
        let (version, now) = (self.next_version(), self.now);
        let records = self.records.entry(id.clone()).or_default();
        if let Some(record) = records.iter_mut().find(|record| record.revision == revision) {
            (record.status, record.version, record.touched) = (status, version, now);
            self.say(|| format!("helm sets {id} revision {revision} {status}"));
            self.log.push(Change::Record(id.clone()));
        }
    }

    /// Helm forgets a release.
    pub(super) fn purge(&mut self, id: &ReleaseId) {
        self.version += 1;
        self.records.remove(id);
        self.kept.remove(id);
        self.orders.remove(id);
        self.say(|| format!("helm purges {id}"));
        self.log.push(Change::Record(id.clone()));
    }

    // ---- what guards read

    /// What tells a state of a release's records from others.
    pub(super) fn state_of(&self, id: &ReleaseId) -> Records {
        self.records.get(id).into_iter().flatten().map(|it| (it.revision, it.version)).collect()
    }

    /// A release as its records say.
    pub(super) fn release(
        &self,
        id: &ReleaseId,
        previous: Option<&Release>,
        appearances: &BTreeMap<(String, u64), Appearance>,
    ) -> Option<Release> {
        let records = self.records.get(id)?;
        let head = |record: &Revision| Head {
            secret: format!("sh.helm.release.v1.{}.v{}", id.name, record.revision),
            uid: record.uid.clone(),
            resource_version: record.version.to_string(),
            revision: record.revision,
            status: record.status,
            created: record.created,
            touched: record.touched,
            appearance: *appearances
                .get(&(record.uid.clone(), record.revision))
                .unwrap_or(&Appearance::Seen(record.status)),
        };
        let heads: Vec<Head> = records.iter().map(head).collect();
        let payload = |head: &Head| {
            let record = records.iter().find(|record| record.revision == head.revision).unwrap();
            Payload::whole(Ok(Record {
                name: id.name.clone(),
                namespace: id.namespace.clone(),
                revision: record.revision,
                status: record.status,
                manifest: record.manifest.to_string(),
                digest: release::digest(&record.manifest),
                apply_method: record.method,
                last_deployed: None,
                deleted: None,
            }))
        };
        let latest = release::latest(&heads)?;
        let baseline = release::baseline(&heads).map(|head| (head, payload(head)));
        let baseline = baseline.as_ref().map(|(head, payload)| (*head, payload));
        let latest = (latest, &payload(latest));
        Some(
            assemble(StoredRecords { stored: id, latest, baseline }, previous, &Storage::default(), &CATALOG)
                .release,
        )
    }

    /// An object as the manifest of a revision has it.
    pub(super) fn document(&self, id: &ReleaseId, revision: u64, object: &ObjectId) -> Outcome {
        let records = self.records.get(id).into_iter().flatten();
        match records.clone().find(|record| record.revision == revision) {
            Some(record) => Outcome::Document(Document {
                status: record.status,
                apply_method: record.method,
                digest: release::digest(&record.manifest),
                object: release::document(id, &record.manifest, object, &CATALOG).map(Secret),
            }),
            None => failed(Fault::NoRecord, "there is no record of the revision"),
        }
    }

    /// How an object would be held if the manifest of a revision were applied.
    pub(super) fn canonical(&self, id: &ReleaseId, revision: u64, object: &ObjectId, uid: &str) -> Outcome {
        let stored = self.objects.get(object).filter(|stored| stored.uid == uid);
        match (self.document(id, revision, object), stored) {
            (Outcome::Document(Document { object: Some(Secret(document)), .. }), Some(stored)) => {
                let mut stored = stored.clone();
                stored.apply(PROBE_MANAGER, &fields(&document), self.now);
                self.admit(&mut stored);
                Outcome::Canonical(Arc::new(Secret(stored.value())))
            }
            (Outcome::Failed(failure), _) => Outcome::Failed(failure),
            _ => failed(Fault::NotFound, "the object is another one, or undeclared"),
        }
    }
}

pub(super) fn failed(fault: Fault, message: &str) -> Outcome {
    Outcome::Failed(Failure { fault, message: message.to_owned() })
}
