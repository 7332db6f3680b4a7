//! Starts the demo's programs, with a folder for their files, and cleans up at the end.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};

/// Time limit of each [`DemoStage::wait_until`], long enough for a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A shell script that reads process IDs until its input ends, which happens when the demo ends, even if it is killed.
/// Then it kills these processes and removes the folder.
const CLEANER: &str = r#"
trap '' INT TERM HUP
pids=
while read -r pid; do pids="$pids $pid"; done
[ -z "$pids" ] || kill -KILL $pids
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// The folder, start time and programs of the demo. Dropping it ends all programs and removes the folder.
pub(crate) struct DemoStage {
    pub(crate) folder: PathBuf,
    opened: Instant,
    cleaner: Child,
    programs: RefCell<Vec<Program>>,
}

/// A program that runs until the demo ends.
struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl DemoStage {
    pub(crate) fn open() -> Result<Self> {
        let folder = env::temp_dir().join(format!("kubemoor-demo-{}", process::id()));
        // The folder holds the tokens of the demo's users, so nobody else may read it.
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut cleaner = Command::new("sh");
        cleaner.args(["-c", CLEANER, "kubemoor-demo-cleaner"]).arg(&folder);
        // In a process group of its own, so that Ctrl-C does not reach it.
        cleaner.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let cleaner = cleaner.spawn().context("cannot start sh")?;
        Ok(Self { folder, opened: Instant::now(), cleaner, programs: RefCell::default() })
    }

    pub(crate) fn say(&self, text: &str) {
        println!("[{:4.1} s] {text}\n", self.opened.elapsed().as_secs_f32());
    }

    /// Starts a program that runs until the demo ends. Its output goes to a file in the folder.
    pub(crate) fn start(&self, name: &'static str, program: &Path, arguments: &[String]) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut cleaner: &ChildStdin = self.cleaner.stdin.as_ref().context("the cleaner has no input")?;
        cleaner.write_all(format!("{}\n", child.id()).as_bytes()).context("the cleaner has ended")?;
        self.programs.borrow_mut().push(Program { name, child, log });
        Ok(())
    }

    /// Polls `is_done` until it returns `true`. Fails if a program ends or the time is over.
    pub(crate) fn wait_until(&self, what: &str, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_done()? {
            ensure!(self.ended_program().is_none(), "stopped waiting for {what}");
            ensure!(Instant::now() < deadline, "waited {} s in vain for {what}", PATIENCE.as_secs());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Adds the end of a log to an error: of a program that has ended, otherwise of the one that was started last (the
    /// guard, once it runs).
    pub(crate) fn explain(&self, error: &Error) -> Error {
        let ended =
            self.ended_program().map(|(name, status, log)| (format!("{name} ended ({status}): "), name, log));
        let last =
            self.programs.borrow().last().map(|program| (String::new(), program.name, program.log.clone()));
        let Some((cause, name, log)) = ended.or(last) else { return anyhow!("{error:#}.") };
        let log = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let skipped = log.lines().count().saturating_sub(20);
        let tail: Vec<&str> = log.lines().skip(skipped).collect();
        anyhow!("{cause}{error:#}.\n\nThe last lines of the log of {name}:\n{}", tail.join("\n"))
    }

    fn ended_program(&self) -> Option<(&'static str, ExitStatus, PathBuf)> {
        let mut programs = self.programs.borrow_mut();
        programs.iter_mut().find_map(|program| {
            let status = program.child.try_wait().ok()??;
            Some((program.name, status, program.log.clone()))
        })
    }
}

impl Drop for DemoStage {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        // This fails only if the process was already waited for.
        let _ = self.cleaner.wait();
        for program in self.programs.get_mut() {
            let _ = program.child.wait();
        }
    }
}

/// Returns a free loopback port, a different one each time, below the system's range for outgoing connections.
pub(crate) fn free_port() -> Result<u16> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    for _ in 0..10_000 {
        // Demos that run at the same time start at different ports.
        let place = process::id().wrapping_mul(97).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + u16::try_from(place % 10_000)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of 127.0.0.1 is free");
}
