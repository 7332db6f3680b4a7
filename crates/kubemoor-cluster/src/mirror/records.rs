//! The known records: the metadata of every revision of every release, from the watch, fresh lookups and
//! single reads.
//!
//! Entry points: [`read`] makes a [`Known`] of an object's metadata; [`Records`] holds them. Invariant: a
//! delayed event of the watch never undoes the result of a fresh lookup. A record in another form than Helm's
//! causes a warning and has no other effect; one that was never seen before its deletion began has none. Pure
//! state: no I/O.

use std::collections::{HashMap, HashSet, hash_map};
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::client::resource::{Managed, Meta};
use crate::client::watch::parse_version;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::{Status, parse_record_name};
use kubemoor_helm::release::{Appearance, Head, Writer};

/// One record as its metadata tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) head: Arc<Head>,
    /// The contradiction between its labels and its name. A flawed record has no status, so its payload does
    /// not match either.
    pub(super) flaw: Option<Arc<str>>,
    /// Whether it is being deleted.
    is_deleted: bool,
}

/// An object that carries Helm's label and is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stray {
    /// The name is not one that Helm gives.
    #[error("its name is not `sh.helm.release.v1.NAME.vREVISION`")]
    Name,
    /// Helm looks records up by this label and does not find it.
    #[error("its label `name` is {label:?}, so Helm does not find it")]
    Label {
        /// The label's value.
        label: String,
    },
    /// It lies in no namespace.
    #[error("it lies in no namespace")]
    Namespace,
}

/// All records by release.
#[derive(Default)]
pub(super) struct Records {
    releases: HashMap<ReleaseId, Entry>,
    /// The namespaces (`None`: all) that were listed in full at least once.
    listed: HashSet<Option<String>>,
}

#[derive(Default)]
struct Entry {
    /// By revision, lowest first.
    records: Vec<Known>,
    /// A fresh lookup has read the API server's state at this version.
    as_of: Option<u64>,
    /// When that look began.
    looked: Option<Instant>,
}

/// A full listing on its way.
pub(super) struct Listing {
    releases: HashMap<ReleaseId, Vec<Known>>,
    began: Instant,
}

/// Reads what `meta`, the metadata of an object with the label `owner=helm`,
/// tells of a record.
///
/// # Errors
/// When the object is no record of any release.
pub(super) fn read(meta: Meta) -> Result<(ReleaseId, Known), Stray> {
    let namespace = meta.namespace.ok_or(Stray::Namespace)?;
    let (name, revision) = parse_record_name(&meta.name).ok_or(Stray::Name)?;
    let labels = meta.labels.unwrap_or_default();
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    if label("name") != name {
        return Err(Stray::Label { label: label("name").to_owned() });
    }
    let flaw = if label("version") != revision.to_string() {
        Some(format!("its label `version` says {:?}, its name {revision}", label("version")))
    } else if label("status").is_empty() {
        Some("it has no label `status`".to_owned())
    } else {
        None
    };
    let created = meta.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    let touches = meta.managed_fields.unwrap_or_default();
    let status = match flaw {
        Some(_) => Status::Unknown,
        None => Status::from_str(label("status")).unwrap_or(Status::Unknown),
    };
    let head = Head {
        secret: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        revision,
        status,
        created,
        touched: touches
            .iter()
            .filter_map(|entry| entry.time)
            .max()
            .map_or(created, |time| time.max(created)),
        appearance: Appearance::Seen(status),
        writer: writer(&touches),
    };
    Ok((
        ReleaseId { namespace: namespace.into(), name: name.into() },
        Known { head: Arc::new(head), flaw: flaw.map(Arc::from), is_deleted: meta.deletion_timestamp },
    ))
}

/// The program that wrote the record's content, by its newest field manager.
fn writer(touches: &[Managed]) -> Writer {
    let newest = touches.iter().max_by_key(|entry| entry.time);
    newest.and_then(|entry| entry.manager.as_deref()).map(Writer::of).unwrap_or_default()
}

impl Known {
    /// Sets how the guard first saw the record.
    fn appear(&mut self, appearance: Appearance) {
        if self.head.appearance != appearance {
            Arc::make_mut(&mut self.head).appearance = appearance;
        }
    }

    /// Keeps the memory of the same record `before`, which its release has as well.
    fn share(&mut self, before: &Self) {
        if self.head == before.head {
            self.head = Arc::clone(&before.head);
        }
    }
}

impl Records {
    /// The records of a release, lowest revision first.
    pub(super) fn of(&self, release: &ReleaseId) -> Vec<Known> {
        self.releases.get(release).map(|entry| entry.records.clone()).unwrap_or_default()
    }

    /// The releases that have records in a namespace.
    pub(super) fn releases_in(&self, namespace: &str) -> Vec<ReleaseId> {
        self.releases.keys().filter(|release| release.namespace == namespace).cloned().collect()
    }

    /// How many records there are of how many releases.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.releases.values().map(|entry| entry.records.len()).sum(), self.releases.len())
    }

    /// Has a record that is listed as it is known keep its memory, so that a listing does not need the same once more.
    pub(super) fn share(&self, release: &ReleaseId, listed: &mut Known) {
        let mut known = self.releases.get(release).into_iter().flat_map(|entry| &entry.records);
        if let Some(known) = known.find(|known| known.head.uid == listed.head.uid) {
            listed.appear(known.head.appearance);
            listed.share(known);
        }
    }

    /// Takes in an event of the watch: the record is there. Whether that is news.
    pub(super) fn apply(&mut self, release: ReleaseId, known: Known) -> bool {
        let entry = self.releases.entry(release.clone()).or_default();
        let is_covered = entry.covers(&known.head.resource_version);
        let changed = if is_covered { entry.look_back(&known) } else { entry.put(known) };
        self.drop_empty(&release);
        changed
    }

    /// Applies the result of reading a single record. Returns whether it changed anything.
    pub(super) fn refine(&mut self, release: ReleaseId, known: Known) -> bool {
        let changed = self.releases.entry(release.clone()).or_default().put(known);
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

    /// Takes in that a read did not find the record. Whether that is news.
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

    /// Takes in a fresh look that began at `began`: these are all records of
    /// `release` at the API server's version `at`. Whether that is news.
    pub(super) fn look(
        &mut self,
        release: &ReleaseId,
        records: Vec<Known>,
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

    /// Takes in a full listing of `namespace` (`None`: of all). The releases
    /// about which it has news.
    pub(super) fn replace(&mut self, namespace: Option<&str>, listing: Listing) -> Vec<ReleaseId> {
        let Listing { mut releases, began } = listing;
        let is_first = self.listed.insert(namespace.map(str::to_owned));
        let mut changed = Vec::new();
        self.releases.retain(|id, entry| {
            if namespace.is_some_and(|namespace| namespace != id.namespace) {
                return true;
            }
            let listed = releases.remove(id).unwrap_or_default();
            if entry.looked.is_some_and(|looked| looked > began) {
                // The listing may be newer than the look, and the watch goes on behind it.
                let mut is_news = false;
                for known in listed {
                    is_news |= !entry.covers(&known.head.resource_version) && entry.put(known);
                }
                if is_news {
                    changed.push(id.clone());
                }
                return true;
            }
            // After a restore of etcd the versions of before count no longer.
            (entry.as_of, entry.looked) = (None, None);
            if entry.set(listed, is_first) {
                changed.push(id.clone());
            }
            !entry.records.is_empty()
        });
        for (id, records) in releases {
            let mut entry = Entry::default();
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

impl Listing {
    /// A listing that begins at `began`.
    pub(super) fn new(began: Instant) -> Self {
        Self { releases: HashMap::new(), began }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, release: ReleaseId, known: Known) {
        match self.releases.entry(release) {
            hash_map::Entry::Occupied(mut records) => records.get_mut().push(known),
            hash_map::Entry::Vacant(vacant) => drop(vacant.insert(vec![known])),
        }
    }
}

impl Entry {
    /// Whether a fresh lookup included the state at `version`.
    fn covers(&self, version: &str) -> bool {
        matches!((self.as_of, parse_version(version)), (Some(as_of), Some(version)) if version <= as_of)
    }

    /// Whether a record was being deleted when it was first seen. Who may write Secrets can make any object a record
    /// while a finalizer holds it, so it counts for nothing.
    fn is_stillborn(&self, known: &Known) -> bool {
        known.is_deleted && self.records.iter().all(|before| before.head.uid != known.head.uid)
    }

    /// Puts all records in, in place of the ones before. Whether that is news.
    fn set(&mut self, mut records: Vec<Known>, is_first: bool) -> bool {
        records.retain(|known| !self.is_stillborn(known));
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

    /// Takes in an older state of a record than the one that is known: it may
    /// tell that the record was an operation's when it appeared.
    fn look_back(&mut self, older: &Known) -> bool {
        let known = self.records.iter_mut().find(|known| known.head.uid == older.head.uid);
        let Some(known) = known.filter(|_| older.head.status.is_pending()) else { return false };
        let appeared = matches!(known.head.appearance, Appearance::Seen(status) if !status.is_pending());
        if appeared {
            known.appear(older.head.appearance);
        }
        appeared
    }

    /// Puts a record in, unless a newer state of the same record is there.
    fn put(&mut self, mut known: Known) -> bool {
        if self.is_stillborn(&known) {
            // It has the place of another one, which is gone.
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
                return self.look_back(&known);
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

#[cfg(test)]
mod tests;
