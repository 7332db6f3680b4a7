//! Certificates of cert-manager and of a Secret: the replicas of an installation without Helm start, and start again
//! after an upgrade, Helm changes from one source of certificates to the next as the documentation says, and the CA of a
//! Secret is replaced while every edit is judged.
//! cert-manager itself is not here; the test signs in its place what the Certificate asks for.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Balancer, Caller, Chart, ControlPlane, Guard, HOME, Helm, Identity, Installed, Pod, RELEASE, SOON,
    TestKind, edit, eventually, folder, moor, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

/// The Secret with a certificate of one's own.
const OWN: &str = "own-certificate";

/// Applies what `kubemoor manifests` prints.
pub(crate) fn apply(control_plane: &ControlPlane, arguments: &[&str]) {
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

/// Defines the resources of cert-manager.
pub(crate) async fn define(admin: &Caller) {
    for (plural, kind) in [("certificates", "Certificate"), ("issuers", "Issuer")] {
        let scope = "Namespaced";
        TestKind { group: "cert-manager.io", version: "v1", kind, plural, scope }.define(admin).await;
    }
}

/// Signs what the Certificate asks for, as cert-manager does.
pub(crate) async fn issue(admin: &Caller) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{HOME}/certificates/kubemoor");
    let wanted = admin.get(&path).await.done().unwrap()["spec"].take();
    let names: Vec<String> = serde_json::from_value(wanted["dnsNames"].clone()).unwrap();
    let signed = IssuedCertificate::new(names);
    signed.keep(admin, wanted["secretName"].as_str().unwrap(), &signed.authority).await;
}

/// A certificate, its key and its authority, as PEM.
struct IssuedCertificate {
    authority: String,
    certificate: String,
    key: String,
}

impl IssuedCertificate {
    /// By a new authority.
    fn new(names: Vec<String>) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one name differ by their keys alone.
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let issuer = Issuer::from_params(&authority, &authority_key);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap().pem();
        let authority = authority.self_signed(&authority_key).unwrap().pem();
        Self { authority, certificate, key: key.serialize_pem() }
    }

    /// Makes a Secret of it, or replaces its content, which names these authorities.
    async fn keep(&self, admin: &Caller, secret: &str, authorities: &str) {
        let encoded = |text: &str| STANDARD.encode(text);
        let content = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "type": "kubernetes.io/tls",
            "data": {
                "ca.crt": encoded(authorities), "tls.crt": encoded(&self.certificate), "tls.key": encoded(&self.key),
            },
        });
        let path = format!("/api/v1/namespaces/{HOME}/secrets/{secret}?fieldManager=test&force=true");
        admin.apply(&path, &content).await.done().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn three_replicas_with_cert_manager_start_after_install_and_upgrade() {
    let control_plane = ControlPlane::start();
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

/// The authorities that a webhook is told to trust, as PEM.
pub(crate) async fn trusted(admin: &Caller) -> String {
    let served = admin.get(WEBHOOKS).await.done().unwrap();
    let bundle = served["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
}

async fn start_behind(balancer: &Balancer, chart: &Installed<'_>, count: usize) -> Vec<Pod> {
    let mut pods = Vec::new();
    for _ in 0..count {
        let mut pod = chart.start_one().await;
        balancer.add(&pod);
        pod.ready().await;
        pods.push(pod);
    }
    pods
}

/// Replaces the replicas as a Deployment does it: the next one is ready, then an old one is told to stop.
async fn roll(chart: &Installed<'_>, balancer: &Balancer, pods: &mut Vec<Pod>) {
    for _ in 0..pods.len() {
        let mut next = chart.start_one().await;
        balancer.add(&next);
        next.ready().await;
        pods.push(next);
        let mut old = pods.remove(0);
        tokio::task::spawn_blocking(move || assert!(old.terminate().success(), "{}", old.log()))
            .await
            .unwrap();
    }
}

/// Replaces the own certificate by one of another authority, as the documentation says. Kubelets deliver each step to one
/// replica after the other.
async fn replace_authority(chart: &Installed<'_>, pods: &[Pod], old: &IssuedCertificate) {
    let new = IssuedCertificate::new(own_names());
    let both = format!("{}{}", old.authority, new.authority);
    for (signed, authorities) in [(old, &both), (&new, &both), (&new, &new.authority)] {
        signed.keep(&chart.admin, OWN, authorities).await;
        for pod in pods {
            chart.deliver(OWN, "/var/lib/kubemoor/tls", pod).await;
            eventually("the replica serves the certificate", SOON, || pod.certificate(&signed.authority))
                .await;
        }
        let count = authorities.matches("BEGIN CERTIFICATE").count();
        eventually("the webhooks trust what the file holds", SOON, || async {
            let trusted = trusted(&chart.admin).await.matches("BEGIN CERTIFICATE").count();
            if trusted == count { Ok(()) } else { Err(format!("{trusted} are trusted")) }
        })
        .await;
    }
}

fn own_names() -> Vec<String> {
    vec![format!("kubemoor.{HOME}.svc"), "localhost".to_owned()]
}

/// Changes the source while everything is open, as the documentation says for `failurePolicy: Fail`. Gives the certificate
/// of a replica.
async fn change_source(
    control_plane: &ControlPlane,
    chart: &Installed<'_>,
    (balancer, pods): (&Balancer, &mut Vec<Pod>),
    certificates: Value,
) -> Vec<u8> {
    let is_cert_manager = certificates["source"] == "CertManager";
    let opened = moor(control_plane, Identity::Alice, &["emergency", "open", "--reason", "another source"]);
    assert_eq!(opened.code, 0, "{opened:?}");
    chart.upgrade(json!({"edits": "Deny", "certificates": certificates})).await.unwrap();
    if is_cert_manager {
        issue(&chart.admin).await;
    }
    roll(chart, balancer, pods).await;
    let closed = moor(control_plane, Identity::Alice, &["emergency", "close"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    let pods: &[Pod] = pods;
    eventually("the API server trusts the new authority", SOON, || async {
        let bundle = trusted(&chart.admin).await;
        pods[0].certificate(&bundle).await?;
        pods[1].certificate(&bundle).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn changes_of_source_and_authority_as_documented_keep_releases_guarded_under_fail() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    define(&chart.admin).await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let namespace = control_plane.namespace("shop").await;
    let release = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Arc::new(Caller::new(&control_plane, Identity::Alice).await);
    chart.install(json!({"edits": "Deny"})).await.unwrap();
    let balancer = Balancer::start().await;
    chart.route_to(&[balancer.port()]).await;
    let mut pods = start_behind(&balancer, &chart, 2).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;

    let own = IssuedCertificate::new(own_names());
    own.keep(&chart.admin, OWN, &own.authority).await;
    let sources = [
        json!({"source": "CertManager"}),
        json!({"source": "Secret", "existingSecret": OWN}),
        json!({"source": "Guard"}),
    ];
    let mut shown = BTreeSet::new();
    for certificates in sources {
        let is_own = certificates["source"] == "Secret";
        // A chart creates it empty, and no leader of another source fills it.
        let secret = format!("/api/v1/namespaces/{HOME}/secrets/kubemoor-certificate");
        chart.admin.merge(&secret, &json!({"data": null})).await.done().unwrap();
        let shows = change_source(&control_plane, &chart, (&balancer, &mut pods), certificates.clone()).await;
        assert!(shown.insert(shows), "{certificates}: the certificate of before");
        // The Secret of the guard's own certificate goes with the release, whatever the source.
        let labels = chart.admin.get(&secret).await.done().unwrap()["metadata"]["labels"].take();
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{certificates}: {labels}");
        wait_until_guarded(&alice, RELEASE, &settings).await;
        if is_own {
            let stop = CancellationToken::new();
            let edits = tokio::spawn(edit(Arc::clone(&alice), settings.clone(), stop.clone()));
            replace_authority(&chart, &pods, &own).await;
            stop.cancel();
            edits.await.unwrap().assert_all_served();
        }
    }
}
