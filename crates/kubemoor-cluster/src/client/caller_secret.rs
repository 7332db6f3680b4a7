//! The storage of the callers' secret: a Secret that replicas share, a file where Kubemoor has no namespace,
//! or only this process.
//!
//! Entry points: [`Place::read`], [`Place::write`]. Invariant: no content reaches an error. A write replaces
//! the version that was read and nothing newer.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thiserror::Error;

use super::call::CallError;
use super::own_secret;
use kubemoor_runtime::callers::kept::Kept;
use kubemoor_runtime::tls::TlsError;
use kubemoor_runtime::tls::files::{self, Access};

/// The Secret's name.
pub const NAME: &str = "kubemoor-caller";

/// The Secret's key, and the file's name.
pub const KEY: &str = "callers.json";

/// Where the secret is kept.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the Secret [`NAME`] of a namespace.
    Secret(String),
    /// In the file [`KEY`] of a directory, readable by its owner alone.
    Directory(PathBuf),
    /// Nowhere else: it ends with this process.
    Process,
}

/// What was found.
pub struct Found {
    /// The secret; `None` if the content is not in the form that a guard writes.
    pub kept: Option<Kept>,
    /// The object that holds it; null outside of a cluster.
    live: Value,
}

/// Why the secret cannot be kept.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The Secret cannot be read.
    #[error("the Secret {NAME} in namespace {0} cannot be read; the account needs get on it: {1}")]
    Read(String, #[source] CallError),
    /// The Secret cannot be written.
    #[error(
        "the Secret {NAME} in namespace {0} cannot be written; the account needs create and update on it: {1}"
    )]
    Write(String, #[source] CallError),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] TlsError),
}

impl Found {
    /// Whether the Secret has any content: a chart creates it empty.
    pub fn has_content(&self) -> bool {
        self.kept.is_some() || self.live.is_null() || own_secret::has_content(&self.live)
    }

    /// A secret that only this process holds.
    pub fn of(kept: Kept) -> Self {
        Self { kept: Some(kept), live: Value::Null }
    }
}

impl Place {
    /// Whether other replicas store it there too, so that only one may write.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Secret(_))
    }

    /// What is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, client: &kube::Client) -> Result<Option<Found>, PlaceError> {
        match self {
            Self::Secret(namespace) => {
                let live = own_secret::read(client, namespace, NAME).await;
                let live = live.map_err(|error| PlaceError::Read(namespace.clone(), error))?;
                Ok(live.map(|live| Found { kept: content(&live), live }))
            }
            Self::Directory(directory) => {
                let text = files::read_if_there(&directory.join(KEY))?;
                Ok(text.map(|text| Found { kept: Kept::parse(&text), live: Value::Null }))
            }
            Self::Process => Ok(None),
        }
    }

    /// Replaces the content that was found with `kept`. Returns `false` if another writer was faster.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn write(
        &self,
        client: &kube::Client,
        kept: &Kept,
        over: Option<Found>,
    ) -> Result<bool, PlaceError> {
        match self {
            Self::Secret(namespace) => {
                let data = json!({KEY: STANDARD.encode(kept.text())});
                let over = over.map(|found| found.live);
                let written = own_secret::write(client, (namespace, NAME), data, over).await;
                written.map_err(|error| PlaceError::Write(namespace.clone(), error))
            }
            Self::Directory(directory) => {
                let _lock = files::lock(directory)?;
                files::write(&directory.join(KEY), &kept.text(), Access::Private)?;
                Ok(true)
            }
            Self::Process => Ok(true),
        }
    }
}

/// The content of the Secret, if a guard wrote it.
fn content(live: &Value) -> Option<Kept> {
    let encoded = live.get("data")?.get(KEY)?.as_str()?;
    Kept::parse(&String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?)
}

#[cfg(test)]
mod tests;
