//! The files that certificates are kept in.
//!
//! Invariant: a file is written whole or not at all, and a private one is never
//! readable by others, not even for a moment.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::TlsError;

/// The lock's file; it is left behind, because removing it would break the lock.
const LOCK: &str = ".lock";

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everyone.
    Public,
    /// This user.
    Private,
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| TlsError::ReadFile { path: path.to_owned(), source })
}

/// The text of a file, if there is one.
pub fn read_if_there(path: &Path) -> Result<Option<String>, TlsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TlsError::ReadFile { path: path.to_owned(), source }),
    }
}

/// Makes `directory` if it is not there, and keeps other processes out of
/// [`lock`] for it until the result is dropped.
pub fn lock(directory: &Path) -> Result<File, TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::WriteFile { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed(&path))?;
    file.lock().map_err(failed(&path))?;
    Ok(file)
}

/// Replaces a file at once. The caller holds the directory's [`lock`].
pub fn write(path: &Path, text: &str, access: Access) -> Result<(), TlsError> {
    let mode = match access {
        Access::Public => 0o644,
        Access::Private => 0o600,
    };
    let beside = path.with_extension("new");
    let write = || {
        // A file that a dead process left behind must not keep its mode.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| TlsError::WriteFile { path: path.to_owned(), source })
}
