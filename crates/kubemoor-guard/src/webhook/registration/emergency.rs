//! The emergency switch: disables the guard until a person arms it again.
//!
//! Entry points: `open`, `close` and `is_open` for the person, `follow` for the guard.
//! Invariant: what counts is one object of the cluster, the marker: a
//! configuration without webhooks, which survives every guard and needs no
//! right that the guard has not. While it says so, nobody writes the webhook
//! configurations; what they were is kept in it, so that arming again brings
//! back the admin's own settings too. Deleting the marker closes the emergency as well.

mod marker;
mod watch;

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use thiserror::Error;

use self::marker::{BY, Markers, OPEN, change, mark, saved, says_open};
pub use self::watch::follow;
use super::NAME;
use super::keep::{Configuration, by_hand};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::identity::own_name;
use kubemoor_cluster::client::writer::SendError;

/// The marker's name.
pub const MARKER: &str = "kubemoor-emergency";

/// The number of tries of a write with conflicts.
const ATTEMPTS: usize = 5;

/// How long `open` checks that no guard restores a configuration because it has not seen the marker
/// yet.
const WATCHED: Duration = Duration::from_secs(3);

/// The interval of these checks.
const LOOK: Duration = Duration::from_millis(200);

/// What [`close`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Nothing had been opened.
    Already,
    /// The configurations are restored.
    Restored,
    /// Their former content is not known: a guard that registers writes them again.
    Empty,
}

/// Everything was opened, or closed again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether everything is open by now.
    pub open: bool,
    /// The user of the command, as the marker names them; may be empty.
    pub by: String,
    /// The reason; may be empty.
    pub reason: String,
    /// The marker's uid: one for each emergency.
    pub emergency: String,
}

/// The reason why the switch failed.
#[derive(Debug, Error)]
pub enum EmergencyError {
    /// Reading failed.
    #[error("cannot read the webhook configurations; the account needs get on them")]
    Read(#[source] CallError),
    /// Writing failed.
    #[error("cannot write the webhook configurations; the account needs create, update and delete on them")]
    Write(#[from] SendError),
    /// Somebody else keeps writing.
    #[error("the webhook configurations changed during each of {ATTEMPTS} attempts to write them: try again")]
    Contested,
}

/// Opens everything for a `reason`: no webhook is called, no guard repairs, until [`close`].
/// Returns how many configurations were removed. May be repeated.
///
/// # Errors
/// When rights are missing, or the API server fails.
pub async fn open(client: &kube::Client, reason: Option<&str>) -> Result<usize, EmergencyError> {
    let [mut had_validating, mut had_mutating] = mark(client, reason).await?;
    let validating = by_hand::<ValidatingWebhookConfiguration>(client);
    let mutating = by_hand::<MutatingWebhookConfiguration>(client);
    let until = tokio::time::Instant::now() + WATCHED;
    loop {
        // A guard that sees the marker deletes them as well.
        had_validating |= validating.delete(NAME, None).await?;
        had_mutating |= mutating.delete(NAME, None).await?;
        if tokio::time::Instant::now() >= until {
            return Ok(usize::from(had_validating) + usize::from(had_mutating));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Arms the guard again: the configurations are restored, and guards judge, repair and register.
/// May be repeated.
///
/// # Errors
/// When rights are missing, or the API server fails.
pub async fn close(client: &kube::Client) -> Result<Armed, EmergencyError> {
    let markers: Markers = by_hand(client);
    let Some(marker) = markers.read(MARKER).await.map_err(EmergencyError::Read)? else {
        return Ok(Armed::Already);
    };
    let saved = saved(&marker);
    let armed =
        if saved.validating.is_some() || saved.mutating.is_some() { Armed::Restored } else { Armed::Empty };
    if let Some(validating) = saved.validating {
        restore(client, validating).await?;
    }
    if let Some(mutating) = saved.mutating {
        restore(client, mutating).await?;
    }
    // While the marker is set, no guard writes, so the restored configurations are not overwritten
    // without the admin's settings. Guards may write from here on; the stored copy is removed last.
    if says_open(&marker) {
        let by = caller(client).await;
        change(&markers, |annotations| {
            annotations.remove(OPEN);
            annotations.insert(BY.to_owned(), by.clone());
        })
        .await?;
    }
    markers.delete(MARKER, None).await?;
    Ok(armed)
}

/// Whether everything is open.
///
/// # Errors
/// When the right to read is missing, or the API server fails.
pub async fn is_open(client: &kube::Client) -> Result<bool, EmergencyError> {
    let marker = by_hand::<ValidatingWebhookConfiguration>(client).read(MARKER).await;
    Ok(marker.map_err(EmergencyError::Read)?.is_some_and(|marker| says_open(&marker)))
}

/// The calling user, as far as the API server tells.
async fn caller(client: &kube::Client) -> String {
    own_name(client, None).await.ok().flatten().unwrap_or_default()
}

/// Restores a configuration. If a guard was faster, its webhooks are replaced by the stored ones:
/// the guard updates its own fields again and leaves the admin's.
async fn restore<C: Configuration>(client: &kube::Client, saved: C) -> Result<(), EmergencyError> {
    let registrations = by_hand::<C>(client);
    for _ in 0..ATTEMPTS {
        let written = match registrations.read(NAME).await.map_err(EmergencyError::Read)? {
            None => registrations.create(&saved).await?,
            Some(mut live) => {
                live.set_webhooks(saved.webhooks());
                registrations.replace(&live).await?
            }
        };
        if written.is_some() {
            return Ok(());
        }
    }
    Err(EmergencyError::Contested)
}
