//! The DriftAllowances of a cluster: the objects with a temporary exception.
//!
//! Entry points: [`Allowances::of`]; [`Allowances::changes`] for callers that look at an object again when
//! one of its allowances begins or ends. Invariant: for an ended allowance only its deletion time is kept. A
//! timer reports its end at the exact moment. No namespace can use up the room of the others: only a limited
//! number of each counts, and the rest wait.

mod known;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use self::known::{Key, Known, Life};
use super::custom;
use super::kinds::Kinds;
use super::progress::{Listings, Progress, scopes};
use super::queue::{Announcer, Changes};
use super::reflect::{Mirror, Reflector};
use crate::client::allowances::{self as requests, Clearing, Ensured, MADE_BY};
use crate::client::call::CallError;
use crate::client::lease::Leadership;
use crate::client::writer::SendError;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resource::DriftAllowance;

/// How long an ended allowance that Kubemoor made is kept for users to look at.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// After a clearing that failed, or that was another replica's, the pause until
/// the next.
const CLEARING_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// After an allowance that has waited cannot be read, the pause until the next
/// attempt.
const ADMITTING_AGAIN: Duration = Duration::from_secs(30);

/// The longest sleep: the wall clock may be set while the timer runs.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The allowances of one cluster.
pub struct Allowances {
    client: kube::Client,
    kinds: Arc<Kinds>,
    /// The namespaces to follow; all of them if empty.
    namespaces: Vec<String>,
    /// Deletes ended allowances; without it none is created either.
    clearing: Option<Clearing>,
    known: RwLock<Known>,
    changed: Announcer<ObjectId>,
    /// Something may be due sooner than before.
    rescheduled: Notify,
    /// There may be room for those that wait.
    freed: Notify,
    listings: Listings,
}

/// Those of one namespace, or of all.
struct Scope<'a> {
    allowances: &'a Allowances,
    namespace: Option<&'a str>,
}

impl Allowances {
    /// The allowances of the cluster behind `client`, known once [`Allowances::run`] has listed them. The
    /// leader deletes those that Kubemoor made a week after their end. Without `leadership` nothing is
    /// written, so none is created either.
    pub fn new(
        client: kube::Client,
        kinds: Arc<Kinds>,
        namespaces: Vec<String>,
        leadership: Option<Leadership>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clearing: leadership.map(|leadership| Clearing::new(client.clone(), leadership)),
            client,
            kinds,
            listings: Listings::of(&namespaces),
            namespaces,
            known: RwLock::default(),
            changed: Announcer::default(),
            rescheduled: Notify::new(),
            freed: Notify::new(),
        })
    }

    /// The allowances for an object that this release declares. Some may have
    /// ended a moment ago.
    pub fn of(&self, object: &ObjectId, release: &ReleaseId) -> Vec<Arc<Allowance>> {
        let known = self.known.read();
        let allowances = known.named(object).iter();
        allowances.filter(|allowance| allowance.is_for(object, release)).cloned().collect()
    }

    /// The open allowances that name an object, whatever declares it. Some may
    /// have ended a moment ago.
    pub fn named(&self, object: &ObjectId) -> Vec<Arc<Allowance>> {
        self.known.read().named(object).to_vec()
    }

    /// Every object with an open allowance, then each one whose allowance opens, changes or ends. The object
    /// need not belong to a release.
    pub fn changes(&self) -> Changes<ObjectId> {
        let changes = self.changed.subscribe([]);
        // Subscribed first: an allowance that opens meanwhile is reported twice instead of never.
        self.known.read().objects().for_each(|object| changes.add(object.clone()));
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
    ) -> Result<Ensured, requests::MakeError> {
        if self.clearing.is_none() {
            return Err(requests::MakeError::ReadOnly);
        }
        let key = (
            resource.metadata.namespace.clone().unwrap_or_default(),
            resource.metadata.name.clone().unwrap_or_default(),
        );
        if !self.known.read().has_room_for(&key) {
            return Err(requests::MakeError::Full { namespace: key.0 });
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
            () = self.follow_room() => {}
        }
    }

    async fn follow(&self, namespace: Option<&str>) {
        let kind = ("DriftAllowance", "driftallowances");
        let events = custom::events(self.client.clone(), &self.kinds, kind, namespace);
        Reflector::new(events).run(&mut Scope { allowances: self, namespace }).await;
    }

    /// Tells of every end when it comes.
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

    /// Takes in those that wait, whenever there is room. No part of telling
    /// ends, which must not wait for an answer.
    async fn follow_room(&self) {
        loop {
            match self.admit().await {
                Ok(()) => self.freed.notified().await,
                Err(error) => {
                    tracing::debug!(%error, "a DriftAllowance that waits cannot be read");
                    sleep(ADMITTING_AGAIN).await;
                }
            }
        }
    }

    /// Takes in those that have waited, as far as there is room.
    async fn admit(&self) -> Result<(), CallError> {
        loop {
            let Some(key) = self.known.read().admissible() else { return Ok(()) };
            match requests::read(&self.client, &key.0, &key.1).await? {
                Some(object) => {
                    // Its version was taken in before, as one that waits.
                    self.known.write().take(&key);
                    self.set(&object);
                }
                None => self.forget(&key),
            }
        }
    }

    /// Takes an allowance in; its key.
    fn set(&self, object: &Value) -> Option<Key> {
        let key = key(object)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let version = text("/metadata/resourceVersion").to_owned();
        if self.known.read().is_of(&key, &version) {
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
        let life = Life { version, uid: text("/metadata/uid").to_owned(), clearing };
        let touched = self.known.write().put(&key, life, compiled.ok(), Timestamp::now());
        touched.iter().for_each(|object| self.changed.announce(object));
        self.rescheduled.notify_one();
        self.freed.notify_one();
        Some(key)
    }

    fn forget(&self, key: &Key) {
        let touched = self.known.write().take(key);
        touched.iter().for_each(|object| self.changed.announce(object));
        self.freed.notify_one();
    }

    /// Ends the allowances that are due; returns those to delete.
    fn end(&self, now: Timestamp) -> Vec<(Key, Life)> {
        let (touched, garbage) = self.known.write().end(now);
        touched.iter().for_each(|object| self.changed.announce(object));
        self.freed.notify_one();
        garbage
    }

    async fn clear(&self, key: &Key, life: Life) {
        let Some(clearing) = &self.clearing else { return self.put_off(key) };
        match clearing.delete(&key.0, &key.1, &life.uid).await {
            Ok(()) => self.forget(key),
            // The leader clears it away; this replica may lead by then.
            Err(SendError::NotLeading) => self.put_off(key),
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
            self.known.write().clear_at(again, key.clone());
        }
    }
}

impl Mirror for Scope<'_> {
    type Object = Value;
    type Key = Key;
    const OBJECTS: &'static str = "DriftAllowances";

    fn set(&mut self, object: Value) -> Option<Key> {
        self.allowances.set(&object)
    }

    fn remove(&mut self, object: Value) {
        key(&object).iter().for_each(|key| self.allowances.forget(key));
    }

    fn retain(&mut self, listed: &HashSet<Key>) {
        let is_here = |key: &&Key| self.namespace.is_none_or(|namespace| key.0 == namespace);
        let known: Vec<_> = self.allowances.known.read().keys().filter(is_here).cloned().collect();
        known.iter().filter(|key| !listed.contains(*key)).for_each(|key| self.allowances.forget(key));
    }

    fn warn(&self, error: &CallError) {
        tracing::warn!(%error, "DriftAllowances cannot be watched; the last known ones count");
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.allowances.listings)
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

fn join(flaws: &[kubemoor_policy::flaw::Flaw]) -> String {
    flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
