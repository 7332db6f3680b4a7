//! Records DriftAllowances in the ledger and notifies receivers: when each one opens and when it ends.
//!
//! Entry point: [`Permitting::run`]. Every guard of a cluster sees the same allowances, also after a restart.
//! The ledger stores each opening and each end once. An allowance that ends while no guard runs is not
//! reported.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Permitted, Row};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Message, Subject};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;

/// Records the history of allowances.
pub(super) struct Permitting {
    pub(super) allowances: Arc<Allowances>,
    pub(super) releases: Arc<Releases>,
    pub(super) ledger: Ledger,
    pub(super) notifiers: Notifiers,
    pub(super) resolver: Arc<PolicyResolver>,
}

impl Permitting {
    /// Records openings and ends until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let changes = self.allowances.changes();
        let mut told: HashMap<ObjectId, Vec<Arc<Allowance>>> = HashMap::new();
        loop {
            let object = tokio::select! {
                () = stop.cancelled() => return,
                object = changes.next() => object,
            };
            let open = self.allowances.named(&object);
            let before = told.remove(&object).unwrap_or_default();
            let record = |allowance: &Allowance, permitted| self.record(&object, allowance, permitted);
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

    fn record(&self, object: &ObjectId, allowance: &Allowance, permitted: Permitted) {
        let release = concerned(&self.releases, object, allowance);
        // Without a namespace it may apply to two objects, and is reported for one: that of a release, if there is one.
        let is_of_release = |other: &ObjectId| concerned(&self.releases, other, allowance).is_some();
        let is_other = object.namespace != allowance.object.namespace;
        if release.is_none() && (is_other || allowance.objects().iter().any(is_of_release)) {
            return;
        }
        let now = Timestamp::now();
        let policy = release.as_ref().map(|(release, _)| self.resolver.of(release));
        let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
        self.notifiers.send(names, message(now, release.clone(), object, allowance, permitted));
        self.ledger.record(Row::allowance(now, release, object, allowance, permitted));
    }
}

/// The notification of an allowance that begins or ends.
fn message(
    now: Timestamp,
    release: Option<(ReleaseId, u64)>,
    object: &ObjectId,
    allowance: &Allowance,
    permitted: Permitted,
) -> Message {
    let Allowance { until, reason, by, version: (uid, generation), created, .. } = allowance;
    let since = created.filter(|_| *generation <= 1).unwrap_or(now);
    let (subject, at) = match permitted {
        Permitted::Opened => (Subject::ExceptionOpened, since),
        Permitted::Closed => (Subject::ExceptionClosed, now),
    };
    let (release, revision) = release.unzip();
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Message {
        since,
        release,
        revision,
        object: Some(object.clone()),
        namespace: object.namespace.as_deref().map(str::to_owned),
        by: said(&by.user),
        detail: said(reason),
        until: Some(*until),
        key: uid.clone(),
        ..Message::new(subject, at)
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
