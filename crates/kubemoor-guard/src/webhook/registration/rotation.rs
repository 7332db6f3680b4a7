//! Creates and shares the callers' secret, and replaces its tokens.
//!
//! Entry point: [`Rotation::run`]. Invariant: a token is registered only after
//! every replica has had the time to accept it, and is forgotten only after no
//! webhook configuration has held it for a while; the leader alone writes what
//! is shared. A leader that begins to write has the token replaced: while nobody did,
//! the API server may have told its address to whom it could not serve. Nothing moves while the emergency switch is off: the
//! configurations that it keeps hold the token of before.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::keep::{Configuration, by_hand};
use super::upkeep::{self, Upkeep};
use super::{NAME, address};
use kubemoor_cluster::client::caller_secret::{Found, Place, PlaceError};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_runtime::callers::kept::{Kept, Turn};
use kubemoor_runtime::callers::{CallerToken, Callers, RandomError};

/// How often the secret is read at most.
const LOOK: Duration = Duration::from_secs(15);

/// The pause until there is a secret.
const WAIT: Duration = Duration::from_secs(1);

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// How long each step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For how long a token is registered.
    life: Duration,
    /// The time that replicas have to accept a new token before it is registered.
    spread: Duration,
    /// How long the old token is accepted after no configuration holds it any more.
    grace: Duration,
    /// How often the secret is read.
    look: Duration,
}

/// Keeps the secret.
pub struct Rotation {
    /// The place where it is stored.
    pub place: Place,
    /// The receiver of the secret.
    pub callers: Callers,
    /// The pace of its tokens; `None` if callers are recognised in another way.
    pub pace: Option<Pace>,
    /// Whether this replica writes.
    pub leadership: Leadership,
    /// Whether the emergency switch is off; `None` while that is not known.
    pub open: watch::Receiver<Option<bool>>,
}

/// The knowledge of this process.
#[derive(Default)]
pub(super) struct RotationState {
    known: Option<Kept>,
    /// Whether this process writes.
    writes: bool,
    /// Whether the token has to be replaced, whatever its age.
    replace: bool,
    /// The time of the last change of the tokens.
    since: Option<Instant>,
    /// The time since which no configuration holds the old token.
    unregistered: Option<Instant>,
}

/// The reason why the secret could not be kept.
#[derive(Debug, Error)]
pub(super) enum RotationError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl Pace {
    /// The pace at which a token is registered for `life`.
    pub fn of(life: Duration) -> Self {
        let step = life / 10;
        Self {
            life,
            spread: step.min(Duration::from_secs(60)),
            grace: step.min(Duration::from_secs(300)),
            look: (life / 40).min(LOOK),
        }
    }
}

impl Upkeep for Rotation {
    type State = RotationState;
    type Error = RotationError;

    fn retry(&self) -> Duration {
        RETRY
    }

    fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    async fn keep(
        &self,
        client: &kube::Client,
        state: &mut RotationState,
    ) -> Result<Duration, RotationError> {
        self.look(client, state).await?;
        Ok(if state.known.is_some() { self.pace.map_or(LOOK, |pace| pace.look) } else { WAIT })
    }

    fn warn(error: &str) {
        tracing::warn!("the secret that callers are known by is not kept, trying again: {error}");
    }
}

impl Rotation {
    /// Keeps the secret until `stop`.
    pub async fn run(self, client: kube::Client, stop: CancellationToken) {
        upkeep::run(&self, &client, &stop).await;
    }

    /// Reads the secret and takes a step that is due.
    async fn look(&self, client: &kube::Client, state: &mut RotationState) -> Result<(), RotationError> {
        // A process that was stopped for a while may still believe that it leads; its writes
        // are then rejected, because others have written since.
        let writes = !self.place.is_shared() || self.leadership.holds();
        let found = match self.place {
            Place::Process => state.known.clone().map(Found::of),
            _ => self.place.read(client).await?,
        };
        let begins = !std::mem::replace(&mut state.writes, writes) && writes;
        let now = Timestamp::now();
        let next = match found.as_ref().and_then(|found| found.kept.clone()) {
            Some(kept) => {
                self.adopt(kept.clone(), state);
                state.replace |= begins;
                if writes { self.step(&kept, client, state, now).await? } else { None }
            }
            None if !writes => None,
            None => {
                if found.as_ref().is_some_and(Found::has_content) || state.known.is_some() {
                    tracing::warn!(
                        "the secret that callers are known by was removed or overwritten, and is made anew"
                    );
                }
                Some(match &state.known {
                    // Its removal has the token replaced, and no edit is lost.
                    Some(known) if self.pace.is_some() => known.announced(now)?,
                    Some(known) => known.clone(),
                    None => Kept::random(now)?,
                })
            }
        };
        // A faster write of another process is found at the next read.
        if let Some(next) = next
            && self.place.write(client, &next, found).await?
        {
            self.adopt(next, state);
        }
        Ok(())
    }

    /// The next step, if it is due.
    async fn step(
        &self,
        kept: &Kept,
        client: &kube::Client,
        state: &mut RotationState,
        now: Timestamp,
    ) -> Result<Option<Kept>, RotationError> {
        let Some(pace) = self.pace else { return Ok(None) };
        if *self.open.borrow() != Some(false) {
            state.unregistered = None;
            return Ok(None);
        }
        let has_lasted =
            |since: Option<Instant>, time: Duration| since.is_some_and(|since| since.elapsed() >= time);
        Ok(match kept.turn() {
            Turn::None if kept.is_due(now, pace.life) || state.replace => {
                state.replace = false;
                tracing::info!("a new token for the webhook's address is announced to all replicas");
                Some(kept.announced(now)?)
            }
            Turn::Announced(_) if has_lasted(state.since, pace.spread) => {
                tracing::info!("the webhook's address gets its new token");
                Some(kept.advanced(now))
            }
            Turn::Replaced(before) => {
                if is_registered(client, before).await {
                    state.unregistered = None;
                } else {
                    state.unregistered.get_or_insert_with(Instant::now);
                }
                if has_lasted(state.unregistered, pace.grace) {
                    tracing::info!("the token before of the webhook's address is accepted no more");
                    Some(kept.advanced(now))
                } else {
                    None
                }
            }
            Turn::None | Turn::Announced(_) => None,
        })
    }

    /// Puts `kept` into use.
    fn adopt(&self, kept: Kept, state: &mut RotationState) {
        kept.sign(&self.callers);
        if self.pace.is_some() {
            kept.admit(&self.callers);
        }
        if !state.known.as_ref().is_some_and(|known| known.stands_as(&kept)) {
            (state.since, state.unregistered) = (Some(Instant::now()), None);
        }
        state.known = Some(kept);
    }
}

/// Whether a webhook configuration still holds `token`, or may.
async fn is_registered(client: &kube::Client, token: &CallerToken) -> bool {
    async fn holds<C: Configuration>(client: &kube::Client, token: &CallerToken) -> bool {
        match by_hand::<C>(client).read(NAME).await {
            Ok(live) => live.is_some_and(|live| {
                live.webhooks().iter().any(|webhook| address::holds(&webhook.client_config, token))
            }),
            Err(_) => true,
        }
    }
    holds::<ValidatingWebhookConfiguration>(client, token).await
        || holds::<MutatingWebhookConfiguration>(client, token).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_pace_is_bounded_and_shrinks_with_the_token_lifetime() {
        let seconds = |pace: Pace| [pace.spread, pace.grace, pace.look].map(|it| it.as_secs_f64());
        assert_eq!(seconds(Pace::of(Duration::from_secs(86_400))), [60.0, 300.0, 15.0]);
        assert_eq!(seconds(Pace::of(Duration::from_secs(20))), [2.0, 2.0, 0.5]);
    }
}
