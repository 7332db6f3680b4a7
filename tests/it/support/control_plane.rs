//! A real etcd, kube-apiserver and kube-controller-manager on loopback. No kubelet: pods stay Pending.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::future::Future;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::sync::Mutex;

use super::certified::UserCa;
use super::identity::Identity;
use super::process::{Process, folder, free_port};
use super::settings;
use super::wait::{SOON, budget, eventually};

/// Has an API server call the addresses behind a Service: nothing routes a Service's own address.
const ROUTING: &str = "--enable-aggregator-routing=true";

/// A running control plane. Dropping it ends it.
pub(crate) struct ControlPlane {
    // In the order in which they end.
    pub(super) controller_manager: Process,
    pub(super) apiserver: Process,
    pub(super) etcd: Process,
    pub(super) etcd_data: EtcdData,
    pub(super) etcd_url: String,
    dir: PathBuf,
    minor: u32,
    port: u16,
    namespaces: AtomicU32,
    pub(super) applied: Mutex<BTreeSet<String>>,
    pub(super) is_meddled_with: AtomicBool,
    /// The length of its audit log when the test got it.
    audited: AtomicU64,
}

/// A folder of etcd, which goes when it is dropped: each takes 128 MB, and a test process starts more than a hundred.
pub(super) struct EtcdData(pub(super) PathBuf);

impl ControlPlane {
    /// The minor version of its Kubernetes: 20 for 1.20.
    pub(crate) fn minor(&self) -> u32 {
        self.minor
    }

    pub(crate) fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.dir.join(format!("{}.kubeconfig", identity.token()))
    }

    /// Who signs the certificates of its users.
    pub(crate) fn user_authority(&self) -> UserCa {
        UserCa::read(&self.dir)
    }

    /// The port of its API server.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A client of the current runtime: each test makes its own.
    pub(crate) async fn client(&self, identity: Identity) -> Client {
        client(&self.kubeconfig(identity)).await
    }

    /// Makes a new namespace for one test and returns its name, which begins with `prefix`.
    pub(crate) async fn namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespaces: Api<Namespace> = Api::all(self.client(Identity::Admin).await);
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        name
    }

    /// Runs kubectl to its end, without a cache or settings of the machine's user.
    pub(crate) fn kubectl(&self, identity: Identity, arguments: &[&str]) -> Output {
        let bundled = assets().join("kubectl");
        let mut command = Command::new(if bundled.exists() { &bundled } else { Path::new("kubectl") });
        command.env("HOME", &self.dir).arg("--kubeconfig").arg(self.kubeconfig(identity)).args(arguments);
        command.output().expect("kubectl is in KUBEBUILDER_ASSETS or on PATH")
    }

    /// The audit events so far, at the level Metadata and at stage ResponseComplete: what was asked, by whom, the
    /// answer's code, and the annotations that webhooks added. Of the lines that hold all of these words: to parse the
    /// whole log of many tests takes seconds.
    pub(crate) fn audit_events(&self, words: &[&str]) -> Vec<Value> {
        let lines = self.audit_lines().filter(|line| words.iter().all(|word| line.contains(*word)));
        // The last line may be in the making.
        lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }

    /// How many requests of the audit log so far have these words in their line; the log may be too long to keep.
    pub(crate) fn audited(&self, words: &str) -> usize {
        self.audit_lines().filter(|line| line.contains(words)).count()
    }

    fn audit_lines(&self) -> impl Iterator<Item = String> {
        let log = File::open(self.audit_log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.audited.load(Ordering::Relaxed)))?;
            Ok(log)
        });
        log.into_iter().flat_map(|log| BufReader::new(log).lines().map_while(Result::ok))
    }

    fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// Its audit log begins here, nothing counts as applied, and namespaces are numbered anew.
    pub(super) fn forget(&mut self) {
        let length = fs::metadata(self.audit_log()).map_or(0, |metadata| metadata.len());
        self.audited.store(length, Ordering::Relaxed);
        self.applied.get_mut().clear();
        self.namespaces.store(0, Ordering::Relaxed);
    }

    /// The CPU that the API server has used so far.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn apiserver_cpu_time(&self) -> Duration {
        self.apiserver.cpu_time()
    }

    pub(super) fn try_start(more: Vec<String>) -> Result<Self, String> {
        install_crypto_provider();
        let dir = folder("control-plane");
        let (client_port, peer_port, secure_port) = (free_port(), free_port(), free_port());
        let (etcd_url, url) =
            (format!("http://127.0.0.1:{client_port}"), format!("https://127.0.0.1:{secure_port}"));
        let minor = settings::minor_version(&assets().join("kube-apiserver"))?;
        settings::write_files(&dir, &url);
        let program = |name: &str| assets().join(name);
        let mut control_plane = Self {
            etcd: Process::new("etcd", program("etcd"), settings::etcd(&dir, &etcd_url, peer_port), &dir),
            apiserver: Process::new(
                "kube-apiserver",
                program("kube-apiserver"),
                [settings::apiserver(&dir, &etcd_url, secure_port), vec![ROUTING.to_owned()], more].concat(),
                &dir,
            )
            // A suite starts hundreds: an eighth of the processor's time of a start is the collection of garbage.
            .with_environment(vec![("GOGC".to_owned(), "400".to_owned())]),
            controller_manager: Process::new(
                "kube-controller-manager",
                program("kube-controller-manager"),
                settings::controller_manager(&dir, minor),
                &dir,
            ),
            etcd_url: etcd_url.clone(),
            etcd_data: EtcdData(settings::etcd_data(&dir)),
            dir,
            minor,
            port: secure_port,
            namespaces: AtomicU32::new(0),
            applied: Mutex::new(BTreeSet::new()),
            is_meddled_with: AtomicBool::new(false),
            audited: AtomicU64::new(0),
        };
        control_plane.etcd.start();
        control_plane.apiserver.start();
        control_plane.wait_until_ready()?;
        blocking(control_plane.grant_every_right());
        control_plane.controller_manager.start();
        Ok(control_plane)
    }

    pub(super) fn wait_until_ready(&mut self) -> Result<(), String> {
        // API servers that start beside each other share the processors.
        let deadline = Instant::now() + budget() * 4;
        loop {
            let unready = match blocking(self.readiness()) {
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            let ended = [&mut self.etcd, &mut self.apiserver].into_iter().find_map(|process| {
                let status = process.exited()?;
                Some(format!("ended with {status}{}", process.tail()))
            });
            if let Some(ended) = ended {
                return Err(format!("the control plane does not start: {ended}"));
            }
            if Instant::now() > deadline {
                let (etcd, apiserver) = (self.etcd.tail(), self.apiserver.tail());
                return Err(format!("the API server does not get ready: {unready}{etcd}{apiserver}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    async fn readiness(&self) -> Result<(), String> {
        // The API server signs its certificate itself, when it starts for the first time.
        if !self.certificate().exists() {
            return Err("it has not written its certificate".to_owned());
        }
        let client = self.client(Identity::Admin).await;
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
        match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }

    async fn grant_every_right(&self) {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client(Identity::Admin).await);
        let user = |identity: Identity| Subject {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "User".to_owned(),
            name: identity.user().to_owned(),
            namespace: None,
        };
        let binding = ClusterRoleBinding {
            metadata: ObjectMeta { name: Some("kubemoor-test-users".to_owned()), ..ObjectMeta::default() },
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "ClusterRole".to_owned(),
                name: "cluster-admin".to_owned(),
            },
            subjects: Some(Identity::PRIVILEGED.map(user).to_vec()),
        };
        eventually("the test users get their rights", SOON, || async {
            bindings.create(&PostParams::default(), &binding).await
        })
        .await;
    }

    fn certificate(&self) -> PathBuf {
        settings::certificate(&self.dir)
    }
}

impl Drop for EtcdData {
    fn drop(&mut self) {
        // What is left goes with the process.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder with the programs: `KUBEBUILDER_ASSETS`, else where `make provide` puts them.
pub(super) fn assets() -> PathBuf {
    provided("KUBEBUILDER_ASSETS", "assets")
}

/// What `variable` names, else what `make provide` has left in the cache folder.
///
/// # Panics
/// When there is neither.
pub(super) fn provided(variable: &str, name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let cache = env::var_os("XDG_CACHE_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    let path = cache.join("kubemoor").join(name);
    assert!(path.exists(), "{} is not there: run `make provide`, or set {variable}", path.display());
    path
}

/// A client of the user of a kubeconfig.
pub(super) async fn client(kubeconfig: &Path) -> Client {
    install_crypto_provider();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// rustls asks for one when several are compiled in.
pub(super) fn install_crypto_provider() {
    // Fails only when an earlier call was first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Runs a future to its end on a thread and a runtime of its own: callers may stand inside a runtime or outside.
pub(super) fn blocking<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}
