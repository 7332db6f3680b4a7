//! Follows the watch of records, and updates the index with them.
//!
//! Entry point: [`Releases::run`]. Invariant: only a few releases of one namespace are read at once, so that
//! it cannot delay the others. Must not decide which records count: `settle` does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use kube::runtime::watcher::DefaultBackoff;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::payloads::SELECTOR;
use super::super::progress::scopes;
use super::super::records::{self, Known, Listing};
use super::settle::Care;
use super::{LookError, Outage, Releases};
use crate::client::call::CallError;
use crate::client::resource::Meta;
use crate::client::watch::{Event, MetadataWatch};
use kubemoor_declare::model::ReleaseId;
use kubemoor_runtime::metrics::RecordFault;

/// Releases that are read at once.
const AT_ONCE: usize = 16;

/// How long a start waits for the records of all releases: who may write Secrets must not decide how long a guard judges
/// nothing.
const LONGEST_START: Duration = Duration::from_secs(180);

/// Releases of one namespace that are read at once, so that one with many or long records leaves room for others.
const OF_ONE: usize = 4;

/// The releases that are being read, and those that wait for others of their namespace.
#[derive(Default)]
struct Turns {
    running: HashMap<String, usize>,
    waiting: HashMap<String, VecDeque<ReleaseId>>,
}

impl Turns {
    /// The release, if it may be read now.
    fn begin(&mut self, release: ReleaseId) -> Option<ReleaseId> {
        let running = self.running.entry(release.namespace.to_string()).or_default();
        if *running < OF_ONE {
            *running += 1;
            return Some(release);
        }
        let waiting = self.waiting.entry(release.namespace.to_string()).or_default();
        if !waiting.contains(&release) {
            waiting.push_back(release);
        }
        None
    }

    /// The release was read: the next of its namespace, whose turn it is.
    fn end(&mut self, release: &ReleaseId) -> Option<ReleaseId> {
        let namespace = release.namespace.as_str();
        if let Some(waiting) = self.waiting.get_mut(namespace) {
            if let Some(next) = waiting.pop_front() {
                return Some(next);
            }
            self.waiting.remove(namespace);
        }
        let running = self.running.get_mut(namespace)?;
        *running -= 1;
        if *running == 0 {
            self.running.remove(namespace);
        }
        None
    }
}

impl Releases {
    /// Follows the cluster's records until `stop`. Failures are reported by
    /// [`Releases::health`] and tried again.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let scopes = scopes(&self.namespaces);
        let unlisted = watch::Sender::new(scopes.len());
        let feeds =
            scopes.iter().enumerate().map(|(scope, namespace)| self.feed(scope, *namespace, &unlisted));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(feeds) => {}
            () = self.work(unlisted.subscribe()) => {}
        }
    }

    async fn feed(&self, scope: usize, namespace: Option<&str>, unlisted: &watch::Sender<usize>) {
        let resource = self.payloads.resource();
        let mut watch = MetadataWatch::new(self.client.clone(), &resource, namespace, Some(SELECTOR));
        let mut listing = Listing::new(Instant::now());
        let mut is_listed = false;
        loop {
            match watch.next().await {
                Event::Relisting => listing = Listing::new(Instant::now()),
                Event::Listed(meta) => {
                    if let Some((release, mut known)) = self.read(meta, !is_listed) {
                        self.records.lock().share(&release, &mut known);
                        listing.add(release, known);
                    }
                }
                Event::Synced => {
                    let whole = std::mem::replace(&mut listing, Listing::new(Instant::now()));
                    let changed = self.records.lock().replace(namespace, whole);
                    if !std::mem::replace(&mut is_listed, true) {
                        self.unread.lock().extend(changed.iter().cloned());
                        unlisted.send_modify(|unlisted| *unlisted -= 1);
                    }
                    changed.into_iter().for_each(|release| self.dirty.add(release));
                }
                Event::Applied(meta) => self.apply(meta),
                Event::Deleted(meta) => self.delete(meta),
                Event::Watching => self.recovered(scope),
                Event::Broken(error) => self.broken(scope, error),
            }
        }
    }

    fn apply(&self, meta: Meta) {
        if let Some((release, known)) = self.read(meta, true)
            && self.records.lock().apply(release.clone(), known)
        {
            self.dirty.add(release);
        }
    }

    fn delete(&self, meta: Meta) {
        let Ok((release, known)) = records::read(meta) else { return };
        let head = &known.head;
        let is_gone = self.records.lock().delete(&release, &head.secret, &head.uid, &head.resource_version);
        if is_gone {
            self.dirty.add(release);
        }
    }

    async fn work(&self, mut unlisted: watch::Receiver<usize>) {
        let kinds = self.kinds.changes();
        let mut running = FuturesUnordered::new();
        let mut turns = Turns::default();
        let mut resting = FuturesUnordered::new();
        let mut failures: HashMap<ReleaseId, DefaultBackoff> = HashMap::new();
        let mut late_at = None;
        loop {
            if *unlisted.borrow() == 0 {
                let late_at = *late_at.get_or_insert_with(|| Instant::now() + LONGEST_START);
                self.note_progress(Instant::now() >= late_at);
            }
            tokio::select! {
                release = self.dirty.next(), if running.len() < AT_ONCE => {
                    running.extend(turns.begin(release).map(|release| self.settle_in_turn(release)));
                }
                Some((release, outcome)) = running.next() => {
                    running.extend(turns.end(&release).map(|release| self.settle_in_turn(release)));
                    match outcome {
                        Ok(_) => drop(failures.remove(&release)),
                        Err(error) => {
                            if !failures.contains_key(&release) {
                                tracing::warn!(release.id = %release, %error, "a release cannot be read; it is tried again");
                            }
                            let pause = failures.entry(release.clone()).or_default().next().unwrap_or_default();
                            resting.push(async move {
                                sleep(pause).await;
                                release
                            });
                        }
                    }
                }
                Some(release) = resting.next() => self.dirty.add(release),
                gvk = kinds.next() => self.outdate_kind(&gvk),
                Ok(()) = unlisted.changed() => {}
                () = sleep_until(late_at.unwrap_or_else(Instant::now)), if late_at.is_some_and(|at| Instant::now() < at) => {}
            }
        }
    }

    /// Settles a release when it is its turn. Nobody may delay the start by writing one record again and again, so a
    /// release that keeps moving counts as read.
    async fn settle_in_turn(&self, stored: ReleaseId) -> (ReleaseId, Result<bool, LookError>) {
        let outcome = {
            let pass = self.pass(&stored);
            let _turn = pass.gate.last.lock().await;
            self.settle(&stored, Care::First).await
        };
        if matches!(outcome, Ok(_) | Err(LookError::Moving { .. })) {
            self.unread.lock().remove(&stored);
        }
        (stored, outcome)
    }

    /// Says that the index is whole, once it holds all that the first listing named, or that it is late.
    fn note_progress(&self, is_late: bool) {
        if self.health.borrow().indexed {
            return;
        }
        let unread = self.unread.lock().len();
        if unread > 0 && !is_late {
            return;
        }
        if unread > 0 {
            tracing::warn!(
                releases = unread,
                "the records of some releases are still not read; edits are judged without them"
            );
        }
        *self.unread.lock() = HashSet::default();
        self.health.send_modify(|health| health.indexed = true);
        let (records, releases) = self.count();
        tracing::info!(releases, records, objects = self.index.read().objects(), "the releases are indexed");
    }

    /// The record that an object is. Warns of another object with Helm's label where it is first listed or changes.
    fn read(&self, meta: Meta, is_news: bool) -> Option<(ReleaseId, Known)> {
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone());
        match records::read(meta) {
            Ok(record) => Some(record),
            Err(stray) => {
                if is_news {
                    self.metrics.undecodable(RecordFault::Disagrees);
                    tracing::warn!(
                        %namespace, record = %name, reason = %stray,
                        "an object with Helm's label is no release record"
                    );
                }
                None
            }
        }
    }

    fn broken(&self, scope: usize, reason: CallError) {
        let mut outages = self.outages.lock();
        if !outages.contains_key(&scope) {
            tracing::warn!(%reason, "release records cannot be watched; the last state serves");
        }
        let outage = outages.entry(scope).or_insert(Outage { since: Instant::now(), reason: reason.clone() });
        outage.reason = reason;
        self.tell(outages.values());
    }

    fn recovered(&self, scope: usize) {
        let mut outages = self.outages.lock();
        if let Some(outage) = outages.remove(&scope) {
            let seconds = outage.since.elapsed().as_secs();
            tracing::info!(seconds, "release records are watched again");
            self.tell(outages.values());
        }
    }

    fn tell<'o>(&self, outages: impl Iterator<Item = &'o Outage>) {
        let longest = outages.min_by_key(|outage| outage.since).cloned();
        self.health.send_modify(|health| health.outage = longest);
    }
}
