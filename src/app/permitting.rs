//! From the allowances to the ledger: what may be changed locally, from when
//! on, and when that was over.
//!
//! Entry point: [`run`]. Every guard of a cluster sees the same allowances, and
//! so does each one that starts anew; the ledger keeps each opening and each
//! end once. What ends while no guard runs is not told.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::ledger::row::{Permitted, Row};
use crate::mirror::allowances::Allowances;
use crate::mirror::releases::Releases;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;

/// Records openings and ends until `stop`.
pub(super) async fn run(
    allowances: Arc<Allowances>,
    releases: Arc<Releases>,
    ledger: Ledger,
    stop: CancellationToken,
) {
    let changes = allowances.changes();
    let mut told: HashMap<ObjectId, Vec<Arc<Allowance>>> = HashMap::new();
    loop {
        let object = tokio::select! {
            () = stop.cancelled() => return,
            object = changes.next() => object,
        };
        let open = allowances.named(&object);
        let before = told.remove(&object).unwrap_or_default();
        let record = |allowance: &Allowance, permitted| {
            let release = concerned(&releases, &object, allowance);
            // Without a namespace it may be for two objects, and is told of one.
            if release.is_some() || object.namespace == allowance.object.namespace {
                ledger.record(Row::allowance(Timestamp::now(), release, &object, allowance, permitted));
            }
        };
        for allowance in before.iter().filter(|it| !open.iter().any(|other| same(it, other))) {
            record(allowance, Permitted::Closed);
        }
        for allowance in open.iter().filter(|it| !before.iter().any(|other| same(it, other))) {
            record(allowance, Permitted::Opened);
        }
        if !open.is_empty() {
            told.insert(object, open);
        }
    }
}

fn same(one: &Allowance, other: &Allowance) -> bool {
    one.version == other.version
}

/// The release that declares the object, where the allowance counts for it.
fn concerned(releases: &Releases, object: &ObjectId, allowance: &Allowance) -> Option<(ReleaseId, u64)> {
    let index = releases.index().read();
    let claims = index.claims(object);
    let release = claims.iter().find(|release| allowance.is_for(object, &release.id))?;
    Some((release.id.clone(), release.state.revision))
}
