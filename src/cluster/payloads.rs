//! Reading single records from the API server, and decoding them.
//!
//! Entry point: [`Payloads::fetch`]. Invariant: a payload belongs to exactly
//! the state of the record that was asked for; few are decoded at once, off the
//! threads that answer requests; nothing of one outlives its decoding but the
//! fields of a record.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::core::Request as Requests;
use kube::core::params::{GetParams, ListParams};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::call::{self, CallError, PATIENCE};
use super::records::{self, Known};
use super::resource::{Meta, Page, Partial, Resource, segment};
use super::watch::PAGE;
use crate::config::RecordDriver;
use crate::helm::record::{DEFAULT_CAP, RecordError, decode};
use crate::helm::release::{Head, Payload};
use crate::model::ReleaseId;

/// The label selector of all records.
pub(super) const SELECTOR: &str = "owner=helm";

/// The most bytes of one record's object. etcd takes 1.5 MiB unless told otherwise.
const OBJECT_CAP: usize = 16 << 20;

/// Records that are decoded at once. Each may take [`DEFAULT_CAP`].
const AT_ONCE: usize = 4;

/// The most pages of one release's records; Helm keeps 10 records by default.
const PAGES: usize = 40;

/// Reads records in the form in which Helm keeps them.
pub(super) struct Payloads {
    client: kube::Client,
    driver: RecordDriver,
    decoding: Semaphore,
}

/// What became of reading a record.
pub(super) enum Fetched {
    /// It is in the state that was asked for.
    Payload(Payload),
    /// It has changed meanwhile.
    Moved(Meta),
    /// It is gone.
    Gone,
}

/// All records of one release at one version of the API server's state.
pub(super) struct Looked {
    pub(super) records: Vec<Known>,
    pub(super) version: String,
}

#[derive(Deserialize)]
struct RecordObject {
    metadata: Meta,
    data: Option<RecordData>,
}

#[derive(Deserialize)]
struct RecordData {
    release: Option<String>,
}

impl Payloads {
    pub(super) fn new(client: kube::Client, driver: RecordDriver) -> Self {
        Self { client, driver, decoding: Semaphore::new(AT_ONCE) }
    }

    /// The resource that holds the records.
    pub(super) fn resource(&self) -> Resource {
        match self.driver {
            RecordDriver::Secret => Resource::new("", "v1", "Secret", "secrets"),
            RecordDriver::Configmap => Resource::new("", "v1", "ConfigMap", "configmaps"),
        }
    }

    /// Reads and decodes the record `head` of a release in `namespace`.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn fetch(
        &self,
        namespace: &str,
        head: &Head,
        within: Duration,
    ) -> Result<Fetched, CallError> {
        let path = self.resource().path(Some(namespace))?;
        let request = Requests::new(path).get(&segment(&head.secret)?, &GetParams::default())?;
        let body = match call::send(&self.client, request, OBJECT_CAP, within).await {
            Ok(body) => body,
            Err(CallError::TooLarge { cap }) => {
                return Ok(Fetched::Payload(Payload { record: Err(RecordError::TooLarge { cap }) }));
            }
            Err(error) if error.is_not_found() => return Ok(Fetched::Gone),
            Err(error) => return Err(error),
        };
        let object: RecordObject = call::decode(&body)?;
        drop(body);
        if object.metadata.uid != head.uid || object.metadata.resource_version != head.resource_version {
            return Ok(Fetched::Moved(object.metadata));
        }
        let Some(text) = object.data.and_then(|data| data.release) else {
            return Ok(Fetched::Payload(Payload {
                record: Err(RecordError::Missing { field: "data.release" }),
            }));
        };
        // Never closed, so a permit always comes.
        let _permit = self.decoding.acquire().await;
        let driver = self.driver;
        let decoded = tokio::task::spawn_blocking(move || {
            let payload = match driver {
                RecordDriver::Secret => STANDARD.decode(text).map_err(|error| {
                    RecordError::Base64(io::Error::new(io::ErrorKind::InvalidData, error))
                })?,
                RecordDriver::Configmap => text.into_bytes(),
            };
            decode(&payload, DEFAULT_CAP)
        })
        .await;
        match decoded {
            Ok(record) => Ok(Fetched::Payload(Payload { record })),
            Err(_) => Err(CallError::Unreachable { reason: "the program is shutting down".to_owned() }),
        }
    }

    /// The metadata of all records in `namespace` (`None`: in all).
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn list(&self, namespace: Option<&str>) -> Result<Vec<Meta>, CallError> {
        let requests = Requests::new(self.resource().path(namespace)?);
        let mut parameters = ListParams::default().labels(SELECTOR).limit(PAGE);
        let mut found = Vec::new();
        loop {
            let request = requests.list_metadata(&parameters)?;
            let page: Page<Partial> = call::fetch(&self.client, request, PATIENCE).await?;
            let next = page.next();
            found.extend(page.into_items().into_iter().map(|item| item.metadata));
            if next.is_none() {
                return Ok(found);
            }
            parameters.continue_token = next;
        }
    }

    /// Lists all records of a release from the API server itself, not from any
    /// of its caches.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn look(&self, release: &ReleaseId, within: Duration) -> Result<Looked, CallError> {
        let requests = Requests::new(self.resource().path(Some(&release.namespace))?);
        let mut parameters =
            ListParams::default().labels(&format!("{SELECTOR},name={}", release.name)).limit(PAGE);
        let mut looked = Looked { records: Vec::new(), version: String::new() };
        for _ in 0..PAGES {
            let request = requests.list_metadata(&parameters)?;
            let page: Page<Partial> = call::fetch(&self.client, request, within).await?;
            looked.version.clone_from(&page.metadata.resource_version);
            let next = page.next();
            let known = page.into_items().into_iter().filter_map(|item| records::read(item.metadata).ok());
            looked.records.extend(known.filter(|(id, _)| id == release).map(|(_, known)| known));
            if next.is_none() {
                break;
            }
            parameters.continue_token = next;
        }
        Ok(looked)
    }
}
