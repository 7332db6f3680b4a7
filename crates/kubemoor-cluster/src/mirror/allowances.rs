//! The DriftAllowances of a cluster: temporary exceptions for objects. A timer ends each one at the exact moment; after
//! that only what its deletion needs is kept. The number of open allowances is limited per namespace, so that no
//! namespace can use up the total; the others have no effect until a later list finds room for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::client::allowances as requests;
use crate::client::allowances::{AllowanceCreation, MADE_BY, MOST_HERE};
use crate::client::call::ClusterError;
use crate::client::lease::Leadership;
use crate::client::writer::ClusterWriter;
use crate::mirror::kinds::ServedKinds;
use crate::mirror::reflect::{
    ChangeAnnouncer, ChangeQueue, Listings, Mirror, Progress, Reflector, own_kind_events, scopes,
};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::flaw;
use kubemoor_policy::resource::DriftAllowance;

/// How long an ended allowance that Kubemoor created is kept for users to look at.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The pause after a deletion that failed, or that is another replica's task.
const CLEARING_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// The longest sleep: the wall clock may be set while the timer runs.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The allowances of one cluster.
pub struct Allowances {
    client: kube::Client,
    kinds: Arc<ServedKinds>,
    /// The namespaces to follow; all of them if empty.
    namespaces: Vec<String>,
    /// Deletes ended allowances; `None` in read-only mode, in which none is created either.
    clearing: Option<ClusterWriter>,
    known: RwLock<AllowanceIndex>,
    changed: ChangeAnnouncer<ObjectId>,
    /// Notified when an end or a deletion may be due sooner than before.
    rescheduled: Notify,
    listings: Listings,
}

/// The allowances of one namespace, or of all.
struct AllowanceScope<'a> {
    allowances: &'a Allowances,
    namespace: Option<&'a str>,
}

impl Allowances {
    /// The allowances of the cluster behind `client`, known once [`Allowances::run`] has listed them. The
    /// leader deletes those that Kubemoor made a week after their end. Without `leadership` nothing is
    /// written, so none is created either.
    pub fn new(
        client: kube::Client,
        kinds: Arc<ServedKinds>,
        namespaces: Vec<String>,
        leadership: Option<Leadership>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clearing: leadership.map(|leadership| ClusterWriter::seldom(client.clone(), leadership)),
            client,
            kinds,
            listings: Listings::new(&namespaces),
            namespaces,
            known: RwLock::default(),
            changed: ChangeAnnouncer::default(),
            rescheduled: Notify::new(),
        })
    }

    /// The allowances for an object that this release declares. Some may just have ended.
    pub fn of_release(&self, object: &ObjectId, release: &ReleaseId) -> Vec<Arc<Allowance>> {
        let known = self.known.read();
        let allowances = known.named(object).iter();
        allowances.filter(|allowance| allowance.is_for(object, release)).cloned().collect()
    }

    /// The open allowances that name an object, whatever release declares it. Some may just have ended.
    pub fn named(&self, object: &ObjectId) -> Vec<Arc<Allowance>> {
        self.known.read().named(object).to_vec()
    }

    /// Every object with an open allowance, then each one whose allowance opens, changes or ends. The object
    /// need not belong to a release.
    pub fn changes(&self) -> ChangeQueue<ObjectId> {
        let changes = self.changed.subscribe([]);
        // Subscribed first: an allowance that opens meanwhile is reported twice instead of never.
        self.known.read().objects().for_each(|object| changes.add(object.clone()));
        changes
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Creates an allowance from this resource. It has effect at once.
    pub async fn make(
        &self,
        resource: &DriftAllowance,
        within: Duration,
    ) -> Result<AllowanceCreation, requests::CreateAllowanceError> {
        if self.clearing.is_none() {
            return Err(requests::CreateAllowanceError::ReadOnly);
        }
        let key = (
            resource.metadata.namespace.clone().unwrap_or_default(),
            resource.metadata.name.clone().unwrap_or_default(),
        );
        if !self.known.read().has_room_for(&key) {
            return Err(requests::CreateAllowanceError::Full { namespace: key.0 });
        }
        let kept = requests::create_allowance(&self.client, resource, within).await?;
        if let Ok(value) = serde_json::to_value(kept.resource()) {
            self.set(&value);
        }
        Ok(kept)
    }

    /// Follows the cluster's allowances and their ends until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(scopes(&self.namespaces).into_iter().map(|it| self.follow(it))) => {}
            () = self.follow_ends() => {}
        }
    }

    async fn follow(&self, namespace: Option<&str>) {
        let events =
            own_kind_events(self.client.clone(), &self.kinds, requests::allowance_resource(), namespace);
        Reflector::new(events).run(&mut AllowanceScope { allowances: self, namespace }).await;
    }

    async fn follow_ends(&self) {
        loop {
            let wake = wake(self.known.read().next_due(), Timestamp::now());
            tokio::select! {
                () = self.rescheduled.notified() => {}
                () = sleep_until(wake) => {
                    for (key, life) in self.end(Timestamp::now()) {
                        self.clear(&key, life).await;
                    }
                }
            }
        }
    }

    /// Adds or updates an allowance; returns its key.
    fn set(&self, object: &Value) -> Option<AllowanceKey> {
        let key = key(object)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let version = text("/metadata/resourceVersion").to_owned();
        if self.known.read().is_of(&key, &version) {
            return Some(key);
        }
        let compiled = match DriftAllowance::deserialize(object) {
            Ok(resource) => Allowance::compile(&resource).map_err(|flaws| flaw::join(&flaws)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(flaws) = &compiled {
            tracing::warn!(
                allowance.namespace = key.0,
                allowance.name = key.1,
                "invalid DriftAllowance has no effect: {flaws}"
            );
        }
        for unknown in compiled.iter().flat_map(Allowance::unknown_fields) {
            tracing::warn!(
                allowance.namespace = key.0,
                allowance.name = key.1,
                "a path of a DriftAllowance has no effect: {unknown}"
            );
        }
        let ours = self.clearing.is_some()
            && object.pointer("/metadata/labels").and_then(|it| it.get(MADE_BY.0)?.as_str())
                == Some(MADE_BY.1);
        let until = compiled.as_ref().map(|allowance| allowance.until).ok();
        let clearing = until.filter(|_| ours).and_then(|until| until.checked_add(KEPT).ok());
        let life = AllowanceLife { version, uid: text("/metadata/uid").to_owned(), clearing };
        let touched = self.known.write().put(&key, life, compiled.ok(), Timestamp::now());
        touched.iter().for_each(|object| self.changed.announce(object));
        self.rescheduled.notify_one();
        Some(key)
    }

    fn forget(&self, key: &AllowanceKey) {
        let touched = self.known.write().take(key);
        touched.iter().for_each(|object| self.changed.announce(object));
    }

    /// Ends the allowances that are due; returns those to delete.
    fn end(&self, now: Timestamp) -> Vec<(AllowanceKey, AllowanceLife)> {
        let (touched, garbage) = self.known.write().end(now);
        touched.iter().for_each(|object| self.changed.announce(object));
        garbage
    }

    async fn clear(&self, key: &AllowanceKey, life: AllowanceLife) {
        let Some(clearing) = &self.clearing else { return self.put_off(key) };
        match requests::delete_ended_allowance(clearing, &key.0, &key.1, &life.uid).await {
            Ok(()) => self.forget(key),
            // The leader deletes it; this replica may lead at the next attempt.
            Err(ClusterError::NotLeading) => self.put_off(key),
            Err(error) => {
                tracing::warn!(
                    allowance.namespace = key.0, allowance.name = key.1, %error,
                    "failed to delete an expired DriftAllowance"
                );
                self.put_off(key);
            }
        }
    }

    fn put_off(&self, key: &AllowanceKey) {
        if let Ok(again) = Timestamp::now().checked_add(CLEARING_AGAIN) {
            self.known.write().clear_at(again, key);
        }
    }
}

impl Mirror for AllowanceScope<'_> {
    type Object = Value;
    type Key = AllowanceKey;
    const OBJECTS: &'static str = "DriftAllowances";
    const UNWATCHED: &'static str = "failed to watch DriftAllowances; using the last known ones";

    fn set(&mut self, object: Value) -> Option<AllowanceKey> {
        self.allowances.set(&object)
    }

    fn remove(&mut self, object: Value) {
        key(&object).iter().for_each(|key| self.allowances.forget(key));
    }

    fn retain(&mut self, listed: &HashSet<AllowanceKey>) {
        let is_here = |key: &&AllowanceKey| self.namespace.is_none_or(|namespace| key.0 == namespace);
        let known: Vec<_> = self.allowances.known.read().keys().filter(is_here).cloned().collect();
        known.iter().filter(|key| !listed.contains(*key)).for_each(|key| self.allowances.forget(key));
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.allowances.listings)
    }
}

fn wake(due: Option<Timestamp>, now: Timestamp) -> Instant {
    let left = due.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
    let sleep = match (due, left) {
        (None, _) => LONGEST_SLEEP,
        (Some(_), Some(left)) => left.min(LONGEST_SLEEP),
        // Already past.
        (Some(_), None) => Duration::ZERO,
    };
    Instant::now() + sleep
}

fn key(object: &Value) -> Option<AllowanceKey> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}

/// The maximum number of open allowances that have effect at one time.
const MOST: usize = 10_000;

/// An allowance's namespace and name.
type AllowanceKey = (String, String);

/// The known allowances: the open ones, their objects, and when the next one ends or is deleted. At most [`MOST_HERE`]
/// open ones of each namespace and [`MOST`] in total are kept; others are not stored.
#[derive(Default)]
struct AllowanceIndex {
    open: BTreeMap<AllowanceKey, Arc<Allowance>>,
    by_object: HashMap<ObjectId, Vec<Arc<Allowance>>>,
    /// By allowance, its version and what its deletion needs.
    versions: HashMap<AllowanceKey, AllowanceLife>,
    /// The namespaces whose excess of allowances was already reported.
    crowded: HashSet<String>,
    /// Whether the overflow was already reported for the cluster.
    overflowed: bool,
}

#[derive(Clone, Debug)]
struct AllowanceLife {
    version: String,
    uid: String,
    /// When to delete it; `None` for one that Kubemoor did not make.
    clearing: Option<Timestamp>,
}

impl AllowanceIndex {
    fn named(&self, object: &ObjectId) -> &[Arc<Allowance>] {
        self.by_object.get(object).map(Vec::as_slice).unwrap_or_default()
    }

    fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.by_object.keys()
    }

    fn keys(&self) -> impl Iterator<Item = &AllowanceKey> {
        self.versions.keys()
    }

    /// Whether this version of an allowance is known.
    fn is_of(&self, key: &AllowanceKey, version: &str) -> bool {
        self.versions.get(key).is_some_and(|known| known.version == version)
    }

    /// When the next one ends or is to be deleted.
    fn next_due(&self) -> Option<Timestamp> {
        let ended = self.versions.iter().filter(|(key, _)| !self.open.contains_key(*key));
        let clearings = ended.filter_map(|(_, life)| life.clearing);
        self.open.values().map(|allowance| allowance.until).chain(clearings).min()
    }

    /// Sets when to delete an allowance that is still known.
    fn clear_at(&mut self, time: Timestamp, key: &AllowanceKey) {
        if let Some(life) = self.versions.get_mut(key) {
            life.clearing = Some(time);
        }
    }

    /// Whether an allowance has effect, or would have.
    fn has_room_for(&self, key: &AllowanceKey) -> bool {
        self.open.contains_key(key) || (self.open.len() < MOST && self.has_room_in(&key.0))
    }

    /// Adds or replaces an allowance; returns the objects for which something changes.
    fn put(
        &mut self,
        key: &AllowanceKey,
        life: AllowanceLife,
        allowance: Option<Allowance>,
        now: Timestamp,
    ) -> Vec<ObjectId> {
        let mut touched = self.take(key);
        let allowance = allowance.filter(|allowance| allowance.is_active(now));
        if allowance.is_some() && !self.has_room_for(key) {
            // The next listing offers it again.
            self.complain(&key.0);
            return touched;
        }
        self.versions.insert(key.clone(), life);
        if let Some(allowance) = allowance.map(Arc::new) {
            for object in allowance.objects() {
                self.by_object.entry(object.clone()).or_default().push(Arc::clone(&allowance));
                if !touched.contains(&object) {
                    touched.push(object);
                }
            }
            self.open.insert(key.clone(), allowance);
        }
        touched
    }

    /// Removes an allowance; returns its objects.
    fn take(&mut self, key: &AllowanceKey) -> Vec<ObjectId> {
        self.versions.remove(key);
        self.shut(key)
    }

    /// Closes the allowances that have ended by `now`; returns their objects, and the allowances to delete.
    fn end(&mut self, now: Timestamp) -> (Vec<ObjectId>, Vec<(AllowanceKey, AllowanceLife)>) {
        let is_over = |(_, allowance): &(&AllowanceKey, &Arc<Allowance>)| allowance.until <= now;
        let over: Vec<AllowanceKey> = self.open.iter().filter(is_over).map(|(key, _)| key.clone()).collect();
        let touched = over.iter().flat_map(|key| self.shut(key)).collect();
        let garbage = self.versions.iter().filter(|(key, life)| {
            life.clearing.is_some_and(|clearing| clearing <= now) && !self.open.contains_key(*key)
        });
        (touched, garbage.map(|(key, life)| (key.clone(), life.clone())).collect())
    }

    fn has_room_in(&self, namespace: &str) -> bool {
        let here = self.open.range((namespace.to_owned(), String::new())..);
        here.take_while(|((it, _), _)| it == namespace).count() < MOST_HERE
    }

    fn shut(&mut self, key: &AllowanceKey) -> Vec<ObjectId> {
        let Some(allowance) = self.open.remove(key) else { return Vec::new() };
        self.crowded.remove(&key.0);
        self.overflowed = false;
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

    /// Logs once that an allowance has no effect because there are too many.
    fn complain(&mut self, namespace: &str) {
        if !self.has_room_in(namespace) {
            if self.crowded.insert(namespace.to_owned()) {
                tracing::warn!(
                    "namespace {namespace} has more than {MOST_HERE} open DriftAllowances: the others have no effect until one ends"
                );
            }
        } else if !std::mem::replace(&mut self.overflowed, true) {
            tracing::warn!(
                "the cluster has more than {MOST} open DriftAllowances: the others have no effect until one ends"
            );
        }
    }
}

#[cfg(test)]
mod tests;
