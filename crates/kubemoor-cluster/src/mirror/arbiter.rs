//! Asks the API server how it would store a declared object, where a comparison alone is inconclusive: by a dry run of
//! a forced server-side apply under a separate field manager. Stores nothing, is rate-limited, and caches results for
//! an hour, so that a steady state needs no requests. A dry run is evidence, never a precondition: it can fail for
//! valid manifests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use moka::future::Cache;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::client::call::{ClusterError, RefusalKind};
use crate::client::objects::{ObjectTarget, Objects};
use crate::mirror::kinds::ServedKinds;
use crate::mirror::releases::Releases;
use kubemoor_declare::declare::{Digest, prepare};
use kubemoor_declare::model::{ObjectId, PROBE_MANAGER, ReleaseId};
use kubemoor_helm::release::gvk;
use kubemoor_reconcile::event::Secret;

/// The part of a dry run's time limit that it may wait for the rate limit.
const QUEUEING: f64 = 0.5;

/// The part of a dry run's time limit after which no response is awaited. It is less than 1, so that the error can tell
/// what took so long.
const ANSWERING: f64 = 0.9;

const MEMORY: Duration = Duration::from_secs(3600);

const CAPACITY: u64 = 2 << 20;

pub struct Arbiter {
    objects: Objects,
    kinds: Arc<ServedKinds>,
    releases: Arc<Releases>,
    rate: DefaultDirectRateLimiter,
    answers: Cache<DryRunQuestion, Arc<Value>>,
}

/// What a dry run is about, and its cache key: a declared object by its uid and release record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DryRunQuestion {
    pub object: ObjectId,
    /// Its uid; empty before it exists.
    pub uid: String,
    pub release: ReleaseId,
    /// The revision of the manifest.
    pub revision: u64,
    /// The digest of the declared object. If the record now declares another one, the dry run fails.
    pub digest: Option<Digest>,
}

impl Arbiter {
    /// Makes at most `per_second` dry runs per second, in bursts of at most as many.
    pub fn new(
        objects: Objects,
        kinds: Arc<ServedKinds>,
        releases: Arc<Releases>,
        per_second: NonZeroU32,
    ) -> Self {
        let weigh = |_: &DryRunQuestion, answer: &Arc<Value>| {
            u32::try_from(answer.to_string().len()).unwrap_or(u32::MAX)
        };
        Self {
            objects,
            kinds,
            releases,
            rate: RateLimiter::direct(Quota::per_second(per_second)),
            answers: Cache::builder().max_capacity(CAPACITY).weigher(weigh).time_to_live(MEMORY).build(),
        }
    }

    /// The object as the API server would store it if the manifest were applied now, with all defaults and in the API
    /// server's own format.
    pub async fn canonical(
        &self,
        question: &DryRunQuestion,
        within: Duration,
    ) -> Result<Arc<Value>, ClusterError> {
        let asking = self.answers.try_get_with_by_ref(question, self.ask(question, within));
        match timeout(within, asking).await {
            Ok(answer) => answer.map_err(|error| ClusterError::clone(&error)),
            Err(_) => Err(late(&question.object, within)),
        }
    }

    /// The cause of an `error` of [`Self::canonical`]: whether the manifest is invalid only because of the live object,
    /// or invalid itself.
    pub async fn cause(
        &self,
        question: &DryRunQuestion,
        error: ClusterError,
        within: Duration,
    ) -> ClusterError {
        let (object, source) = match error {
            ClusterError::DryRun { object, source } if source.refusal() == Some(RefusalKind::Invalid) => {
                (object, source)
            }
            error => return error,
        };
        let probing = async {
            let Ok((target, document)) = self.declared(question, within).await else { return false };
            match self.objects.dry_run_create(&target, &document).await {
                Ok(_) => true,
                Err(error) => error.refusal() == Some(RefusalKind::AlreadyExists),
            }
        };
        match timeout(within, probing).await {
            Ok(true) => ClusterError::BlockedByLiveObject { object, source },
            Ok(false) | Err(_) => ClusterError::DryRun { object, source },
        }
    }

    async fn ask(&self, question: &DryRunQuestion, within: Duration) -> Result<Arc<Value>, ClusterError> {
        let object = &question.object;
        // After a long wait for the rate limit, the remaining time would be too short for the API server to respond in.
        let until = Instant::now() + within.mul_f64(ANSWERING);
        let left = || until.saturating_duration_since(Instant::now());
        timeout(within.mul_f64(QUEUEING), self.rate.until_ready()).await.map_err(|_| late(object, within))?;
        let (target, document) = self.declared(question, left()).await?;
        if left() < within.mul_f64(1.0 - ANSWERING) {
            return Err(late(object, within));
        }
        let answer = self.objects.dry_run(&target, &document, PROBE_MANAGER, left()).await;
        let failed = |error| ClusterError::DryRun { object: object.clone(), source: Box::new(error) };
        answer.map(Arc::new).map_err(failed)
    }

    /// The manifest of a dry run, ready to be sent, and its target.
    async fn declared(
        &self,
        question: &DryRunQuestion,
        within: Duration,
    ) -> Result<(ObjectTarget, Value), ClusterError> {
        let DryRunQuestion { object, release, revision, digest, .. } = question;
        let declared = self.releases.document(release, *revision, object, within).await?;
        let not_declared = || ClusterError::NotDeclared {
            object: Box::new(object.clone()),
            release: release.clone(),
            revision: *revision,
        };
        let Secret(document) = declared.object.ok_or_else(not_declared)?;
        if Digest::new(&document) != *digest {
            return Err(ClusterError::Changed { release: release.clone(), revision: *revision });
        }
        let version = gvk(&document).version;
        let unserved =
            || ClusterError::DryRun { object: object.clone(), source: Box::new(ClusterError::Unserved) };
        let target = self.kinds.target(object, &version).ok_or_else(unserved)?;
        let document = prepare(document, target.resource.api_version()).ok_or_else(not_declared)?;
        Ok((target, document))
    }
}

/// There are too many dry runs, or reading the manifest takes too long.
fn late(object: &ObjectId, within: Duration) -> ClusterError {
    ClusterError::Slow { what: format!("the dry run of {object} did not finish"), within }
}
