//! The installation without Helm whose certificate comes from cert-manager: its three replicas start, and start again
//! after an upgrade. cert-manager itself is not here; the test signs in its place what the Certificate asks for.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, ControlPlane, HOME, Helm, Identity, Installed, RELEASE, folder, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

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

/// Signs what the Certificate asks for, as cert-manager does.
async fn issue(admin: &Caller) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{HOME}/certificates/kubemoor");
    let wanted = admin.get(&path).await.done().unwrap()["spec"].take();
    let names: Vec<String> = serde_json::from_value(wanted["dnsNames"].clone()).unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let encoded = |text: String| STANDARD.encode(text);
    let secret = json!({
        "metadata": {"name": wanted["secretName"]}, "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": encoded(authority_pem), "tls.crt": encoded(certificate.pem()), "tls.key": encoded(key.serialize_pem()),
        },
    });
    admin.post(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_with_cert_manager_start_before_and_after_an_upgrade() {
    let control_plane = ControlPlane::start_routing();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (plural, kind) in [("certificates", "Certificate"), ("issuers", "Issuer")] {
        admin.post(definitions, &definition(plural, kind)).await.done().unwrap();
    }
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
