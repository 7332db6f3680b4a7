//! Reads single records from the API server and decodes them.
//!
//! Entry points: [`Payloads::fetch`], [`Payloads::read`]. Invariant: a payload belongs to exactly the
//! requested version of the record. Only a few are read and decoded at once, off the threads that answer
//! requests, and only one long manifest is unpacked at a time. After decoding only the fields of a record
//! remain.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{Semaphore, oneshot};

use super::records::{self, Known};
use crate::client::call::{self, BODY_CAP, CallError};
use crate::client::pages::Pages;
use crate::client::resource::{Meta, Resource, segment};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::{Packed, RecordError};
use kubemoor_helm::release::{Head, Payload};
use kubemoor_runtime::config::RecordDriver;

/// The label selector of all records.
pub(super) const SELECTOR: &str = "owner=helm";

/// The most bytes of one record's object: the API server takes Secrets and ConfigMaps of up to 1 MiB of data.
const OBJECT_CAP: usize = 4 << 20;

/// Records that are read and decoded at once. Each takes as much memory as its object.
const AT_ONCE: usize = 8;

/// The most pages of one release's records; Helm keeps 10 records by default.
const PAGES: usize = 40;

/// Reads records in the form in which Helm keeps them.
pub(super) struct Payloads {
    client: kube::Client,
    driver: RecordDriver,
    reading: Arc<Semaphore>,
    /// Reads long manifests.
    worker: OnceLock<mpsc::Sender<Work>>,
}

/// A task for the thread that reads long manifests.
type Work = Box<dyn FnOnce() + Send>;

/// The result of reading a record.
pub(super) enum Fetched {
    /// It is in the state that was asked for.
    Payload(Payload),
    /// It has changed meanwhile.
    Moved(Meta),
    /// It is gone.
    Gone,
}

/// The result of reading a record in its current version.
pub(super) enum Unpacked {
    /// It is in the state that was asked for.
    Packed(Packed),
    /// It holds no record.
    Faulty(RecordError),
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

/// A record with its payload.
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
        Self { client, driver, reading: Arc::new(Semaphore::new(AT_ONCE)), worker: OnceLock::new() }
    }

    /// The resource that holds the records.
    pub(super) fn resource(&self) -> Resource {
        match self.driver {
            RecordDriver::Secret => Resource::new("", "v1", "Secret", "secrets"),
            RecordDriver::Configmap => Resource::new("", "v1", "ConfigMap", "configmaps"),
        }
    }

    /// Reads the record `head` of a release in `namespace`, and decodes nothing.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn packed(
        &self,
        namespace: &str,
        head: &Head,
        within: Duration,
    ) -> Result<Unpacked, CallError> {
        let path = format!("{}/{}", self.resource().path(Some(namespace))?, segment(&head.secret)?);
        let request = call::get(&path)?;
        let body = match call::send(&self.client, request, OBJECT_CAP, within).await {
            Ok(body) => body,
            Err(CallError::TooLarge { cap }) => return Ok(Unpacked::Faulty(RecordError::TooLarge { cap })),
            Err(error) if error.proves_absence() => return Ok(Unpacked::Gone),
            Err(error) => return Err(error),
        };
        let object: RecordObject = call::decode(&body)?;
        let meta = object.metadata;
        if meta.uid != head.uid || meta.resource_version != head.resource_version {
            return Ok(Unpacked::Moved(meta));
        }
        Ok(match object.data.and_then(|data| data.release) {
            Some(text) => Unpacked::Packed(Packed::new(text, self.driver == RecordDriver::Secret)),
            None => Unpacked::Faulty(RecordError::Missing { field: "data.release" }),
        })
    }

    /// Reads and decodes the record `head` at `stored`.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn fetch(
        &self,
        stored: &ReleaseId,
        head: &Head,
        within: Duration,
    ) -> Result<Fetched, CallError> {
        // Never closed, so a permit always comes.
        let permit = Arc::clone(&self.reading).acquire_owned().await;
        let packed = match self.packed(&stored.namespace, head, within).await? {
            Unpacked::Packed(packed) => packed,
            Unpacked::Faulty(error) => return Ok(Fetched::Payload(Payload::whole(Err(error)))),
            Unpacked::Moved(meta) => return Ok(Fetched::Moved(meta)),
            Unpacked::Gone => return Ok(Fetched::Gone),
        };
        // Goes on if the caller gives up, and then still counts.
        let unpacking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            Payload::unpack(packed)
        });
        let cut_off = |_| CallError::Unreachable { reason: "the program is shutting down".to_owned() };
        unpacking.await.map(Fetched::Payload).map_err(cut_off)
    }

    /// Reads manifests, off the threads that answer requests. Heavy ones are read one after the other on one
    /// thread, since the allocator keeps the memory that a thread has used.
    ///
    /// # Errors
    /// When the program is shutting down.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        is_heavy: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let cut_off = || CallError::Unreachable { reason: "the program is shutting down".to_owned() };
        if !is_heavy {
            return tokio::task::spawn_blocking(work).await.map_err(|_| cut_off());
        }
        let (send, receive) = oneshot::channel();
        let work: Work = Box::new(move || {
            // Nobody waits for what a caller has given up.
            if !send.is_closed() {
                drop(send.send(work()));
            }
        });
        let worker = self.worker.get_or_init(|| {
            let (send, receive) = mpsc::channel::<Work>();
            // A panic fails only one reading, whose answer never comes, and not the following ones.
            let run = move || receive.into_iter().for_each(|work| drop(catch_unwind(AssertUnwindSafe(work))));
            // Without a thread nothing is received, and the answer is an error.
            let _ = thread::Builder::new().name("manifests".to_owned()).spawn(run);
            send
        });
        worker.send(work).map_err(|_| cut_off())?;
        receive.await.map_err(|_| cut_off())
    }

    /// The metadata of all records in `namespace` (`None`: in all).
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn list(&self, namespace: Option<&str>) -> Result<Vec<Meta>, CallError> {
        self.select(namespace, SELECTOR).await
    }

    /// Lists the records that also have these labels.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn list_labelled(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Meta>, CallError> {
        self.select(namespace, &format!("{SELECTOR},{labels}")).await
    }

    /// Lists all records of a release from the API server itself, not from any
    /// of its caches.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(super) async fn look(&self, release: &ReleaseId, within: Duration) -> Result<Looked, CallError> {
        let selector = format!("{SELECTOR},name={}", release.name);
        let pages = Pages::metadata(&self.client, &self.resource(), Some(&release.namespace))?;
        let mut pages = pages.labelled(&selector).within(within);
        let mut looked = Looked { records: Vec::new(), version: String::new() };
        for _ in 0..PAGES {
            let Some(page) = pages.next().await? else { break };
            looked.version.clone_from(&page.metadata.resource_version);
            let known = page.into_items().into_iter().filter_map(|item| records::read(item.metadata).ok());
            looked.records.extend(known.filter(|(id, _)| id == release).map(|(_, known)| known));
        }
        // A part of the records may lack the latest.
        if pages.is_over() { Ok(looked) } else { Err(CallError::TooLarge { cap: BODY_CAP }) }
    }

    async fn select(&self, namespace: Option<&str>, selector: &str) -> Result<Vec<Meta>, CallError> {
        let pages = Pages::metadata(&self.client, &self.resource(), namespace)?.labelled(selector);
        Ok(pages.all().await?.into_iter().map(|item| item.metadata).collect())
    }
}
