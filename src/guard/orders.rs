//! What others tell the loop: whether it leads, and what people want.
//!
//! Entry point: [`Orders`]. Invariant: a value that is handed over once. Must
//! not decide anything.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::client::guarded::Remembered;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::agreement::SeenAlive;
use crate::policy::order::Ticket;
use crate::policy::settled::Settled;
use crate::policy::suspension::{Suspended, Suspension};

/// Commands that wait at most; a sender of more waits.
const WAITING: usize = 1024;

/// What the loop is told while it runs.
#[derive(Debug)]
pub struct Orders {
    /// Whether this replica acts. One that does not watches and judges all the
    /// same, so that a hand-over is instant, but writes nothing and reports
    /// nothing as repaired.
    pub leading: watch::Receiver<bool>,
    /// What people and other parts want.
    pub commands: mpsc::Receiver<Command>,
    /// The releases that are left alone from the start, until a command says
    /// otherwise.
    pub suspended: Suspended,
}

/// One wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// From now on the loop leaves the release alone, or, with `None`, no
    /// more. Watching and judging go on.
    Suspend(ReleaseId, Option<Suspension>),
    /// Repair the release now: also where the policy says `Report`, the brake
    /// is on or a pause runs; and what the ticket names also where the live object
    /// was never seen as declared.
    Reconcile {
        /// The release.
        release: ReleaseId,
        /// The `spec.reconcileAt` that the answer names.
        at: String,
        /// What the person may write themself.
        ticket: Option<Arc<Ticket>>,
    },
    /// A dry run of another replica has settled these values of an object.
    Settled(ObjectId, Settled),
    /// What an earlier process knew: the digest of the manifest that was first
    /// seen of a revision, and the objects that were seen alive with the
    /// release's annotations. What went missing while no guard ran is repaired
    /// by this alone.
    Remember {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
        /// The uid of its record, as far as that was known. If the release has
        /// another record of that revision by now, with another manifest, it was
        /// installed anew, and nothing of this counts.
        record: Option<String>,
        /// SHA-256 of its manifest.
        digest: [u8; 32],
        /// The objects, and what they agreed with.
        seen_alive: Vec<SeenAlive>,
        /// Objects that somebody kept changing back: they are not fought over
        /// hot once more.
        contested: Vec<ObjectId>,
    },
}

impl From<Remembered> for Command {
    fn from(remembered: Remembered) -> Self {
        let Remembered { release, revision, record, digest, seen, contested } = remembered;
        Self::Remember { release, revision, record, digest, seen_alive: seen, contested }
    }
}

impl Orders {
    /// Orders, and the ends by which they are given: whether to lead, which
    /// begins as `leading`, and the commands.
    pub fn new(leading: bool) -> (Self, watch::Sender<bool>, mpsc::Sender<Command>) {
        let (lead, leading) = watch::channel(leading);
        let (command, commands) = mpsc::channel(WAITING);
        (Self { leading, commands, suspended: Suspended::new() }, lead, command)
    }
}
