//! Values of the chart that change how the guard is started, at work on a real control plane.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cert_manager::{apply, define, issue, trusted};
use crate::chart_installed::shop;
use crate::support::{
    Caller, ClientCertificate, ControlPlane, HOME, Identity, Installed, RELEASE, SOON, eventually,
    wait_until_guarded,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Has an edit denied that the API server sends to a replica.
async fn check_denied(control_plane: &ControlPlane, settings: &str) {
    let alice = Caller::new(control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, settings).await;
    alice.merge(settings, &json!({"data": {"mode": "slow"}})).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn client_ca_of_a_secret_admits_the_api_server_alone() {
    let certificate = ClientCertificate::new();
    let control_plane = ControlPlane::start_showing(&certificate);
    let chart = Installed::new(&control_plane).await;
    chart.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await.done().unwrap();
    let authority = std::fs::read_to_string(certificate.authority()).unwrap();
    let secret = json!({"metadata": {"name": "webhook-ca"}, "stringData": {"authority.pem": authority}});
    chart.admin.post(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await.done().unwrap();
    let client_ca = json!({"existingSecret": "webhook-ca", "key": "authority.pem"});
    chart.install(json!({"edits": "Deny", "callers": {"clientCa": client_ca}})).await.unwrap();
    let pods = chart.start(1).await;
    check_denied(&control_plane, &shop(&control_plane).await).await;
    let stranger = pods[0].certificate(&trusted(&chart.admin).await).await.unwrap_err();
    assert!(stranger.contains("CertificateRequired"), "{stranger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_config_maps_are_followed_with_their_driver() {
    let control_plane = ControlPlane::start();
    let settings = shop(&control_plane).await;
    let chart = Installed::new(&control_plane).await;
    // What Helm's ConfigMap driver stores of the same release.
    let namespace = settings.split('/').nth(4).unwrap();
    let (secrets, maps) = (
        format!("/api/v1/namespaces/{namespace}/secrets"),
        format!("/api/v1/namespaces/{namespace}/configmaps"),
    );
    let listed = chart.admin.get(&format!("{secrets}?labelSelector=owner=helm")).await.done().unwrap();
    let record = &listed["items"][0];
    let release = record["data"]["release"].as_str().unwrap();
    let name = record["metadata"]["name"].as_str().unwrap();
    let map = json!({
        "metadata": {"name": name, "labels": record["metadata"]["labels"]},
        "data": {"release": String::from_utf8(STANDARD.decode(release).unwrap()).unwrap()},
    });
    chart.admin.post(&maps, &map).await.done().unwrap();
    chart.admin.delete(&format!("{secrets}/{name}")).await.done().unwrap();
    chart.install(json!({"edits": "Deny", "recordDriver": "configmap"})).await.unwrap();
    let _pods = chart.start(1).await;
    check_denied(&control_plane, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_a_named_issuer_is_served() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    define(&chart.admin).await;
    let issuer = json!({"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "company"});
    let certificates = json!({"source": "CertManager", "issuerRef": issuer});
    chart.install(json!({"edits": "Deny", "certificates": certificates})).await.unwrap();
    let group = format!("/apis/cert-manager.io/v1/namespaces/{HOME}");
    let wanted = chart.admin.get(&format!("{group}/certificates/kubemoor")).await.done().unwrap();
    assert_eq!(wanted["spec"]["issuerRef"], issuer);
    // The chart brings no CA of its own.
    for (resource, count) in [("issuers", 0), ("certificates", 1)] {
        let listed = chart.admin.get(&format!("{group}/{resource}")).await.done().unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), count, "{listed}");
    }
    issue(&chart.admin).await;
    let pods = chart.start(1).await;
    check_denied(&control_plane, &shop(&control_plane).await).await;
    pods[0].certificate(&trusted(&chart.admin).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn definitions_that_the_chart_does_not_install_serve_and_outlive_it() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    apply(&control_plane, &["crds"]);
    chart.install(json!({"edits": "Deny", "crds": {"install": false}})).await.unwrap();
    let pods = chart.start(1).await;
    let settings = shop(&control_plane).await;
    check_denied(&control_plane, &settings).await;
    let statuses = settings.replace("/api/v1", "/apis/kubemoor.dev/v1alpha1");
    let status = statuses.replace("configmaps/settings", &format!("guardedreleases/{RELEASE}"));
    eventually("the release has a status", SOON, || async { chart.admin.get(&status).await.done() }).await;
    let served = async || {
        let listed = chart.admin.get(DEFINITIONS).await.done().unwrap();
        let names = listed["items"].as_array().unwrap().iter().map(|item| item["metadata"].clone());
        names
            .filter(|metadata| metadata["name"].as_str().unwrap().ends_with(".kubemoor.dev"))
            .collect::<Vec<_>>()
    };
    let before = served().await;
    assert!(
        !before.is_empty()
            && before.iter().all(|it| it["labels"]["app.kubernetes.io/managed-by"] == Value::Null)
    );
    let (uninstalled, ran) = chart.uninstall().await;
    assert!(uninstalled.is_ok() && ran.code == 0, "{uninstalled:?} {ran:?}");
    drop(pods);
    assert_eq!(served().await.len(), before.len());
}
