//! The Secret of the certificate that replicas share.
//!
//! Entry points: [`CertificateSecret::read`], [`CertificateSecret::write`]. Invariant: no content reaches an error; a
//! write replaces what was read and nothing newer.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use thiserror::Error;

use super::call::CallError;
use super::own_secret;
use kubemoor_runtime::tls::SharedCertificate;

/// Where the certificate is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSecret {
    /// The guard's own namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

/// What was found.
pub struct Found {
    /// The certificate; `None` if the content is not in the form that a guard writes.
    pub shared: Option<SharedCertificate>,
    live: Value,
}

/// Why the Secret cannot be kept.
#[derive(Debug, Error)]
pub enum CertificateSecretError {
    /// It cannot be read.
    #[error("the Secret {0} in namespace {1} cannot be read; the account needs get on it: {2}")]
    Read(String, String, #[source] CallError),
    /// It cannot be written.
    #[error(
        "the Secret {0} in namespace {1} cannot be written; the account needs create and update on it: {2}"
    )]
    Write(String, String, #[source] CallError),
}

impl Found {
    /// Whether the Secret has any content: a chart creates it empty.
    pub fn has_content(&self) -> bool {
        own_secret::has_content(&self.live)
    }
}

impl CertificateSecret {
    /// What is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, client: &kube::Client) -> Result<Option<Found>, CertificateSecretError> {
        let Self { namespace, name } = self;
        let live = own_secret::read(client, namespace, name).await;
        let live =
            live.map_err(|error| CertificateSecretError::Read(name.clone(), namespace.clone(), error))?;
        Ok(live.map(|live| Found { shared: content(&live), live }))
    }

    /// Replaces the content that was found with `shared`. Returns `false` if another writer was faster.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn write(
        &self,
        client: &kube::Client,
        shared: &SharedCertificate,
        over: Option<Found>,
    ) -> Result<bool, CertificateSecretError> {
        let Self { namespace, name } = self;
        let data = shared.data().into_iter().map(|(key, text)| (key, Value::String(STANDARD.encode(text))));
        let (data, over) = (Value::Object(data.collect()), over.map(|found| found.live));
        let written = own_secret::write(client, (namespace, name), data, over).await;
        written.map_err(|error| CertificateSecretError::Write(name.clone(), namespace.clone(), error))
    }
}

/// The content of the Secret, if a guard wrote it.
fn content(live: &Value) -> Option<SharedCertificate> {
    let text = |encoded: &Value| String::from_utf8(STANDARD.decode(encoded.as_str()?).ok()?).ok();
    let data = live.get("data")?.as_object()?;
    let data: Option<BTreeMap<_, _>> =
        data.iter().map(|(key, encoded)| Some((key.clone(), text(encoded)?))).collect();
    SharedCertificate::parse(&data?)
}
