//! Records in the ledger each change of a release's records.
//!
//! Entry point: [`run`]. Every guard of a cluster sees the same transitions, also after a restart. The ledger
//! stores each once. Two transitions that follow each other faster than the records are read may appear as
//! one. The verdicts on records show who wrote each record.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::Row;

/// Records transitions until `stop`.
pub(super) async fn run(releases: Arc<Releases>, ledger: Ledger, stop: CancellationToken) {
    let changes = releases.changes();
    let mut told: HashMap<ReleaseId, Arc<Release>> = HashMap::new();
    loop {
        let id = tokio::select! {
            () = stop.cancelled() => return,
            id = changes.next() => id,
        };
        let release = releases.index().read().release(&id).cloned();
        let row = match (release, told.remove(&id)) {
            (Some(now), before) => {
                let row = (!before.is_some_and(|before| same(&before, &now)))
                    .then(|| Row::transition(Timestamp::now(), &now, false));
                told.insert(id, now);
                row
            }
            (None, Some(before)) => Some(Row::transition(Timestamp::now(), &before, true)),
            (None, None) => None,
        };
        if let Some(row) = row {
            ledger.record(row);
        }
    }
}

/// Whether both versions say the same about the release. Helm may write a record without changing its
/// content.
fn same(before: &Release, now: &Release) -> bool {
    let said = |release: &Release| {
        let head = &release.latest;
        (head.revision, head.status, head.uid.clone(), release.invalid.clone())
    };
    said(before) == said(now)
}
