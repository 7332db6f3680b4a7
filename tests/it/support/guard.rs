//! The real `kubemoor serve`, run as the guard's service account.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::control_plane::{ControlPlane, install_crypto_provider};
use super::deploy::BASE;
use super::identity::Identity;
use super::process::{Process, folder, free_port};
use super::wait::eventually;

const STARTUP: Duration = Duration::from_secs(30);

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
}

/// A test's hold of the shared guard: shows the end of its log when the test fails.
pub(crate) struct SharedGuard(&'static Guard);

impl Guard {
    /// The guard of the shared control plane: registered, `--edits Deny --drift Repair`.
    pub(crate) async fn shared() -> SharedGuard {
        static SHARED: OnceCell<Guard> = OnceCell::const_new();
        let start =
            || Guard::start(ControlPlane::get(), &["--register", "--edits", "Deny", "--drift", "Repair"]);
        SharedGuard(SHARED.get_or_init(start).await)
    }

    /// Starts a guard with these flags besides addresses and kubeconfig, and waits until it is ready. It gets the
    /// rights that `deploy/` gives a guard of its modes, and no other.
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
        let mode = |mode: &str| flags.iter().any(|flag| flag.ends_with(mode));
        control_plane.apply_deploy(&BASE).await;
        if mode("Deny") || mode("Revert") || mode("Repair") {
            control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
        }
        if mode("Repair") {
            control_plane.apply_deploy(&["enforce/repair.yaml"]).await;
        }
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let mut guard = Self::launch(&[flags, &[kubeconfig.as_str()]].concat());
        guard.ready().await;
        guard
    }

    /// Starts a guard with these flags besides its addresses, and does not wait.
    pub(crate) fn launch(flags: &[&str]) -> Self {
        let dir = folder("guard");
        let (webhook_port, admin_port, tls_dir) = (free_port(), free_port(), dir.join("tls"));
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--listen=127.0.0.1:{webhook_port}"),
            format!("--admin-listen=127.0.0.1:{admin_port}"),
            format!("--tls-dir={}", tls_dir.display()),
        ];
        // One of several behind a Service has no address of its own.
        if !flags.iter().any(|flag| flag.starts_with("--service")) {
            arguments.push(format!("--webhook-url=https://127.0.0.1:{webhook_port}"));
        }
        if !flags.iter().any(|flag| flag.starts_with("--ledger=")) {
            arguments.push(format!("--ledger=sqlite:{}", dir.join("ledger.db").display()));
        }
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut process = Process::new("kubemoor", env!("CARGO_BIN_EXE_kubemoor").into(), arguments, &dir);
        process.start();
        Self { process, webhook_port, admin_port, tls_dir, ledger: dir.join("ledger.db") }
    }

    /// Waits until `/readyz` says so.
    pub(crate) async fn ready(&mut self) {
        let readyz = self.admin_url("/readyz");
        let process = &mut self.process;
        let ready = || {
            let ended = process.exited().map(|status| format!("the guard ended with {status}"));
            let (tail, answer) = (process.tail(), status(&readyz));
            async move {
                if let Some(ended) = ended {
                    panic!("{ended}{tail}");
                }
                match answer.await {
                    Ok(200) => Ok(()),
                    Ok(code) => Err(format!("/readyz answers {code}{tail}")),
                    Err(error) => Err(format!("/readyz: {error}{tail}")),
                }
            }
        };
        eventually("the guard is ready", STARTUP, ready).await;
    }

    /// Whether `/readyz` says ok now.
    pub(crate) async fn is_ready(&self) -> bool {
        status(&self.admin_url("/readyz")).await == Ok(200)
    }

    /// What `/metrics` says.
    pub(crate) async fn metrics(&self) -> String {
        install_crypto_provider();
        reqwest::get(self.admin_url("/metrics")).await.unwrap().text().await.unwrap()
    }

    /// An address of its admin server.
    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin_port)
    }

    /// An address of its webhook server, such as `/validate`.
    pub(crate) fn webhook_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.webhook_port)
    }

    /// Where its certificates are.
    pub(crate) fn tls_dir(&self) -> &Path {
        &self.tls_dir
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
        self.process.terminate(Duration::from_secs(30))
    }

    /// Starts it again after [`Guard::kill`] or [`Guard::terminate`], as it was, and waits until it is ready.
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

async fn status(url: &str) -> Result<u16, String> {
    install_crypto_provider();
    let client = reqwest::Client::builder().timeout(Duration::from_secs(2)).build().unwrap();
    let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
    Ok(answer.status().as_u16())
}
