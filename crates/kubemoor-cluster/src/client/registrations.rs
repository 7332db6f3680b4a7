//! Reads, watches, creates, replaces and deletes webhook configurations. A write only replaces the version that was
//! read; if another writer was faster, the result says so, and that is not an error.

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

use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::lease::Leadership;
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, GROUP, segment};
use crate::client::watch::{Typed, Watch};
use crate::client::writer::ClusterWriter;

/// A kind of webhook configuration.
pub trait WebhookKind:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + 'static
{
}

impl WebhookKind for ValidatingWebhookConfiguration {}
impl WebhookKind for MutatingWebhookConfiguration {}

pub struct Registrations<C> {
    client: kube::Client,
    writer: ClusterWriter,
    kind: PhantomData<C>,
}

impl<C: WebhookKind> Registrations<C> {
    /// Writes only while this process leads.
    pub fn new(client: kube::Client, leadership: Leadership) -> Self {
        Self { writer: ClusterWriter::seldom(client.clone(), leadership), client, kind: PhantomData }
    }

    pub async fn read(&self, name: &str) -> Result<Option<C>, ClusterError> {
        let request = requests::<C>().get(&segment(name)?, &GetParams::default())?;
        call::found(call::fetch(&self.client, request, PATIENCE).await)
    }

    /// Creates it. Returns `None` if another writer was faster.
    pub async fn create(&self, wanted: &C) -> Result<Option<C>, ClusterError> {
        self.send(requests::<C>().create(&PostParams::default(), call::encode(wanted)?)?).await
    }

    /// Replaces the version that `changed` was made from. Returns `None` if another writer changed or deleted it
    /// meanwhile.
    pub async fn replace(&self, changed: &C) -> Result<Option<C>, ClusterError> {
        let name = segment(changed.meta().name.as_deref().unwrap_or_default())?;
        self.send(requests::<C>().replace(&name, &PostParams::default(), call::encode(changed)?)?).await
    }

    /// Deletes the configuration `name`; with `seen`, only that version. Returns whether it was deleted.
    pub async fn delete(&self, name: &str, seen: Option<&C>) -> Result<bool, ClusterError> {
        let preconditions = seen.map(|seen| Preconditions {
            uid: seen.meta().uid.clone(),
            resource_version: seen.meta().resource_version.clone(),
        });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let request = requests::<C>().delete(&segment(name)?, &parameters)?;
        match self.writer.send(request).await {
            Err(error) if error.is_conflict() || error.proves_absence() => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    pub fn follow(&self, name: &str) -> Watch<Typed<C>> {
        Watch::of_one(self.client.clone(), None, name)
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Option<C>, ClusterError> {
        match self.writer.send(request).await {
            Ok(body) => Ok(Some(call::decode(&body)?)),
            Err(ClusterError::Refused { code: 404 | 409, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether any of Kubemoor's validating webhooks is registered.
pub async fn has_kubemoor_webhooks(client: &kube::Client) -> Result<bool, ClusterError> {
    let resource = ApiResource::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    let found: Vec<ValidatingWebhookConfiguration> = Pages::objects(client, &resource, None)?.all().await?;
    let mut webhooks = found.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
    Ok(webhooks.any(|webhook| webhook.name.ends_with(&format!(".{GROUP}"))))
}

fn requests<C: WebhookKind>() -> Requests {
    Requests::new(C::url_path(&(), None))
}
