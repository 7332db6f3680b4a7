//! The authorities of users' certificates, as the API server publishes them for servers beside it.
//!
//! Entry point: [`follow`]. Invariant: a certificate counts only while the API server says that its authority does, as
//! far as it can be asked; an authority that cannot be read leaves the last one.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::watch::{Event, Typed, Watch};
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::UserAuthority;

/// The namespace of the ConfigMap in which an API server publishes the authorities of user certificates.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";

/// Has `users` follow what the API server says until `stop`.
pub async fn follow(client: kube::Client, users: UserAuthority, stop: CancellationToken) {
    let mut events = Watch::<Typed<ConfigMap>>::of_one(client, Some(NAMESPACE), NAME);
    let (mut failures, mut is_there) = (FailureLog::default(), false);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Event::Relisting => is_there = false,
            Event::Listed(Typed(map)) | Event::Applied(Typed(map)) => {
                is_there = true;
                adopt(&users, map.data.as_ref().and_then(|data| data.get(KEY)).map(String::as_str));
            }
            Event::Deleted(_) => adopt(&users, None),
            Event::Synced if !is_there => adopt(&users, None),
            Event::Synced => {}
            Event::Watching => failures.note_success(),
            Event::Broken(error) => {
                if failures.note_failure() {
                    warn!(
                        "the authorities of users' client certificates cannot be read, trying again: {error}"
                    );
                }
            }
        }
    }
}

fn adopt(users: &UserAuthority, pem: Option<&str>) {
    match users.adopt(pem) {
        Ok(true) if pem.is_some() => {
            info!("readers of the ledger may show a client certificate of the cluster")
        }
        Ok(_) => {}
        Err(error) => {
            warn!(%error, "the API server names no authority of users' client certificates that can be read")
        }
    }
}
