//! The files and flags of the control plane's programs. They hold from Kubernetes 1.20 to today.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::certified::{self, UserCa};
use super::identity::{Identity, token_file};
use super::process::folder;

/// Writes what the programs read: tokens, keys, the audit policy, a kubeconfig for each identity.
pub(super) fn write_files(dir: &Path, url: &str) {
    let write = |name: &str, content: &str| fs::write(dir.join(name), content).unwrap();
    write("tokens.csv", &token_file());
    UserCa::new().write(dir);
    let service_accounts = rcgen::KeyPair::generate().unwrap();
    write("service-accounts.key", &service_accounts.serialize_pem());
    write("service-accounts.pub", &service_accounts.public_key_pem());
    // The API server's own requests and those that concern no resource would only fill the log.
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": ["system:apiserver"]},
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "Metadata"},
        ],
    });
    write("audit-policy.json", &policy.to_string());
    for identity in Identity::ALL {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": certificate(dir)}}],
            "users": [{"name": "test", "user": {"token": identity.token()}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        write(&format!("{}.kubeconfig", identity.token()), &kubeconfig.to_string());
    }
}

/// A certificate by which an API server shows webhooks who it is, and the authority that has signed it.
pub(crate) struct ClientCertificate(PathBuf);

impl ClientCertificate {
    /// A new one, of an authority of its own.
    pub(crate) fn new() -> Self {
        let dir = folder("client-certificate");
        let write = |name: &str, content: &str| fs::write(dir.join(name), content).unwrap();
        let mut authority = rcgen::CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = rcgen::KeyPair::generate().unwrap();
        write("ca.crt", &authority.self_signed(&authority_key).unwrap().pem());
        let mut client = rcgen::CertificateParams::new(Vec::new()).unwrap();
        client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&authority, &authority_key);
        write("client.crt", &client.signed_by(&key, &issuer).unwrap().pem());
        write("client.key", &key.serialize_pem());
        Self(dir)
    }

    /// The file of the authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.0.join("ca.crt")
    }

    /// Certificate and key as one PEM text.
    pub(crate) fn pem(&self) -> String {
        ["client.crt", "client.key"].map(|name| fs::read_to_string(self.0.join(name)).unwrap()).concat()
    }

    /// The flags that have an API server show it.
    pub(super) fn apiserver(&self) -> Vec<String> {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "webhooks", "user": {
                "client-certificate": self.0.join("client.crt"), "client-key": self.0.join("client.key"),
            }}],
            "contexts": [{"name": "webhooks", "context": {"user": "webhooks"}}],
            "current-context": "webhooks",
        });
        let file = self.0.join("kubeconfig");
        fs::write(&file, kubeconfig.to_string()).unwrap();
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": file,
            }})
        };
        let plugins = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"].map(plugin);
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
        });
        let file = self.0.join("admission.json");
        fs::write(&file, admission.to_string()).unwrap();
        vec![format!("--admission-control-config-file={}", file.display())]
    }
}

/// The certificate that the API server makes for itself, with the CA that signed it.
pub(super) fn certificate(dir: &Path) -> PathBuf {
    dir.join("certificates").join("apiserver.crt")
}

/// Where etcd keeps what it holds.
pub(super) fn etcd_data(dir: &Path) -> PathBuf {
    dir.join("etcd")
}

pub(super) fn etcd(dir: &Path, url: &str, peer_port: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", etcd_data(dir).display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
    ]
}

pub(super) fn apiserver(dir: &Path, etcd_url: &str, port: u16) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--cert-dir={}", file("certificates")),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--client-ca-file={}", certified::certificate(dir).display()),
        "--authorization-mode=RBAC".to_owned(),
        // Its queues take a quarter of the processor's time of the API server, which has no other users here.
        "--enable-priority-and-fairness=false".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.json")),
        format!("--audit-log-path={}", file("audit.log")),
        // In megabytes: the log must not be rotated away while tests read it.
        "--audit-log-maxsize=2048".to_owned(),
    ]
}

pub(super) fn controller_manager(dir: &Path, minor: u32) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut arguments = vec![
        format!("--kubeconfig={}", file(&format!("{}.kubeconfig", Identity::ControllerManager.token()))),
        format!("--service-account-private-key-file={}", file("service-accounts.key")),
        "--use-service-account-credentials".to_owned(),
        "--controllers=namespace,garbagecollector,deployment,replicaset,statefulset,serviceaccount,\
         serviceaccount-token,horizontalpodautoscaling,job,clusterrole-aggregation"
            .to_owned(),
        "--leader-elect=false".to_owned(),
        // It serves nothing, so that several control planes can run side by side.
        "--secure-port=0".to_owned(),
    ];
    if minor < 24 {
        // Its plain-text port, which later versions no longer have.
        arguments.push("--port=0".to_owned());
    }
    arguments
}

/// The minor version of an API server: 20 for 1.20.
pub(super) fn minor_version(apiserver: &Path) -> Result<u32, String> {
    let output = Command::new(apiserver).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", apiserver.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let minor =
        text.trim().strip_prefix("Kubernetes v1.").and_then(|rest| rest.split('.').next()?.parse().ok());
    minor.ok_or_else(|| format!("{} says {text:?}, which names no version", apiserver.display()))
}
