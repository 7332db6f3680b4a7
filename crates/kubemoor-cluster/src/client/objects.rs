//! Single objects of any kind: read, create, apply, delete, watch.
//!
//! Entry point: [`Objects`]. Invariant: writes are rate-limited, a delete names the uid of its object, and no
//! error quotes a Secret's values. Decides nothing about the content of writes.

mod error;

use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use http::Request;
use kube::core::Request as Requests;
use kube::core::params::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::error::WriteError;
use super::call::{self, BODY_CAP, CallError, PATIENCE};
use super::lease::Leadership;
use super::live::{Whole, live, sighting};
use super::resource::{Partial, Resource, segment};
use super::watch::{Event, Form as _, Watch};
use super::writer::{SendError, Writer};
use kubemoor_reconcile::live::{Live, Sighting};

/// Reads and writes single objects. Cheap to clone; clones share one rate.
#[derive(Clone)]
pub struct Objects {
    client: kube::Client,
    writer: Writer,
}

/// One object's place in the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The resource that holds it.
    pub resource: Resource,
    /// Its namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// The objects of a resource as they come, change and go.
pub struct Sightings {
    watch: Watch<Whole>,
    resource: Resource,
}

impl Objects {
    /// Writes keep to `writes_per_second`, in bursts of at most as many.
    pub fn new(client: kube::Client, writes_per_second: NonZeroU32) -> Self {
        let rate = Quota::per_second(writes_per_second);
        Self { writer: Writer::new(client.clone(), rate, Leadership::alone()), client }
    }

    /// The same for a process that writes only while it leads. Dry runs, which
    /// store nothing, are free.
    pub fn led(self, leadership: Leadership) -> Self {
        Self { writer: self.writer.led(leadership), ..self }
    }

    /// The whole object as it lives, or `None` when it does not exist.
    ///
    /// # Errors
    /// When the API server gives no usable answer; [`CallError::Unserved`] when
    /// it does not serve the kind.
    pub async fn read(&self, target: &Target) -> Result<Option<Live>, CallError> {
        let request = target.requests()?.get(&target.segment()?, &GetParams::default())?;
        let raw = found(call::fetch::<Box<RawValue>>(&self.client, request, PATIENCE).await)?;
        Ok(raw.map(|raw| live(&target.resource, Whole::read(raw))))
    }

    /// The whole object, or `None` when it does not exist.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn get(&self, target: &Target) -> Result<Option<Value>, CallError> {
        let request = target.requests()?.get(&target.segment()?, &GetParams::default())?;
        found(call::fetch(&self.client, request, PATIENCE).await)
    }

    /// The object's metadata, or `None` when it does not exist.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn sight(&self, target: &Target) -> Result<Option<Sighting>, CallError> {
        let request = target.requests()?.get_metadata(&target.segment()?, &GetParams::default())?;
        let partial = found(call::fetch::<Partial>(&self.client, request, PATIENCE).await)?;
        Ok(partial.map(|partial| sighting(&target.resource, partial.metadata)))
    }

    /// Creates the object by POST as the field manager `manager`, as Helm 3
    /// does. Gives the object as the API server holds it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn create(&self, target: &Target, object: &Value, manager: &str) -> Result<Value, WriteError> {
        let parameters = PostParams { dry_run: false, field_manager: Some(manager.to_owned()) };
        let body = serde_json::to_vec(object).map_err(unformed)?;
        let request = target.requests()?.create(&parameters, body).map_err(CallError::from)?;
        self.write(target, request).await
    }

    /// Applies the object server-side as the field manager `manager`, as Helm 4
    /// does; `force` takes fields from other managers. Creates what does not
    /// exist. Gives the object as the API server holds it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn apply(
        &self,
        target: &Target,
        object: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, WriteError> {
        let parameters = PatchParams { force, ..PatchParams::apply(manager) };
        let request = target.patch(object, &parameters)?;
        self.write(target, request).await
    }

    /// Changes an existing object by a JSON merge patch as the field manager
    /// `manager`. A `metadata.resourceVersion` in it is a condition. Gives the
    /// object as the API server holds it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn merge(&self, target: &Target, patch: &Value, manager: &str) -> Result<Value, WriteError> {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let request = target.requests()?.patch(&target.segment()?, &parameters, &Patch::Merge(patch));
        self.write(target, request.map_err(CallError::from)?).await
    }

    /// What the API server would hold after a forced apply as `manager`; stores nothing.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub(crate) async fn dry_run(
        &self,
        target: &Target,
        object: &Value,
        manager: &str,
        within: Duration,
    ) -> Result<Value, WriteError> {
        let request = target.patch(object, &PatchParams::apply(manager).force().dry_run())?;
        let answer = call::send(&self.client, request, BODY_CAP, within).await;
        Ok(call::decode(&answer.map_err(|error| WriteError::of(target, error))?)?)
    }

    /// Checks whether the API server would accept the object as a new one; stores nothing. For an existing
    /// name the API server reports the conflict after it has validated the new object, and before it compares
    /// the two.
    ///
    /// # Errors
    /// See [`WriteError`]; [`WriteError::AlreadyExists`] means that the object is valid.
    pub async fn dry_run_create(&self, target: &Target, object: &Value) -> Result<(), WriteError> {
        let body = serde_json::to_vec(object).map_err(unformed)?;
        let parameters = PostParams { dry_run: true, field_manager: None };
        let request = target.requests()?.create(&parameters, body).map_err(CallError::from)?;
        let answer = call::send(&self.client, request, BODY_CAP, PATIENCE).await;
        answer.map(drop).map_err(|error| WriteError::of(target, error))
    }

    /// Deletes the object if it still is the one with the uid `uid`; its
    /// dependants go in the background.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when another object has taken its place; see [`WriteError`].
    pub async fn delete(&self, target: &Target, uid: &str) -> Result<(), WriteError> {
        let parameters = DeleteParams::background()
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let request = target.requests()?.delete(&target.segment()?, &parameters).map_err(CallError::from)?;
        self.send(target, request).await.map(drop)
    }

    /// Watches all objects of `resource` in `namespace` (`None`: in all) that
    /// match the label selector `selector`.
    pub fn watch(&self, resource: &Resource, namespace: Option<&str>, selector: Option<&str>) -> Sightings {
        Sightings {
            watch: Watch::new(self.client.clone(), resource, namespace, selector),
            resource: resource.clone(),
        }
    }

    async fn write(&self, target: &Target, request: Request<Vec<u8>>) -> Result<Value, WriteError> {
        Ok(call::decode(&self.send(target, request).await?)?)
    }

    async fn send(&self, target: &Target, request: Request<Vec<u8>>) -> Result<Vec<u8>, WriteError> {
        self.writer.send(request).await.map_err(|error| match error {
            SendError::NotLeading => WriteError::NotLeading,
            SendError::Call(error) => WriteError::of(target, error),
        })
    }
}

impl Sightings {
    /// The next event. Never ends; failures are reported and retried. Safe to cancel.
    pub async fn next(&mut self) -> Event<Live> {
        let event = self.watch.next().await;
        event.map(|whole| live(&self.resource, whole))
    }

    /// Makes the next event start a new listing.
    pub fn relist(&mut self) {
        self.watch.relist();
    }
}

impl Target {
    fn requests(&self) -> Result<Requests, CallError> {
        Ok(Requests::new(self.resource.path(self.namespace.as_deref())?))
    }

    fn segment(&self) -> Result<String, CallError> {
        segment(&self.name)
    }

    fn patch(&self, object: &Value, parameters: &PatchParams) -> Result<Request<Vec<u8>>, CallError> {
        Ok(self.requests()?.patch(&self.segment()?, parameters, &Patch::Apply(object))?)
    }
}

fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        // An unserved kind does not show whether the object exists.
        Err(error) if error.proves_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

fn unformed(error: serde_json::Error) -> CallError {
    CallError::Unformed { reason: error.to_string() }
}
