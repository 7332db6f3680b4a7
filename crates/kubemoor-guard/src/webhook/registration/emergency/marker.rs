//! The marker of an emergency: the object with the state of the switch and the stored configurations.
//!
//! Entry points: [`mark`] writes it, [`change`] changes it, [`told`] and [`saved`] read it. Invariant: it stores the
//! newest configurations that were read. Must not write a webhook configuration with webhooks.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::super::NAME;
use super::super::keep::{Configuration, by_hand};
use super::{ATTEMPTS, EmergencyError, MARKER, Turn, caller};
use kubemoor_cluster::client::registrations::Registrations;

/// The marker's annotation while everything is open.
pub(super) const OPEN: &str = "kubemoor.dev/emergency";

/// The marker's annotation that keeps the configurations.
const SAVED: &str = "kubemoor.dev/saved";

/// The most bytes that are kept: all annotations of one object may have 256 KiB.
const SAVED_CAP: usize = 200 << 10;

/// The marker's annotation with the user of the last command. The API server does not guarantee it:
/// its own audit log does.
pub(super) const BY: &str = "kubemoor.dev/by";

/// The marker's annotation with the reason for the emergency.
const REASON: &str = "kubemoor.dev/reason";

/// The stored configurations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Saved {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) validating: Option<ValidatingWebhookConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mutating: Option<MutatingWebhookConfiguration>,
}

pub(super) type Markers = Registrations<ValidatingWebhookConfiguration>;

/// The last turn, by the marker.
pub(super) fn told(marker: &ValidatingWebhookConfiguration) -> Turn {
    let annotations = marker.metadata.annotations.as_ref();
    let text = |name| annotations.and_then(|them| them.get(name)).cloned().unwrap_or_default();
    let emergency = marker.metadata.uid.clone().unwrap_or_default();
    Turn { open: says_open(marker), by: text(BY), reason: text(REASON), emergency }
}

/// Writes the marker, with the configurations as they are. Returns which of them existed: that which validates, and
/// that which mutates.
pub(super) async fn mark(client: &kube::Client, reason: Option<&str>) -> Result<[bool; 2], EmergencyError> {
    let by = caller(client).await;
    let markers: Markers = by_hand(client);
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

pub(super) async fn change(
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

pub(super) fn says_open(marker: &ValidatingWebhookConfiguration) -> bool {
    marker.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OPEN))
}

/// The configurations that a marker stores; none if it is unreadable.
pub(super) fn saved(marker: &ValidatingWebhookConfiguration) -> Saved {
    let text = marker.metadata.annotations.as_ref().and_then(|annotations| annotations.get(SAVED));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
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
