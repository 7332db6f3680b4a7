//! A disk with little room, which ends.
//!
//! It is a file system of its own (tmpfs), mounted in a mount namespace that the processes on it share: so nothing is
//! left mounted, and no root is needed where the machine lets users make namespaces. Where it permits no mount, as in a
//! container without rights, a limit on the size of files stands for it, and the test says so: then a write fails with
//! `EFBIG` where it would fail with `ENOSPC`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::process::{folder, forget, reap};

/// The room, in bytes.
const ROOM: u64 = 1 << 20;

/// Mounts, says so, and keeps the namespace.
const MOUNT: &str = r#"mount -t tmpfs -o size="$0" tmpfs "$1" && echo mounted && exec sleep infinity"#;

/// The namespaces that are tried, as `unshare` and `nsenter` name them.
const NAMESPACES: [[&[&str]; 2]; 2] = [
    [&["--user", "--map-root-user", "--mount"], &["--user", "--preserve-credentials", "--mount"]],
    [&["--mount"], &["--mount"]],
];

/// A disk that is soon full. Dropping it takes what is on it away.
pub(crate) struct SmallDisk {
    folder: PathBuf,
    mounted: Option<Mounted>,
}

/// The process that keeps the namespace, and how to enter it.
struct Mounted {
    keeper: Child,
    enter: &'static [&'static str],
}

impl SmallDisk {
    #[expect(clippy::print_stderr, reason = "it belongs to the test's own output")]
    pub(crate) fn new() -> Self {
        let folder = folder("disk");
        let mounted = NAMESPACES.into_iter().find_map(|[make, enter]| mount(&folder, make, enter));
        if mounted.is_none() {
            eprintln!("this machine permits no mount: a limit on the size of files stands for the full disk");
        }
        Self { folder, mounted }
    }

    /// Whether it is a disk, and no limit on the size of files.
    pub(crate) fn is_mounted(&self) -> bool {
        self.mounted.is_some()
    }

    /// Where it is, for those whom [`SmallDisk::prefix`] starts.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// The words before a command that runs it with this disk.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match &self.mounted {
            Some(Mounted { keeper, enter }) => {
                let target = format!("--target={}", keeper.id());
                words(&[&["nsenter", target.as_str()], *enter, &["--"]].concat())
            }
            // A write beyond the limit fails, where it would end the process.
            None => words(&[
                "prlimit",
                &format!("--fsize={ROOM}:"),
                "sh",
                "-c",
                "trap '' XFSZ; exec \"$0\" \"$@\"",
            ]),
        }
    }

    /// From now on there is room for the process that [`SmallDisk::prefix`] started.
    pub(crate) fn widen(&self, process: u32) {
        let words = match &self.mounted {
            Some(_) => {
                let folder = self.folder.display().to_string();
                [self.prefix(), ["mount", "-o", "remount,size=64m", &folder].map(str::to_owned).into()]
                    .concat()
            }
            None => {
                ["prlimit", "--fsize=unlimited:", "--pid", &process.to_string()].map(str::to_owned).into()
            }
        };
        let status = Command::new(&words[0]).args(&words[1..]).status().unwrap();
        assert!(status.success(), "there is no more room: {words:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Some(Mounted { keeper, .. }) = &mut self.mounted {
            // Fails only for a process that has ended by itself.
            let _ = keeper.kill();
            keeper.wait().unwrap();
            forget(keeper);
        }
    }
}

/// Mounts the disk in a new namespace; `None` where that is not permitted.
fn mount(folder: &Path, make: &[&str], enter: &'static [&'static str]) -> Option<Mounted> {
    let mut command = Command::new("unshare");
    command.args(make).args(["sh", "-c", MOUNT, &ROOM.to_string()]).arg(folder);
    let mut keeper =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    reap(&keeper);
    let mut said = String::new();
    BufReader::new(keeper.stdout.take()?).read_line(&mut said).unwrap();
    if said == "mounted\n" {
        return Some(Mounted { keeper, enter });
    }
    keeper.wait().unwrap();
    forget(&keeper);
    None
}
