//! Processes that end with the test process, and the folder that goes with them.
//!
//! Statics are never dropped and a killed process drops nothing, so a shell stands by: it holds the reading end of a
//! pipe of ours, and when that closes, for whatever reason, it kills what we started and removes our folder.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::wait::budget;

const REAPER: &str = r#"
trap '' INT TERM HUP
pids=
while IFS= read -r line; do
  case $line in
    +*) pids="$pids ${line#+}" ;;
    -*) kept=
        for pid in $pids; do [ "$pid" = "${line#-}" ] || kept="$kept $pid"; done
        pids=$kept ;;
  esac
done
[ -z "$pids" ] || kill -KILL $pids
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

static REAPED: LazyLock<Reaped> = LazyLock::new(Reaped::new);

/// A long-running program with its log, which can be stopped, frozen and started again with the same arguments.
pub(crate) struct Process {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    /// The words before the program, by which another one starts it.
    prefix: Vec<String>,
    child: Option<Child>,
}

impl Process {
    /// Describes the process; its output will go to a file in `dir`.
    pub(crate) fn new(name: &'static str, program: PathBuf, arguments: Vec<String>, dir: &Path) -> Self {
        let (environment, log) = (Vec::new(), dir.join(format!("{name}.log")));
        Self { name, program, arguments, environment, log, prefix: Vec::new(), child: None }
    }

    /// Has it started by these words before the program, which become the program.
    pub(crate) fn with_prefix(mut self, prefix: Vec<String>) -> Self {
        self.prefix = prefix;
        self
    }

    /// Adds variables to the environment.
    pub(crate) fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment.extend(environment);
        self
    }

    /// Adds an argument to the next start.
    pub(crate) fn add_argument(&mut self, argument: String) {
        self.arguments.push(argument);
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = match &*self.prefix {
            [] => Command::new(&self.program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
        };
        // As deploy/ runs the guard.
        command.env("MALLOC_ARENA_MAX", "2").envs(self.environment.iter().cloned());
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program.display()));
        reap(&child);
        self.child = Some(child);
    }

    /// Ends it at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only for a process that has ended by itself.
            let _ = child.kill();
            child.wait().unwrap();
            forget(&child);
        }
    }

    /// Asks it to end (SIGTERM) and waits for that.
    ///
    /// # Panics
    /// When it still runs after that.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.end_by("TERM")
    }

    /// Sends it a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, signal: &str) {
        // The shell's own `kill`: a minimal system has no other.
        let status =
            Command::new("sh").args(["-c", "kill -s $0 $1", signal, &self.id().to_string()]).status();
        assert!(status.unwrap().success(), "cannot send SIG{signal} to {}", self.name);
    }

    /// Sends it a signal by which it ends, and waits for that.
    pub(crate) fn end_by(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let deadline = Instant::now() + budget();
        loop {
            if let Some(status) = self.exited() {
                self.kill();
                return status;
            }
            assert!(Instant::now() < deadline, "{} ignores SIG{signal}{}", self.name, self.tail());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks it to end (SIGTERM), and ends it if it still runs after the time given.
    pub(crate) fn end_within(&mut self, grace: Duration) {
        self.signal("TERM");
        let deadline = Instant::now() + grace;
        while self.exited().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Freezes it: connections stay open and nothing answers.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        // A thread on another core runs on for a moment.
        while !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Whether none of its threads runs.
    fn is_stopped(&self) -> bool {
        let process = self.child.as_ref().unwrap().id();
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let stats = threads.flatten().filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
        stats.into_iter().all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// How it ended, if it has ended by itself.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name)).id()
    }

    /// The CPU that it has used so far, in user and kernel mode.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The name stands in parentheses and may hold spaces.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        // Linux shows hundredths of a second to programs, whatever its own clock is.
        Duration::from_millis(ticks * 10)
    }

    /// Everything it has written so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of its log under a headline, for the messages of failures.
    pub(crate) fn tail(&self) -> String {
        let log = self.log();
        // The watches' own, as the control plane ends.
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("eof in poll")).collect();
        let skipped = lines.len().saturating_sub(60);
        format!("\n--- last lines of {} ---\n{}\n---", self.log.display(), lines[skipped..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Reaped {
    folder: PathBuf,
    orders: Mutex<ChildStdin>,
}

impl Reaped {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kubemoor-it-").tempdir().unwrap().keep();
        let mut reaper = Command::new("sh");
        reaper.args(["-c", REAPER, "reaper"]).arg(&folder);
        // A process group of its own, so that Ctrl-C reaches the tests and not this.
        reaper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let orders = reaper.spawn().unwrap().stdin.take().unwrap();
        Self { folder, orders: Mutex::new(orders) }
    }

    fn order(&self, sign: char, child: &Child) {
        // One write, so that an end in between leaves no half line.
        let line = format!("{sign}{}\n", child.id());
        self.orders.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// From now on the child dies with this process.
pub(super) fn reap(child: &Child) {
    REAPED.order('+', child);
}

/// The child has ended: its number may soon be another's.
pub(super) fn forget(child: &Child) {
    REAPED.order('-', child);
}

/// A new folder that goes with this process.
pub(crate) fn folder(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = REAPED.folder.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// An address of this machine that is not loopback: the API server takes no other as an endpoint of a Service.
///
/// # Panics
/// When the machine has none.
pub(crate) fn own_address() -> Ipv4Addr {
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap();
    let mut address = Ipv4Addr::UNSPECIFIED;
    for line in routes.lines() {
        if let Some(text) = line.trim().strip_prefix("|-- ") {
            address = text.parse().unwrap();
        }
        if line.contains("/32 host LOCAL") && !address.is_loopback() && !address.is_link_local() {
            return address;
        }
    }
    panic!("this machine has no network address besides loopback: give it one");
}

/// A port that nobody listens on, of loopback.
///
/// Below the range from which the system picks ports for outgoing connections, so that it stays free until its
/// server listens, also while that server is stopped.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
        // Test processes that run side by side begin at different places.
        let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
        AtomicU16::new(u16::try_from(start).unwrap())
    });
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("there is a free port")
}
