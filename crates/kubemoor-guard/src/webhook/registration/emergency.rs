//! The emergency switch: disables enforcement until a person enables it again.
//!
//! [`follow`] is for the guard, everything else for the command. The state is one object of the cluster, the marker: a
//! configuration without webhooks, which outlives the guards and needs no further permission. While it is set, no guard
//! writes the webhook configurations; their last content is saved in it, so that enabling enforcement also restores the
//! admin's own settings. Deleting the marker enables enforcement too.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::NAME;
use super::keep::{Configuration, registrations_for_command};
use kubemoor_cluster::client::access::own_name;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::registrations::Registrations;
use kubemoor_cluster::client::watch::{ObjectEvent, Typed};
use kubemoor_runtime::telemetry::FailureLog;

pub const MARKER: &str = "kubemoor-emergency";

const ATTEMPTS: usize = 5;

/// How long the command checks that no guard restores a configuration because it has not seen the marker
/// yet.
const WATCHED: Duration = Duration::from_secs(3);

const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableOutcome {
    /// Enforcement was not disabled.
    Already,
    Restored,
    /// The saved content of the configurations is not known: a guard that registers writes them again.
    Empty,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmergencyChange {
    pub enforcement_disabled: bool,
    /// The user of the command, as the marker names them; may be empty.
    pub by: String,
    pub reason: String,
    /// The marker's uid: one for each emergency.
    pub emergency: String,
}

#[derive(Debug, Error)]
pub enum EmergencyError {
    #[error("cannot read the webhook configurations; the account needs get on them")]
    Read(#[source] ClusterError),
    #[error("cannot write the webhook configurations; the account needs create, update and delete on them")]
    Write(#[from] ClusterError),
    #[error("the webhook configurations changed during each of {ATTEMPTS} attempts to write them: try again")]
    Contested,
}

/// Disables enforcement for a `reason`: no webhook is called, no guard repairs, until [`enable_enforcement`].
/// Returns how many configurations were removed. May be repeated.
pub async fn disable_enforcement(
    client: &kube::Client,
    reason: Option<&str>,
) -> Result<usize, EmergencyError> {
    let [mut had_validating, mut had_mutating] = mark(client, reason).await?;
    let validating = registrations_for_command::<ValidatingWebhookConfiguration>(client);
    let mutating = registrations_for_command::<MutatingWebhookConfiguration>(client);
    let until = tokio::time::Instant::now() + WATCHED;
    loop {
        // A guard that sees the marker deletes them too.
        had_validating |= validating.delete(NAME, None).await?;
        had_mutating |= mutating.delete(NAME, None).await?;
        if tokio::time::Instant::now() >= until {
            return Ok(usize::from(had_validating) + usize::from(had_mutating));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Enables enforcement again: the configurations are restored, and guards judge, repair and register.
/// May be repeated.
pub async fn enable_enforcement(client: &kube::Client) -> Result<EnableOutcome, EmergencyError> {
    let markers: Markers = registrations_for_command(client);
    let Some(marker) = markers.read(MARKER).await.map_err(EmergencyError::Read)? else {
        return Ok(EnableOutcome::Already);
    };
    let saved = saved(&marker);
    let armed = if saved.validating.is_some() || saved.mutating.is_some() {
        EnableOutcome::Restored
    } else {
        EnableOutcome::Empty
    };
    if let Some(validating) = saved.validating {
        restore(client, validating).await?;
    }
    if let Some(mutating) = saved.mutating {
        restore(client, mutating).await?;
    }
    // While the marker is set, no guard writes, so the restored configurations are not overwritten
    // without the admin's settings. Guards may write from here on; the stored copy is removed last.
    if is_disabled_by(&marker) {
        let by = caller(client).await;
        update_marker(&markers, |annotations| {
            annotations.remove(OPEN);
            annotations.insert(BY.to_owned(), by.clone());
        })
        .await?;
    }
    markers.delete(MARKER, None).await?;
    Ok(armed)
}

pub async fn is_enforcement_disabled(client: &kube::Client) -> Result<bool, EmergencyError> {
    let marker = registrations_for_command::<ValidatingWebhookConfiguration>(client).read(MARKER).await;
    Ok(marker.map_err(EmergencyError::Read)?.is_some_and(|marker| is_disabled_by(&marker)))
}

async fn caller(client: &kube::Client) -> String {
    own_name(client, None).await.ok().flatten().unwrap_or_default()
}

/// Restores a configuration. If a guard was faster, its webhooks are replaced by the stored ones:
/// the guard updates its own fields again and leaves the admin's.
async fn restore<C: Configuration>(client: &kube::Client, saved: C) -> Result<(), EmergencyError> {
    let registrations = registrations_for_command::<C>(client);
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

const OPEN: &str = "kubemoor.dev/emergency";

const SAVED: &str = "kubemoor.dev/saved";

/// The maximum size of the saved text in bytes: all annotations of one object may have 256 KiB.
const SAVED_CAP: usize = 200 << 10;

/// The marker's annotation with the user of the last command. The API server does not guarantee it:
/// its own audit log does.
const BY: &str = "kubemoor.dev/by";

const REASON: &str = "kubemoor.dev/reason";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Saved {
    #[serde(skip_serializing_if = "Option::is_none")]
    validating: Option<ValidatingWebhookConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutating: Option<MutatingWebhookConfiguration>,
}

type Markers = Registrations<ValidatingWebhookConfiguration>;

fn last_change(marker: &ValidatingWebhookConfiguration) -> EmergencyChange {
    let annotations = marker.metadata.annotations.as_ref();
    let text = |name| annotations.and_then(|them| them.get(name)).cloned().unwrap_or_default();
    let emergency = marker.metadata.uid.clone().unwrap_or_default();
    EmergencyChange {
        enforcement_disabled: is_disabled_by(marker),
        by: text(BY),
        reason: text(REASON),
        emergency,
    }
}

/// Writes the marker, with the current configurations. Returns whether the validating and the mutating one existed.
async fn mark(client: &kube::Client, reason: Option<&str>) -> Result<[bool; 2], EmergencyError> {
    let by = caller(client).await;
    let markers: Markers = registrations_for_command(client);
    for _ in 0..ATTEMPTS {
        let live = markers.read(MARKER).await.map_err(EmergencyError::Read)?;
        let before = live.as_ref().map(saved).unwrap_or_default();
        let (validating, mutating) = (plain(client).await?, plain(client).await?);
        let existed = [validating.is_some(), mutating.is_some()];
        let saved =
            Saved { validating: validating.or(before.validating), mutating: mutating.or(before.mutating) };
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
            return Ok(existed);
        }
    }
    Err(EmergencyError::Contested)
}

async fn update_marker(
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

fn is_disabled_by(marker: &ValidatingWebhookConfiguration) -> bool {
    marker.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OPEN))
}

/// The configurations that a marker stores; empty if it is unreadable.
fn saved(marker: &ValidatingWebhookConfiguration) -> Saved {
    let text = marker.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SAVED));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The live configuration, without the fields that the API server sets.
async fn plain<C: Configuration>(client: &kube::Client) -> Result<Option<C>, EmergencyError> {
    let live = registrations_for_command::<C>(client).read(NAME).await.map_err(EmergencyError::Read)?;
    Ok(live.map(|mut live| {
        let ObjectMeta { name, labels, annotations, .. } = std::mem::take(live.meta_mut());
        *live.meta_mut() = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
        live
    }))
}

/// Publishes through `disabled` whether enforcement is disabled, from the first known state until `stop`.
/// Without the permission to read, it counts as enabled. Calls `keep` for each change.
pub async fn follow(
    client: kube::Client,
    disabled: watch::Sender<Option<bool>>,
    keep: impl Fn(EmergencyChange) + Send,
    stop: CancellationToken,
) {
    let markers: Markers = registrations_for_command(&client);
    let mut events = markers.follow(MARKER);
    let (mut listed, mut turn, mut failures) = (false, EmergencyChange::default(), FailureLog::default());
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        let said = match event {
            // This does not prove yet that the API server answers.
            ObjectEvent::Relisting => {
                listed = false;
                continue;
            }
            ObjectEvent::Watching => {
                failures.note_success();
                continue;
            }
            ObjectEvent::Listed(Typed(marker)) => {
                turn = last_change(&marker);
                listed = turn.enforcement_disabled;
                listed
            }
            ObjectEvent::Synced => {
                failures.note_success();
                listed
            }
            ObjectEvent::Applied(Typed(marker)) => {
                turn = last_change(&marker);
                turn.enforcement_disabled
            }
            ObjectEvent::Deleted(Typed(marker)) => {
                turn = last_change(&marker);
                false
            }
            ObjectEvent::Broken(error) => {
                if failures.note_failure() {
                    tracing::warn!("failed to watch the emergency switch; retrying: {error}");
                }
                if !error.is_forbidden() || disabled.borrow().is_some() {
                    continue;
                }
                false
            }
        };
        let was_disabled = *disabled.borrow() == Some(true);
        if disabled.send_if_modified(|disabled| disabled.replace(said) != Some(said))
            && (said || was_disabled)
        {
            keep(EmergencyChange { enforcement_disabled: said, ..turn.clone() });
        }
    }
}
