//! The readiness conditions once a cluster is followed: the loop's first listing, and a working watch of
//! records; and the metrics of readiness.
//!
//! Entry points: [`meet_once`], [`report`], [`measure`].

use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::releases::Health;
use kubemoor_guard::admin::{Condition, Readiness};
use kubemoor_runtime::metrics::serving::{self, Serving};
use kubemoor_runtime::tls::Certificates;

/// For how long the records may go unwatched before the guard is not ready.
const OUTAGE: Duration = Duration::from_secs(60);

/// How often the duration of an outage is checked.
const OUTAGE_LOOK: Duration = Duration::from_secs(5);

/// Meets a condition once the loop has listed what is declared.
pub(super) async fn meet_once(
    mut is_listed: watch::Receiver<bool>,
    condition: Condition,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = async {
            if is_listed.wait_for(|listed| *listed).await.is_ok() {
                condition.met();
            }
        } => stop.cancelled().await,
    }
}

/// Says through readiness when the records go unwatched for long. The last
/// state serves meanwhile.
pub(super) async fn report(mut health: watch::Receiver<Health>, records: Condition, stop: CancellationToken) {
    loop {
        let outage = health.borrow_and_update().outage.clone();
        match outage {
            Some(outage) if outage.since + OUTAGE <= Instant::now() => {
                records.unmet(format!("records cannot be watched; the last state serves: {}", outage.reason));
            }
            Some(_) => {}
            None => records.met(),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(OUTAGE_LOOK) => {}
        }
    }
}

/// Registers the metrics of readiness and of the certificate in use.
pub(super) fn measure(registry: &mut Registry, readiness: &Readiness, certificates: &Certificates) {
    let (readiness, certificates) = (readiness.clone(), certificates.clone());
    serving::register(registry, move || Serving {
        is_ready: readiness.is_ready(),
        validity: certificates.validity().ok().filter(|_| !certificates.is_provisional()),
    });
}
