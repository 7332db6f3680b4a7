//! The rows, and a ledger that they are written to.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{LedgerRow, RowChange, RowChanges, RowKind};
use kubemoor_runtime::config::{self, LedgerUrl, Retention};
use kubemoor_runtime::metrics::{self, LedgerMetrics};
use kubemoor_verdict::shown::Shown;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Rows handed in at once: fewer than the queue holds.
const BURST: u64 = 4000;

pub(crate) const RELEASES: u64 = 1000;
pub(crate) const USERS: u64 = 200;

/// Who edits most, but never the release that is edited most, and is never refused.
pub(crate) const DEPLOYER: &str = "system:serviceaccount:ci:deployer";

/// One row in so many was refused, in each cluster that shares the ledger.
const DENIALS: u64 = 501;

/// One denial in so many may be of the release that is edited most: few clusters have any of it.
const FREQUENT_DENIALS: u64 = 50;

/// A ledger that is written to.
pub(crate) struct BenchLedger {
    ledger: LedgerHandle,
    registry: Registry,
    closing: CancellationToken,
    writing: JoinHandle<()>,
}

impl BenchLedger {
    /// Opens it.
    pub(crate) async fn start(url: &LedgerUrl) -> Self {
        let retention = Retention { age: Duration::MAX, rows: u64::MAX };
        let settings = config::LedgerSettings { url: url.clone(), retention };
        let mut registry = metrics::registry();
        let (ledger, writer) = LedgerHandle::new(settings, LedgerMetrics::register(&mut registry)).unwrap();
        let (name, named) = oneshot::channel();
        name.send("6f1c1b52-6a0e-4d61-9c40-0c7b9a2f4e10".to_owned()).unwrap();
        let closing = CancellationToken::new();
        let writing = tokio::spawn(writer.start(named, closing.clone()).unwrap());
        while ledger.store().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self { ledger, registry, closing, writing }
    }

    /// Hands rows in, as fast as they are written.
    pub(crate) async fn record(&self, rows: impl Iterator<Item = LedgerRow>) {
        for (number, row) in (1..).zip(rows) {
            self.ledger.record(row);
            if number % BURST == 0 {
                while metric(&self.registry, "kubemoor_ledger_queue ") > BURST {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Writes what is left. Says how many rows are in the database.
    pub(crate) async fn close(self) -> u64 {
        self.closing.cancel();
        self.writing.await.unwrap();
        metric(&self.registry, "kubemoor_ledger_rows_total{outcome=\"database\"} ")
    }
}

fn metric(registry: &Registry, name: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |value| value.parse().unwrap())
}

/// What an edit of a container's image leaves behind. Ten a second from `begin` on;
/// a third of them are of one release, a quarter of one user.
pub(crate) fn row(begin: Timestamp, number: u64) -> LedgerRow {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let release = if spread % 10 < 3 { 0 } else { spread % RELEASES };
    let denied =
        number.is_multiple_of(DENIALS) && (release != 0 || number.is_multiple_of(DENIALS * FREQUENT_DENIALS));
    let user = match spread / RELEASES {
        it if it % 10 < 4 && release != 0 && !denied => DEPLOYER.to_owned(),
        it => format!("user-{}@example.com", it / 10 % USERS),
    };
    let time = begin + SignedDuration::from_millis(i64::try_from(number * 100).unwrap());
    let verdict = if denied { "Deny" } else { "Warn" };
    edit(time, release, user, verdict, number)
}

/// An edit of the image of this release by this user.
pub(crate) fn edit(
    time: Timestamp,
    release: u64,
    user: String,
    verdict: &'static str,
    tag: u64,
) -> LedgerRow {
    let namespace = namespace_of(release);
    let object = ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: Some(namespace.clone().into()),
        name: format!("release-{release}-web").into(),
    };
    let path = "/spec/template/spec/containers/[name=app]/image";
    let shown = |tag: u64| {
        let image = json!(format!("registry.example.com/team/application:1.{tag}"));
        Some(Shown::new(&object, &path.parse().unwrap(), &image))
    };
    let change = RowChange {
        path: path.to_owned(),
        declared: shown(1),
        old: shown(1),
        new: shown(tag),
        difference: None,
    };
    LedgerRow {
        time,
        kind: RowKind::Verdict,
        release: Some((
            ReleaseId { namespace: namespace.into(), name: format!("release-{release}").into() },
            7,
        )),
        operation: Some(Operation::Update),
        actor: Actor {
            user,
            groups: vec!["developers".to_owned(), "system:authenticated".to_owned()],
            ..Actor::default()
        },
        verdict,
        reason: "drift",
        detail: String::new(),
        fields: RowChanges { listed: vec![change], more: 0 },
        uid: format!("{tag:08x}-0000-4000-8000-000000000000"),
        facts: Some(facts(&namespace_of(release), release, tag)),
        same: None,
        is_low_priority: false,
        object,
    }
}

fn namespace_of(release: u64) -> String {
    format!("team-{}", release % 50)
}

/// What the edit did, as the ledger keeps it.
fn facts(namespace: &str, release: u64, tag: u64) -> String {
    let name = format!("release-{release}");
    let image = |tag: u64| format!("registry.example.com/team/application:1.{tag}");
    let labels = json!({
        "app.kubernetes.io/name": "application", "app.kubernetes.io/instance": name,
        "app.kubernetes.io/version": "1.1", "helm.sh/chart": "application-7.1.0",
    });
    let change = json!({
        "path": "/spec/template/spec/containers/[name=app]/image", "is": "differs",
        "declared": image(1), "old": image(1), "new": image(tag),
    });
    json!({"edit": {
        "claims": [{
            "release": {"namespace": namespace, "name": name, "labels": {"team": namespace}},
            "revision": 7, "evidence": "canonical",
            "alternatives": [{"declared": {"version": "v1", "labels": labels}, "changes": [change]}],
        }],
        "manager": "kubectl-set",
    }})
    .to_string()
}
