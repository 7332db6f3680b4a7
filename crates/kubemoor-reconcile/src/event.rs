//! The events that the loop receives and the actions that it requests.
//!
//! Entry points: [`Event`], [`Action`]. Invariant: plain values; the caller that feeds
//! events and does actions needs no knowledge of why. Values of objects are in
//! here for a moment only. Must not decide anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use smol_str::SmolStr;

use super::departure::Departure;
use super::drifts::First;
use super::live::Live;
use super::occurrence::Occurrence;
use super::report::ReleaseReport;
use super::scopes::Scope;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::model::{Cause, ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, Status};
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_policy::order::Ticket;
use kubemoor_policy::settled::Settled;
use kubemoor_policy::suspension::Suspension;
use kubemoor_verdict::circumstances::Circumstances;

/// An input of the loop.
#[derive(Debug)]
pub enum Event {
    /// The present state of a release by its records; `None` if it has no records.
    Release(ReleaseId, Option<GovernedRelease>),
    /// Policies have changed: the policies of these releases, and whether the emergency switch is
    /// off, so that nothing is repaired.
    Policies { policies: Vec<(ReleaseId, Arc<Policy>)>, open: bool },
    /// What is known of an object beside its releases.
    Circumstances(ObjectId, Surroundings),
    /// The scopes to watch, and the kinds (group, kind) that the cluster does not serve.
    Scopes { wanted: BTreeSet<Scope>, unserved: BTreeSet<(String, String)> },
    /// News of a watch.
    Watch(Scope, ObjectNews),
    /// An order of a person or of another part of the program.
    Order(Order),
    /// This replica became the leader, or lost the lead.
    Leads(bool),
    /// The time of the last [`Action::SetTimer`] has come.
    Due,
    /// The loop has to stop: running work is finished, and nothing new begins.
    Stop,
    /// The outcome of an [`Action::Do`].
    Outcome(WorkId, Outcome),
}

/// A release and its policy.
#[derive(Clone, Debug)]
pub struct GovernedRelease {
    pub release: Arc<Release>,
    pub policy: Arc<Policy>,
}

/// What is known of an object beside its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Its allowances and autoscalers.
    pub now: Circumstances,
    /// The time at which it lost its autoscalers.
    pub departed: Option<Departure>,
}

/// The news of a watch.
#[derive(Debug)]
pub enum ObjectNews {
    /// A full listing begins.
    Relisting,
    /// An object of that listing, or one that was created or changed since.
    Object { live: Box<Live>, is_listed: bool },
    /// An object was deleted or lost Helm's label; this was its last version.
    Gone { object: ObjectId, version: String },
    /// The listing is complete.
    Listed,
    /// The watch is established.
    Watching,
    /// The watch failed for this reason and is tried again.
    Broken(Failure),
}

/// An order of a person or of another part of the program to the loop.
#[derive(Clone, Debug)]
pub enum Order {
    /// Suspend the repairs of a release, or resume them.
    Suspend(ReleaseId, Option<Suspension>),
    /// Repair a release now; with the `spec.reconcileAt` that the answer names, and the objects
    /// that the person may write themself.
    Reconcile { release: ReleaseId, at: String, ticket: Option<Arc<Ticket>> },
    /// A dry run of another replica has settled these values of an object.
    Settled(ObjectId, Settled),
    /// The knowledge of an earlier process about a release.
    Remember {
        release: ReleaseId,
        first: First,
        seen: Vec<SeenAlive>,
        contested: Vec<ObjectId>,
        /// The field manager with which Helm writes its objects.
        manager: Option<SmolStr>,
    },
}

/// The identifier of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub(crate) u64);

/// An action that the loop requests.
#[derive(Debug)]
pub enum Action {
    /// Open a watch of these objects, which have Helm's label.
    Watch(Scope),
    /// Close it.
    Unwatch(Scope),
    /// List the objects again.
    Relist,
    /// Do this for an object of this release, and return the outcome.
    Do(WorkId, ReleaseId, Work),
    /// Send [`Event::Due`] at this time; earlier timers are dropped.
    SetTimer(Option<Timestamp>),
    /// Everything that was declared at the start has been listed, or cannot be.
    AllListed,
    /// Publish the present report of a release.
    Report(Box<ReleaseReport>),
    /// Withdraw the report of a release.
    Withdraw(ReleaseId),
    /// Log, count and store this.
    Tell(Occurrence),
    /// Keep the replicas that an autoscaler set before the guard first saw the object.
    InheritReplicas(ObjectId),
    /// Count the replicas that an autoscaler left behind as drift.
    TakeBackReplicas(ObjectId),
    /// A dry run has settled these values of the object.
    Settle(ObjectId, Settled),
}

/// One question to the API server, or one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Read the object, in the version in which a manifest spells it.
    ReadObject { object: ObjectId, version: Arc<str> },
    /// Read a release's records.
    ReadRecords { release: ReleaseId },
    /// Read the object as the manifest of a revision has it.
    ReadDocument { revision: u64, object: ObjectId },
    /// Check whether a namespace is being deleted.
    ReadNamespace { name: String },
    /// Check whether the CustomResourceDefinition of the object's kind is being deleted.
    ReadDefinition { object: ObjectId },
    /// Ask, with a dry run, how the API server would store the object with this uid if a revision's
    /// manifest, which holds this declaration of it, were applied.
    Ask { object: ObjectId, uid: String, revision: u64, digest: Option<Digest> },
    /// Ask whether the API server would accept this as a new object.
    Probe { object: ObjectId, version: Arc<str>, document: Secret },
    /// Write.
    Write { object: ObjectId, version: Arc<str>, write: Write },
}

/// A write. A write to an existing object is bound to the judged version by its body, or to the
/// uid.
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

/// The outcome of a piece of work.
#[derive(Debug)]
pub enum Outcome {
    /// The object, and the version of its kind in which it was read.
    Object { live: Option<Box<Live>>, version: String },
    /// The release as its records describe it.
    Records(Option<GovernedRelease>),
    /// The object as it is in a manifest.
    Document(Document),
    /// Whether the namespace is being deleted.
    Namespace { deleting: bool },
    /// Whether the kind's definition is being deleted; false for a kind without a definition.
    Definition { deleting: bool },
    /// The object as the API server would store it.
    Canonical(Arc<Secret>),
    /// The object after the write; or the object that the API server would accept.
    Written(Secret),
    /// The work failed.
    Failed(Failure),
}

/// An object as it is in the manifest of one revision.
#[derive(Debug)]
pub struct Document {
    pub status: Status,
    pub apply_method: ApplyMethod,
    pub digest: [u8; 32],
    pub object: Option<Secret>,
}

/// The reason why a piece of work failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub fault: Fault,
    /// The message for people.
    pub message: String,
}

/// The kind of a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The cluster does not serve the kind.
    Unserved,
    Forbidden,
    /// This replica does not lead.
    NotLeading,
    NotFound,
    AlreadyExists,
    /// The object was changed meanwhile.
    Conflict,
    /// The namespace is being deleted.
    Terminating,
    /// The API server rejected it: its message, and the fields at fault.
    Invalid {
        said: String,
        causes: Vec<Cause>,
    },
    /// The API server reports that the object cannot have the requested state.
    Refused,
    /// The API server refuses the manifest because of what the live object holds; it would take it as a new object.
    Obstructed,
    /// There is no such record, or no valid one.
    NoRecord,
    /// Any other failure. It is unknown whether a write was done.
    Unanswered,
}

impl Surroundings {
    /// The circumstances of an object of `release`: replicas that an autoscaler left behind stay
    /// until the release changes again.
    pub(crate) fn of(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let departed = self.departed.as_ref().and_then(|it| it.since(release.state.created));
        let mut now = Circumstances { departed, ..self.now.clone() };
        now.allowances.retain(|allowance| allowance.is_for(object, &release.id));
        now
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(withheld)")
    }
}

impl Work {
    /// Whether it changes the cluster.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

impl Outcome {
    /// The object that a write or a probe returned, or its failure.
    pub(crate) fn written(self) -> Result<Value, Failure> {
        match self {
            Self::Written(Secret(value)) => Ok(value),
            Self::Failed(failure) => Err(failure),
            _ => Err(Failure::unanswered("the answer is to another question")),
        }
    }
}

impl Failure {
    /// A failure after which the outcome is unknown.
    pub fn unanswered(message: &str) -> Self {
        Self { fault: Fault::Unanswered, message: message.to_owned() }
    }
}
