//! Asks the API server how it would store a declared object, where the meaning of a value is in doubt.
//!
//! Entry point: [`Arbiter::canonical`], a dry run of a forced server-side apply under a separate field
//! manager. Invariants: stores nothing, asks at a bounded rate, and remembers answers for an hour, so that a
//! steady state needs no requests. A dry run is evidence, never a precondition: it can fail for valid
//! manifests.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use moka::future::Cache;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::kinds::Kinds;
use super::releases::{DocumentError, Releases};
use crate::client::call::CallError;
use crate::client::objects::{Objects, Target, WriteError};
use kubemoor_declare::digest::Digest;
use kubemoor_declare::document::prepare;
use kubemoor_declare::model::{ObjectId, PROBE_MANAGER, ReleaseId};
use kubemoor_helm::release::gvk;

/// The part of a question's time that may be spent in the queue.
const QUEUEING: f64 = 0.5;

/// The part of a question's time after which no answer is awaited. It ends before
/// the whole does, so that it is known what took so long.
const ANSWERING: f64 = 0.9;

/// How long an answer is remembered.
const MEMORY: Duration = Duration::from_secs(3600);

/// The bytes of JSON that all remembered answers may have.
const CAPACITY: u64 = 2 << 20;

/// Asks the API server how it would hold declared objects.
pub struct Arbiter {
    objects: Objects,
    kinds: Arc<Kinds>,
    releases: Arc<Releases>,
    rate: DefaultDirectRateLimiter,
    answers: Cache<Question, Arc<Value>>,
}

/// A declared object: one uid of an object, and one record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The object.
    pub object: ObjectId,
    /// Its uid; empty before it exists.
    pub uid: String,
    /// The release that declares it.
    pub release: ReleaseId,
    /// The revision whose manifest is meant.
    pub revision: u64,
    /// The digest of the object's declaration: an answer about another one does not count.
    pub digest: Option<Digest>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArbiterError {
    /// Too many dry runs were asked for, or the manifest takes too long to read.
    #[error("no dry run of {object} ended within {} ms", .within.as_millis())]
    Late {
        /// The object.
        object: ObjectId,
        /// The time that there was.
        within: Duration,
    },
    /// The manifest cannot be had.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The revision's manifest does not hold the object.
    #[error("revision {revision} of release {release} does not declare {object}")]
    NotDeclared {
        /// The object.
        object: ObjectId,
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
    },
    /// The manifest was changed meanwhile.
    #[error("revision {revision} of release {release} has changed meanwhile")]
    Changed {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
    },
    /// The API server serves no such kind.
    #[error("the API server serves no kind {} of the group {:?}", .object.kind, .object.group)]
    NotServed {
        /// The object.
        object: ObjectId,
    },
    /// The dry run failed, and the API server would take the manifest as a new object.
    #[error(
        "the API server refuses the manifest of {object} because of what the live object holds: {reason}"
    )]
    Obstructed {
        /// The object.
        object: ObjectId,
        /// The API server's answer.
        reason: WriteError,
    },
    /// The dry run failed.
    #[error("the dry run of {object} failed: {reason}")]
    Refused {
        /// The object.
        object: ObjectId,
        /// The API server's answer.
        reason: WriteError,
    },
}

impl ArbiterError {
    /// Whether the API server reports that the object itself cannot have the requested state, which a change of the
    /// object could fix. A missing permission, an unavailable webhook or a broken connection is not such a report.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Obstructed { .. } => true,
            Self::Refused { reason: WriteError::Invalid { .. }, .. } => true,
            Self::Refused { reason: WriteError::Failed(CallError::Refused { message, .. }), .. } => {
                !message.contains("failed calling webhook")
            }
            _ => false,
        }
    }
}

impl Arbiter {
    /// Asks at most `per_second` times a second, in bursts of at most as many.
    pub fn new(objects: Objects, kinds: Arc<Kinds>, releases: Arc<Releases>, per_second: NonZeroU32) -> Self {
        let weigh =
            |_: &Question, answer: &Arc<Value>| u32::try_from(answer.to_string().len()).unwrap_or(u32::MAX);
        Self {
            objects,
            kinds,
            releases,
            rate: RateLimiter::direct(Quota::per_second(per_second)),
            answers: Cache::builder().max_capacity(CAPACITY).weigher(weigh).time_to_live(MEMORY).build(),
        }
    }

    /// The object as the API server would hold it if the manifest were applied
    /// now, with every default and every spelling of its own.
    ///
    /// # Errors
    /// When the dry run fails or does not end within the time `within`.
    pub async fn canonical(&self, question: &Question, within: Duration) -> Result<Arc<Value>, ArbiterError> {
        let asking = self.answers.try_get_with_by_ref(question, self.ask(question, within));
        match timeout(within, asking).await {
            Ok(answer) => answer.map_err(|error| ArbiterError::clone(&error)),
            Err(_) => Err(ArbiterError::Late { object: question.object.clone(), within }),
        }
    }

    /// The cause of an `error` of [`Self::canonical`]: whether what the live object holds makes the manifest invalid, or
    /// the manifest is so itself.
    pub async fn cause(&self, question: &Question, error: ArbiterError, within: Duration) -> ArbiterError {
        let ArbiterError::Refused { object, reason: reason @ WriteError::Invalid { .. } } = error else {
            return error;
        };
        let probing = async {
            let (target, document) = self.declared(question, within).await.ok()?;
            match self.objects.dry_run_create(&target, &document).await {
                Ok(()) | Err(WriteError::AlreadyExists { .. }) => Some(()),
                Err(_) => None,
            }
        };
        match timeout(within, probing).await {
            Ok(Some(())) => ArbiterError::Obstructed { object, reason },
            Ok(None) | Err(_) => ArbiterError::Refused { object, reason },
        }
    }

    async fn ask(&self, question: &Question, within: Duration) -> Result<Arc<Value>, ArbiterError> {
        let object = &question.object;
        let late = || ArbiterError::Late { object: object.clone(), within };
        // A caller that waits in the queue for long is late: what is left would be too
        // little for the API server to answer in.
        let until = Instant::now() + within.mul_f64(ANSWERING);
        timeout(within.mul_f64(QUEUEING), self.rate.until_ready()).await.map_err(|_| late())?;
        let (target, document) = self.declared(question, left(until)).await?;
        if left(until) < within.mul_f64(1.0 - ANSWERING) {
            return Err(late());
        }
        let answer = self.objects.dry_run(&target, &document, PROBE_MANAGER, left(until)).await;
        let refused = |reason| ArbiterError::Refused { object: object.clone(), reason };
        Ok(Arc::new(answer.map_err(refused)?))
    }

    /// The manifest that a question is about, ready to be sent, and where to.
    async fn declared(&self, question: &Question, within: Duration) -> Result<(Target, Value), ArbiterError> {
        let Question { object, release, revision, digest, .. } = question;
        let declared = self.releases.document(release, *revision, object, within).await?;
        let not_declared = || ArbiterError::NotDeclared {
            object: object.clone(),
            release: release.clone(),
            revision: *revision,
        };
        let document = declared.object.ok_or_else(not_declared)?;
        if Digest::of(&document) != *digest {
            return Err(ArbiterError::Changed { release: release.clone(), revision: *revision });
        }
        let version = gvk(&document).version;
        let Some(target) = self.kinds.target(object, &version) else {
            return Err(ArbiterError::NotServed { object: object.clone() });
        };
        let document = prepare(document, target.resource.api_version()).ok_or_else(not_declared)?;
        Ok((target, document))
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
