//! Tokens from a file: `--caller-token-file`.
//!
//! Entry points: [`TokenFile::open`], then [`TokenFile::keep`] in its own task. Invariant: an invalid file
//! never replaces tokens in use, and its content is never quoted. The file is compared by content, because
//! the volumes of Secrets change by a link to another directory.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{CallerToken, Callers};

/// How often the file is read.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The most bytes that are read of it.
const CAP: u64 = 4096;

/// Why a file gives no tokens.
#[derive(Debug, Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the caller token file {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// It holds something else.
    #[error(
        "{path} is no caller token file: give one token, or two while one follows another, each on a line \
         of its own and of 32 to 128 lower-case letters and digits, such as `openssl rand -hex 32` prints"
    )]
    Parse {
        /// The file.
        path: PathBuf,
    },
}

/// A file of one token or two.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
}

/// The tokens in the file `path`, the one to register first.
///
/// # Errors
/// There is no such file, or it holds something else.
pub fn read(path: &Path) -> Result<(CallerToken, Option<CallerToken>), TokenFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(CAP).read_to_string(&mut text));
    read.map_err(|error| TokenFileError::Read { path: path.to_owned(), reason: error.to_string() })?;
    parse(&text).ok_or_else(|| TokenFileError::Parse { path: path.to_owned() })
}

fn parse(text: &str) -> Option<(CallerToken, Option<CallerToken>)> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = CallerToken::parse(lines.next()?)?;
    let second = match lines.next() {
        Some(line) => Some(CallerToken::parse(line)?),
        None => None,
    };
    lines.next().is_none().then_some((first, second))
}

impl TokenFile {
    /// Has `callers` accept what is in the file.
    ///
    /// # Errors
    /// The file gives no tokens.
    pub fn open(path: PathBuf, callers: &Callers) -> Result<Self, TokenFileError> {
        let (registered, other) = read(&path)?;
        callers.accept(registered, other);
        Ok(Self { path })
    }

    /// Follows the file until `stop`.
    pub async fn keep(self, callers: Callers, stop: CancellationToken) {
        let mut last_failure = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            let path = self.path.clone();
            let failure = match tokio::task::spawn_blocking(move || read(&path)).await {
                Ok(Ok((registered, other))) => {
                    callers.accept(registered, other);
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(error) = failure.as_ref().filter(|_| last_failure != failure) {
                tracing::warn!("the caller tokens in use stay: {error}");
            }
            last_failure = failure;
        }
    }
}

#[cfg(test)]
mod tests;
