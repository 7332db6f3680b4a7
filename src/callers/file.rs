//! Tokens that somebody else makes: `--caller-token-file`.
//!
//! Entry points: [`TokenFile::open`], then [`TokenFile::keep`] in a task of its
//! own. Invariant: a file that cannot be used never replaces tokens that are in
//! use, and its content is never quoted. It is compared by content, because the
//! volumes of Secrets change by a link to another directory.

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
        /// What the system says.
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
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_token_or_two_and_nothing_else() {
        let (one, two) = ("a1".repeat(16), "b2".repeat(32));
        let seen = |text: &str| {
            let exposed = |token: CallerToken| token.expose().to_owned();
            parse(text).map(|(first, second)| (exposed(first), second.map(exposed)))
        };
        assert_eq!(seen(&one), Some((one.clone(), None)));
        assert_eq!(seen(&format!("\n {one} \r\n\n{two}\n")), Some((one.clone(), Some(two.clone()))));
        for text in
            ["", "\n", "short", &one.to_uppercase(), &format!("{one}\n{two}\n{one}"), &format!("{one} {two}")]
        {
            assert_eq!(seen(text), None, "{text:?}");
        }
        assert_eq!(seen(&format!("{one}\nshort")), None);
    }

    #[test]
    fn an_error_names_the_file_and_quotes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2").unwrap();
        let said = read(file.path()).unwrap_err().to_string();
        assert!(said.contains(file.path().to_str().unwrap()) && !said.contains("hunter2"), "{said}");
        assert!(read(Path::new("/nowhere/token")).unwrap_err().to_string().contains("/nowhere/token"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_counts_and_a_broken_one_does_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = ("a1".repeat(16), "b2".repeat(32));
        std::fs::write(file.path(), &one).unwrap();
        let (callers, stop) = (Callers::default(), CancellationToken::new());
        let opened = TokenFile::open(file.path().to_owned(), &callers).unwrap();
        let mut changes = callers.changes();
        let kept = tokio::spawn(opened.keep(callers.clone(), stop.clone()));
        assert!(callers.admit(one.as_bytes()) && !callers.admit(two.as_bytes()));
        std::fs::write(file.path(), format!("{one}\n{two}")).unwrap();
        changes.changed().await.unwrap();
        assert!(callers.admit(one.as_bytes()) && callers.admit(two.as_bytes()));
        std::fs::write(file.path(), "broken").unwrap();
        tokio::time::sleep(CHECK_EVERY * 3).await;
        assert!(callers.admit(one.as_bytes()) && callers.admit(two.as_bytes()));
        std::fs::write(file.path(), &two).unwrap();
        changes.changed().await.unwrap();
        assert!(!callers.admit(one.as_bytes()) && callers.admit(two.as_bytes()));
        stop.cancel();
        kept.await.unwrap();
    }
}
