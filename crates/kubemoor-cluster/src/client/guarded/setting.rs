//! The settings that a user makes in a GuardedRelease.
//!
//! Entry point: [`set`]. Invariant: only the named fields change, with the rights of the user.

use std::time::Duration;

use kube::core::params::{Patch, PatchParams};
use serde_json::json;

use super::super::call::{self, BODY_CAP, CallError};
use super::super::resource::segment;
use super::requests;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::suspension::Suspension;

/// A setting that a user makes in a GuardedRelease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Leave it alone.
    Suspend(Suspension),
    /// Leave it alone no more.
    Resume,
    /// Repair it now; the time makes it another request than the last.
    Reconcile(String),
}

/// Changes a setting in the GuardedRelease of a release; returns the API server's warnings.
///
/// # Errors
/// When the API server gives no usable answer; not found where there is no GuardedRelease.
pub async fn set(
    client: &kube::Client,
    release: &ReleaseId,
    setting: &Setting,
    within: Duration,
) -> Result<Vec<String>, CallError> {
    let spec = match setting {
        Setting::Suspend(Suspension { until, reason }) => json!({
            "suspend": true,
            "suspendUntil": until.map(|until| until.to_string()),
            "suspendReason": Some(reason).filter(|reason| !reason.is_empty()),
        }),
        Setting::Resume => json!({"suspend": null, "suspendUntil": null, "suspendReason": null}),
        Setting::Reconcile(at) => json!({"reconcileAt": at}),
    };
    let request = requests(Some(&release.namespace))?.patch(
        &segment(&release.name)?,
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": spec})),
    )?;
    call::send_warned(client, request, BODY_CAP, within).await.map(|(_, warnings)| warnings)
}
