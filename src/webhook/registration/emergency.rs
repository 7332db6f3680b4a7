//! The emergency switch: disables the guard until a person arms it again.
//!
//! Entry points: `open`, `close` and `is_open` for the person, `follow` for the guard.
//! Invariant: what counts is one object of the cluster, the marker: a
//! configuration without webhooks, which survives every guard and needs no
//! right that the guard has not. While it says so, nobody writes the webhook
//! configurations; what they were is kept in it, so that arming again brings
//! back the admin's own settings too. Deleting the marker closes the emergency as well.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::NAME;
use super::keep::{Configuration, by_hand};
use crate::client::call::CallError;
use crate::client::identity::own_name;
use crate::client::registrations::{Registrations, is_forbidden};
use crate::client::writer::SendError;
use crate::telemetry::FailureLog;

/// The marker's name.
pub const MARKER: &str = "kubemoor-emergency";

/// The marker's annotation while everything is open.
const OPEN: &str = "kubemoor.dev/emergency";

/// The marker's annotation that keeps the configurations.
const SAVED: &str = "kubemoor.dev/saved";

/// The most bytes that are kept: all annotations of one object may have 256 KiB.
const SAVED_CAP: usize = 200 << 10;

/// The number of tries of a write with conflicts.
const ATTEMPTS: usize = 5;

/// How long `open` checks that no guard restores a configuration because it has not seen the marker
/// yet.
const WATCHED: Duration = Duration::from_secs(3);

/// The interval of these checks.
const LOOK: Duration = Duration::from_millis(200);

/// The marker's annotation with the user of the last command. The API server does not guarantee it:
/// its own audit log does.
const BY: &str = "kubemoor.dev/by";

/// The marker's annotation with the reason for the emergency.
const REASON: &str = "kubemoor.dev/reason";

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

/// The stored configurations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Saved {
    #[serde(skip_serializing_if = "Option::is_none")]
    validating: Option<ValidatingWebhookConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutating: Option<MutatingWebhookConfiguration>,
}

type Markers = Registrations<ValidatingWebhookConfiguration>;

/// Opens everything for a `reason`: no webhook is called, no guard repairs, until [`close`].
/// Returns how many configurations were removed. May be repeated.
///
/// # Errors
/// When rights are missing, or the API server fails.
pub async fn open(client: &kube::Client, reason: Option<&str>) -> Result<usize, EmergencyError> {
    mark(client, reason).await?;
    let validating = by_hand::<ValidatingWebhookConfiguration>(client);
    let mutating = by_hand::<MutatingWebhookConfiguration>(client);
    let until = tokio::time::Instant::now() + WATCHED;
    let mut removed = 0;
    loop {
        removed += usize::from(validating.delete(NAME, None).await?);
        removed += usize::from(mutating.delete(NAME, None).await?);
        if tokio::time::Instant::now() >= until {
            return Ok(removed.min(2));
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

/// Publishes through `open` whether the switch is off, from the first known state until `stop`.
/// Without the permission to read, it counts as armed. Calls `keep` for each turn.
pub async fn follow(
    client: kube::Client,
    open: watch::Sender<Option<bool>>,
    keep: impl Fn(Turn) + Send,
    stop: CancellationToken,
) {
    let markers: Markers = by_hand(&client);
    let mut events = pin!(markers.follow(MARKER));
    let mut listed = false;
    let mut failures = FailureLog::default();
    let mut turn = Turn::default();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        if let Some(Ok(
            watcher::Event::InitApply(marker)
            | watcher::Event::Apply(marker)
            | watcher::Event::Delete(marker),
        )) = &event
        {
            turn = told(marker);
        }
        let said = match event {
            Some(Ok(event)) => match said(event, &mut listed, &mut failures) {
                Some(said) => said,
                None => continue,
            },
            Some(Err(error)) => {
                let forbidden = is_forbidden(&error);
                if failures.note_failure() {
                    let error = anyhow::Error::new(error);
                    tracing::warn!("the emergency switch cannot be watched, trying again: {error:#}");
                }
                if !forbidden || open.borrow().is_some() {
                    continue;
                }
                false
            }
            None => return,
        };
        let was_open = *open.borrow() == Some(true);
        if open.send_if_modified(|open| open.replace(said) != Some(said)) && (said || was_open) {
            keep(Turn { open: said, ..turn.clone() });
        }
    }
}

/// The state of the switch by an event; `None` while a listing begins, which does not prove yet
/// that the API server answers.
fn said(
    event: watcher::Event<ValidatingWebhookConfiguration>,
    listed: &mut bool,
    failures: &mut FailureLog,
) -> Option<bool> {
    let said = match event {
        watcher::Event::Init => {
            *listed = false;
            return None;
        }
        watcher::Event::InitApply(marker) | watcher::Event::Apply(marker) => {
            *listed = says_open(&marker);
            *listed
        }
        watcher::Event::InitDone => *listed,
        watcher::Event::Delete(_) => false,
    };
    failures.note_success();
    Some(said)
}

/// The last turn, by the marker.
fn told(marker: &ValidatingWebhookConfiguration) -> Turn {
    let annotations = marker.metadata.annotations.as_ref();
    let text = |name| annotations.and_then(|them| them.get(name)).cloned().unwrap_or_default();
    let emergency = marker.metadata.uid.clone().unwrap_or_default();
    Turn { open: says_open(marker), by: text(BY), reason: text(REASON), emergency }
}

/// The calling user, as far as the API server tells.
async fn caller(client: &kube::Client) -> String {
    own_name(client, None).await.ok().flatten().unwrap_or_default()
}

/// Writes the marker, with the configurations as they are.
async fn mark(client: &kube::Client, reason: Option<&str>) -> Result<(), EmergencyError> {
    let by = caller(client).await;
    let markers: Markers = by_hand(client);
    for _ in 0..ATTEMPTS {
        let live = markers.read(MARKER).await.map_err(EmergencyError::Read)?;
        let before = live.as_ref().map(saved).unwrap_or_default();
        let saved = Saved {
            validating: plain(client).await?.or(before.validating),
            mutating: plain(client).await?.or(before.mutating),
        };
        let is_new = live.is_none();
        let mut marker = live.unwrap_or_else(|| ValidatingWebhookConfiguration {
            metadata: ObjectMeta { name: Some(MARKER.to_owned()), ..ObjectMeta::default() },
            ..ValidatingWebhookConfiguration::default()
        });
        let annotations = marker.metadata.annotations.get_or_insert_default();
        annotations.insert(OPEN.to_owned(), "off".to_owned());
        annotations.insert(BY.to_owned(), by.clone());
        annotations.extend(reason.map(|reason| (REASON.to_owned(), reason.to_owned())));
        // The switch works even without a stored copy.
        if let Some(text) = serde_json::to_string(&saved).ok().filter(|text| text.len() <= SAVED_CAP) {
            annotations.insert(SAVED.to_owned(), text);
        }
        let written = if is_new { markers.create(&marker).await? } else { markers.replace(&marker).await? };
        if written.is_some() {
            return Ok(());
        }
    }
    Err(EmergencyError::Contested)
}

/// A configuration as it is, without what the API server sets.
async fn plain<C: Configuration>(client: &kube::Client) -> Result<Option<C>, EmergencyError> {
    let live = by_hand::<C>(client).read(NAME).await.map_err(EmergencyError::Read)?;
    Ok(live.map(|mut live| {
        let meta = live.meta_mut();
        *meta = ObjectMeta {
            name: meta.name.take(),
            labels: meta.labels.take(),
            annotations: meta.annotations.take(),
            ..ObjectMeta::default()
        };
        live
    }))
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

async fn change(
    markers: &Markers,
    change: impl Fn(&mut std::collections::BTreeMap<String, String>),
) -> Result<(), EmergencyError> {
    for _ in 0..ATTEMPTS {
        let Some(mut marker) = markers.read(MARKER).await.map_err(EmergencyError::Read)? else {
            return Ok(());
        };
        change(marker.metadata.annotations.get_or_insert_default());
        if markers.replace(&marker).await?.is_some() {
            return Ok(());
        }
    }
    Err(EmergencyError::Contested)
}

fn says_open(marker: &ValidatingWebhookConfiguration) -> bool {
    marker.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OPEN))
}

/// The configurations that a marker stores; none if it is unreadable.
fn saved(marker: &ValidatingWebhookConfiguration) -> Saved {
    let text = marker.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SAVED));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_logged_again_once_the_switch_was_read() {
        let read = |event| {
            let mut failures = FailureLog::default();
            assert!(failures.note_failure());
            said(event, &mut false, &mut failures);
            failures.note_failure()
        };
        let marker = ValidatingWebhookConfiguration::default;
        assert!(!read(watcher::Event::Init), "a listing that begins may fail");
        for event in [
            watcher::Event::InitApply(marker()),
            watcher::Event::InitDone,
            watcher::Event::Apply(marker()),
            watcher::Event::Delete(marker()),
        ] {
            assert!(read(event));
        }
    }
}
