//! The inputs of the loop from other parts: whether it leads, and the commands of people.
//!
//! Entry point: [`Orders`]. Invariant: a value that is handed over once. Must
//! not decide anything.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use kubemoor_cluster::client::guarded::Remembered;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_policy::order::Ticket;
use kubemoor_policy::settled::Settled;
use kubemoor_policy::suspension::{Suspended, Suspension};

/// Commands that wait at most; a sender of more waits.
const WAITING: usize = 1024;

/// The inputs of the running loop.
#[derive(Debug)]
pub struct Orders {
    /// Whether this replica acts. A replica that does not act still watches and judges, so that a
    /// hand-over is instant, but writes nothing and reports nothing as repaired.
    pub leading: watch::Receiver<bool>,
    /// The commands of people and of other parts of the program.
    pub commands: mpsc::Receiver<Command>,
    /// The releases whose repairs are suspended from the start, until a command resumes them.
    pub suspended: Suspended,
}

/// A command to the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Suspends the repairs of a release, or resumes them with `None`. Watching and judging go on.
    Suspend(ReleaseId, Option<Suspension>),
    /// Repairs the release now, even if the policy's mode is `Report`, the brake is on or repairs
    /// are suspended. Objects of the ticket are repaired even if the live object was never seen as
    /// declared.
    Reconcile {
        /// The release.
        release: ReleaseId,
        /// The `spec.reconcileAt` that the answer names.
        at: String,
        /// The objects that the person may write themself.
        ticket: Option<Arc<Ticket>>,
    },
    /// A dry run of another replica has settled these values of an object.
    Settled(ObjectId, Settled),
    /// The knowledge of an earlier process: the digest of the first seen manifest of a revision,
    /// and the objects that were seen alive with the release's annotations. Only by this the guard
    /// repairs objects that went missing while no guard ran.
    Remember {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
        /// The uid of its record, if it was known. If the release has another record of that
        /// revision now, with another manifest, it was installed again, and this knowledge has no
        /// effect.
        record: Option<String>,
        /// SHA-256 of its manifest.
        digest: [u8; 32],
        /// The objects, and what they agreed with.
        seen_alive: Vec<SeenAlive>,
        /// Objects with contested repairs: they wait before another repair.
        contested: Vec<ObjectId>,
        /// The field manager with which Helm writes the release's objects.
        manager: Option<String>,
    },
}

impl From<Remembered> for Command {
    fn from(remembered: Remembered) -> Self {
        let Remembered { release, revision, record, digest, seen, contested, manager } = remembered;
        Self::Remember { release, revision, record, digest, seen_alive: seen, contested, manager }
    }
}

impl Orders {
    /// Creates orders and their senders: one for the lead, which begins as `leading`, and one for
    /// commands.
    pub fn new(leading: bool) -> (Self, watch::Sender<bool>, mpsc::Sender<Command>) {
        let (lead, leading) = watch::channel(leading);
        let (command, commands) = mpsc::channel(WAITING);
        (Self { leading, commands, suspended: Suspended::new() }, lead, command)
    }
}
