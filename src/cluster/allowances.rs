//! The DriftAllowances of a cluster: which objects people may change for now.
//!
//! Entry points: [`Allowances::of`], and [`Allowances::changes`] for whoever
//! looks at an object again when an allowance of it begins or ends. Invariant:
//! of an allowance that has ended nothing is kept but when to clear it away;
//! its end is told by a timer, at the moment when it comes.

pub mod requests;

use std::collections::{BTreeSet, HashMap, HashSet};
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

use self::requests::{Kept, MADE_BY};
use super::custom::CustomWatch;
use super::kinds::Kinds;
use super::lease::Leadership;
use super::progress::{Listings, Progress, scopes};
use super::queue::{Announcer, Changes};
use super::watch::Event;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::resource::DriftAllowance;

/// The most open allowances that count at one time.
const MOST: usize = 10_000;

/// How long one that Kubemoor made is left for people to look at once it ended.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// After a clearing that failed, or that was another replica's, the pause until
/// the next.
const CLEARING_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// The longest sleep: the wall clock may be set while the timer runs.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The allowances of one cluster.
pub struct Allowances {
    client: kube::Client,
    kinds: Arc<Kinds>,
    /// Where they are followed; everywhere, where none is named.
    namespaces: Vec<String>,
    /// Whether ended ones are cleared away; without, none is made either.
    leadership: Option<Leadership>,
    known: RwLock<Known>,
    changed: Announcer<ObjectId>,
    /// Something may be due sooner than before.
    rescheduled: Notify,
    listings: Listings,
}

/// An allowance's namespace and name.
type Key = (String, String);

#[derive(Default)]
struct Known {
    open: HashMap<Key, Arc<Allowance>>,
    by_object: HashMap<ObjectId, Vec<Arc<Allowance>>>,
    /// By allowance, the version that was taken in, and its life.
    versions: HashMap<Key, Life>,
    due: BTreeSet<(Timestamp, Key)>,
    /// Whether it was said that there are more than count.
    overflowed: bool,
}

#[derive(Clone, Debug)]
struct Life {
    version: String,
    uid: String,
    /// When it is to be cleared away; never, where somebody else keeps it.
    clearing: Option<Timestamp>,
}

impl Allowances {
    /// The allowances of the cluster behind `client`, known once
    /// [`Allowances::run`] has listed them. The replica that leads deletes those
    /// that Kubemoor made a week after their end; without `leadership` nothing is
    /// written, and none is made.
    pub fn new(
        client: kube::Client,
        kinds: Arc<Kinds>,
        namespaces: Vec<String>,
        leadership: Option<Leadership>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            kinds,
            listings: Listings::of(&namespaces),
            namespaces,
            leadership,
            known: RwLock::default(),
            changed: Announcer::default(),
            rescheduled: Notify::new(),
        })
    }

    /// The allowances for an object that this release declares. Some may have
    /// ended a moment ago.
    pub fn of(&self, object: &ObjectId, release: &ReleaseId) -> Vec<Arc<Allowance>> {
        let known = self.known.read();
        let allowances = known.by_object.get(object).into_iter().flatten();
        allowances.filter(|allowance| allowance.is_for(object, release)).cloned().collect()
    }

    /// The open allowances that name an object, whatever declares it. Some may
    /// have ended a moment ago.
    pub fn named(&self, object: &ObjectId) -> Vec<Arc<Allowance>> {
        self.known.read().by_object.get(object).cloned().unwrap_or_default()
    }

    /// Every object for which an allowance is open, then each one for which one
    /// opens, changes or ends. The object may exist in no release.
    pub fn changes(&self) -> Changes<ObjectId> {
        let changes = self.changed.subscribe([]);
        // Subscribed first: what opens meanwhile is told twice, and not never.
        self.known.read().by_object.keys().for_each(|object| changes.add(object.clone()));
        changes
    }

    /// How far the first listing is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Makes an allowance of this resource, which counts from now on.
    ///
    /// # Errors
    /// See [`requests::MakeError`].
    pub async fn make(
        &self,
        resource: &DriftAllowance,
        within: Duration,
    ) -> Result<Kept, requests::MakeError> {
        if self.leadership.is_none() {
            return Err(requests::MakeError::ReadOnly);
        }
        let kept = requests::make(&self.client, resource, within).await?;
        if let Ok(value) = serde_json::to_value(kept.resource()) {
            self.set(&value);
        }
        Ok(kept)
    }

    /// Follows the cluster's allowances and their ends until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(scopes(&self.namespaces).into_iter().map(|it| self.follow(it))) => {}
            () = self.follow_ends() => {}
        }
    }

    async fn follow(&self, namespace: Option<&str>) {
        let kind = ("DriftAllowance", "driftallowances");
        let mut feed = CustomWatch::new(self.client.clone(), &self.kinds, kind, namespace);
        let mut is_whole = false;
        let mut listed: HashSet<Key> = HashSet::new();
        let mut complained = false;
        loop {
            match feed.next().await {
                Event::Relisting => listed.clear(),
                Event::Listed(object) => listed.extend(self.set(&object)),
                Event::Applied(object) => drop(self.set(&object)),
                Event::Deleted(object) => {
                    if let Some(key) = key(&object) {
                        self.forget(&key);
                    }
                }
                Event::Synced => {
                    let is_here = |key: &&Key| namespace.is_none_or(|namespace| key.0 == namespace);
                    let known: Vec<_> = self.known.read().versions.keys().filter(is_here).cloned().collect();
                    known.iter().filter(|key| !listed.contains(*key)).for_each(|key| self.forget(key));
                    if !std::mem::replace(&mut is_whole, true) {
                        self.listings.whole();
                    }
                }
                Event::Watching => complained = false,
                Event::Broken(error) => {
                    self.listings.fail("DriftAllowances cannot be listed", &error);
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, "DriftAllowances cannot be watched; the last known ones count");
                    }
                }
            }
        }
    }

    /// Tells of every end when it comes.
    async fn follow_ends(&self) {
        loop {
            let wake = wake(self.known.read().due.first().map(|(due, _)| *due), Timestamp::now());
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

    /// Takes an allowance in; its key.
    fn set(&self, object: &Value) -> Option<Key> {
        let key = key(object)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let version = text("/metadata/resourceVersion").to_owned();
        if self.known.read().versions.get(&key).is_some_and(|known| known.version == version) {
            return Some(key);
        }
        let compiled = match DriftAllowance::deserialize(object) {
            Ok(resource) => Allowance::compile(&resource).map_err(|flaws| join(&flaws)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(flaws) = &compiled {
            tracing::warn!(
                allowance.namespace = key.0,
                allowance.name = key.1,
                "a DriftAllowance allows nothing: {flaws}"
            );
        }
        let ours = self.leadership.is_some()
            && object.pointer("/metadata/labels").and_then(|it| it.get(MADE_BY.0)?.as_str())
                == Some(MADE_BY.1);
        let until = compiled.as_ref().map(|allowance| allowance.until).ok();
        let clearing = until.filter(|_| ours).and_then(|until| until.checked_add(KEPT).ok());
        let life = Life { version, uid: text("/metadata/uid").to_owned(), clearing };
        let touched = self.known.write().put(&key, life, compiled.ok(), Timestamp::now());
        touched.iter().for_each(|object| self.changed.announce(object));
        self.rescheduled.notify_one();
        Some(key)
    }

    fn forget(&self, key: &Key) {
        let touched = self.known.write().take(key);
        touched.iter().for_each(|object| self.changed.announce(object));
    }

    /// Ends what is due; what is to be cleared away.
    fn end(&self, now: Timestamp) -> Vec<(Key, Life)> {
        let (touched, garbage) = self.known.write().end(now);
        touched.iter().for_each(|object| self.changed.announce(object));
        garbage
    }

    async fn clear(&self, key: &Key, life: Life) {
        if !self.leadership.as_ref().is_some_and(Leadership::holds) {
            // Whoever leads clears it away; this replica may by then.
            return self.put_off(key);
        }
        match requests::delete(&self.client, &key.0, &key.1, Some(&life.uid)).await {
            Ok(_) => self.forget(key),
            Err(error) => {
                tracing::warn!(
                    allowance.namespace = key.0, allowance.name = key.1, %error,
                    "a DriftAllowance that ended long ago cannot be deleted"
                );
                self.put_off(key);
            }
        }
    }

    fn put_off(&self, key: &Key) {
        if let Ok(again) = Timestamp::now().checked_add(CLEARING_AGAIN) {
            self.known.write().due.insert((again, key.clone()));
        }
    }
}

impl Known {
    /// Puts an allowance in, in place of its earlier self; the objects for
    /// which something changes.
    fn put(&mut self, key: &Key, life: Life, allowance: Option<Allowance>, now: Timestamp) -> Vec<ObjectId> {
        let mut touched = self.take(key);
        let clearing = life.clearing;
        self.versions.insert(key.clone(), life);
        match allowance.filter(|allowance| allowance.open(now)) {
            Some(_) if self.open.len() >= MOST => {
                if !std::mem::replace(&mut self.overflowed, true) {
                    tracing::warn!(
                        "there are more than {MOST} open DriftAllowances: the others count for nothing"
                    );
                }
            }
            Some(allowance) => {
                let allowance = Arc::new(allowance);
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
    fn take(&mut self, key: &Key) -> Vec<ObjectId> {
        if let Some(life) = self.versions.remove(key)
            && let Some(clearing) = life.clearing
        {
            self.due.remove(&(clearing, key.clone()));
        }
        self.shut(key)
    }

    fn shut(&mut self, key: &Key) -> Vec<ObjectId> {
        let Some(allowance) = self.open.remove(key) else { return Vec::new() };
        self.due.remove(&(allowance.until, key.clone()));
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

    /// Shuts what has ended by `now`: the objects concerned, and the allowances
    /// to be cleared away.
    fn end(&mut self, now: Timestamp) -> (Vec<ObjectId>, Vec<(Key, Life)>) {
        let (mut touched, mut garbage) = (Vec::new(), Vec::new());
        while let Some((due, key)) = self.due.first().cloned().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, key.clone()));
            let life = self.versions.get(&key).cloned();
            if self.open.contains_key(&key) {
                touched.extend(self.shut(&key));
                self.due.extend(life.and_then(|life| Some((life.clearing?, key))));
            } else if let Some(life) = life {
                garbage.push((key, life));
            }
        }
        (touched, garbage)
    }
}

/// When to look at the clock again.
fn wake(due: Option<Timestamp>, now: Timestamp) -> Instant {
    let left = due.and_then(|due| Duration::try_from(due.duration_since(now)).ok());
    let sleep = match (due, left) {
        (None, _) => LONGEST_SLEEP,
        (Some(_), Some(left)) => left.min(LONGEST_SLEEP),
        // Past already.
        (Some(_), None) => Duration::ZERO,
    };
    Instant::now() + sleep
}

fn key(object: &Value) -> Option<Key> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}

fn join(flaws: &[crate::policy::flaw::Flaw]) -> String {
    flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
