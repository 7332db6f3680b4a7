//! Whether the API server is told to trust the authority of this replica's certificate.
//!
//! Entry points: `trusts`, `is_trusted`, [`wait_until_trusted`]. Invariant: reads only, and does not wait without end: a leader
//! of an older version knows nothing of other replicas' authorities.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::NAME;
use super::keep::{Configuration, by_hand};
use kubemoor_cluster::client::call::CallError;
use kubemoor_runtime::tls::bundle;

/// The pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// How long each API server has to take over a changed webhook configuration.
const SPREAD: Duration = Duration::from_secs(2);

/// How long a replica waits for the leader at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether all webhook configurations trust these authorities. Those that are not there ask nobody.
///
/// # Errors
/// When they cannot be read.
pub(super) async fn trusts(client: &kube::Client, authorities: &str) -> Result<bool, CallError> {
    async fn trusts<C: Configuration>(client: &kube::Client, authorities: &str) -> Result<bool, CallError> {
        let trusts = |trusted: &[u8]| bundle::holds(&String::from_utf8_lossy(trusted), authorities);
        Ok(by_hand::<C>(client).read(NAME).await?.is_none_or(|live| {
            let mut webhooks = live.webhooks().into_iter();
            webhooks.all(|webhook| webhook.client_config.ca_bundle.is_some_and(|pem| trusts(&pem.0)))
        }))
    }
    Ok(trusts::<ValidatingWebhookConfiguration>(client, authorities).await?
        && trusts::<MutatingWebhookConfiguration>(client, authorities).await?)
}

/// Whether the API server asks about edits at all; `false` where that cannot be read.
pub async fn is_registered(client: &kube::Client) -> bool {
    let live = by_hand::<ValidatingWebhookConfiguration>(client).read(NAME).await;
    matches!(live, Ok(Some(_)))
}

/// Whether all webhook configurations trust these authorities; `false` where they cannot be read.
pub(super) async fn is_trusted(client: &kube::Client, authorities: &str) -> bool {
    trusts(client, authorities).await.unwrap_or(false)
}

/// Waits until the API server trusts the authority of this replica, or somebody else has to tell it so. Returns whether
/// it does.
pub async fn wait_until_trusted(
    client: &kube::Client,
    mut authority: watch::Receiver<Option<Arc<str>>>,
    is_provisional: impl Fn() -> bool,
) -> bool {
    while is_provisional() {
        if authority.changed().await.is_err() {
            return false;
        }
    }
    let (began, mut is_first) = (Instant::now(), true);
    while began.elapsed() < PATIENCE {
        let own = authority.borrow_and_update().clone();
        let is_trusted = match own {
            Some(own) => is_trusted(client, &own).await,
            None => true,
        };
        match (is_trusted, is_first) {
            (true, true) => return true,
            (true, false) => {
                sleep(SPREAD).await;
                return true;
            }
            (false, _) => sleep(LOOK).await,
        }
        is_first = false;
    }
    false
}
