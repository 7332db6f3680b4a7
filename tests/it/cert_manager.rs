//! Certificates of cert-manager and of a Secret: the replicas of an installation without Helm start, and start again
//! after an upgrade, and Helm changes from one source of certificates to the next. cert-manager itself is not here; the test signs in its place what the Certificate asks for.

use std::collections::BTreeSet;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, ControlPlane, HOME, Helm, Identity, Installed, RELEASE, folder, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

/// Applies what `kubemoor manifests` prints.
fn apply(control_plane: &ControlPlane, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    command.arg("manifests").args(arguments);
    if arguments[0] == "install" {
        command.arg(format!("--kube-version=1.{}", control_plane.minor()));
    }
    let printed = command.output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let file = folder("manifests").join("all.yaml");
    std::fs::write(&file, printed.stdout).unwrap();
    let applied = control_plane.kubectl(Identity::Admin, &["apply", "-f", file.to_str().unwrap()]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// The resources of cert-manager, which take anything.
fn definition(plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": format!("{plural}.cert-manager.io")},
        "spec": {
            "group": "cert-manager.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Defines the resources of cert-manager.
async fn define(admin: &Caller) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (plural, kind) in [("certificates", "Certificate"), ("issuers", "Issuer")] {
        admin.post(definitions, &definition(plural, kind)).await.done().unwrap();
    }
}

/// Signs what the Certificate asks for, as cert-manager does.
async fn issue(admin: &Caller) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{HOME}/certificates/kubemoor");
    let wanted = admin.get(&path).await.done().unwrap()["spec"].take();
    let names: Vec<String> = serde_json::from_value(wanted["dnsNames"].clone()).unwrap();
    keep(admin, wanted["secretName"].as_str().unwrap(), names).await;
}

/// Makes a Secret with a certificate for these names and its authority.
async fn keep(admin: &Caller, secret: &str, names: Vec<String>) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let encoded = |text: String| STANDARD.encode(text);
    let secret = json!({
        "metadata": {"name": secret}, "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": encoded(authority_pem), "tls.crt": encoded(certificate.pem()), "tls.key": encoded(key.serialize_pem()),
        },
    });
    admin.post(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_with_cert_manager_start_after_install_and_upgrade() {
    let control_plane = ControlPlane::start_routing();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    define(&admin).await;
    let namespace = control_plane.namespace("shop").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let installed = Installed::new(&control_plane).await;

    apply(&control_plane, &["crds"]);
    // First with a certificate of the guard's.
    apply(&control_plane, &["install", "--edits=Deny"]);
    let with_cert_manager = ["install", "--edits=Deny", "--cert-manager", "--replicas=3"];
    apply(&control_plane, &with_cert_manager);
    issue(&admin).await;
    let deployment = format!("/apis/apps/v1/namespaces/{HOME}/deployments/kubemoor");
    assert_eq!(admin.get(&deployment).await.done().unwrap()["spec"]["replicas"], 3);
    let pods = installed.start(3).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    drop(pods);
    // As an upgrade does.
    apply(&control_plane, &with_cert_manager);
    let _pods = installed.start(3).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_changes_the_certificate_source_and_changes_are_denied() {
    let control_plane = ControlPlane::start_routing();
    let chart = Installed::new(&control_plane).await;
    define(&chart.admin).await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let namespace = control_plane.namespace("shop").await;
    let release = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    chart.install(json!({"edits": "Deny"})).await.unwrap();
    let mut pods = chart.start(2).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    let mut bundles = BTreeSet::new();
    for source in ["CertManager", "Secret", "Guard"] {
        let mut certificates = json!({"source": source});
        if source == "Secret" {
            let names = vec![format!("kubemoor.{HOME}.svc"), "localhost".to_owned()];
            keep(&chart.admin, "own-certificate", names).await;
            certificates["existingSecret"] = json!("own-certificate");
        }
        let upgraded = chart.upgrade(json!({"edits": "Deny", "certificates": certificates})).await;
        upgraded.unwrap_or_else(|error| panic!("{source}: {error}"));
        if source == "CertManager" {
            issue(&chart.admin).await;
        }
        // The replicas of the new template replace the old ones. Only a leader of the new template makes a certificate, so
        // on the way back to the guard's own docs/install.md has the old ones deleted.
        let old = std::mem::take(&mut pods);
        if source == "Guard" {
            drop(old);
            pods = chart.start(2).await;
        } else {
            pods = chart.start(2).await;
            drop(old);
        }
        wait_until_guarded(&alice, RELEASE, &settings).await;
        alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await.refused(RELEASE).unwrap();
        // The API server is told to trust this source's authority, which signs what the replicas show.
        let served = chart.admin.get(WEBHOOKS).await.done().unwrap();
        let bundle = served["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
        let bundle = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
        pods[0].certificate(&bundle).await.unwrap_or_else(|error| panic!("{source}: {error}"));
        assert!(bundles.insert(bundle), "{source} has the authority of another source");
    }
}
