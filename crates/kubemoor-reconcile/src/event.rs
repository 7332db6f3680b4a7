//! The loop's inputs ([`LoopEvent`]) and outputs ([`LoopAction`]) as plain values: the code that feeds events and
//! executes actions makes no decisions. Contents of objects are not kept.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use serde_json::value::RawValue;
use smol_str::SmolStr;

use crate::brake::Drifting;
use crate::drifts::{FirstManifest, ObjectDrift, ResourceVersion};
use crate::report::{DriftKind, LoopReport};
use crate::scopes::WatchScope;
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{Cause, ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::{ObjectSettledValues, ObservedObject};
use kubemoor_policy::guarded::Suspension;
use kubemoor_policy::signing::Ticket;
use kubemoor_verdict::edit::{DepartedAutoscaler, ObjectContext};

#[derive(Debug)]
pub enum LoopEvent {
    Release(ReleaseId, Option<GovernedRelease>),
    /// Policies have changed: the new policies of these releases, and whether the emergency is `open`: enforcement is
    /// disabled and nothing is repaired.
    Policies {
        policies: Vec<(ReleaseId, Arc<Policy>)>,
        open: bool,
    },
    Circumstances(ObjectId, WatchedContext),
    /// The scopes to watch, and the kinds (group, kind) that the cluster does not serve.
    Scopes {
        wanted: BTreeSet<WatchScope>,
        unserved: BTreeSet<(String, String)>,
    },
    Watch(WatchScope, ObjectWatchEvent),
    Order(LoopOrder),
    /// This replica became the leader, or lost leadership.
    Leads(bool),
    /// The timer of the last [`LoopAction::SetTimer`] has fired.
    Due,
    /// The loop has to stop: running work is finished, and nothing new begins.
    Stop,
    /// The outcome of an [`LoopAction::Do`].
    Outcome(WorkId, WorkOutcome),
}

#[derive(Clone, Debug)]
pub struct GovernedRelease {
    pub release: Arc<Release>,
    pub policy: Arc<Policy>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedContext {
    pub now: ObjectContext,
    pub departed: Option<AutoscalerRemoval>,
}

#[derive(Debug)]
pub enum ObjectWatchEvent {
    ListStarted,
    /// An object of that listing, or one that was created or changed since.
    Object {
        live: Box<LiveObject>,
        is_listed: bool,
    },
    /// An object was deleted or lost Helm's label; this was its last version.
    Gone {
        object: ObjectId,
        version: String,
    },
    ListCompleted,
    Established,
    /// The watch failed for this reason and is tried again.
    Failed(WorkFailure),
}

/// An order of a user or of another part of the program to the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopOrder {
    /// Suspends the repairs of a release, or resumes them with `None`. Watching and comparing continue.
    Suspend(ReleaseId, Option<Suspension>),
    /// Repairs the release now, even if the policy's mode is `Report`, the brake is on or repairs are suspended.
    /// Objects of the ticket are repaired even if the live object was never seen with its declared values.
    Reconcile {
        release: ReleaseId,
        /// The `spec.reconcileAt` that the answer names.
        at: String,
        ticket: Option<Arc<Ticket>>,
    },
    /// A dry run of another replica has settled these values of an object.
    Settled(ObjectId, ObjectSettledValues),
    /// The knowledge of an earlier process: the digest of the first seen manifest of a revision, and the objects that
    /// were seen alive with the release's annotations. Only with this knowledge can the guard repair objects that were
    /// deleted while no guard ran. If the release has another record of that revision now, with another manifest, it
    /// was installed again, and this knowledge has no effect.
    Remember {
        release: ReleaseId,
        first: FirstManifest,
        seen: Vec<ObservedObject>,
        contested: Vec<ObjectId>,
        /// The field manager with which Helm writes its objects.
        manager: Option<SmolStr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub(crate) u64);

#[derive(Debug)]
pub enum LoopAction {
    Watch(WatchScope),
    Unwatch(WatchScope),
    Relist,
    /// Do this work for this release, and return the outcome in [`LoopEvent::Outcome`].
    Do(WorkId, ReleaseId, ApiWork),
    /// Send [`LoopEvent::Due`] at this time; earlier timers are dropped.
    SetTimer(Option<Timestamp>),
    /// Everything that was declared at the start has been listed, or cannot be.
    AllListed,
    Report(Box<LoopReport>),
    Withdraw(ReleaseId),
    Tell(LoopNotice),
    /// Keep the replicas that an autoscaler set before the guard first saw the object.
    InheritReplicas(ObjectId),
    /// Treat the replicas that an autoscaler left behind as drift.
    ForgetScaledReplicas(ObjectId),
    Settle(ObjectId, ObjectSettledValues),
}

/// One read, dry run or write at the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiWork {
    /// Read the object in the API version of the manifest.
    ReadObject {
        object: ObjectId,
        version: Arc<str>,
    },
    ReadRecords {
        release: ReleaseId,
    },
    /// Read the object's document from the manifest of a revision.
    ReadDocument {
        revision: u64,
        object: ObjectId,
    },
    /// Check whether the CustomResourceDefinition of the object's kind is being deleted.
    ReadDefinition {
        object: ObjectId,
    },
    /// Ask the API server by dry run how it would store the object with this uid if a revision's manifest were applied.
    /// The digest is that of the object's declaration in the manifest.
    Ask {
        object: ObjectId,
        uid: String,
        revision: u64,
        digest: Option<Digest>,
    },
    /// Ask whether the API server would accept this as a new object.
    Probe {
        object: ObjectId,
        version: Arc<str>,
        document: Secret,
    },
    Write {
        object: ObjectId,
        version: Arc<str>,
        write: Write,
    },
}

/// A write. For an existing object, the body holds the `resourceVersion` that was compared; a deletion names the uid.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Create { document: Secret, manager: String },
    Apply { document: Secret, manager: String },
    Merge { patch: Secret, manager: String },
    Delete { uid: String },
}

/// A body that may hold values of a Secret: its `Debug` shows nothing.
#[derive(Clone, PartialEq)]
pub struct Secret(pub Value);

#[derive(Debug)]
pub enum WorkOutcome {
    Object {
        live: Option<Box<LiveObject>>,
        version: String,
    },
    Records(Option<GovernedRelease>),
    Document(ManifestDocument),
    /// Whether the kind's definition is being deleted; false for a kind without a definition.
    Definition {
        deleting: bool,
    },
    Canonical(Arc<Secret>),
    Written(Secret),
    Failed(WorkFailure),
}

/// An object's document in the manifest of one revision.
#[derive(Debug)]
pub struct ManifestDocument {
    pub status: ReleaseStatus,
    /// How Helm writes the release's objects.
    pub apply_method: ApplyMethod,
    pub digest: [u8; 32],
    /// The object as Helm sends it; `None` where the manifest has no such object.
    pub object: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkFailure {
    pub fault: Fault,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    Unserved,
    Forbidden,
    NotLeading,
    NotFound,
    AlreadyExists,
    Conflict,
    Terminating,
    /// The API server rejected it: its message, and the fields at fault.
    Invalid {
        said: String,
        causes: Vec<Cause>,
    },
    /// The API server reports that the object cannot have the requested state.
    Refused,
    /// The API server rejects the manifest because of the live object's content, but would accept it as a new object.
    Obstructed,
    /// There is no such record, or no valid one.
    NoRecord,
    /// Any other failure. It is unknown whether a write was done.
    Unanswered,
}

impl WatchedContext {
    /// The circumstances of an object of `release`: replicas that an autoscaler left behind are kept until the release
    /// changes again.
    pub(crate) fn circumstances(&self, release: &Release, object: &ObjectId) -> ObjectContext {
        let departed = self.departed.as_ref().and_then(|it| it.since(release.state.created));
        let mut now = ObjectContext { departed, ..self.now.clone() };
        now.allowances.retain(|allowance| allowance.is_for(object, &release.id));
        now
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(withheld)")
    }
}

impl ApiWork {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

impl WorkOutcome {
    /// The object that a write or a probe returned, or its failure.
    pub(crate) fn written(self) -> Result<Value, WorkFailure> {
        match self {
            Self::Written(Secret(value)) => Ok(value),
            Self::Failed(failure) => Err(failure),
            _ => Err(WorkFailure::unanswered("the response belongs to another request")),
        }
    }
}

impl WorkFailure {
    /// A failure after which the outcome is unknown.
    pub fn unanswered(message: &str) -> Self {
        Self { fault: Fault::Unanswered, message: message.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoscalerRemoval {
    pub last: Timestamp,
    /// The range of the last deleted autoscaler; `None` if no guard saw it.
    pub range: Option<(i32, i32)>,
    /// When the last one that a release declared was deleted, and the releases that declared it.
    pub declared: Option<(Timestamp, Vec<ReleaseId>)>,
}

impl AutoscalerRemoval {
    /// The autoscaler that was deleted after `time`, if any.
    pub fn since(&self, time: Timestamp) -> Option<DepartedAutoscaler> {
        let by = self.declared.as_ref().filter(|(at, _)| *at > time).map(|(_, by)| by.clone());
        let range = self.range;
        (self.last > time).then(|| DepartedAutoscaler { declared_by: by.unwrap_or_default(), range })
    }
}

#[derive(Clone, Debug)]
pub enum LoopNotice {
    Object {
        release: Arc<Release>,
        drift: Box<ObjectDrift>,
        fate: ObjectOutcome,
    },
    Found(DriftKind),
    /// A drift was detected this long after it arose.
    DetectedAfter(SignedDuration),
    Present(DriftKind),
    /// The API server does not allow some of the object's fields to change in place.
    RepairRejected(DriftKind),
    /// Repairs in a namespace (`None`: everywhere) stop because of too much drift.
    Braked {
        namespace: Option<String>,
        drifting: Drifting,
    },
    /// Repairs resume: after an order for this release, or (`None`) because this replica is no longer the leader or the
    /// namespace has no releases left.
    Eased {
        namespace: Option<String>,
        by: Option<ReleaseId>,
    },
    Held {
        release: Arc<Release>,
        until: Timestamp,
    },
    Oldest(Option<Timestamp>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ObjectOutcome {
    /// It was repaired, after this number of attempts.
    Repaired {
        attempts: u32,
    },
    /// It was repaired except for fields that the API server refuses to set.
    Partly {
        attempts: u32,
    },
    Failed,
    Reported,
    InDoubt,
    Contested,
    /// It was re-created, then deleted because its release no longer declares it.
    DeletedAgain,
    /// The same, but it cannot be deleted, for this reason.
    CannotTakeBack(String),
    /// It was re-created, but then the release records could not be read, for this reason.
    RecordsUnreadable(String),
}

/// The metadata that identifies an object and its release, and tells who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub id: ObjectId,
    pub uid: String,
    pub resource_version: String,
    pub deleting: bool,
    /// The release that its `meta.helm.sh/*` annotations name.
    pub release: Option<ReleaseId>,
    /// The field managers that wrote the annotation `meta.helm.sh/release-name`: Helm, whatever manager name it used.
    /// Server-side appliers first.
    pub managers: Vec<HelmManager>,
    /// The field managers that wrote anything but the status by create, update or patch, the last one first.
    pub updaters: Vec<String>,
    /// When any field but the status was last written.
    pub touched: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HelmManager {
    pub name: String,
    /// Whether it wrote by server-side apply, else by create or update.
    pub applies: bool,
}

/// A live object of the cluster. May hold secrets: its `Debug` shows only the metadata.
pub struct LiveObject {
    pub sighting: Sighting,
    /// The object without its `managedFields`; `None` if it is nested too deeply to be judged.
    pub object: Option<Value>,
    /// Its `managedFields`, not parsed.
    pub managed: Option<Box<RawValue>>,
}

impl LiveObject {
    pub(crate) fn version(&self) -> ResourceVersion {
        ResourceVersion::parse(&self.sighting.resource_version)
    }

    /// The object with its `managedFields`; `None` if it cannot be read.
    pub fn whole(&self) -> Option<Value> {
        let mut object = self.object.clone()?;
        let managed = self.managed.as_ref().and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        if let (Some(managed), Some(Value::Object(metadata))) = (managed, object.get_mut("metadata")) {
            metadata.insert("managedFields".to_owned(), managed);
        }
        Some(object)
    }
}

impl fmt::Debug for LiveObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveObject").field("sighting", &self.sighting).finish_non_exhaustive()
    }
}
