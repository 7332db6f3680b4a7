//! Webhook configurations: read, followed, made, replaced and deleted.
//!
//! Entry points: `Registrations` for who writes them, `are_there` for who asks. Invariant: a write replaces the version that was
//! read and nothing newer; the slower writer is told so, and that is no error.
//! Decides nothing about what is written.

use std::fmt::Debug;
use std::marker::PhantomData;

use http::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::core::Request as Requests;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{self, CallError, PATIENCE};
use super::lease::Leadership;
use super::pages::Pages;
use super::resource::{GROUP, Resource, segment};
use super::watch::{Typed, Watch};
use super::writer::{SendError, Writer};

/// A kind of webhook configuration.
pub trait Registration:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + 'static
{
}

/// The webhook configurations of one kind.
pub struct Registrations<C> {
    client: kube::Client,
    writer: Writer,
    kind: PhantomData<C>,
}

impl Registration for ValidatingWebhookConfiguration {}
impl Registration for MutatingWebhookConfiguration {}

impl<C: Registration> Registrations<C> {
    /// Those of the cluster behind `client`, written while this process leads by `leadership`.
    pub fn new(client: kube::Client, leadership: Leadership) -> Self {
        Self { writer: Writer::seldom(client.clone(), leadership), client, kind: PhantomData }
    }

    /// The one of this name, if it is there.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn read(&self, name: &str) -> Result<Option<C>, CallError> {
        let request = requests::<C>().get(&segment(name)?, &GetParams::default())?;
        match call::fetch(&self.client, request, PATIENCE).await {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.proves_absence() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates it. Returns `None` when another writer was faster.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn create(&self, wanted: &C) -> Result<Option<C>, SendError> {
        let request = requests::<C>().create(&PostParams::default(), bytes(wanted)?);
        self.send(request.map_err(CallError::from)?).await
    }

    /// Replaces the version that it was made from. Returns `None` when another writer changed or deleted it
    /// meanwhile.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn replace(&self, changed: &C) -> Result<Option<C>, SendError> {
        let name = segment(changed.meta().name.as_deref().unwrap_or_default())?;
        let request = requests::<C>().replace(&name, &PostParams::default(), bytes(changed)?);
        self.send(request.map_err(CallError::from)?).await
    }

    /// Deletes the one of this name, if it still is as it was `seen` where that is given. Says whether it was there.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn delete(&self, name: &str, seen: Option<&C>) -> Result<bool, SendError> {
        let preconditions = seen.map(|seen| Preconditions {
            uid: seen.meta().uid.clone(),
            resource_version: seen.meta().resource_version.clone(),
        });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let request = requests::<C>().delete(&segment(name)?, &parameters).map_err(CallError::from)?;
        match self.writer.send(request).await {
            Err(SendError::Call(CallError::Refused { code: 409, .. })) => Ok(false),
            Err(SendError::Call(error)) if error.proves_absence() => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// Follows the configuration of this name.
    pub fn follow(&self, name: &str) -> Watch<Typed<C>> {
        Watch::of_one(self.client.clone(), None, name)
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Option<C>, SendError> {
        match self.writer.send(request).await {
            Ok(body) => Ok(Some(call::decode(&body)?)),
            Err(SendError::Call(CallError::Refused { code: 404 | 409, .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether any webhook that judges changes is registered.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn are_there(client: &kube::Client) -> Result<bool, CallError> {
    let resource = Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    let found: Vec<ValidatingWebhookConfiguration> = Pages::objects(client, &resource, None)?.all().await?;
    let mut webhooks = found.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
    Ok(webhooks.any(|webhook| webhook.name.ends_with(&format!(".{GROUP}"))))
}

fn requests<C: Registration>() -> Requests {
    Requests::new(C::url_path(&(), None))
}

fn bytes<C: Registration>(object: &C) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(object).map_err(|error| CallError::Unformed { reason: error.to_string() })
}
