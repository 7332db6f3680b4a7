//! The known allowances: which are open, for which objects, and when the next one begins or ends.
//!
//! Entry point: [`Known`]. Invariant: pure state. At most [`MOST_HERE`] of each namespace and [`MOST`] of all
//! count. For those that wait for room only their names are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::client::allowances::MOST_HERE;
use kubemoor_declare::model::ObjectId;
use kubemoor_policy::allowance::Allowance;

/// The most open allowances that count at one time.
const MOST: usize = 10_000;

/// An allowance's namespace and name.
pub(super) type Key = (String, String);

/// The known allowances.
#[derive(Default)]
pub(super) struct Known {
    pub(super) open: HashMap<Key, Arc<Allowance>>,
    pub(super) by_object: HashMap<ObjectId, Vec<Arc<Allowance>>>,
    /// By allowance, the version that was taken in, and its life.
    pub(super) versions: HashMap<Key, Life>,
    pub(super) due: BTreeSet<(Timestamp, Key)>,
    /// How many are open, by namespace.
    counts: HashMap<String, usize>,
    /// Open ones that do not count, by namespace and name, with their ends.
    waiting: BTreeMap<String, BTreeMap<String, Timestamp>>,
    /// The namespaces whose excess of allowances was already reported.
    crowded: HashSet<String>,
    /// Whether the overflow was already reported for the cluster.
    overflowed: bool,
}

/// One allowance, open or not.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) version: String,
    pub(super) uid: String,
    /// When to delete it; `None` for one that Kubemoor did not make.
    pub(super) clearing: Option<Timestamp>,
}

impl Known {
    /// The open allowances that name an object.
    pub(super) fn named(&self, object: &ObjectId) -> &[Arc<Allowance>] {
        self.by_object.get(object).map(Vec::as_slice).unwrap_or_default()
    }

    /// The objects for which one is open.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.by_object.keys()
    }

    /// All of them, open or not.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.versions.keys()
    }

    /// Whether an allowance was taken in in this version.
    pub(super) fn is_of(&self, key: &Key, version: &str) -> bool {
        self.versions.get(key).is_some_and(|known| known.version == version)
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// An allowance that is still known is to be cleared away then, and not before.
    pub(super) fn clear_at(&mut self, time: Timestamp, key: Key) {
        let Some(life) = self.versions.get_mut(&key) else { return };
        if let Some(before) = life.clearing.replace(time) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((time, key));
    }

    /// Whether an allowance counts, or would.
    pub(super) fn has_room_for(&self, key: &Key) -> bool {
        self.open.contains_key(key) || (self.open.len() < MOST && self.has_room_in(&key.0))
    }

    /// One that waits and would count now.
    pub(super) fn admissible(&self) -> Option<Key> {
        if self.open.len() >= MOST {
            return None;
        }
        let (namespace, names) = self.waiting.iter().find(|(namespace, _)| self.has_room_in(namespace))?;
        Some((namespace.clone(), names.keys().next()?.clone()))
    }

    /// Adds or replaces an allowance; returns the objects for which something changes.
    pub(super) fn put(
        &mut self,
        key: &Key,
        life: Life,
        allowance: Option<Allowance>,
        now: Timestamp,
    ) -> Vec<ObjectId> {
        let mut touched = self.take(key);
        let clearing = life.clearing;
        self.versions.insert(key.clone(), life);
        match allowance.filter(|allowance| allowance.open(now)) {
            Some(allowance) if !self.has_room_for(key) => {
                self.complain(&key.0);
                self.due.insert((allowance.until, key.clone()));
                self.waiting.entry(key.0.clone()).or_default().insert(key.1.clone(), allowance.until);
            }
            Some(allowance) => {
                let allowance = Arc::new(allowance);
                *self.counts.entry(key.0.clone()).or_default() += 1;
                self.due.insert((allowance.until, key.clone()));
                for object in allowance.objects() {
                    self.by_object.entry(object.clone()).or_default().push(Arc::clone(&allowance));
                    if !touched.contains(&object) {
                        touched.push(object);
                    }
                }
                self.open.insert(key.clone(), allowance);
            }
            None => self.due.extend(clearing.map(|clearing| (clearing, key.clone()))),
        }
        touched
    }

    /// Takes an allowance out; the objects that it was for.
    pub(super) fn take(&mut self, key: &Key) -> Vec<ObjectId> {
        if let Some(life) = self.versions.remove(key)
            && let Some(clearing) = life.clearing
        {
            self.due.remove(&(clearing, key.clone()));
        }
        self.wait_no_more(key);
        self.shut(key)
    }

    /// Shuts what has ended by `now`: the objects concerned, and the allowances
    /// to be cleared away.
    pub(super) fn end(&mut self, now: Timestamp) -> (Vec<ObjectId>, Vec<(Key, Life)>) {
        let (mut touched, mut garbage) = (Vec::new(), Vec::new());
        while let Some((due, key)) = self.due.first().cloned().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, key.clone()));
            let life = self.versions.get(&key).cloned();
            if self.open.contains_key(&key) || self.wait_no_more(&key) {
                touched.extend(self.shut(&key));
                self.due.extend(life.and_then(|life| Some((life.clearing?, key))));
            } else if let Some(life) = life {
                garbage.push((key, life));
            }
        }
        (touched, garbage)
    }

    fn has_room_in(&self, namespace: &str) -> bool {
        self.counts.get(namespace).is_none_or(|count| *count < MOST_HERE)
    }

    /// Takes one out of those that wait. Whether it was among them.
    fn wait_no_more(&mut self, key: &Key) -> bool {
        let Some(names) = self.waiting.get_mut(&key.0) else { return false };
        let until = names.remove(&key.1);
        if names.is_empty() {
            self.waiting.remove(&key.0);
            self.crowded.remove(&key.0);
        }
        until.is_some_and(|until| {
            self.due.remove(&(until, key.clone()));
            true
        })
    }

    fn shut(&mut self, key: &Key) -> Vec<ObjectId> {
        let Some(allowance) = self.open.remove(key) else { return Vec::new() };
        self.due.remove(&(allowance.until, key.clone()));
        if let Some(count) = self.counts.get_mut(&key.0) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&key.0);
            }
        }
        let objects = allowance.objects();
        for object in &objects {
            if let Some(others) = self.by_object.get_mut(object) {
                others.retain(|other| !Arc::ptr_eq(other, &allowance));
                if others.is_empty() {
                    self.by_object.remove(object);
                }
            }
        }
        objects
    }

    /// Says once that one does not count for want of room.
    fn complain(&mut self, namespace: &str) {
        if !self.has_room_in(namespace) {
            if self.crowded.insert(namespace.to_owned()) {
                tracing::warn!(
                    "there are more than {MOST_HERE} open DriftAllowances in namespace {namespace}: the others have no effect until one of these ends"
                );
            }
        } else if !std::mem::replace(&mut self.overflowed, true) {
            tracing::warn!(
                "there are more than {MOST} open DriftAllowances in the cluster: the others have no effect until one of these ends"
            );
        }
    }
}
