//! What the loop is told and what it wants done.
//!
//! Entry points: [`Event`], [`Action`]. Invariant: plain values; the caller that feeds
//! events and does actions needs no knowledge of why. Values of objects are in
//! here for a moment only. Must not decide anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::departure::Departure;
use super::drifts::First;
use super::live::Live;
use super::report::ReleaseReport;
use super::scopes::Scope;
use super::told::Told;
use crate::declaration::digest::Digest;
use crate::helm::record::{ApplyMethod, Status};
use crate::helm::release::Release;
use crate::model::{Cause, ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::agreement::SeenAlive;
use crate::policy::order::Ticket;
use crate::policy::settled::Settled;
use crate::policy::suspension::Suspension;
use crate::verdict::circumstances::Circumstances;

/// Something that the loop learns.
#[derive(Debug)]
pub(crate) enum Event {
    /// The records of a release say this by now; none: there are none.
    Release(ReleaseId, Option<Ruled>),
    /// Policies have changed: those of these releases are now these; and whether the
    /// emergency switch is off, so that nothing is repaired.
    Policies { policies: Vec<(ReleaseId, Arc<Policy>)>, open: bool },
    /// What is known of an object beside its releases.
    Circumstances(ObjectId, Surroundings),
    /// What is to be watched, and the kinds (group, kind) that nobody serves.
    Scopes { wanted: BTreeSet<Scope>, unserved: BTreeSet<(String, String)> },
    /// A watch tells something.
    Watch(Scope, Tidings),
    /// A person or another part of the program wants something.
    Order(Order),
    /// This replica leads from now on, or no more.
    Leads(bool),
    /// The time that the last [`Action::SetTimer`] named has come.
    Due,
    /// The loop is to stop: what is under way is finished, and nothing is begun.
    Stop,
    /// This came of [`Action::Do`].
    Outcome(Errand, Outcome),
}

/// A release and the policy that it is under.
#[derive(Clone, Debug)]
pub(crate) struct Ruled {
    pub(crate) release: Arc<Release>,
    pub(crate) policy: Arc<Policy>,
}

/// What is known of an object beside its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Surroundings {
    /// Allowances for it, and autoscalers that scale it.
    pub(crate) now: Circumstances,
    /// When its autoscalers went.
    pub(crate) departed: Option<Departure>,
}

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum Tidings {
    /// A full listing begins.
    Relisting,
    /// An object of that listing, or one that has come or changed since.
    Object { live: Box<Live>, is_listed: bool },
    /// An object went, or lost Helm's label; it had this version last.
    Gone { object: ObjectId, version: String },
    /// The listing is whole.
    Listed,
    /// The watch stands.
    Watching,
    /// The watch cannot be had, for this reason, and is tried again.
    Broken(Failure),
}

/// What people and other parts of the program want.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Leave a release alone from now on, or no more.
    Suspend(ReleaseId, Option<Suspension>),
    /// Repair a release now; the `spec.reconcileAt` that the answer names, and
    /// what the person may write themself.
    Reconcile { release: ReleaseId, at: String, ticket: Option<Arc<Ticket>> },
    /// A dry run of another replica has settled these values of an object.
    Settled(ObjectId, Settled),
    /// What an earlier process knew of a release.
    Remember { release: ReleaseId, first: First, seen: Vec<SeenAlive>, contested: Vec<ObjectId> },
}

/// What tells one piece of work from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Errand(pub(crate) u64);

/// Something that is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Open a watch of these objects, which have Helm's label.
    Watch(Scope),
    /// Close it.
    Unwatch(Scope),
    /// List everything anew.
    Relist,
    /// Do this, for an object of this release, and bring back what came of it.
    Do(Errand, ReleaseId, Work),
    /// Come back at this time with [`Event::Due`]; earlier times are forgotten.
    SetTimer(Option<Timestamp>),
    /// Everything that was declared at the start has been listed, or cannot be.
    AllListed,
    /// This is known of a release now.
    Report(Box<ReleaseReport>),
    /// Nothing is known of a release any more.
    Withdraw(ReleaseId),
    /// Tell people of it, count it, keep it.
    Tell(Told),
    /// What its autoscaler left behind before anybody looked stays as well.
    InheritReplicas(ObjectId),
    /// What its autoscaler left behind counts as drift.
    TakeBackReplicas(ObjectId),
    /// A dry run has settled these values of the object.
    Settle(ObjectId, Settled),
}

/// One question to the API server, or one write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    /// Read the object, in the version in which a manifest spells it.
    ReadObject { object: ObjectId, version: Arc<str> },
    /// Read a release's records.
    ReadRecords { release: ReleaseId },
    /// Read the object as the manifest of a revision has it.
    ReadDocument { revision: u64, object: ObjectId },
    /// Look whether a namespace is being deleted.
    ReadNamespace { name: String },
    /// Look whether the CustomResourceDefinition of the object's kind is being deleted.
    ReadDefinition { object: ObjectId },
    /// Ask how the API server would hold the object of this uid if a revision's manifest
    /// were applied, which declares this of it.
    Ask { object: ObjectId, uid: String, revision: u64, digest: Option<Digest> },
    /// Ask whether the API server would take this as a new object.
    Probe { object: ObjectId, version: Arc<str>, document: Secret },
    /// Write.
    Write { object: ObjectId, version: Arc<str>, write: Write },
}

/// A write. One to an object that exists is bound to the version of it that was
/// judged, by its body, or to its uid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Create { document: Secret, manager: String },
    Apply { document: Secret, manager: String },
    Merge { patch: Secret, manager: String },
    Delete { uid: String },
}

/// A body that may hold values of a Secret: its `Debug` shows nothing.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret(pub(crate) Value);

/// What came of a piece of work.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The object, and the version of its kind in which it was read.
    Object { live: Option<Box<Live>>, version: String },
    /// The release as its records say.
    Records(Option<Ruled>),
    /// The object as a manifest has it.
    Document(Document),
    /// Whether the namespace is being deleted.
    Namespace { deleting: bool },
    /// Whether the kind's definition is being deleted; a kind that has none is not.
    Definition { deleting: bool },
    /// How the API server would hold the object.
    Canonical(Arc<Secret>),
    /// It was written, and is this by now; or the API server would take it.
    Written(Secret),
    /// Nothing came of it.
    Failed(Failure),
}

/// An object as the manifest of one revision has it.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) status: Status,
    pub(crate) apply_method: ApplyMethod,
    pub(crate) digest: [u8; 32],
    pub(crate) object: Option<Secret>,
}

/// Why nothing came of a piece of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    /// As people are told.
    pub(crate) message: String,
}

/// What kind of failure it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Nobody serves the kind.
    Unserved,
    Forbidden,
    /// This replica does not lead.
    NotLeading,
    NotFound,
    AlreadyExists,
    /// Somebody wrote meanwhile.
    Conflict,
    /// The namespace is being deleted.
    Terminating,
    /// The API server does not take it: what it said, and the fields at fault.
    Invalid {
        said: String,
        causes: Vec<Cause>,
    },
    /// The API server says that the object cannot be what was asked for.
    Refused,
    /// There is no such record, or none that can be believed.
    NoRecord,
    /// Anything else. Nobody knows whether a write was done.
    Unanswered,
}

impl Surroundings {
    /// What holds for an object of `release`: replicas that an autoscaler left
    /// behind stay until the release is written next.
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
    /// The outcome of a write or a probe, or why there is none.
    pub(crate) fn written(self) -> Result<Value, Failure> {
        match self {
            Self::Written(Secret(value)) => Ok(value),
            Self::Failed(failure) => Err(failure),
            _ => Err(Failure::unanswered("the answer is to another question")),
        }
    }
}

impl Failure {
    /// Nobody knows what came of it.
    pub(crate) fn unanswered(message: &str) -> Self {
        Self { fault: Fault::Unanswered, message: message.to_owned() }
    }
}
