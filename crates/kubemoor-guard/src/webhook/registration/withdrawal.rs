//! The withdrawal of the webhooks by a person, as guards that start later learn of it.
//!
//! Entry point: [`note`], before the configurations are withdrawn. Invariant: the note is on the Lease of the guards
//! that registered. Guards that have no Lease learn nothing. Must not remove anything.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};

use super::NAME;
use super::keep::{Configuration, by_hand};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::lease::{Place, withdrawal};

/// Notes on the Lease of the guards that they have to register nothing for a while.
///
/// # Errors
/// When the Lease cannot be read or written.
pub async fn note(client: &kube::Client) -> Result<(), CallError> {
    let mut place = place::<ValidatingWebhookConfiguration>(client).await;
    if place.is_none() {
        place = self::place::<MutatingWebhookConfiguration>(client).await;
    }
    match place {
        Some(place) => withdrawal::note(client, &place, Timestamp::now()).await,
        None => Ok(()),
    }
}

/// The Lease of the guards behind the webhooks: it has the name of their Service.
async fn place<C: Configuration>(client: &kube::Client) -> Option<Place> {
    // Whoever cannot read it cannot withdraw it either, and is told so.
    let live = by_hand::<C>(client).read(NAME).await.ok().flatten()?;
    let service = live.webhooks().into_iter().find_map(|webhook| webhook.client_config.service)?;
    Some(Place { namespace: service.namespace, name: service.name })
}
