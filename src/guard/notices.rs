//! Tells notifiers what the loop finds and does.
//!
//! Entry point: [`Teller::run`]. Invariant: nobody waits for a receiver; what was told to begin is
//! told to end, also where the guard did not end it. What lasts is kept by `standing`, which is
//! pure. Must not decide who is told.

mod standing;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use self::standing::Standing;
use super::state::State;
use crate::metrics::NoticeMetrics;
use crate::notify::Notifiers;
use crate::policy::resolver::PolicyResolver;

/// What tells notifiers.
pub struct Teller {
    /// Where happenings and reports come from.
    pub state: Arc<State>,
    /// Who is told.
    pub notifiers: Notifiers,
    /// The policies, which name the notifiers of a release.
    pub resolver: Arc<PolicyResolver>,
    /// Where it is counted.
    pub metrics: NoticeMetrics,
}

impl Teller {
    /// Tells until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        if !self.notifiers.have_receivers() {
            return stop.cancelled().await;
        }
        let (mut happenings, changes) = (self.state.happenings(), self.state.changes());
        let mut standing = Standing::default();
        loop {
            let messages = tokio::select! {
                // A happening that came before a report is told before it.
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
                let policy = message.release.as_ref().map(|release| self.resolver.of(release));
                let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
                self.notifiers.send(names, message);
            }
        }
    }
}
