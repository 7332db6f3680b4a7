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
use smol_str::SmolStr;

use super::super::drifts::First;
use super::flight::Flight;
use super::random::Random;
use super::stored::{Field, Fields, Stored, fields};
use crate::sample_policies::{policies, policy};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::{self, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_policy::guarded::OrderAnswer;
use kubemoor_policy::resolver::{Labels, PolicyResolver};

pub(super) const NAMESPACE: &str = "shop";

pub(super) static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::with_core);

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
pub(super) struct Kept {
    pub(super) first: First,
    pub(super) seen: Vec<SeenAlive>,
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
    pub(super) objects: BTreeMap<ObjectId, Stored>,
    pub(super) records: BTreeMap<ReleaseId, Vec<Revision>>,
    pub(super) log: Vec<Change>,
    pub(super) lease: Lease,
    pub(super) kept: BTreeMap<ReleaseId, Kept>,
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
    /// The policy in force lets [`super::standings::ignored`] differ.
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
        self.log.push(Change::Record(id.clone()));
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
            self.log.push(Change::Record(id.clone()));
        }
    }

    /// Helm sets the status of a revision.
    pub(super) fn set_status(&mut self, id: &ReleaseId, revision: u64, status: ReleaseStatus) {
        let (version, now) = (self.next_version(), self.now);
        let records = self.records.entry(id.clone()).or_default();
        if let Some(record) = records.iter_mut().find(|record| record.revision == revision) {
            (record.status, record.version, record.touched) = (status, version, now);
            self.say(|| format!("helm sets {id} revision {revision} {status}"));
            self.log.push(Change::Record(id.clone()));
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
    Arc::new(policies([policy("all", &spec)]).of(&release, &Labels::new()))
}
