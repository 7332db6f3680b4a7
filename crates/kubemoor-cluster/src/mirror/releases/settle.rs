//! Updates the index from the known records of a release: which of them count, what they declare, and which
//! cannot be trusted.
//!
//! Entry point: `Releases::settle`. Invariant: the caller holds the gate of the release's records. Must not
//! follow a watch.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::payloads::{Fetched, Payloads};
use super::super::records::{self, Known};
use super::{LookError, Releases, Standing};
use crate::client::call::{CallError, PATIENCE};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Gvk, ReleaseId};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_helm::record::{RecordError, Status};
use kubemoor_helm::release::{self, Assembled, Disbelief, Head, Payload, Release};
use kubemoor_helm::storage::Storage;
use kubemoor_runtime::metrics::RecordFault;

/// How often a release is read again because its records changed meanwhile.
const ATTEMPTS: usize = 5;

/// How long a release waits for the types of its declared kinds.
const LEARNING: Duration = Duration::from_secs(10);

/// What to do about kinds whose types are not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Learn of them first.
    First,
    /// Uses the built-in types for now and fetches the schema in the background. No
    /// answer of the API server is awaited for longer than this.
    Soon {
        /// The time.
        until: Instant,
    },
}

/// The records that count, whole.
struct Material {
    /// Where they lie.
    stored: ReleaseId,
    storage: Arc<Storage>,
    latest: (Arc<Head>, Payload),
    baseline: Option<(Arc<Head>, Payload)>,
    previous: Option<Arc<Release>>,
}

impl Care {
    /// How long a call may take.
    fn patience(self) -> Duration {
        match self {
            Self::First => PATIENCE,
            Self::Soon { until } => until.saturating_duration_since(Instant::now()),
        }
    }
}

impl Releases {
    /// Updates the index from the known records at `id`. Returns whether the index changed. The caller holds
    /// their gate.
    pub(super) async fn settle(&self, id: &ReleaseId, care: Care) -> Result<bool, LookError> {
        let outdated = self.outdated.lock().get(id).copied();
        let outcome = self.settle_anew(id, care, outdated.is_some()).await;
        let mut all = self.outdated.lock();
        // It stays outdated where that failed, or where it became so again meanwhile.
        if outcome.is_ok() && all.get(id).copied() == outdated {
            all.remove(id);
        }
        outcome
    }

    /// Has every release assembled again that declares objects of a kind and
    /// was assembled before the kind's types became what they are.
    pub(super) fn outdate_kind(&self, gvk: &Gvk) {
        let current = self.kinds.snapshot();
        let declaring: Vec<ReleaseId> = {
            let index = self.index.read();
            let declares = |release: &&Arc<Release>| {
                release.objects.keys().any(|object| object.kind == gvk.kind && object.group == gvk.group)
            };
            index.histories().filter(declares).map(|release| release.stored()).collect()
        };
        for id in declaring {
            let generation = self.standings.lock().get(&id).map(|standing| standing.generation);
            if generation.is_some_and(|generation| current.is_newer(gvk, generation)) {
                self.outdate(&id);
            }
        }
    }

    pub(super) fn outdate(&self, id: &ReleaseId) {
        *self.outdated.lock().entry(id.clone()).or_default() += 1;
        self.dirty.add(id.clone());
    }

    /// Records that come and go may declare ever other kinds that nobody serves.
    fn drop_undeclared_kinds(&self) {
        if self.kinds.is_crowded() {
            let index = self.index.read();
            let declared: HashSet<Gvk> = index.histories().flat_map(|release| kinds(release)).collect();
            self.kinds.drop_undeclared(&declared);
        }
    }

    async fn settle_anew(&self, id: &ReleaseId, care: Care, is_outdated: bool) -> Result<bool, LookError> {
        let called = |reason| LookError::called(id, reason);
        let storage = self.storage();
        for _ in 0..ATTEMPTS {
            let known = self.records.lock().of(id);
            let heads: Vec<Arc<Head>> = known.iter().map(|known| Arc::clone(&known.head)).collect();
            let Some(latest) = release::latest(&heads) else {
                return Ok(self.remove(id));
            };
            let baseline = release::baseline(&heads);
            if !is_outdated && self.stands(id, latest, baseline) {
                return Ok(false);
            }
            let Some(payload) = self.fetch(id, latest, care).await.map_err(called)? else { continue };
            let base = match baseline {
                None if release::believe(id, latest, &payload, &storage).is_err() => {
                    next_best(&heads, latest)
                }
                baseline => baseline.cloned(),
            };
            let base = match base {
                None => None,
                Some(head) => match self.fetch(id, &head, care).await.map_err(called)? {
                    Some(payload) => Some((head, payload)),
                    None => continue,
                },
            };
            let standing = Standing { latest: latest.clone(), baseline: baseline.cloned(), generation: 0 };
            let previous = self.index.read().stored(id).cloned();
            let latest = (latest.clone(), payload);
            let material = Material { stored: id.clone(), storage, latest, baseline: base, previous };
            return self.take_in(Arc::new(material), &known, standing, care).await.map_err(called);
        }
        Err(LookError::Moving { release: id.clone() })
    }

    async fn take_in(
        &self,
        material: Arc<Material>,
        known: &[Known],
        mut standing: Standing,
        care: Care,
    ) -> Result<bool, CallError> {
        let mut snapshot = self.kinds.snapshot();
        let cache = Arc::clone(self.index.read().cache());
        let assemble = |catalog: Arc<Catalog>| {
            Arc::clone(&material).assemble(catalog, &self.payloads, Arc::clone(&cache))
        };
        let mut assembled = assemble(snapshot.catalog.clone()).await?;
        let kinds = kinds(&assembled.release);
        let missing: Vec<Gvk> = kinds.iter().filter(|gvk| !snapshot.is_settled(gvk)).cloned().collect();
        match care {
            Care::First if !missing.is_empty() => {
                // It will be assembled again, and needs no memory until then.
                drop(assembled);
                // Types that arrive later are reported as a change of the kinds.
                let _ = tokio::time::timeout(LEARNING, self.kinds.learn(missing)).await;
                snapshot = self.kinds.snapshot();
                assembled = assemble(snapshot.catalog.clone()).await?;
            }
            Care::First | Care::Soon { .. } => self.kinds.owe(missing),
        }
        self.report(&material, &assembled, known);
        standing.generation = snapshot.generation;
        let stored = &material.stored;
        let release = assembled.release.id.clone();
        self.standings.lock().insert(stored.clone(), standing);
        let is_trusted = self.put(assembled.release, &material.storage);
        self.drop_undeclared_kinds();
        self.announcer.announce(&release);
        // These records belonged to another release until now.
        if let Some(before) = material.previous.as_ref().filter(|before| before.id != release) {
            self.announcer.announce(&before.id);
        }
        // Kinds may have changed since the snapshot, when the index did not
        // hold this yet.
        let current = self.kinds.snapshot();
        if !is_trusted || kinds.iter().any(|gvk| current.is_newer(gvk, snapshot.generation)) {
            self.outdate(stored);
        }
        Ok(true)
    }

    /// Whether the index is already up to date with these records. Also updates the facts that can change
    /// without a record's content.
    fn stands(&self, id: &ReleaseId, latest: &Arc<Head>, baseline: Option<&Arc<Head>>) -> bool {
        let mut standings = self.standings.lock();
        let Some(standing) = standings.get_mut(id) else { return false };
        let stands = standing.latest.is_same_version(latest)
            && match (&standing.baseline, baseline) {
                (Some(a), Some(b)) => a.is_same_version(b),
                (None, None) => true,
                _ => false,
            };
        if stands && standing.latest.appearance != latest.appearance {
            standing.latest = Arc::clone(latest);
            let mut index = self.index.write();
            if let Some(mut release) = index.stored(id).map(|release| Release::clone(release)) {
                release.latest = Arc::clone(latest);
                if release.state.revision == latest.revision {
                    release.state.appearance = latest.appearance;
                }
                let id = release.id.clone();
                index.set(release);
                drop(index);
                self.announcer.announce(&id);
            }
        }
        stands
    }

    /// Takes a release without records out of the index.
    fn remove(&self, stored: &ReleaseId) -> bool {
        self.outdated.lock().remove(stored);
        self.standings.lock().remove(stored);
        let mut index = self.index.write();
        let Some(release) = index.stored(stored).map(|release| release.id.clone()) else { return false };
        index.remove(stored);
        drop(index);
        self.left_out.lock().remove(stored);
        self.make_room(&stored.namespace);
        tracing::info!(release.id = %release, "the release has no records any more");
        self.announcer.announce(&release);
        true
    }

    /// The payload of a record; `None` when it has changed, and then the new version is known.
    async fn fetch(&self, id: &ReleaseId, head: &Head, care: Care) -> Result<Option<Payload>, CallError> {
        match self.payloads.fetch(id, head, care.patience()).await {
            Ok(Fetched::Payload(payload)) => return Ok(Some(payload)),
            Ok(Fetched::Gone) => self.forget(id, head),
            Ok(Fetched::Moved(meta)) => match records::read(meta) {
                Ok((release, known)) if release == *id => {
                    if self.records.lock().refine(release, known) {
                        self.dirty.add(id.clone());
                    }
                }
                _ => self.forget(id, head),
            },
            Err(error) => {
                self.metrics.undecodable(RecordFault::Unread);
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Takes in that a record is gone. The watch does not tell of it again, and the caller may give up before the index
    /// has it.
    fn forget(&self, id: &ReleaseId, head: &Head) {
        if self.records.lock().forget(id, &head.secret, &head.uid) {
            self.dirty.add(id.clone());
        }
    }

    /// Says once what of a release's records does not count.
    fn report(&self, material: &Material, assembled: &Assembled, known: &[Known]) {
        let Material { stored: id, storage, latest, baseline, previous } = material;
        let told = |head: &Head| {
            previous.as_ref().is_some_and(|previous| {
                [Some(&previous.latest), previous.baseline.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|known| known.is_same_version(head))
            })
        };
        for (head, payload) in std::iter::once(latest).chain(baseline).filter(|(head, _)| !told(head)) {
            let Err(disbelief) = release::believe(id, head, payload, storage) else { continue };
            self.metrics.undecodable(fault(payload, &disbelief));
            let flaw =
                known.iter().find(|known| known.head.uid == head.uid).and_then(|known| known.flaw.as_deref());
            let reason = flaw.map_or_else(|| disbelief.to_string(), str::to_owned);
            tracing::warn!(
                release.id = %id, record = %head.secret, %reason,
                "a release record does not count; its release is judged by its last good one"
            );
        }
        if !told(&latest.0) {
            let kept = &assembled.release;
            if let (Some(invalid), Ok(_)) =
                (&kept.invalid, release::believe(id, &latest.0, &latest.1, storage))
            {
                self.metrics.undecodable(RecordFault::TooLarge);
                tracing::warn!(
                    release.id = %id, record = %invalid.secret, reason = %invalid.reason, "a release is not judged"
                );
            }
            for skipped in &assembled.skipped {
                let source = skipped.source.as_deref().unwrap_or("unknown");
                tracing::warn!(
                    release.id = %id, release.revision = latest.0.revision, document = skipped.index, %source,
                    reason = %skipped.reason, "a manifest document is no object and is not guarded"
                );
            }
        }
    }
}

impl Material {
    async fn assemble(
        self: Arc<Self>,
        catalog: Arc<Catalog>,
        payloads: &Payloads,
        cache: Arc<FieldsCache>,
    ) -> Result<Assembled, CallError> {
        let baseline = self.baseline.as_ref().map(|(_, payload)| payload);
        let is_heavy = baseline.into_iter().chain([&self.latest.1]).any(Payload::is_heavy);
        let assemble = move || {
            release::assemble(
                release::StoredRecords {
                    stored: &self.stored,
                    latest: (&self.latest.0, &self.latest.1),
                    baseline: self.baseline.as_ref().map(|(head, payload)| (head, payload)),
                },
                self.previous.as_deref(),
                &self.storage,
                &catalog,
                &cache,
            )
        };
        payloads.read(is_heavy, assemble).await
    }
}

/// The kinds that a release declares.
fn kinds(release: &Release) -> BTreeSet<Gvk> {
    let declared = release.objects.iter().flat_map(|(object, declarations)| {
        declarations.all().map(|declared| Gvk {
            group: object.group.to_string(),
            version: declared.version.to_string(),
            kind: object.kind.to_string(),
        })
    });
    declared.collect()
}

/// The record to judge by when the latest cannot be believed and Helm would
/// compare with it alone: the last one below it that once was in force.
fn next_best(heads: &[Arc<Head>], latest: &Head) -> Option<Arc<Head>> {
    let below = heads.iter().filter(|head| head.revision < latest.revision);
    let in_force = below.filter(|head| matches!(head.status, Status::Deployed | Status::Superseded));
    in_force.max_by_key(|head| (head.status == Status::Deployed, head.revision)).cloned()
}

fn fault(payload: &Payload, disbelief: &Disbelief) -> RecordFault {
    match (&payload.record, disbelief) {
        (_, Disbelief::Disagree { .. }) | (Ok(_), _) => RecordFault::Disagrees,
        (Err(RecordError::Base64(_)), _) => RecordFault::Encoding,
        (Err(RecordError::Decompress(_)), _) => RecordFault::Compression,
        (Err(RecordError::TooLarge { .. } | RecordError::LongManifest { .. }), _) => RecordFault::TooLarge,
        (Err(_), _) => RecordFault::Syntax,
    }
}
