//! Policies in files, for commands that judge without a cluster.
//!
//! Entry points: [`folder`] for the directory in `--policies`, [`files`] for the files of a test. Invariant:
//! a flawed policy fails the command: a verdict without it would not be the one that its author expects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use kubemoor_policy::compile::Compiled;
use kubemoor_policy::read;

/// The policies in a directory: its files that end in yaml, yml or json.
///
/// # Errors
/// The directory or a file cannot be read, or a policy has a flaw.
pub(super) fn folder(path: &Path) -> anyhow::Result<Vec<Arc<Compiled>>> {
    let cannot_list = || format!("cannot list the policies in {}", path.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot_list)? {
        let entry = entry.with_context(cannot_list)?.path();
        let hidden = entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_yaml(&entry) && !hidden && entry.is_file() {
            paths.push(entry);
        }
    }
    paths.sort();
    files(&paths)
}

/// The policies in these files.
///
/// # Errors
/// A file cannot be read, or a policy has a flaw.
pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<Arc<Compiled>>> {
    let mut texts = Vec::with_capacity(paths.len());
    for path in paths {
        texts.push((path.display().to_string(), text(path)?));
    }
    let (accepted, flawed) = read::read(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    if flawed.is_empty() {
        return Ok(accepted);
    }
    let flaws: Vec<String> = flawed.iter().map(ToString::to_string).collect();
    Err(anyhow::anyhow!("{}", flaws.join("\n")).context("no verdict with policies that are not accepted"))
}

/// Whether a file's name is that of YAML or JSON.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}

/// A file of at most [`read::MAX_FILE`] bytes.
pub(super) fn text(path: &Path) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", path.display());
    let length = fs::metadata(path).with_context(cannot_read)?.len();
    if length > read::MAX_FILE as u64 {
        return Err(anyhow::anyhow!("it has more than {} bytes", read::MAX_FILE)).with_context(cannot_read);
    }
    fs::read_to_string(path).with_context(cannot_read)
}
