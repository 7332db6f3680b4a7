//! A real PostgreSQL on loopback, which tests may stop and start again.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// Debian's `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;

/// A server with its data in a temporary folder. Dropping it ends it.
pub(crate) struct Postgres {
    process: Process,
    programs: PathBuf,
    data: PathBuf,
    port: u16,
}

impl Postgres {
    /// Starts a server.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| Vec::new()).await
    }

    /// Starts a server that takes connections over TLS alone, and shows this certificate, a PEM text like its key.
    pub(crate) async fn start_over_tls(certificate: &str, key: &str) -> Self {
        let write = |file: &Path, content: &str| {
            fs::write(file, content).unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        };
        Self::start_with(|data| {
            write(&data.join("server.crt"), certificate);
            write(&data.join("server.key"), key);
            write(&data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n");
            vec!["-c".to_owned(), "ssl=on".to_owned()]
        })
        .await
    }

    /// Starts a server with what `prepare` writes into its folder, and with these flags.
    async fn start_with(prepare: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let programs = programs();
        let dir = folder("postgres");
        if is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let (data, port) = (dir.join("data"), free_port());
        let output = unprivileged(&programs.join("initdb"))
            .args(["--auth=trust", "--username=moor", "--no-sync", "--encoding=UTF8", "--locale=C"])
            .arg("--pgdata")
            .arg(&data)
            .current_dir(&dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let flags = prepare(&data);
        let command = unprivileged(&programs.join("postgres"));
        let mut arguments: Vec<_> = command.get_args().map(|it| it.to_str().unwrap().to_owned()).collect();
        arguments.extend(["-D".to_owned(), data.display().to_string(), "-p".to_owned(), port.to_string()]);
        arguments.extend(["-h", "127.0.0.1", "-k", "", "-c", "fsync=off"].map(str::to_owned));
        arguments.extend(flags);
        let mut process = Process::new("postgres", command.get_program().into(), arguments, &dir);
        process.start();
        let server = Self { process, programs, data, port };
        server.answers().await;
        server
    }

    /// Waits until it answers.
    async fn answers(&self) {
        let ask = || async { self.psql("postgres", "SELECT 1") };
        eventually("PostgreSQL answers", SOON, ask).await;
    }

    /// A new database; its URL.
    pub(crate) fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ledger{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
        format!("postgres://moor@127.0.0.1:{}/{name}", self.port)
    }

    /// Where its programs are.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What a statement gives, as text.
    pub(crate) fn psql(&self, database: &str, statement: &str) -> Result<String, String> {
        let output = Command::new(self.programs.join("psql"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "moor", "-d", database])
            .args(["-XAtc", statement])
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again after [`Postgres::kill`].
    pub(crate) async fn start_again(&mut self) {
        // Its other processes see a moment later that it was killed, and a new one does not start beside them.
        eventually("the killed PostgreSQL is gone", SOON, || async { !has_processes_in(&self.data) }).await;
        self.process.start();
        self.answers().await;
    }
}

/// Where `tests/control-plane/provide` says that PostgreSQL is, else the newest one of the machine.
fn programs() -> PathBuf {
    if let Some(path) = std::env::var_os("KUBEMOOR_POSTGRES").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        installed.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    newest.max().expect("there is PostgreSQL: run `make provide`, or set KUBEMOOR_POSTGRES")
}

fn has_processes_in(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.flat_map(|process| fs::read_link(process.path().join("cwd"))).any(|it| it == folder)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The program, run as somebody without rights.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
    command.arg(program);
    command
}
