//! From the index to the ledger: what the records of releases come to say.
//!
//! Entry point: [`run`]. Every guard of a cluster sees the same transitions,
//! and so does each one that starts anew; the ledger keeps each once. Two that
//! follow each other faster than the records are read may show as one; who
//! wrote each record is in the verdicts on records.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::helm::release::Release;
use crate::ledger::Ledger;
use crate::ledger::row::Row;
use crate::mirror::releases::Releases;
use crate::model::ReleaseId;

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

/// Whether the records say the same of the release. A record may be written
/// without saying anything new.
fn same(before: &Release, now: &Release) -> bool {
    let said = |release: &Release| {
        let head = &release.latest;
        (head.revision, head.status, head.uid.clone(), release.invalid.clone())
    };
    said(before) == said(now)
}
