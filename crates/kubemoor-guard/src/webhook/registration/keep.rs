//! Writes a webhook configuration, keeps it, and withdraws it.
//!
//! Entry points: [`maintain`] for as long as the guard runs, [`keep`] once,
//! [`withdraw`] for good; each for configurations that validate and for those
//! that mutate. Invariant: when nothing of Kubemoor's own changed,
//! nothing is written.
//!
//! A configuration deleted by accident comes back, with the admin's settings as this process saw them last. One that
//! was withdrawn does not: it carries an annotation when it goes, which the watch still delivers.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::known::Known;
use self::watched::{Next, WITHDRAWN, WatchState, is_withdrawn};
use super::{NAME, address};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::registrations::Registrations;
use kubemoor_cluster::client::watch::Event;
use kubemoor_cluster::client::writer::SendError;

pub use self::kinds::Configuration;
pub use self::known::OutsideChange;
pub(super) use self::merging::merge;

mod conditions;
mod kinds;
mod known;
mod merging;
mod watched;

/// The number of tries of a write with conflicts.
const ATTEMPTS: usize = 5;

/// The wait of [`maintain`] after a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// The desired state of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum DesiredState<C> {
    /// Nothing is known yet: it is left as it is.
    Unknown,
    /// It has to have this content.
    Present(C),
    /// It is deleted once, if it is there: a leader that had not seen the marker of an emergency may have created it
    /// again. After that it is left as it is.
    Absent,
}

/// The result of keeping the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was absent and has been created.
    Created,
    /// Own fields differed and were written.
    Updated,
    /// Nothing differed, nothing was written.
    Unchanged,
    /// It is being withdrawn; nothing was written.
    Withdrawn,
    /// It is absent and must not be created; nothing was written.
    Absent,
}

/// Why the configuration could not be kept or withdrawn.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// Reading it failed.
    #[error("cannot read the {0} {NAME}; the account needs get on it")]
    Get(&'static str, #[source] CallError),
    /// Writing it failed.
    #[error("cannot write the {0} {NAME}; the account needs create and update")]
    Write(&'static str, #[source] SendError),
    /// Deleting it failed.
    #[error("cannot delete the {0} {NAME}; the account needs update and delete")]
    Delete(&'static str, #[source] SendError),
    /// Another writer keeps changing it.
    #[error("the {0} {NAME} changed during each of {ATTEMPTS} attempts to write it")]
    Contested(&'static str),
}

/// The outcome of bringing the configuration into its desired state.
enum ReconcileOutcome {
    Done,
    /// It has to be tried again.
    Failed,
    Withdrawn,
}

/// Keeps the configuration equal to `desired` until `stop`: at the start, on each change of
/// `desired`, and when another writer changes or deletes it. While nothing is known (the guard is
/// not ready, or does not lead) nothing is changed. While this replica leads, `tell` receives the
/// changes by others. Returns early only when the configuration is withdrawn.
pub async fn maintain<C: Configuration>(
    client: kube::Client,
    mut desired: watch::Receiver<DesiredState<C>>,
    (leadership, tell): (Leadership, impl Fn(OutsideChange)),
    stop: CancellationToken,
) {
    let registrations = Registrations::<C>::new(client, leadership.clone());
    let mut events = registrations.follow(NAME);
    let mut state = WatchState::new();
    let tell_all = |state: &mut WatchState<C>| match state.leads && leadership.holds() {
        true => state.known.take_changes().into_iter().for_each(&tell),
        false => state.known.set_aside(Instant::now()),
    };
    loop {
        let wanted = desired.borrow_and_update().clone();
        // A process that was stopped for a while may have an outdated desired state.
        let outcome = if leadership.holds() {
            reconcile(&registrations, wanted, &mut state).await
        } else {
            state.leads = false;
            ReconcileOutcome::Done
        };
        tell_all(&mut state);
        let again = match outcome {
            ReconcileOutcome::Done => false,
            ReconcileOutcome::Failed => true,
            ReconcileOutcome::Withdrawn => return stand_down::<C>(),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = desired.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = tokio::time::sleep(RETRY), if again => break,
                event = events.next() => {
                    if let Event::Broken(error) = &event {
                        tracing::warn!("the webhook configuration cannot be watched, trying again: {error}");
                    }
                    let next = state.after(event);
                    tell_all(&mut state);
                    match next {
                        Next::Wait => {}
                        Next::Keep => break,
                        Next::StandDown => return stand_down::<C>(),
                    }
                }
            }
        }
    }
}

/// Writes the fields of the configuration that differ from `desired`.
pub async fn keep<C: Configuration>(
    client: &kube::Client,
    desired: &C,
) -> Result<WriteOutcome, RegistrationError> {
    write(&by_hand(client), desired, true, &mut Known::new()).await
}

/// Removes the configuration, so that a running guard does not write it again.
/// Returns whether there was one.
pub async fn withdraw<C: Configuration>(client: &kube::Client) -> Result<bool, RegistrationError> {
    let registrations = by_hand::<C>(client);
    let failed = |error| RegistrationError::Delete(C::KIND, error);
    for _ in 0..ATTEMPTS {
        let Some(mut live) = read(&registrations).await? else { return Ok(false) };
        let annotations = live.meta_mut().annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), "true".to_owned());
        let Some(marked) = registrations.replace(&live).await.map_err(failed)? else { continue };
        if registrations.delete(NAME, Some(&marked)).await.map_err(failed)? {
            return Ok(true);
        }
    }
    Err(RegistrationError::Contested(C::KIND))
}

/// Those that a command writes, whether this process leads or not.
pub(super) fn by_hand<C: Configuration>(client: &kube::Client) -> Registrations<C> {
    Registrations::new(client.clone(), Leadership::alone())
}

async fn reconcile<C: Configuration>(
    registrations: &Registrations<C>,
    desired: DesiredState<C>,
    state: &mut WatchState<C>,
) -> ReconcileOutcome {
    let wanted = match desired {
        DesiredState::Present(wanted) => wanted,
        DesiredState::Absent => return clear(registrations, state).await,
        DesiredState::Unknown => return ReconcileOutcome::Done,
    };
    state.is_cleared = false;
    let written = write(registrations, &wanted, state.may_create, &mut state.known).await;
    if !std::mem::replace(&mut state.leads, true) {
        state.known.take_over(Instant::now());
    }
    match written {
        Ok(WriteOutcome::Withdrawn) => return ReconcileOutcome::Withdrawn,
        Ok(outcome) => {
            state.may_create = false;
            if let WriteOutcome::Created | WriteOutcome::Updated = outcome {
                let kind = C::KIND;
                tracing::info!(registration.kept = ?outcome, "the {kind} {NAME} was written");
            }
        }
        Err(RegistrationError::Write(_, SendError::NotLeading)) => {}
        Err(error) => {
            let error = address::veil(&format!("{:#}", anyhow::Error::new(error)));
            tracing::warn!("the webhook configuration is not kept, trying again: {error}");
            return ReconcileOutcome::Failed;
        }
    }
    ReconcileOutcome::Done
}

/// Deletes the configuration, unless that was done since it was last kept.
async fn clear<C: Configuration>(
    registrations: &Registrations<C>,
    state: &mut WatchState<C>,
) -> ReconcileOutcome {
    if state.is_cleared {
        return ReconcileOutcome::Done;
    }
    // One that a person restores meanwhile, because the emergency is over, is another one or another version.
    let deleted = match registrations.read(NAME).await {
        Ok(Some(live)) => registrations.delete(NAME, Some(&live)).await.map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    state.is_cleared = matches!(deleted, Ok(None | Some(true)));
    match deleted {
        Ok(Some(true)) => tracing::info!("the {} {NAME} was deleted, because the emergency is open", C::KIND),
        Ok(Some(false)) => return ReconcileOutcome::Failed,
        Ok(None) | Err(SendError::NotLeading) => {}
        Err(error) => {
            tracing::warn!("the webhook configuration is not deleted, trying again: {error}");
            return ReconcileOutcome::Failed;
        }
    }
    ReconcileOutcome::Done
}

/// Writes what differs.
async fn write<C: Configuration>(
    registrations: &Registrations<C>,
    desired: &C,
    may_create: bool,
    known: &mut Known<C>,
) -> Result<WriteOutcome, RegistrationError> {
    for _ in 0..ATTEMPTS {
        let live = read(registrations).await?;
        match &live {
            Some(live) if !is_withdrawn(live) => known.meet(live),
            // A listing may be older than this answer.
            None if may_create => known.note_gone("deleted"),
            _ => {}
        }
        let (written, outcome) = match live {
            None if !may_create => return Ok(WriteOutcome::Absent),
            None => (registrations.create(&revived(known.last(), desired)).await, WriteOutcome::Created),
            Some(live) if is_withdrawn(&live) => return Ok(WriteOutcome::Withdrawn),
            Some(live) => match merge(&live, desired) {
                None => return Ok(WriteOutcome::Unchanged),
                Some(merged) => (registrations.replace(&merged).await, WriteOutcome::Updated),
            },
        };
        if let Some(written) = written.map_err(|error| RegistrationError::Write(C::KIND, error))? {
            known.note_own(&written);
            return Ok(outcome);
        }
    }
    Err(RegistrationError::Contested(C::KIND))
}

/// The desired configuration with the admin's settings of the last one.
fn revived<C: Configuration>(last: Option<&C>, desired: &C) -> C {
    let Some(last) = last else { return desired.clone() };
    let mut revived = merge(last, desired).unwrap_or_else(|| last.clone());
    let ObjectMeta { name, labels, annotations, .. } = std::mem::take(revived.meta_mut());
    *revived.meta_mut() = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    revived
}

async fn read<C: Configuration>(registrations: &Registrations<C>) -> Result<Option<C>, RegistrationError> {
    registrations.read(NAME).await.map_err(|error| RegistrationError::Get(C::KIND, error))
}

fn stand_down<C: Configuration>() {
    let kind = C::KIND;
    tracing::warn!(
        "the {kind} {NAME} was withdrawn: edits are no longer judged until the guard starts again, 10 minutes later at the earliest"
    );
}
