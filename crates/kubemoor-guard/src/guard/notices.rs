//! Tells notifiers what the loop finds and does, and the ledger which drift ended without a repair.
//!
//! Entry point: [`Teller::run`]. Invariant: the loop never waits for a receiver; every condition
//! whose beginning was announced also gets an end, even if the guard did not end it. The pure
//! module `standing` keeps open conditions. Must not choose the receivers.

mod standing;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use self::standing::Standing;
use super::state::State;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{GuardedObject, Repaired, Row};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Message, Subject};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::metrics::NoticeMetrics;

/// Sends messages to notifiers.
pub struct Teller {
    /// The source of happenings and reports.
    pub state: Arc<State>,
    /// The receivers.
    pub notifiers: Notifiers,
    /// The policies, which name the notifiers of a release.
    pub resolver: Arc<PolicyResolver>,
    /// The metrics of messages.
    pub metrics: NoticeMetrics,
    /// Where the end of a drift is kept.
    pub ledger: Ledger,
    /// Only the leader keeps it: the others do not repair, so they do not know who did.
    pub leadership: Leadership,
}

impl Teller {
    /// Sends messages until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (mut happenings, changes) = (self.state.happenings(), self.state.changes());
        let mut standing = Standing::default();
        loop {
            let messages = tokio::select! {
                // A happening is sent before a later report.
                biased;
                () = stop.cancelled() => return,
                happening = happenings.recv() => match happening {
                    Ok(happening) => standing.happened(&happening, Timestamp::now()),
                    Err(RecvError::Lagged(missed)) => {
                        self.metrics.missed(missed);
                        continue;
                    }
                    Err(RecvError::Closed) => return,
                },
                release = changes.next() => {
                    standing.reported(&release, self.state.of(&release).as_deref(), Timestamp::now())
                }
            };
            for message in messages {
                self.keep(&message);
                let policy = message.release.as_ref().map(|release| self.resolver.of(release));
                let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.notifiers.send_in_turn(names, message) => {}
                }
            }
        }
    }
    /// Keeps that a drift ended, and the guard did not end it.
    fn keep(&self, message: &Message) {
        let Message { subject: Subject::DriftEnded, since, at, .. } = *message else { return };
        let Some(((release, revision), object)) =
            message.release.as_ref().zip(message.revision).zip(message.object.as_ref())
        else {
            return;
        };
        if self.leadership.holds() {
            let of = GuardedObject { release, revision, object };
            let detail = format!("it drifted since {since}, and the guard did not repair it");
            self.ledger.record(Row::repair(at, of, Repaired::Ended, Vec::new(), &detail));
        }
    }
}
