//! The simulated API server: objects, records, the lease, what guards have stored,
//! and everything that has happened, in order.
//!
//! Every write of a guard is held to the invariants here.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use super::Random;
use super::process::Flight;
use crate::drifts::FirstManifest;
use crate::event::{
    Fault, HelmManager, LiveObject, ManifestDocument, Secret, Sighting, WorkFailure, WorkOutcome, Write,
};
use crate::sample_policies::{policies, policy};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{
    Actor, MANAGED_BY, ObjectId, Operation, PROBE_MANAGER, RELEASE_NAME, ReleaseId,
};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_helm::record::{ApplyMethod, Record, ReleaseStatus};
use kubemoor_helm::release::{self, Appearance, RecordHead, RecordPayload, Release, StoredRecords, assemble};
use kubemoor_helm::storage::TrustedRecordNamespaces;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::guarded::OrderAnswer;
use kubemoor_policy::resolver::{Labels, PolicyResolver};
use kubemoor_verdict::edit::{
    DryRunEvidence, Edit, ObjectContext, ObjectOwner, Rules, Verdict, VerdictReason,
};
use kubemoor_verdict::judge::judge;

pub(super) const NAMESPACE: &str = "shop";

pub(super) static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::with_core);

/// Something that watches tell of.
#[derive(Clone, Debug)]
pub(super) enum WatchedChange {
    Object { object: ObjectId, version: u64, stored: Option<Box<StoredObject>> },
    Record(ReleaseId),
}

/// One revision of a release.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub(super) revision: u64,
    pub(super) status: ReleaseStatus,
    pub(super) manifest: Arc<str>,
    pub(super) method: ApplyMethod,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) created: Timestamp,
    pub(super) touched: Timestamp,
}

/// What the leader has stored of a release.
#[derive(Clone, Debug)]
pub(super) struct StoredStatus {
    pub(super) first: FirstManifest,
    pub(super) seen: Vec<ObservedObject>,
    pub(super) manager: Option<SmolStr>,
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
    pub(super) objects: BTreeMap<ObjectId, StoredObject>,
    pub(super) records: BTreeMap<ReleaseId, Vec<Revision>>,
    pub(super) log: Vec<WatchedChange>,
    pub(super) lease: Lease,
    pub(super) kept: BTreeMap<ReleaseId, StoredStatus>,
    /// The orders that are not answered yet.
    pub(super) orders: BTreeMap<ReleaseId, String>,
    /// The values that somebody else than a guard has written.
    pub(super) once: BTreeMap<ObjectId, BTreeSet<(Field, String)>>,
    /// The values that guards have seen in an object while they knew a manifest that declares them.
    pub(super) agreed: BTreeMap<ObjectId, BTreeSet<(Field, String)>>,
    /// The answers to orders as they were stored first.
    pub(super) answered: BTreeMap<String, OrderAnswer>,
    /// The manifests that were ever in force, by their digests.
    pub(super) manifests: BTreeMap<[u8; 32], Arc<str>>,
    /// The values that a manifest has declared.
    pub(super) declared: BTreeMap<ObjectId, BTreeSet<(Field, String)>>,
    /// Nobody may add fields, and a webhook rewrites a value.
    pub(super) sealed: bool,
    pub(super) rewrites: bool,
    /// Guards hear of orders and answers later than of all else.
    pub(super) lags: bool,
    /// The policy in force lets [`ignored`] differ.
    pub(super) is_lenient: bool,
    /// Of these Helm itself may not know what it has made: a record was forged, or somebody ordered a repair
    /// towards an earlier revision.
    pub(super) unsure: BTreeSet<ReleaseId>,
    /// The policies, of which the second is lenient.
    policies: [Arc<Policy>; 2],
    /// Documents of manifests that were read.
    parsed: RefCell<BTreeMap<Manifest, Rc<Documents>>>,
    /// What guards have created, by uid, and which process did.
    pub(super) made: BTreeMap<String, usize>,
    /// The guards' processes that have begun.
    pub(super) processes: usize,
    /// The namespace is being deleted.
    pub(super) terminating: bool,
    /// The policies by which the webhook judges, where it denies.
    pub(super) admission: Option<PolicyResolver>,
    /// Releases as admission has assembled them last.
    pub(super) assembled: RefCell<BTreeMap<ReleaseId, (Records, Arc<Release>)>>,
    /// What was done, for people.
    pub(super) history: Vec<String>,
    pub(super) violation: Option<String>,
    /// Writes of guards.
    pub(super) writes: usize,
    /// Writes of guards on their way, which may arrive after their guard has given them up.
    pub(super) flights: Vec<Flight>,
    /// The kinds of trouble that the API server makes.
    pub(super) trouble: u32,
    /// What the drawing of newer kinds of trouble takes, so that the histories of older plans stay.
    pub(super) luck: Random,
}

/// A release's manifest.
type Manifest = (ReleaseId, Arc<str>);

/// What tells one state of a release's records from another.
pub(super) type Records = Vec<(u64, u64)>;

/// The fields of a manifest's objects as Helm sends them.
pub(super) type Documents = Vec<(ObjectId, Fields)>;

impl World {
    pub(super) fn new(sealed: bool) -> Self {
        Self {
            now: "2026-05-01T12:00:00Z".parse().unwrap(),
            version: 0,
            objects: BTreeMap::new(),
            records: BTreeMap::new(),
            log: Vec::new(),
            lease: Lease::default(),
            kept: BTreeMap::new(),
            orders: BTreeMap::new(),
            once: BTreeMap::new(),
            agreed: BTreeMap::new(),
            answered: BTreeMap::new(),
            manifests: BTreeMap::new(),
            declared: BTreeMap::new(),
            sealed,
            rewrites: false,
            lags: false,
            is_lenient: false,
            unsure: BTreeSet::new(),
            policies: [false, true].map(|is_lenient| ruling(sealed, is_lenient)),
            parsed: RefCell::default(),
            made: BTreeMap::new(),
            processes: 0,
            terminating: false,
            admission: None,
            assembled: RefCell::default(),
            history: Vec::new(),
            violation: None,
            writes: 0,
            flights: Vec::new(),
            trouble: 0,
            luck: Random::new(0),
        }
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> Arc<Policy> {
        let [strict, lenient] = &self.policies;
        Arc::clone(if self.is_lenient { lenient } else { strict })
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

    pub(super) fn admit(&self, stored: &mut StoredObject) {
        for value in stored.fields.values_mut() {
            *value = self.admitted(value).to_owned();
        }
    }

    /// Stores an object as it is now, and tells of it.
    pub(super) fn store(&mut self, mut stored: StoredObject) -> Value {
        stored.version = self.next_version();
        let (object, version, value) = (stored.id.clone(), stored.version, stored.value());
        self.objects.insert(object.clone(), stored.clone());
        self.log.push(WatchedChange::Object { object, version, stored: Some(Box::new(stored)) });
        value
    }

    pub(super) fn delete(&mut self, object: &ObjectId) {
        if self.objects.remove(object).is_some() {
            let version = self.next_version();
            self.log.push(WatchedChange::Object { object: object.clone(), version, stored: None });
        }
    }

    // ---- what others do

    /// Somebody else than a guard changes an object, which is made if need be.
    pub(super) fn change(
        &mut self,
        object: &ObjectId,
        by: &str,
        change: impl FnOnce(&mut StoredObject, Timestamp),
    ) {
        let mut stored = match self.objects.get(object) {
            Some(stored) => stored.clone(),
            None => StoredObject::new(object.clone(), format!("u{}", self.version + 1)),
        };
        let (before, owners) = (stored.fields.clone(), stored.owners());
        change(&mut stored, self.now);
        self.admit(&mut stored);
        if stored.fields != before && !self.ask_admission(by, object, Some(&stored)) {
            return;
        }
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
        } else if stored.owners() != owners {
            self.say(|| format!("{by} owns other fields of {}", object.name));
            self.store(stored);
        }
    }

    /// Somebody else deletes an object.
    pub(super) fn remove(&mut self, object: &ObjectId, by: &str) {
        if self.objects.contains_key(object) && self.ask_admission(by, object, None) {
            self.say(|| format!("{by} deletes {}", object.name));
            self.delete(object);
        }
    }

    /// Helm stores a revision.
    pub(super) fn put_record(
        &mut self,
        id: &ReleaseId,
        manifest: &Arc<str>,
        status: ReleaseStatus,
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
        self.manifests.insert(release::digest(manifest), Arc::clone(manifest));
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
        self.log.push(WatchedChange::Record(id.clone()));
    }

    /// Somebody who may write Secrets puts other values into the record in force.
    pub(super) fn tamper(&mut self, id: &ReleaseId) {
        self.rewrite(id, |manifest| manifest.replace("\"v", "\"e"));
    }

    /// They give the record in force another manifest.
    pub(super) fn rewrite(&mut self, id: &ReleaseId, change: impl FnOnce(&str) -> String) {
        let version = self.next_version();
        let latest = self.records.get_mut(id).and_then(|records| records.last_mut());
        if let Some(record) = latest.filter(|record| record.status == ReleaseStatus::Deployed) {
            record.manifest = change(&record.manifest).into();
            record.version = version;
            self.manifests.insert(release::digest(&record.manifest), Arc::clone(&record.manifest));
            self.say(|| format!("somebody rewrites the record of {id}"));
            self.log.push(WatchedChange::Record(id.clone()));
        }
    }

    /// Helm sets the status of a revision.
    pub(super) fn set_status(&mut self, id: &ReleaseId, revision: u64, status: ReleaseStatus) {
        let (version, now) = (self.next_version(), self.now);
        let records = self.records.entry(id.clone()).or_default();
        if let Some(record) = records.iter_mut().find(|record| record.revision == revision) {
            (record.status, record.version, record.touched) = (status, version, now);
            self.say(|| format!("helm sets {id} revision {revision} {status}"));
            self.log.push(WatchedChange::Record(id.clone()));
        }
    }

    /// Helm keeps few revisions: the oldest goes, unless it is in force or the latest.
    pub(super) fn forget_oldest(&mut self, id: &ReleaseId) {
        self.version += 1;
        let Some(records) = self.records.get_mut(id).filter(|records| records.len() > 1) else { return };
        let last = records.len() - 1;
        let place = records.iter().take(last).position(|record| record.status != ReleaseStatus::Deployed);
        if let Some(place) = place {
            let gone = records.remove(place).revision;
            self.say(|| format!("helm deletes {id} revision {gone}"));
            self.log.push(WatchedChange::Record(id.clone()));
        }
    }

    /// Helm forgets a release.
    pub(super) fn purge(&mut self, id: &ReleaseId) {
        self.version += 1;
        self.records.remove(id);
        self.kept.remove(id);
        self.orders.remove(id);
        self.say(|| format!("helm purges {id}"));
        self.log.push(WatchedChange::Record(id.clone()));
    }
}

/// The field manager of the Helm that writes a release, or an object of it.
pub(super) fn field_manager(name: &str) -> &'static str {
    if name.starts_with("web") { "deployer" } else { "helm" }
}

pub(super) fn object(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", NAMESPACE, name)
}

/// The policy of all releases.
fn ruling(sealed: bool, is_lenient: bool) -> Arc<Policy> {
    let seal = if sealed { "[{paths: [/data]}]" } else { "[]" };
    let ignore = if is_lenient { "[{paths: [/data/b]}]" } else { "[]" };
    let spec = format!("{{edits: Warn, drift: Repair, seal: {seal}, ignore: {ignore}}}");
    let release = ReleaseId { namespace: NAMESPACE.into(), name: "web".into() };
    Arc::new(policies([policy("all", &spec)]).resolve(&release, &Labels::new()))
}

/// A field of an object: `data`, `labels` or `annotations`, and its key.
pub(super) type Field = (&'static str, String);

/// The values of an object's fields.
pub(super) type Fields = BTreeMap<Field, String>;

#[derive(Clone, Debug)]
pub(super) struct StoredObject {
    pub(super) id: ObjectId,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) fields: Fields,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    manager: String,
    applies: bool,
    owns: BTreeSet<Field>,
    time: Timestamp,
}

impl StoredObject {
    pub(super) fn new(id: ObjectId, uid: String) -> Self {
        Self { id, uid, version: 0, fields: Fields::new(), entries: Vec::new() }
    }

    /// The release that its annotations name.
    pub(super) fn release(&self) -> Option<ReleaseId> {
        ReleaseId::from_annotations(|key| self.fields.get(&("annotations", key.to_owned())).cloned())
    }

    /// Whether watches by Helm's label show it.
    pub(super) fn is_labelled(&self) -> bool {
        self.fields.get(&("labels", MANAGED_BY.0.to_owned())).is_some_and(|value| value == MANAGED_BY.1)
    }

    /// Who owns which fields, and whether by applies.
    pub(super) fn owners(&self) -> BTreeSet<(String, bool, BTreeSet<Field>)> {
        let owner = |entry: &Entry| (entry.manager.clone(), entry.applies, entry.owns.clone());
        self.entries.iter().map(owner).collect()
    }

    /// A forced server-side apply.
    pub(super) fn apply(&mut self, manager: &str, wanted: &Fields, now: Timestamp) {
        let own = self.entry(manager, true, now);
        let before = std::mem::replace(&mut own.owns, wanted.keys().cloned().collect());
        for (field, value) in wanted {
            if self.fields.insert(field.clone(), value.clone()).as_ref() != Some(value) {
                self.disown(field, Some((manager, true)));
            }
        }
        for field in before.into_iter().filter(|field| !wanted.contains_key(field)) {
            if !self.entries.iter().any(|entry| entry.owns.contains(&field)) {
                self.fields.remove(&field);
            }
        }
        self.tidy();
    }

    /// What a manager has written by updates counts as applied by it from now on, as Helm does before it applies.
    pub(super) fn adopt(&mut self, manager: &str, now: Timestamp) {
        let is_own = |entry: &Entry| entry.manager == manager && !entry.applies;
        if let Some(place) = self.entries.iter().position(is_own) {
            let owns = self.entries.remove(place).owns;
            self.entry(manager, true, now).owns.extend(owns);
        }
    }

    /// An update or patch: these fields have these values from now on, or are gone.
    pub(super) fn update(
        &mut self,
        manager: &str,
        changes: &BTreeMap<Field, Option<String>>,
        now: Timestamp,
    ) {
        for (field, value) in changes {
            match value {
                Some(value) if self.fields.get(field) == Some(value) => {}
                Some(value) => {
                    self.fields.insert(field.clone(), value.clone());
                    self.disown(field, None);
                    self.entry(manager, false, now).owns.insert(field.clone());
                }
                None => {
                    self.fields.remove(field);
                    self.disown(field, None);
                }
            }
        }
        self.tidy();
    }

    /// A patch of who owns what, by what `managedFields` it sends.
    pub(super) fn own(&mut self, managed: &Value) {
        let read = |entry: &Value| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut owns = BTreeSet::new();
            for (part, pointer) in [
                ("data", "/fieldsV1/f:data"),
                ("labels", "/fieldsV1/f:metadata/f:labels"),
                ("annotations", "/fieldsV1/f:metadata/f:annotations"),
            ] {
                for key in entry.pointer(pointer).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
                    if let Some(key) = key.strip_prefix("f:") {
                        owns.insert((part, key.to_owned()));
                    }
                }
            }
            let time = text("time").parse().unwrap_or(Timestamp::UNIX_EPOCH);
            Entry { manager: text("manager"), applies: text("operation") == "Apply", owns, time }
        };
        self.entries = managed.as_array().into_iter().flatten().map(read).collect();
        self.tidy();
    }

    /// The object as a client reads it.
    pub(super) fn value(&self) -> Value {
        let part = |wanted: &str| -> Map<String, Value> {
            let own = self.fields.iter().filter(|((part, _), _)| *part == wanted);
            own.map(|((_, key), value)| (key.clone(), json!(value))).collect()
        };
        json!({
            "apiVersion": "v1", "kind": self.id.kind, "data": part("data"),
            "metadata": {
                "name": self.id.name, "namespace": self.id.namespace, "uid": self.uid,
                "resourceVersion": self.version.to_string(),
                "labels": part("labels"), "annotations": part("annotations"),
            },
        })
    }

    /// Whether somebody has added a field that nothing declares. What nobody owns a webhook has added, and
    /// what an applier owns, as Helm's applies do, is no addition either.
    pub(super) fn is_added(&self, field: &Field) -> bool {
        let owners = || self.entries.iter().filter(|entry| entry.owns.contains(field));
        owners().next().is_some() && owners().all(|entry| !entry.applies)
    }

    /// The object as a guard is told of it.
    pub(super) fn live(&self) -> LiveObject {
        let named = ("annotations", RELEASE_NAME.to_owned());
        let mut managers: Vec<HelmManager> = self
            .entries
            .iter()
            .filter(|entry| entry.owns.contains(&named))
            .map(|entry| HelmManager { name: entry.manager.clone(), applies: entry.applies })
            .collect();
        managers.sort_by_key(|manager| !manager.applies);
        let updaters = self.entries.iter().rev().filter(|entry| !entry.applies);
        let managed = serde_json::value::to_raw_value(&self.managed()).unwrap();
        LiveObject {
            sighting: Sighting {
                id: self.id.clone(),
                uid: self.uid.clone(),
                resource_version: self.version.to_string(),
                deleting: false,
                release: self.release(),
                managers,
                updaters: updaters.map(|entry| entry.manager.clone()).collect(),
                touched: self.entries.iter().map(|entry| entry.time).max(),
            },
            object: Some(self.value()),
            managed: Some(managed),
        }
    }

    fn entry(&mut self, manager: &str, applies: bool, now: Timestamp) -> &mut Entry {
        let is_own = |entry: &Entry| entry.manager == manager && entry.applies == applies;
        let place = self.entries.iter().position(is_own).unwrap_or_else(|| {
            let manager = manager.to_owned();
            self.entries.push(Entry { manager, applies, owns: BTreeSet::new(), time: now });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[place];
        entry.time = now;
        entry
    }

    fn disown(&mut self, field: &Field, but: Option<(&str, bool)>) {
        for entry in &mut self.entries {
            if but != Some((entry.manager.as_str(), entry.applies)) {
                entry.owns.remove(field);
            }
        }
    }

    fn tidy(&mut self) {
        self.entries.retain(|entry| !entry.owns.is_empty());
    }

    fn managed(&self) -> Value {
        let entry = |entry: &Entry| {
            let part = |wanted: &str| -> Map<String, Value> {
                let own = entry.owns.iter().filter(|(part, _)| *part == wanted);
                own.map(|(_, key)| (format!("f:{key}"), json!({}))).collect()
            };
            json!({
                "manager": entry.manager, "operation": if entry.applies { "Apply" } else { "Update" },
                "apiVersion": "v1", "fieldsType": "FieldsV1", "time": entry.time.to_string(),
                "fieldsV1": {
                    "f:data": part("data"),
                    "f:metadata": {"f:labels": part("labels"), "f:annotations": part("annotations")},
                },
            })
        };
        self.entries.iter().map(entry).collect()
    }
}

/// Reads the fields of a document.
pub(super) fn fields(document: &Value) -> Fields {
    let mut found = Fields::new();
    for (part, pointer) in
        [("data", "/data"), ("labels", "/metadata/labels"), ("annotations", "/metadata/annotations")]
    {
        for (key, value) in document.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
            found.insert((part, key.clone()), value.as_str().unwrap_or_default().to_owned());
        }
    }
    found
}

/// What a guard knows of a release.
pub(super) struct View<'v> {
    pub(super) release: &'v ReleaseId,
    /// The manifests in force: an object that agrees with one of them is right.
    pub(super) manifests: &'v [Arc<str>],
    /// The place of the log that the watch of objects has come to.
    pub(super) from: usize,
    /// The guard's policy ignores [`ignored`].
    pub(super) is_lenient: bool,
}

impl World {
    /// Whether each object that a manifest declares was as declared at some time from that place of the log
    /// on. Watches tell of the objects one after the other, so the times of two objects may differ.
    pub(super) fn was_in_sync(&self, view: &View<'_>) -> bool {
        let declared = self.declared_by(view);
        declared.iter().flat_map(|it| it.iter()).all(|(object, _)| {
            let mut states = self.states_of(object, view.from).into_iter();
            states.any(|it| self.is_right(object, it, &declared, view))
        })
    }

    /// Whether an object was missing at some time from that place of the log on, or, unless `is_missing`,
    /// otherwise than declared: an object that has gone since is looked at soon, and drifts until then as well.
    pub(super) fn was_drifting(&self, object: &ObjectId, is_missing: bool, view: &View<'_>) -> bool {
        let declared = self.declared_by(view);
        if declared.iter().all(|it| it.iter().all(|(other, _)| other != object)) {
            return false;
        }
        self.states_of(object, view.from).into_iter().any(|it| match it {
            None => !is_missing || !self.is_right(object, None, &declared, view),
            Some(_) => !is_missing && !self.is_right(object, it, &declared, view),
        })
    }

    /// What of the releases in force is not as declared.
    pub(super) fn drift(&self) -> Vec<String> {
        let told = |(id, name, faults): (&ReleaseId, String, Vec<String>)| {
            faults.into_iter().map(|fault| format!("{id}: {name} {fault}")).collect::<Vec<_>>()
        };
        self.faulty().into_iter().flat_map(told).collect()
    }

    /// The names of what drifts, of each release in force.
    pub(super) fn drifting(&self) -> BTreeMap<ReleaseId, BTreeSet<String>> {
        let mut found: BTreeMap<ReleaseId, BTreeSet<String>> = BTreeMap::new();
        for (id, name, _) in self.faulty() {
            found.entry(id.clone()).or_default().insert(name);
        }
        found
    }

    /// The objects of the releases in force that are not as declared, with their faults.
    fn faulty(&self) -> Vec<(&ReleaseId, String, Vec<String>)> {
        let mut found = Vec::new();
        for (id, records) in &self.records {
            let Some(latest) = records.last().filter(|it| it.status == ReleaseStatus::Deployed) else {
                continue;
            };
            for (object, declared) in self.documents(id, &latest.manifest).iter() {
                let faults = self.faults(declared, self.objects.get(object));
                if !faults.is_empty() {
                    found.push((id, object.name.to_string(), faults));
                }
            }
        }
        found
    }

    fn declared_by(&self, view: &View<'_>) -> Vec<Rc<Documents>> {
        view.manifests.iter().map(|manifest| self.documents(view.release, manifest)).collect()
    }

    /// Whether an object is as one of the manifests has it; a manifest that does not declare it has none.
    fn is_right(
        &self,
        object: &ObjectId,
        live: Option<&StoredObject>,
        declared: &[Rc<Documents>],
        view: &View<'_>,
    ) -> bool {
        declared.iter().any(|documents| {
            let found = documents.iter().find(|(other, _)| other == object);
            found.map_or(live.is_none(), |(_, fields)| self.is_as_declared(fields, live, view))
        })
    }

    /// How an object was from a place of the log on; none while it was not there.
    fn states_of(&self, object: &ObjectId, from: usize) -> Vec<Option<&StoredObject>> {
        let (before, since) = self.log.split_at(from.min(self.log.len()));
        let at_first = before.iter().rev().find_map(|change| state_after(change, object)).flatten();
        let since = since.iter().filter_map(|change| state_after(change, object));
        std::iter::once(at_first).chain(since).collect()
    }

    fn is_as_declared(&self, declared: &Fields, live: Option<&StoredObject>, view: &View<'_>) -> bool {
        if !view.is_lenient {
            return self.faults(declared, live).is_empty();
        }
        let (mut counted, mut live) = (declared.clone(), live.cloned());
        counted.remove(&ignored());
        if let Some(live) = &mut live {
            live.fields.remove(&ignored());
        }
        self.faults(&counted, live.as_ref()).is_empty()
    }

    /// What of an object is not as declared.
    fn faults(&self, declared: &Fields, live: Option<&StoredObject>) -> Vec<String> {
        let Some(live) = live else { return vec!["is missing".to_owned()] };
        let differs = |(field, value): &(&Field, &String)| {
            live.fields.get(*field).map(String::as_str) != Some(self.admitted(value))
        };
        let other = declared.iter().filter(differs).map(|(field, _)| format!("has another {field:?}"));
        let is_added =
            |field: &Field| field.0 == "data" && !declared.contains_key(field) && live.is_added(field);
        let more = (self.sealed && live.fields.keys().any(is_added)).then(|| "holds more".to_owned());
        other.chain(more).collect()
    }
}

/// The field that lenient policies ignore.
pub(super) fn ignored() -> Field {
    ("data", "b".to_owned())
}

/// How an object is after a change; none if the change is of something else.
fn state_after<'c>(change: &'c WatchedChange, of: &ObjectId) -> Option<Option<&'c StoredObject>> {
    match change {
        WatchedChange::Object { object, stored, .. } if object == of => Some(stored.as_deref()),
        _ => None,
    }
}

/// Whose write it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) guard: usize,
    pub(super) process: usize,
    /// Somebody still waits for the answer.
    pub(super) is_awaited: bool,
}

impl World {
    /// A write of a guard arrives.
    pub(super) fn write(&mut self, sender: Sender, object: &ObjectId, write: &Write) -> WorkOutcome {
        let guard = sender.guard;
        self.writes += 1;
        if sender.is_awaited && self.lease.holder != Some(guard) {
            self.break_down(format!("guard {guard} writes {} and does not lead", object.name));
        }
        let before = self.objects.get(object).cloned();
        let (body, manager) = match write {
            Write::Create { document, manager } | Write::Apply { document, manager } => {
                (&document.0, manager)
            }
            Write::Merge { patch, manager } => (&patch.0, manager),
            Write::Delete { uid } => return self.take_back(guard, object, uid),
        };
        if manager != field_manager(&object.name) {
            self.break_down(format!("guard {guard} writes {} as {manager}", object.name));
        }
        // As the API server does: it compares both with an existing object, and only a uid needs one.
        let expected = |key: &str| body.pointer(&format!("/metadata/{key}")).and_then(Value::as_str);
        let is_that = |it: &StoredObject| {
            expected("uid").is_none_or(|uid| uid == it.uid)
                && expected("resourceVersion").is_none_or(|version| version == it.version.to_string())
        };
        let mut after = match (&before, write) {
            (Some(_), Write::Create { .. }) => return failed(Fault::AlreadyExists, "already exists"),
            (None, Write::Merge { .. }) => return failed(Fault::NotFound, "not found"),
            (None, _) if expected("uid").is_some() => return failed(Fault::Conflict, "no such object"),
            (None, _) if self.terminating => {
                return failed(Fault::Terminating, "the namespace is terminating");
            }
            (Some(before), _) if !is_that(before) => {
                return failed(Fault::Conflict, "the object has been modified");
            }
            (Some(before), _) => before.clone(),
            (None, _) => StoredObject::new(object.clone(), format!("u{}", self.version + 1)),
        };
        match write {
            Write::Apply { .. } => after.apply(manager, &fields(body), self.now),
            Write::Create { .. } => {
                let all = fields(body).into_iter().map(|(field, value)| (field, Some(value))).collect();
                after.update(manager, &all, self.now);
            }
            Write::Merge { .. } => {
                after.update(manager, &patched(body), self.now);
                if let Some(managed) = body.pointer("/metadata/managedFields") {
                    after.own(managed);
                }
            }
            Write::Delete { .. } => {}
        }
        self.admit(&mut after);
        self.check(guard, object, before.as_ref(), &after);
        if before.is_none() {
            self.made.insert(after.uid.clone(), if sender.is_awaited { sender.process } else { 0 });
        }
        let version = self.version + 1;
        self.say(|| format!("guard {guard} writes {} v{version}: {write:?}", object.name));
        let value = self.store(after);
        WorkOutcome::Written(Secret(value))
    }

    fn take_back(&mut self, guard: usize, object: &ObjectId, uid: &str) -> WorkOutcome {
        match self.objects.get(object) {
            None => failed(Fault::NotFound, "not found"),
            Some(stored) if stored.uid != uid => failed(Fault::Conflict, "another uid"),
            Some(_) => {
                if !self.made.contains_key(uid) {
                    self.break_down(format!("guard {guard} deletes {}, which it has not made", object.name));
                }
                self.say(|| format!("guard {guard} takes {} back", object.name));
                self.delete(object);
                WorkOutcome::Written(Secret(json!({})))
            }
        }
    }

    /// Nothing is written that was not declared and seen in the object while it was; nothing is taken away but
    /// what a release dropped, or somebody added where that is sealed.
    fn check(
        &mut self,
        guard: usize,
        object: &ObjectId,
        before: Option<&StoredObject>,
        after: &StoredObject,
    ) {
        let none = Fields::new();
        let fields = before.map_or(&none, |before| &before.fields);
        let changed = after.fields.iter().filter(|(field, value)| fields.get(*field) != Some(*value));
        let has = |of: &BTreeMap<ObjectId, BTreeSet<(Field, String)>>, pair: &(Field, String)| {
            of.get(object).is_some_and(|all| all.contains(pair))
        };
        let mut wrong = Vec::new();
        for (field, value) in changed {
            let pair = (field.clone(), value.clone());
            for (is_met, fault) in [
                (has(&self.declared, &pair), "which nobody declared"),
                (has(&self.once, &pair), "which never was"),
                (field.0 != "data" || has(&self.agreed, &pair), "which no guard has seen there"),
            ] {
                if !is_met {
                    wrong.push(format!("guard {guard} writes {}: {pair:?}, {fault}", object.name));
                }
            }
        }
        for field in fields.keys().filter(|field| !after.fields.contains_key(*field)) {
            let is_added = self.sealed && before.is_some_and(|before| before.is_added(field));
            let declared = self.declared.get(object).into_iter().flatten();
            let is_dropped =
                declared.map(|(of, _)| of).any(|of| of == field) && !self.is_declared_now(object, field);
            if !is_added && !is_dropped {
                wrong.push(format!("guard {guard} takes {field:?} from {}", object.name));
            }
        }
        wrong.into_iter().for_each(|it| self.break_down(it));
    }

    fn is_declared_now(&self, object: &ObjectId, field: &Field) -> bool {
        self.records.iter().any(|(id, records)| {
            let documents = records.last().map(|latest| self.documents(id, &latest.manifest));
            let mut documents = documents.iter().flat_map(|documents| documents.iter());
            documents.any(|(of, fields)| of == object && fields.contains_key(field))
        })
    }
}

/// The changes of a merge patch.
fn patched(patch: &Value) -> BTreeMap<Field, Option<String>> {
    let mut found = BTreeMap::new();
    for (part, pointer) in
        [("data", "/data"), ("labels", "/metadata/labels"), ("annotations", "/metadata/annotations")]
    {
        for (key, value) in patch.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
            found.insert((part, key.clone()), value.as_str().map(str::to_owned));
        }
    }
    found
}

static CACHE: LazyLock<Arc<FieldsCache>> = LazyLock::new(Arc::default);

/// The document of an object that the arbiter is asked about.
#[derive(Clone, Copy)]
pub(super) struct ManifestKey {
    pub(super) revision: u64,
    pub(super) digest: Option<Digest>,
}

impl World {
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
        let head = |record: &Revision| RecordHead {
            secret: format!("sh.helm.release.v1.{}.v{}", id.name, record.revision),
            uid: record.uid.clone(),
            resource_version: record.version.to_string(),
            revision: record.revision,
            status: record.status,
            created: record.created,
            last_written: record.touched,
            appearance: *appearances
                .get(&(record.uid.clone(), record.revision))
                .unwrap_or(&Appearance::Seen(record.status)),
            writer: release::RecordWriter::Other,
        };
        let heads: Vec<Arc<RecordHead>> = records.iter().map(head).map(Arc::new).collect();
        let payload = |head: &RecordHead| {
            let record = records.iter().find(|record| record.revision == head.revision).unwrap();
            RecordPayload::whole(Ok(Record {
                name: id.name.to_string(),
                namespace: id.namespace.to_string(),
                revision: record.revision,
                status: record.status,
                manifest: record.manifest.to_string(),
                digest: release::digest(&record.manifest),
                values: [0; 32],
                apply_method: record.method,
                chart: None,
                last_deployed: None,
                deleted: None,
            }))
        };
        let latest = release::latest(&heads)?;
        let baseline = release::baseline(&heads).map(|head| (head, payload(head)));
        let baseline = baseline.as_ref().map(|(head, payload)| (*head, payload));
        let latest = (latest, &payload(latest));
        Some(
            assemble(
                StoredRecords { stored: id, latest, baseline },
                previous,
                &TrustedRecordNamespaces::default(),
                &CATALOG,
                &CACHE,
            )
            .release,
        )
    }

    /// An object as the manifest of a revision has it.
    pub(super) fn document(&self, id: &ReleaseId, revision: u64, object: &ObjectId) -> WorkOutcome {
        let records = self.records.get(id).into_iter().flatten();
        match records.clone().find(|record| record.revision == revision) {
            Some(record) => WorkOutcome::Document(ManifestDocument {
                status: record.status,
                apply_method: record.method,
                digest: release::digest(&record.manifest),
                object: release::document(id, &record.manifest, object, &CATALOG).map(Secret),
            }),
            None => failed(Fault::NoRecord, "there is no record of the revision"),
        }
    }

    /// How an object would be held if the manifest of a revision were applied. Where the record names another
    /// document by now than was asked about, there is no answer.
    pub(super) fn canonical(
        &self,
        id: &ReleaseId,
        (object, uid): (&ObjectId, &str),
        asked: ManifestKey,
    ) -> WorkOutcome {
        let stored = self.objects.get(object).filter(|stored| stored.uid == uid);
        match (self.document(id, asked.revision, object), stored) {
            (WorkOutcome::Document(ManifestDocument { object: Some(Secret(document)), .. }), _)
                if Digest::new(&document) != asked.digest =>
            {
                failed(Fault::Unanswered, "the record has changed")
            }
            (
                WorkOutcome::Document(ManifestDocument { object: Some(Secret(document)), .. }),
                Some(stored),
            ) => {
                let mut stored = stored.clone();
                stored.apply(PROBE_MANAGER, &fields(&document), self.now);
                self.admit(&mut stored);
                WorkOutcome::Canonical(Arc::new(Secret(stored.value())))
            }
            (WorkOutcome::Failed(failure), _) => WorkOutcome::Failed(failure),
            _ => failed(Fault::NotFound, "the object is another one, or undeclared"),
        }
    }
}

pub(super) fn failed(fault: Fault, message: &str) -> WorkOutcome {
    WorkOutcome::Failed(WorkFailure { fault, message: message.to_owned() })
}

/// Who takes a namespace apart.
pub(super) const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// The policies of the webhook: they deny every difference and, with `is_sealed`, every addition.
pub(super) fn denying(is_sealed: bool) -> PolicyResolver {
    let seal = if is_sealed { "[{paths: [/data]}]" } else { "[]" };
    let spec = format!("{{edits: Deny, drift: Repair, seal: {seal}}}");
    PolicyResolver::of_policies(policies([policy("all", &spec)]))
}

impl World {
    /// Whether the webhook lets somebody else than a guard leave the object like this; none: gone.
    pub(super) fn ask_admission(
        &mut self,
        by: &str,
        object: &ObjectId,
        after: Option<&StoredObject>,
    ) -> bool {
        if self.admission.is_none() {
            return true;
        }
        let verdict = self.verdict(by, object, after);
        let is_refused = verdict.as_ref().is_some_and(|verdict| verdict.outcome.is_refusal());
        let name = &object.name;
        if is_refused && (by == "helm" || by == NAMESPACE_CONTROLLER) {
            self.break_down(format!("{by} is refused to write {name}: {verdict:?}"));
        }
        let is_declared =
            verdict.as_ref().is_some_and(|verdict| verdict.reason != VerdictReason::NotDeclared);
        if is_declared && name == "bystander" {
            self.break_down(format!("{name}, which nobody declares, is judged: {verdict:?}"));
        }
        if is_refused {
            self.say(|| format!("{by} is refused to write {name}"));
        }
        !is_refused
    }

    fn verdict(&self, by: &str, object: &ObjectId, after: Option<&StoredObject>) -> Option<Verdict> {
        let resolver = self.admission.as_ref()?;
        let before = self.objects.get(object);
        let (old, new) = (before.map(StoredObject::value), after.map(StoredObject::value));
        let operation = match (&old, &new) {
            (_, None) => Operation::Delete,
            (None, Some(_)) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let owner = before
            .or(after)
            .and_then(StoredObject::release)
            .map_or(ObjectOwner::Nobody, ObjectOwner::Release);
        let edit = Edit {
            operation,
            actor: &Actor { user: by.to_owned(), ..Actor::default() },
            object,
            old: old.as_ref(),
            new: new.as_ref(),
            version: Some("v1"),
            scale: false,
            owner,
            dry_run: false,
            field_manager: by,
            circumstances: &ObjectContext::default(),
        };
        let claims: Vec<Arc<Release>> = self
            .records
            .keys()
            .filter_map(|id| self.release_of_now(id))
            .filter(|release| release.declared(object).is_some())
            .collect();
        let rules = Rules { resolver, own_account: None };
        let judged = |evidence: DryRunEvidence<'_>| judge(&edit, &claims, &rules, evidence, self.now).0;
        let verdict = judged(DryRunEvidence::None);
        let claim = claims.first().filter(|_| verdict.outcome.is_refusal() && verdict.arguable);
        match claim {
            Some(release) => match self.dry_run(release, object) {
                Some(value) => Some(judged(DryRunEvidence::Canonical(&value))),
                None => Some(judged(DryRunEvidence::Unavailable)),
            },
            None => Some(verdict),
        }
    }

    /// The release by its records as they are; assembled once for each state of them.
    fn release_of_now(&self, id: &ReleaseId) -> Option<Arc<Release>> {
        let state = self.state_of(id);
        let mut assembled = self.assembled.borrow_mut();
        if let Some((_, release)) = assembled.get(id).filter(|(of, _)| *of == state) {
            return Some(Arc::clone(release));
        }
        let release = Arc::new(self.release(id, None, &BTreeMap::new())?);
        assembled.insert(id.clone(), (state, Arc::clone(&release)));
        Some(release)
    }

    /// The object as it would be stored if the declaration were applied now, whether it is there or not.
    fn dry_run(&self, release: &Release, object: &ObjectId) -> Option<Value> {
        let WorkOutcome::Document(document) = self.document(&release.id, release.state.revision, object)
        else {
            return None;
        };
        let Secret(document) = document.object?;
        let new = || StoredObject::new(object.clone(), String::new());
        let mut stored = self.objects.get(object).cloned().unwrap_or_else(new);
        stored.apply(PROBE_MANAGER, &fields(&document), self.now);
        self.admit(&mut stored);
        Some(stored.value())
    }

    /// Somebody deletes the namespace.
    pub(super) fn begin_termination(&mut self) {
        self.say(|| "the namespace is being deleted".to_owned());
        self.terminating = true;
    }

    /// One more object or release goes.
    pub(super) fn go_on_terminating(&mut self, random: &mut Random) {
        let objects: Vec<_> = self.objects.keys().cloned().collect();
        let releases: Vec<_> = self.records.keys().cloned().collect();
        let place = random.below(objects.len() + releases.len());
        if let Some(object) = objects.get(place) {
            self.remove(object, NAMESPACE_CONTROLLER);
        } else if let Some(release) = releases.get(place - objects.len()) {
            self.purge(release);
        } else {
            self.say(|| "the namespace is gone".to_owned());
            self.terminating = false;
        }
    }
}
