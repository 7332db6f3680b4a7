//! Asks the API server every few seconds for the record that changed last, and notices by it that etcd went back.
//!
//! Entry point: [`Releases::recheck`]. Invariant: at most two small requests in a period, none while no watch is open or
//! no record is known. Must not decide what an answer means: `last_changes` does.

use std::time::Duration;

use tokio::time::sleep;

use super::super::last_changes::{LastChange, LastChanges};
use super::super::progress::scopes;
use super::Releases;

/// Between two comparisons. A missing record counts if the watch did not tell of it until the second one, so a rewind is
/// known within two periods.
const PERIOD: Duration = Duration::from_secs(4);

/// After a rewind everything is listed again, which is not done more often than this for one that the lists do not show.
const REST: Duration = Duration::from_secs(60);

impl Releases {
    /// Compares the last known changes with the API server. Never ends.
    pub(super) async fn recheck(&self) {
        loop {
            sleep(PERIOD).await;
            let Some((scope, changes)) = self.due() else { continue };
            for change in changes {
                if self.is_undone(scope, &change).await {
                    tracing::warn!(
                        namespace = change.namespace,
                        record = change.record,
                        "etcd went back to a state from before the last change of this record; everything is listed again"
                    );
                    self.last_changes.lock().iter_mut().for_each(LastChanges::suspend);
                    self.kinds.note_rewind();
                    sleep(REST).await;
                    break;
                }
            }
        }
    }

    /// The last changes of all, with the number of their watch.
    fn due(&self) -> Option<(usize, Vec<LastChange>)> {
        let namespaces = scopes(&self.namespaces);
        let mut changes = self.last_changes.lock();
        let due = changes
            .iter_mut()
            .zip(namespaces)
            .map(|(changes, namespace)| changes.due(|| self.records.lock().newest(namespace)));
        due.enumerate().max_by_key(|(_, due)| LastChanges::version(due))
    }

    /// Whether the API server answers with a state from before the change.
    async fn is_undone(&self, scope: usize, change: &LastChange) -> bool {
        let Ok(now) = self.payloads.sight(&change.namespace, &change.record, PERIOD).await else {
            return false;
        };
        let mut changes = self.last_changes.lock();
        changes.get_mut(scope).is_some_and(|changes| changes.judge(change, now.as_ref()))
    }
}
