//! From the policies to the releases: which records are trusted for releases in
//! other namespaces.
//!
//! Entry point: [`run`]. Invariant: follows every change of the policies in
//! force. Must not decide anything.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;

/// Passes on the policies' trusted namespaces until `stop`.
pub(super) async fn run(releases: Arc<Releases>, in_force: Arc<InForce>, stop: CancellationToken) {
    let mut changes = in_force.changes();
    loop {
        // After the subscription: a change in between is seen by one or the other.
        releases.trust(in_force.resolver().policies().storage());
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}
