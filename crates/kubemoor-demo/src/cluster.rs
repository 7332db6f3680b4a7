//! Runs a control plane without nodes on loopback (pods stay Pending) with the guard, and runs kubectl and Helm against
//! it. The flags work with Kubernetes 1.20 and later.

use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::stage::{DemoStage, free_port};

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

pub(crate) const GUARD_FLAGS: &str = "serve --register --edits Deny --drift Repair";

/// The lines of the API server's token file: token, user, uid, groups. Each token has a kubeconfig of the same name.
const USERS: &str = r#"admin,admin,admin,system:masters
alice,alice,alice
helm,helm,helm
controllers,system:kube-controller-manager,controllers
guard,system:serviceaccount:kubemoor-system:kubemoor,guard,"system:serviceaccounts,system:serviceaccounts:kubemoor-system"
"#;

const CHART: [(&str, &str); 3] = [
    ("Chart.yaml", "{apiVersion: v2, name: shop, version: 1.0.0}"),
    (
        "templates/web.yaml",
        "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: {{ .Values.image }}
",
    ),
    (
        "templates/settings.yaml",
        "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  image: {{ .Values.image }}
",
    ),
];

pub(crate) struct DemoCluster<'a> {
    stage: &'a DemoStage,
    minor: u32,
    kubectl: PathBuf,
    helm_python: PathBuf,
}

impl<'a> DemoCluster<'a> {
    pub(crate) fn start(stage: &'a DemoStage) -> Result<Self> {
        let assets = provided("KUBEBUILDER_ASSETS")?;
        let own_kubectl = assets.join("kubectl");
        let kubectl = if own_kubectl.exists() { own_kubectl } else { "kubectl".into() };
        let helm_python = provided("KUBEMOOR_HELM_PYTHON")?;
        let version = version(&assets.join("kube-apiserver"))?;
        let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
        let minor = minor.with_context(|| format!("kube-apiserver has the version \"{version}\""))?;
        let cluster = Self { stage, minor, kubectl, helm_python };

        stage.say("Starting etcd");
        let (etcd_url, peer_url) = (url("http", free_port()?), url("http", free_port()?));
        stage.start("etcd", &assets.join("etcd"), &cluster.etcd_flags(&etcd_url, &peer_url))?;

        stage.say(&format!("Starting kube-apiserver {version}, and waiting until it is ready"));
        let port = free_port()?;
        cluster.write_files(&url("https", port))?;
        let flags = cluster.apiserver_flags(&etcd_url, port);
        stage.start("kube-apiserver", &assets.join("kube-apiserver"), &flags)?;
        stage.wait_until("kube-apiserver to be ready", || {
            Ok(cluster.certificate().exists() && cluster.kubectl("admin", "get --raw=/readyz")?.succeeded)
        })?;

        stage.say("Starting kube-controller-manager, and giving rights: Alice and Helm may do everything");
        let flags = cluster.controller_manager_flags();
        stage.start("kube-controller-manager", &assets.join("kube-controller-manager"), &flags)?;
        cluster.as_admin(
            "create clusterrolebinding users --clusterrole=cluster-admin --user=alice --user=helm",
        )?;
        stage.wait_until("Helm to get its rights", || {
            Ok(cluster.kubectl("helm", "auth can-i * *")?.succeeded)
        })?;
        Ok(cluster)
    }

    /// Starts the guard as the service account of `deploy/`, with the rights that `deploy/` gives it and no others.
    pub(crate) fn start_guard(&self, program: &Path) -> Result<()> {
        let mut manifests = vec!["namespace", "rbac", "enforce/arbiter", "enforce/repair"];
        if self.minor >= 30 {
            manifests.push("enforce/writes");
        }
        let files: String =
            manifests.iter().map(|file| format!(" --filename={ROOT}/deploy/{file}.yaml")).collect();
        self.as_admin(&format!("apply{files}"))?;

        let (port, admin_port, tls) = (free_port()?, free_port()?, self.file("guard"));
        let mut flags: Vec<String> = GUARD_FLAGS.split(' ').map(str::to_owned).collect();
        flags.extend([
            format!("--listen=127.0.0.1:{port}"),
            format!("--webhook-url={}", url("https", port)),
            format!("--admin-listen=127.0.0.1:{admin_port}"),
            format!("--tls-dir={}", tls.display()),
            format!("--kubeconfig={}", self.kubeconfig("guard").display()),
            format!("--ledger=sqlite:{}", self.file("ledger.db").display()),
        ]);
        self.stage.start("kubemoor", program, &flags)?;

        self.stage
            .say("Waiting until the guard has read all releases, and the API server asks it about changes");
        let (server, authority) = (url("https", admin_port), tls.join("ca.crt"));
        // kubectl is used as the HTTPS client.
        let readyz =
            format!("get --raw=/readyz --server={server} --certificate-authority={}", authority.display());
        let change = "set image deployment/web app=nobody --dry-run=server";
        self.stage.wait_until("the API server to ask the guard", || {
            if !authority.exists() {
                return Ok(false);
            }
            let report = self.kubectl("alice", &readyz)?;
            let has_read_releases = report.succeeded && !report.stdout.contains("[!]loop");
            Ok(has_read_releases && self.kubectl("alice", change)?.stderr.contains("denied the request"))
        })
    }

    fn etcd_flags(&self, url: &str, peer_url: &str) -> Vec<String> {
        vec![
            format!("--data-dir={}", self.file("etcd").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            "--unsafe-no-fsync".to_owned(),
        ]
    }

    fn apiserver_flags(&self, etcd_url: &str, port: u16) -> Vec<String> {
        // kube-apiserver creates this key for its certificate; it also signs the tokens of service accounts here.
        let key = self.file("certificates/apiserver.key");
        vec![
            format!("--etcd-servers={etcd_url}"),
            format!("--cert-dir={}", self.file("certificates").display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--token-auth-file={}", self.file("users.csv").display()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ]
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--kubeconfig={}", self.kubeconfig("controllers").display()),
            format!("--service-account-private-key-file={}", self.file("certificates/apiserver.key").display()),
            "--use-service-account-credentials".to_owned(),
            "--controllers=namespace,garbagecollector,deployment,replicaset,serviceaccount,clusterrole-aggregation"
                .to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        if self.minor < 24 {
            // Disables the port without TLS, which later versions do not have.
            flags.push("--port=0".to_owned());
        }
        flags
    }

    /// Writes the users, a kubeconfig for each, and the chart.
    fn write_files(&self, url: &str) -> Result<()> {
        self.write("users.csv", USERS)?;
        for token in USERS.lines().filter_map(|line| line.split(',').next()) {
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "demo", "cluster": {"server": url, "certificate-authority": self.certificate()}}],
                "users": [{"name": token, "user": {"token": token}}],
                "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": token, "namespace": "shop"}}],
                "current-context": "demo",
            });
            self.write(&format!("{token}.kubeconfig"), &kubeconfig.to_string())?;
        }
        CHART.iter().try_for_each(|(file, text)| self.write(&format!("chart/{file}"), text))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.file(name);
        fs::create_dir_all(file.parent().unwrap_or(&file))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stage.folder.join(name)
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.file(&format!("{user}.kubeconfig"))
    }

    /// The certificate of the API server, followed by its CA.
    fn certificate(&self) -> PathBuf {
        self.file("certificates/apiserver.crt")
    }

    /// Runs kubectl as a user. `command` is split at spaces.
    pub(crate) fn kubectl(&self, user: &str, command: &str) -> Result<Output> {
        let mut kubectl = Command::new(&self.kubectl);
        // A separate home, so that kubectl does not touch the user's cache and settings.
        kubectl.env("HOME", &self.stage.folder).env("KUBECONFIG", self.kubeconfig(user)).stdin(Stdio::null());
        let output = kubectl.args(command.split(' ')).output().context("cannot run kubectl")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ok(Output { succeeded: output.status.success(), stdout, stderr })
    }

    fn as_admin(&self, command: &str) -> Result<()> {
        let output = self.kubectl("admin", command)?;
        ensure!(output.succeeded, "`kubectl {command}` failed: {}", output.text());
        Ok(())
    }

    /// Installs or upgrades the release with the real Helm SDK.
    pub(crate) fn helm(&self, operation: &str, image: &str) -> Result<()> {
        let is_install = operation == "install";
        let request = json!({
            "op": operation,
            "namespace": "shop",
            "release": "shop",
            "chart": self.file("chart"),
            "values": {"replicas": 2, "image": image},
            "options": if is_install { json!({"create_namespace": true}) } else { json!({}) },
        });
        let mut helm = Command::new(&self.helm_python);
        helm.arg(format!("{ROOT}/tests/control-plane/helm.py")).arg(self.kubeconfig("helm"));
        helm.env("HOME", &self.stage.folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut helm =
            helm.stderr(File::create(self.file("helm.log"))?).spawn().context("cannot start Helm")?;
        // The program ends when its input ends; `wait_with_output` closes it.
        let written =
            helm.stdin.as_mut().context("Helm has no input")?.write_all(format!("{request}\n").as_bytes());
        let output = helm.wait_with_output()?;
        let log = || fs::read_to_string(self.file("helm.log")).unwrap_or_default();
        written.with_context(|| format!("Helm ended at once: {}", log()))?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("Helm did not answer: {}", log()))?;
        match answer.get("error") {
            None => Ok(()),
            Some(error) => Err(anyhow!("helm {operation} failed: {error}")),
        }
    }
}

/// The result of a kubectl command.
pub(crate) struct Output {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    pub(crate) fn text(&self) -> String {
        [&*self.stdout, &*self.stderr]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn provided(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).filter(|path| !path.is_empty());
    path.map(PathBuf::from).with_context(|| format!("{variable} is not set: run `make demo`"))
}

/// The version of a Kubernetes program, such as 1.20.2.
fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = text.strip_prefix("Kubernetes v");
    Ok(version.with_context(|| format!("{} has no version: {text:?}", program.display()))?.to_owned())
}

fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}
