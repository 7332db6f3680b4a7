//! The webhook configuration on a real API server, kept with the rights that
//! `deploy/` gives the guard. It is one object per cluster, hence a control
//! plane of its own.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::client::lease::Leadership;
use kubemoor_guard::webhook::registration::keep::{DesiredState, WriteOutcome, keep, maintain, withdraw};
use kubemoor_guard::webhook::registration::{
    NAME, WebhookAddress, WebhookResource, WebhookSettings, configuration,
};
use kubemoor_runtime::config::{Endpoint, RecordDriver};

use crate::support::{ControlPlane, Identity, SOON, eventually, soon};

fn desired(plurals: &[&str]) -> ValidatingWebhookConfiguration {
    let resource = |plural: &&str| WebhookResource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural: (*plural).to_owned(),
        scale: true,
    };
    let endpoint = Endpoint::Url("https://127.0.0.1:1".parse().unwrap());
    let ca = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let surface = WebhookSettings {
        endpoint: &endpoint,
        address: WebhookAddress::Bare,
        ca_bundle: Some(ca.as_bytes()),
        own_namespace: Some("kubemoor-system"),
        record_driver: RecordDriver::Secret,
        select_all: false,
        reverts: false,
        conditions: false,
    };
    configuration(&plurals.iter().map(resource).collect::<BTreeSet<_>>(), &surface)
}

fn configurations(client: &Client) -> Api<ValidatingWebhookConfiguration> {
    Api::all(client.clone())
}

/// The writes of the webhook configuration by the guard so far.
fn writes(control_plane: &ControlPlane) -> usize {
    let by_guard = |event: &serde_json::Value| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "validatingwebhookconfigurations"
            && !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default())
    };
    control_plane
        .audit_events(&[Identity::Guard.user(), "validatingwebhookconfigurations"])
        .iter()
        .filter(|event| by_guard(event))
        .count()
}

/// Gives each webhook settings of the admin's own.
async fn set_knobs(
    live: &Api<ValidatingWebhookConfiguration>,
    configuration: &ValidatingWebhookConfiguration,
) {
    let knobs: Vec<_> = configuration
        .webhooks
        .iter()
        .flatten()
        .map(|webhook| json!({"name": webhook.name, "failurePolicy": "Fail", "timeoutSeconds": 9}))
        .collect();
    let patch = Patch::Strategic(json!({"webhooks": knobs}));
    live.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_configuration_is_maintained_and_withdrawn_with_guards_rights() {
    let control_plane = ControlPlane::start();
    control_plane.apply_deploy(&["namespace.yaml", "rbac.yaml"]).await;
    let guard = control_plane.client(Identity::Guard).await;
    let admin = control_plane.client(Identity::Admin).await;
    let live = configurations(&admin);

    // Once written, it is left alone: also in the form that the server gives it.
    let first = desired(&["deployments"]);
    let created = eventually("the guard has its rights", SOON, || keep(&guard, &first)).await;
    assert_eq!(created, WriteOutcome::Created);
    assert_eq!(keep(&guard, &first).await.unwrap(), WriteOutcome::Unchanged);

    // The admin's knobs stay, a new resource comes in.
    set_knobs(&live, &first).await;
    assert_eq!(keep(&guard, &first).await.unwrap(), WriteOutcome::Unchanged);
    let second = {
        let mut second = desired(&["deployments", "statefulsets"]);
        let bundle = first.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone();
        second
            .webhooks
            .iter_mut()
            .flatten()
            .for_each(|webhook| webhook.client_config.ca_bundle.clone_from(&bundle));
        second
    };
    assert_eq!(keep(&guard, &second).await.unwrap(), WriteOutcome::Updated);
    let seen = live.get(NAME).await.unwrap();
    for webhook in seen.webhooks.iter().flatten() {
        assert_eq!((webhook.failure_policy.as_deref(), webhook.timeout_seconds), (Some("Fail"), Some(9)));
    }
    assert_eq!(seen.webhooks.unwrap()[0].rules.as_ref().unwrap()[0].resources.as_ref().unwrap().len(), 2);

    // While the guard runs: nothing is written that is as it should be, an
    // accident is made good, and a new desired state is written.
    let before = writes(&control_plane);
    let (wanted, desired) = watch::channel(DesiredState::Present(second.clone()));
    let told = (Leadership::alone(), |_| {});
    let kept = tokio::spawn(maintain(guard.clone(), desired, told, CancellationToken::new()));
    live.delete(NAME, &DeleteParams::default()).await.unwrap();
    eventually("the deleted configuration comes back", SOON, || live.get(NAME)).await;
    wanted.send(DesiredState::Present(first.clone())).unwrap();
    eventually("the new desired state is written", SOON, || async {
        let seen = live.get(NAME).await.unwrap();
        seen.webhooks.unwrap()[0].rules.as_ref().unwrap()[0].resources.as_ref().unwrap().len() == 1
    })
    .await;
    eventually("the audit log tells of both writes", SOON, || async { writes(&control_plane) >= before + 2 })
        .await;

    // Withdrawn, it stays away, and the guard knows.
    assert!(withdraw::<ValidatingWebhookConfiguration>(&admin).await.unwrap());
    soon("the guard stands down", kept).await.unwrap();
    assert!(live.get_opt(NAME).await.unwrap().is_none(), "it was written again");
    assert!(!withdraw::<ValidatingWebhookConfiguration>(&admin).await.unwrap());
    assert_eq!(writes(&control_plane), before + 2);
}
