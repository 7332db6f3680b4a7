//! The releases of a cluster: the index of their declarations, updated by a watch of their records, and
//! looked up afresh before a denial.
//!
//! Entry point: [`Releases`]. Invariants: only the latest record and the baseline are ever read whole, and
//! only their manifests are kept. A record that does not count causes one warning and does not change its
//! release. The index never returns from a newer state of a release to an older one. The work is in `settle`
//! (records to index) and `feed` (watch to records), which address records by their place; all other modules
//! address releases.

mod document;
mod feed;
mod once;
mod settle;
mod source;
mod trust;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::document::{Document, DocumentError};
pub use self::once::{Closed, Once};
pub use self::source::SourceError;
use self::source::Sources;
use super::kinds::Kinds;
use super::payloads::Payloads;
use super::queue::{Announcer, Changes};
use super::records::Records;
use crate::client::call::CallError;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Head;
use kubemoor_helm::storage::Storage;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{Look, RecordMetrics};

/// The part of a lookup's time that the API server may use to answer; the rest is for processing the answer.
const ANSWERING: f64 = 0.9;

/// The releases of a cluster.
pub struct Releases {
    payloads: Payloads,
    kinds: Arc<Kinds>,
    metrics: RecordMetrics,
    client: kube::Client,
    /// Empty for all.
    namespaces: Vec<String>,
    index: Arc<RwLock<Index>>,
    records: Mutex<Records>,
    standings: Mutex<HashMap<ReleaseId, Standing>>,
    /// Releases that have to be assembled again although their records are the same, and how often that was said.
    outdated: Mutex<HashMap<ReleaseId, u64>>,
    gates: Mutex<HashMap<ReleaseId, Waited>>,
    /// By where their records lie: releases for which there was no room.
    left_out: Mutex<HashSet<ReleaseId>>,
    /// Which records are trusted for releases in other namespaces.
    storage: RwLock<Arc<Storage>>,
    /// Those of the first listings whose records have not been read yet.
    unread: Mutex<HashSet<ReleaseId>>,
    /// The places with changed records.
    dirty: Changes<ReleaseId>,
    announcer: Announcer<ReleaseId>,
    health: watch::Sender<Health>,
    outages: Mutex<BTreeMap<usize, Outage>>,
    /// The sources of revisions that recent messages used.
    sources: Sources,
}

/// The reliability of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Every release that the first full listing named is in the index.
    pub indexed: bool,
    /// Set while records cannot be listed or watched; the last state serves.
    pub outage: Option<Outage>,
}

/// A time in which records cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it began.
    pub since: Instant,
    /// Why.
    pub reason: CallError,
}

/// Why a release could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// The API server did not answer in time.
    #[error("the records of release {release} could not be read within {} ms", .within.as_millis())]
    Late {
        /// The release.
        release: ReleaseId,
        /// The time that there was.
        within: Duration,
    },
    /// The API server gave no usable answer.
    #[error("the records of release {release} could not be read: {reason}")]
    Call {
        /// The release.
        release: ReleaseId,
        /// What the API server said.
        reason: Box<CallError>,
    },
    /// The API server answered, and it takes longer than there is time to read
    /// what it said.
    #[error("the records of release {release} are too large or too many to be read within {} ms", .within.as_millis())]
    Slow {
        /// The release.
        release: ReleaseId,
        /// The time that there was.
        within: Duration,
    },
    /// The records changed faster than they could be read.
    #[error("the records of release {release} change faster than they can be read")]
    Moving {
        /// The release.
        release: ReleaseId,
    },
}

/// The records from which the index was last updated for a release.
struct Standing {
    latest: Arc<Head>,
    /// The baseline by Helm's order; another record may have been read instead.
    baseline: Option<Arc<Head>>,
    /// Of the catalog.
    generation: u64,
}

/// Lets one task at a time work on a release.
#[derive(Default)]
struct Gate {
    last: tokio::sync::Mutex<Option<LastLook>>,
}

struct LastLook {
    began: Instant,
    outcome: Result<bool, LookError>,
}

/// A release's gate, and how many passes to it there are.
#[derive(Default)]
struct Waited {
    gate: Arc<Gate>,
    passes: usize,
}

/// The right to wait at a release's gate, which is taken down with the last of them.
struct Pass<'r> {
    releases: &'r Releases,
    release: &'r ReleaseId,
    gate: Arc<Gate>,
}

/// The records that are followed.
pub struct RecordSource {
    /// Their form.
    pub driver: RecordDriver,
    /// The namespaces that they lie in; empty for all.
    pub namespaces: Vec<String>,
}

impl Releases {
    /// The releases of these records, to be kept in `index`. Nothing is read before [`Self::run`].
    pub fn new(
        client: kube::Client,
        RecordSource { driver, namespaces }: RecordSource,
        kinds: Arc<Kinds>,
        index: Arc<RwLock<Index>>,
        metrics: RecordMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            payloads: Payloads::new(client.clone(), driver),
            kinds,
            metrics,
            client,
            namespaces,
            index,
            records: Mutex::default(),
            standings: Mutex::default(),
            outdated: Mutex::default(),
            gates: Mutex::default(),
            left_out: Mutex::default(),
            storage: RwLock::default(),
            unread: Mutex::default(),
            dirty: Changes::of([]),
            announcer: Announcer::default(),
            health: watch::Sender::new(Health::default()),
            outages: Mutex::default(),
            sources: Sources::default(),
        })
    }

    /// The index. Lock it for no longer than a lookup, and across no `await`.
    pub fn index(&self) -> &RwLock<Index> {
        &self.index
    }

    /// The reliability of the index, now and after each change.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Every release of the index, then each one whose place in it changes.
    pub fn changes(&self) -> Changes<ReleaseId> {
        self.announcer
            .subscribe(self.index.read().releases().map(|release| release.id.clone()).collect::<Vec<_>>())
    }

    /// How many records there are, and of how many releases.
    pub fn count(&self) -> (usize, usize) {
        self.records.lock().count()
    }

    /// Looks up the records of `release` at the API server, in all trusted places, and puts their
    /// declarations into the index. Returns whether that changed the index. Another task may have updated the
    /// index just before, so judge again in both cases.
    ///
    /// A lookup is shared by all callers that asked before it began.
    ///
    /// # Errors
    /// When the records could not be read within the time `within`.
    pub async fn fresh(&self, release: &ReleaseId, within: Duration) -> Result<bool, LookError> {
        let places = self.storage().places(release);
        let looks = places.iter().map(|stored| self.fresh_at(stored, within));
        let outcomes = join_all(looks).await;
        let changed = outcomes.into_iter().collect::<Result<Vec<bool>, _>>()?;
        Ok(changed.contains(&true))
    }

    async fn fresh_at(&self, stored: &ReleaseId, within: Duration) -> Result<bool, LookError> {
        if !self.can_exist(stored) {
            return Ok(false);
        }
        let arrived = Instant::now();
        // Calls end before the whole does, so that it is known what took so long.
        let until = arrived + within.mul_f64(ANSWERING);
        let outcome = match timeout(within, self.look_once(stored, arrived, until)).await {
            Err(_) => Err(LookError::Slow { release: stored.clone(), within }),
            Ok(Err(LookError::Late { release, .. })) => Err(LookError::Late { release, within }),
            Ok(outcome) => outcome,
        };
        self.metrics.looked(match &outcome {
            Ok(false) => Look::Unchanged,
            Ok(true) => Look::Changed,
            Err(LookError::Late { .. } | LookError::Slow { .. }) => Look::TimedOut,
            Err(_) => Look::Failed,
        });
        outcome
    }

    async fn look_once(
        &self,
        release: &ReleaseId,
        arrived: Instant,
        until: Instant,
    ) -> Result<bool, LookError> {
        let pass = self.pass(release);
        let within = until.saturating_duration_since(arrived);
        let late = || LookError::Late { release: release.clone(), within };
        let mut last = timeout_at(until, pass.gate.last.lock()).await.map_err(|_| late())?;
        // A look that began before this call may have missed what led to it.
        if let Some(look) = last.as_ref().filter(|look| look.began >= arrived) {
            return look.outcome.clone();
        }
        let began = Instant::now();
        let outcome = self.look(release, began, until).await;
        *last = Some(LastLook { began, outcome: outcome.clone() });
        outcome
    }

    async fn look(&self, release: &ReleaseId, began: Instant, until: Instant) -> Result<bool, LookError> {
        let looked = self.payloads.look(release, until.saturating_duration_since(began)).await;
        let looked = looked.map_err(|reason| LookError::called(release, reason))?;
        // The watch does not tell of it again, and the caller may give up before the index has it.
        if self.records.lock().look(release, looked.records, &looked.version, began) {
            self.dirty.add(release.clone());
        }
        self.settle(release, settle::Care::Soon { until }).await
    }

    /// Whether Helm could have a release of that name where the guard looks. Names come from annotations that
    /// every user can write. A text that cannot be a label value or a namespace is not sent to the API
    /// server.
    fn can_exist(&self, release: &ReleaseId) -> bool {
        let is_label = |text: &str| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            text.len() <= 63
                && edge(text.as_bytes().first())
                && edge(text.as_bytes().last())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        is_label(&release.name)
            && is_label(&release.namespace)
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|it| *it == release.namespace))
    }

    fn pass<'r>(&'r self, release: &'r ReleaseId) -> Pass<'r> {
        let mut gates = self.gates.lock();
        let waited = gates.entry(release.clone()).or_default();
        waited.passes += 1;
        Pass { releases: self, release, gate: Arc::clone(&waited.gate) }
    }
}

impl LookError {
    fn called(release: &ReleaseId, reason: CallError) -> Self {
        match reason {
            CallError::Late { within } => Self::Late { release: release.clone(), within },
            reason => Self::Call { release: release.clone(), reason: Box::new(reason) },
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut gates = self.releases.gates.lock();
        let Some(waited) = gates.get_mut(self.release) else { return };
        waited.passes -= 1;
        if waited.passes == 0 {
            gates.remove(self.release);
        }
    }
}
