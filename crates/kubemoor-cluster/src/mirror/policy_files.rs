//! Policies in the files of a directory, read again when they change. The directory is polled every second instead of
//! watched: a ConfigMap's volume changes by swapping a link, and network file systems send no notifications. If a file
//! is deleted or gets a flaw, its last accepted policies stay in force.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::mirror::policies::{Accepted, ActivePolicies, PolicyFate};
use kubemoor_policy::compile::{self, CompiledPolicy, FileFlaw, MAX_FILE};
use kubemoor_policy::flaw::{Flaw, FlawReason};
use kubemoor_policy::signing::hex;
use kubemoor_runtime::telemetry::FailureLog;

const LOOK: Duration = Duration::from_secs(1);

const MOST: usize = 1000;

pub struct PolicyDirectory {
    path: PathBuf,
    /// The state of the files when they were read.
    stamps: Stamps,
    /// The files that could not be read, with the reasons; they are tried again.
    unread: BTreeMap<String, String>,
    files: BTreeMap<String, PolicyFile>,
    history: FileHistory,
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyDirectoryError {
    #[error("the policies in {} cannot be listed: {source}", .path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("{} holds more than {MOST} policy files: put several policies into one", .path.display())]
    TooMany { path: PathBuf },
}

type Stamps = BTreeMap<String, (Option<SystemTime>, u64, u64)>;

/// The accepted content of a file.
#[derive(Default)]
struct PolicyFile {
    accepted: Accepted,
    gone: bool,
}

impl PolicyDirectory {
    /// Reads the policies of a directory: its files `*.yaml`, `*.yml` and `*.json`, without subdirectories. Flaws of a
    /// policy are logged, and it is not in force.
    pub fn open(path: &Path, in_force: &ActivePolicies) -> Result<Self, PolicyDirectoryError> {
        let (path, history) = (path.to_owned(), FileHistory::default());
        let (unread, files) = (BTreeMap::new(), BTreeMap::new());
        let mut folder = Self { path, stamps: Stamps::new(), unread, files, history };
        let stamps = folder.look()?;
        folder.read(stamps, in_force);
        Ok(folder)
    }

    /// Calls `keep` for each policy that is added, changed or removed from now on.
    #[must_use]
    pub fn keeping(mut self, keep: impl Fn(FileChange) + Send + Sync + 'static) -> Self {
        self.history.keep = Box::new(keep);
        self
    }

    /// The files that are read, each with a digest of the policies in it.
    pub fn digests(&self) -> Vec<(String, String)> {
        let digest = |file: &PolicyFile| {
            let mut all = Sha256::new();
            file.accepted.values().for_each(|policy| all.update(policy.digest));
            short(&all.finalize())
        };
        self.files.iter().map(|(name, file)| (name.clone(), digest(file))).collect()
    }

    /// Reads the files again when they have changed and no longer change, until `stop`.
    pub async fn keep(mut self, in_force: Arc<ActivePolicies>, stop: CancellationToken) {
        let mut last = self.stamps.clone();
        let mut failures = FailureLog::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let in_force = Arc::clone(&in_force);
            let looking = tokio::task::spawn_blocking(move || {
                let stamps = self.look();
                if let Ok(stamps) = &stamps
                    && *stamps != self.stamps
                    && *stamps == last
                {
                    self.read(stamps.clone(), &in_force);
                }
                (self, stamps)
            });
            let Ok((folder, stamps)) = looking.await else { return };
            self = folder;
            last = match stamps {
                Ok(stamps) => {
                    failures.note_success();
                    stamps
                }
                Err(error) => {
                    if failures.note_failure() {
                        tracing::warn!(
                            "failed to re-read the policy files; the loaded policies stay in force: {error}"
                        );
                    }
                    Stamps::new()
                }
            };
        }
    }

    fn look(&self) -> Result<Stamps, PolicyDirectoryError> {
        let failed = |source| PolicyDirectoryError::List { path: self.path.clone(), source };
        let mut stamps = Stamps::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let extension = path.extension().and_then(|extension| extension.to_str());
            if name.starts_with('.') || !matches!(extension, Some("yaml" | "yml" | "json")) {
                continue;
            }
            // Follow links: it is their targets that change.
            if let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                stamps.insert(name.to_owned(), (metadata.modified().ok(), metadata.len(), metadata.ino()));
            }
            if stamps.len() > MOST {
                return Err(PolicyDirectoryError::TooMany { path: self.path.clone() });
            }
        }
        Ok(stamps)
    }

    fn read(&mut self, mut stamps: Stamps, in_force: &ActivePolicies) {
        self.unread.retain(|name, _| stamps.contains_key(name));
        let changed: Vec<String> = stamps
            .iter()
            .filter(|(name, stamp)| self.stamps.get(*name) != Some(stamp))
            .map(|(name, _)| name.clone())
            .collect();
        let mut is_news = self.stamps.is_empty();
        for name in changed {
            let text = match text(&self.path.join(&name), stamps.get(&name).map_or(0, |stamp| stamp.1)) {
                Ok(text) => text,
                Err(message) => {
                    stamps.remove(&name);
                    if self.unread.insert(name.clone(), message.clone()).as_ref() != Some(&message) {
                        let flaw = Flaw { field: String::new(), reason: FlawReason::Unreadable, message };
                        complain(&FileFlaw { file: name, policy: "1".to_owned(), flaw });
                    }
                    continue;
                }
            };
            self.unread.remove(&name);
            is_news = true;
            let (accepted, flaws) = compile::read([(name.as_str(), text.as_str())]);
            flaws.iter().for_each(complain);
            let file = self.files.entry(name).or_default();
            file.gone = false;
            let accepted = accepted.into_iter().map(|policy| (policy.name.clone(), policy));
            if flaws.is_empty() {
                file.accepted = accepted.collect();
            } else {
                file.accepted.extend(accepted);
            }
        }
        for (name, file) in &mut self.files {
            let is_there = stamps.contains_key(name) || self.unread.contains_key(name);
            if !is_there && !std::mem::replace(&mut file.gone, true) {
                is_news = true;
                tracing::warn!(
                    file = name,
                    "policy file was deleted; its policies stay in force until the guard restarts"
                );
            }
        }
        self.stamps = stamps;
        if !is_news {
            return;
        }
        let all = self.all();
        self.history.note(&all, Timestamp::now());
        in_force.set_files(all.into_iter().map(|(name, (policy, _))| (name, policy)).collect());
    }

    /// All policies. Of several with the same name, the one in the first file is used; deleted files come last.
    fn all(&self) -> PlacedPolicies {
        let mut all = PlacedPolicies::new();
        let mut told = BTreeSet::new();
        let (gone, there): (Vec<_>, Vec<_>) = self.files.iter().partition(|(_, file)| file.gone);
        for (file_name, file) in there.into_iter().chain(gone) {
            for (name, policy) in &file.accepted {
                if let Some((_, first)) = all.get(name) {
                    if !file.gone && told.insert(name) {
                        let message =
                            format!("{first} already has a policy with this name: rename one of them");
                        let (field, reason) = ("metadata.name".to_owned(), FlawReason::DuplicateName);
                        let flaw = Flaw { field, reason, message };
                        complain(&FileFlaw { file: file_name.clone(), policy: name.clone(), flaw });
                    }
                } else {
                    all.insert(name.clone(), (Arc::clone(policy), file_name.clone()));
                }
            }
        }
        all
    }
}

fn text(path: &Path, length: u64) -> Result<String, String> {
    if usize::try_from(length).unwrap_or(usize::MAX) > MAX_FILE {
        return Err(format!("the file has more than {MAX_FILE} bytes"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

fn complain(flaw: &FileFlaw) {
    tracing::warn!("invalid policy; its last valid version, if any, stays in force: {flaw}");
}

/// Guards that see the same change nearly always report it within the same hour.
const PERIOD: i64 = 3600;

/// Policies by name, each with the file that it comes from.
type PlacedPolicies = BTreeMap<String, (Arc<CompiledPolicy>, String)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub policy: String,
    pub file: String,
    pub fate: PolicyFate,
    /// Identifies this change; equal for every guard that reads the same file.
    pub same: String,
}

/// Which policies in files changed, each change reported once. Guards that read the same files report a change with the
/// same identity, though at slightly different times; the state at the start is not a change.
struct FileHistory {
    /// The last state of each policy: its digest and its file; `None` before the files were read.
    last: Option<BTreeMap<String, (String, String)>>,
    /// How often each change was made in this period.
    told: BTreeMap<String, u32>,
    period: i64,
    keep: Box<dyn Fn(FileChange) + Send + Sync>,
}

impl Default for FileHistory {
    fn default() -> Self {
        Self { last: None, told: BTreeMap::new(), period: 0, keep: Box::new(drop) }
    }
}

impl FileHistory {
    fn note(&mut self, policies: &PlacedPolicies, now: Timestamp) {
        let state = |(name, (policy, file)): (&String, &(Arc<CompiledPolicy>, String))| {
            (name.clone(), (short(&policy.digest), file.clone()))
        };
        let present: BTreeMap<_, _> = policies.iter().map(state).collect();
        let Some(last) = self.last.replace(present.clone()) else { return };
        let period = now.as_second() / PERIOD;
        if std::mem::replace(&mut self.period, period) != period {
            self.told.clear();
        }
        for (policy, (digest, file)) in &present {
            match last.get(policy) {
                None => self.tell(policy, file, PolicyFate::Created, &format!("-{digest}")),
                Some((before, _)) if before != digest => {
                    self.tell(policy, file, PolicyFate::Changed, &format!("{before}-{digest}"));
                }
                Some(_) => {}
            }
        }
        for (policy, (digest, file)) in last.iter().filter(|(policy, _)| !present.contains_key(*policy)) {
            self.tell(policy, file, PolicyFate::Deleted, &format!("{digest}-"));
        }
    }

    fn tell(&mut self, policy: &str, file: &str, fate: PolicyFate, change: &str) {
        let change = format!("file {file} {policy} {change}");
        let count = self.told.entry(change.clone()).or_default();
        *count += 1;
        let same = format!("{change} {} {count}", self.period);
        (self.keep)(FileChange { policy: policy.to_owned(), file: file.to_owned(), fate, same });
    }
}

fn short(digest: &[u8]) -> String {
    hex(digest.iter().take(6))
}

#[cfg(test)]
mod tests;
