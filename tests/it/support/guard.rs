//! The real `kubemoor serve`, run as the guard's service account.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use std::{fs, thread};

use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use kube::api::{Api, Patch, PatchParams};
use reqwest::Certificate;
use serde_json::{Value, json};

use super::charts;
use super::clock::Clock;
use super::control_plane::{ControlPlane, install_crypto_provider};
use super::deploy::BASE;
use super::disk::SmallDisk;
use super::identity::Identity;
use super::moor::run;
use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// Debug builds that start beside each other share the processors.
const STARTUP: Duration = SOON.saturating_mul(4);

/// Most tests read the metrics whether or not there is an API server that could say who may.
const ANONYMOUS_METRICS: &str = "KUBEMOOR_ANONYMOUS_METRICS";

/// A guard process. Dropping it kills it, and prints the end of its log when the test has failed.
///
/// Webhook configurations are cluster-wide: one registered guard per control plane. Most tests want
/// [`Guard::shared`]; a test whose guard is set up differently, or dies, takes a control plane of its own.
pub(crate) struct Guard {
    process: Process,
    webhook_port: u16,
    admin_port: u16,
    tls_dir: PathBuf,
    ledger: PathBuf,
    /// The token that it was given; it makes one itself where it registers.
    token_file: Option<PathBuf>,
}

/// The words before the program, and variables.
type Surroundings = (Vec<String>, Vec<(String, String)>);

/// A test's hold of the shared guard: shows the end of its log when the test fails.
pub(crate) struct SharedGuard(pub(super) &'static Guard);

impl Guard {
    /// Gives the registered webhooks a timeout of 30 seconds and this failure policy: with the default of three seconds
    /// and `Ignore` a slow machine would let edits through.
    pub(crate) async fn extend_webhook_timeouts(control_plane: &ControlPlane, failure_policy: &str) {
        let configurations: Api<ValidatingWebhookConfiguration> =
            Api::all(control_plane.client(Identity::Admin).await);
        eventually("the guard is registered", STARTUP, || async {
            let registered = configurations.get("kubemoor").await?;
            let of = |webhook: ValidatingWebhook| {
                json!({"name": webhook.name, "failurePolicy": failure_policy, "timeoutSeconds": 30})
            };
            let webhooks: Vec<_> = registered.webhooks.into_iter().flatten().map(of).collect();
            let patch = Patch::Strategic(json!({"webhooks": webhooks}));
            configurations.patch("kubemoor", &PatchParams::default(), &patch).await.map(drop)
        })
        .await;
    }

    /// Starts a guard with these flags besides addresses and kubeconfig, and waits until it is ready and has listed
    /// what releases declare. It gets the rights that `deploy/` gives a guard of its modes, and no other.
    ///
    /// # Panics
    /// When it does not become ready, with the end of its log.
    pub(crate) async fn start(control_plane: &ControlPlane, flags: &[&str]) -> Self {
        Self::start_through(control_plane, &control_plane.kubeconfig(Identity::Guard), flags).await
    }

    /// The same, with another way to the API server, such as [`LaggingWatch`](super::LaggingWatch).
    pub(crate) async fn start_through(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Self {
        Self::begin_through(control_plane, kubeconfig, flags).await.once_ready().await
    }

    /// The same, but waits for nothing.
    pub(crate) async fn begin_through(
        control_plane: &ControlPlane,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Self {
        Self::prepare(control_plane, flags).await;
        Self::launch_on(kubeconfig, Surroundings::default(), flags)
    }

    /// Starts one that serves its metrics only to users with the right to get them, as a guard does by default.
    pub(crate) async fn start_with_closed_metrics(control_plane: &ControlPlane, flags: &[&str]) -> Self {
        Self::prepare(control_plane, flags).await;
        let within = (Vec::new(), vec![(ANONYMOUS_METRICS.to_owned(), "false".to_owned())]);
        Self::launch_on(&control_plane.kubeconfig(Identity::Guard), within, flags).once_ready().await
    }

    /// Starts one that has this clock.
    pub(crate) async fn start_by(clock: &Clock, control_plane: &ControlPlane, flags: &[&str]) -> Self {
        Self::prepare(control_plane, flags).await;
        let within = (Vec::new(), clock.environment());
        Self::launch_on(&control_plane.kubeconfig(Identity::Guard), within, flags).once_ready().await
    }

    /// Starts one that has this disk.
    pub(crate) async fn start_on(disk: &SmallDisk, control_plane: &ControlPlane, flags: &[&str]) -> Self {
        Self::prepare(control_plane, flags).await;
        let within = (disk.prefix(), Vec::new());
        Self::launch_on(&control_plane.kubeconfig(Identity::Guard), within, flags).once_ready().await
    }

    fn launch_on(kubeconfig: &Path, (prefix, environment): Surroundings, flags: &[&str]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        Self::launch_within(prefix, environment, &[flags, &[kubeconfig.as_str()]].concat())
    }

    async fn once_ready(mut self) -> Self {
        self.ready().await;
        self
    }

    /// Grants what a guard with these flags needs.
    async fn prepare(control_plane: &ControlPlane, flags: &[&str]) {
        let mode = |mode: &str| flags.iter().any(|flag| flag.ends_with(mode));
        control_plane.apply_deploy(&BASE).await;
        if mode("Deny") || mode("Revert") || mode("Repair") {
            control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
        }
        if mode("Repair") {
            control_plane.apply_deploy(&["enforce/repair.yaml"]).await;
        }
        // Where the server knows admission policies, the guard has to get by with what they leave.
        if mode("Repair") && control_plane.minor() >= 30 {
            control_plane.apply_deploy(&["enforce/writes.yaml"]).await;
        }
    }

    /// Starts a guard without a cluster: of the release `shop/web` in a directory, which declares [`charts::MANIFEST`].
    pub(crate) async fn start_embedded(flags: &[&str]) -> Self {
        Self::embedded(flags, Vec::new()).await
    }

    /// The same, with this disk.
    pub(crate) async fn start_embedded_with(disk: &SmallDisk, flags: &[&str]) -> Self {
        Self::embedded(flags, disk.prefix()).await
    }

    async fn embedded(flags: &[&str], prefix: Vec<String>) -> Self {
        let store = folder("store");
        fs::create_dir(store.join("shop")).unwrap();
        fs::write(store.join("shop").join("web.yaml"), charts::MANIFEST).unwrap();
        let store = format!("--store=dir:{}", store.display());
        let flags = [&[store.as_str(), "--cluster-name=here"], flags].concat();
        Self::launch_within(prefix, Vec::new(), &flags).once_ready().await
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Starts a guard with these flags besides its addresses, and does not wait.
    pub(crate) fn launch(flags: &[&str]) -> Self {
        Self::launch_within(Vec::new(), Vec::new(), flags)
    }

    fn launch_within(prefix: Vec<String>, mut environment: Vec<(String, String)>, flags: &[&str]) -> Self {
        if !environment.iter().any(|(name, _)| name == ANONYMOUS_METRICS) {
            environment.push((ANONYMOUS_METRICS.to_owned(), "true".to_owned()));
        }
        let dir = folder("guard");
        let (webhook_port, admin_port) = (free_port(), free_port());
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--listen=127.0.0.1:{webhook_port}"),
            format!("--admin-listen=127.0.0.1:{admin_port}"),
        ];
        let own = flags.iter().find_map(|flag| Path::new(flag.strip_prefix("--tls-cert=")?).parent());
        let tls_dir = own.map_or_else(|| dir.join("tls"), Path::to_owned);
        if own.is_none() {
            arguments.push(format!("--tls-dir={}", tls_dir.display()));
        }
        // One of several behind a Service has no address of its own.
        if !flags.iter().any(|flag| flag.starts_with("--service")) {
            arguments.push(format!("--webhook-url=https://127.0.0.1:{webhook_port}"));
            // No load balancer has to notice that it ends.
            if !flags.iter().any(|flag| flag.starts_with("--shutdown-delay")) {
                arguments.push("--shutdown-delay=0s".to_owned());
            }
        }
        if !flags.iter().any(|flag| flag.starts_with("--ledger=")) {
            arguments.push(format!("--ledger=sqlite:{}", dir.join("ledger.db").display()));
        }
        let knows_callers = ["--register", "--caller-token-file", "--client-ca"];
        let knows_callers =
            flags.iter().any(|flag| knows_callers.iter().any(|known| flag.starts_with(known)));
        let token_file = (!knows_callers).then(|| token_file(&dir));
        arguments.extend(token_file.iter().map(|file| format!("--caller-token-file={}", file.display())));
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let program = env!("CARGO_BIN_EXE_kubemoor").into();
        let mut process = Process::new("kubemoor", program, arguments, &dir)
            .with_prefix(prefix)
            .with_environment(environment);
        process.start();
        Self { process, webhook_port, admin_port, tls_dir, ledger: dir.join("ledger.db"), token_file }
    }

    /// Waits until `/readyz` says so, and that the loop, if there is one, has listed what releases declare.
    pub(crate) async fn ready(&mut self) {
        let (readyz, authority) = (self.admin_url("/readyz"), self.authority());
        let process = &mut self.process;
        let ready = || {
            let ended = process.exited().map(|status| format!("the guard ended with {status}"));
            let (tail, answer) = (process.tail(), ask(&readyz, &authority));
            async move {
                if let Some(ended) = ended {
                    panic!("{ended}{tail}");
                }
                let report = answer.await.map_err(|error| error + &tail)?;
                if report.contains("[!]loop") { Err(report + &tail) } else { Ok(()) }
            }
        };
        eventually("the guard is ready", STARTUP, ready).await;
    }

    /// Whether `/readyz` says ok now.
    pub(crate) async fn is_ready(&self) -> bool {
        self.report().await.is_ok()
    }

    /// What `/readyz` says of a guard that is ready.
    pub(crate) async fn report(&self) -> Result<String, String> {
        ask(&self.admin_url("/readyz"), &self.authority()).await
    }

    /// What `/metrics` says to an administrator.
    pub(crate) async fn metrics(&self) -> String {
        let request = self.https().get(self.admin_url("/metrics")).bearer_auth(Identity::Admin.token());
        request.send().await.unwrap().text().await.unwrap()
    }

    /// An address of its admin server.
    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.admin_port)
    }

    /// The flags by which `kubemoor audit` asks this guard, for as long as the tests run.
    pub(crate) fn asked(&self) -> [&'static str; 4] {
        let authority = self.authority().display().to_string();
        ["--server", self.admin_url("").leak(), "--certificate-authority", authority.leak()]
    }

    /// The file of the certificate authority that it made itself.
    fn authority(&self) -> PathBuf {
        self.tls_dir.join("ca.crt")
    }

    /// An address of its webhook server, such as `/validate`.
    pub(crate) fn webhook_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.webhook_port)
    }

    /// The token by which it knows the API server; of a registered guard that has no Service, the one in its files.
    pub(crate) fn token(&self) -> String {
        let Some(file) = &self.token_file else {
            let kept = std::fs::read_to_string(self.tls_dir.join("callers.json")).unwrap();
            let kept: Value = serde_json::from_str(&kept).unwrap();
            return kept["registered"].as_str().unwrap().to_owned();
        };
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Where the API server asks it to judge edits.
    pub(crate) fn review_url(&self) -> String {
        self.webhook_url(&format!("/validate/{}", self.token()))
    }

    /// Where its certificates are.
    pub(crate) fn tls_dir(&self) -> &Path {
        &self.tls_dir
    }

    /// The flag for its database, by which commands read its ledger.
    pub(crate) fn database(&self) -> String {
        format!("--ledger=sqlite:{}", self.ledger.display())
    }

    /// The rows of its ledger that these flags of `kubemoor audit` find; none while there is no ledger yet.
    pub(crate) fn rows(&self, filter: &[&str]) -> Vec<Value> {
        let ran = run(&[&["audit", &self.database(), "-o", "json"], filter].concat(), "");
        if ran.code == 0 { ran.items() } else { Vec::new() }
    }

    /// The file of its ledger, unless a flag names another.
    pub(crate) fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Its resident memory in bytes.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn resident_memory(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most resident memory that it has had so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// What of its resident memory is the program's own file and libraries, in bytes.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn file_memory(&self) -> u64 {
        self.memory("RssFile:")
    }

    /// The CPU that it has used so far.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn cpu_time(&self) -> Duration {
        self.process.cpu_time()
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Ends it at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it where it is (SIGSTOP): its connections stay open, and it does nothing.
    pub(crate) fn pause(&self) {
        self.process.pause();
    }

    /// Has it go on (SIGCONT) as if no time had passed.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }

    /// Asks it to end (SIGTERM) and waits for that.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.process.terminate()
    }

    /// Starts it again after [`Guard::kill`] or [`Guard::terminate`], as it was, and waits as [`Guard::ready`].
    pub(crate) async fn start_again(&mut self) {
        self.process.start();
        self.ready().await;
    }

    #[expect(clippy::print_stderr, reason = "it belongs to the test's own output")]
    fn show_log_of_failure(&self) {
        if thread::panicking() {
            eprintln!("{}", self.process.tail());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.show_log_of_failure();
    }
}

impl Deref for SharedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.0
    }
}

impl Drop for SharedGuard {
    fn drop(&mut self) {
        self.0.show_log_of_failure();
    }
}

/// A file with a new token.
pub(crate) fn token_file(dir: &Path) -> PathBuf {
    let (file, token) = (dir.join("caller-token"), kubemoor_runtime::callers::CallerToken::random().unwrap());
    std::fs::write(&file, token.expose()).unwrap();
    file
}

/// The text at an address; an error unless the code is 200.
async fn ask(url: &str, authority: &Path) -> Result<String, String> {
    install_crypto_provider();
    let authority = fs::read(authority).map_err(|error| format!("no certificate yet: {error}"))?;
    let authority = Certificate::from_pem(&authority).map_err(|error| error.to_string())?;
    let builder = reqwest::Client::builder().tls_certs_only([authority]);
    let client = builder.timeout(Duration::from_secs(2)).build().unwrap();
    let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
    let code = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if code == 200 { Ok(text) } else { Err(format!("{url} answers {code}: {text}")) }
}
