//! Rows into the ledger and out of it, the same on SQLite and on PostgreSQL.

use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering::Relaxed, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubemoor_declare::model::{Actor, ObjectId, ReleaseId};
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::{EntryPage, Filter};
use kubemoor_ledger::row::{ExceptionEvent, LedgerRow, Repaired, RowChange, RowKind};
use kubemoor_ledger::store::Store;
use kubemoor_ledger::{LedgerHandle, LedgerWriter};
use kubemoor_policy::allowance::Allowance;
use kubemoor_runtime::config::{self, LedgerUrl, Retention};
use kubemoor_runtime::metrics::LedgerMetrics;
use kubemoor_verdict::shown::Shown;
use serde_json::json;
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Postgres, SOON, eventually, folder};

pub(crate) const FOREVER: Retention = Retention { age: Duration::MAX, rows: u64::MAX };

/// A ledger that is written to.
pub(crate) struct Written {
    pub(crate) ledger: LedgerHandle,
    closing: CancellationToken,
    writing: JoinHandle<()>,
}

impl Written {
    pub(crate) fn start(url: &LedgerUrl, cluster: &str, retention: Retention) -> Self {
        let settings = config::LedgerSettings { url: url.clone(), retention };
        let (ledger, writer): (LedgerHandle, LedgerWriter) =
            LedgerHandle::new(settings, LedgerMetrics::default()).unwrap();
        let (name, named) = oneshot::channel();
        name.send(cluster.to_owned()).unwrap();
        let closing = CancellationToken::new();
        Self { ledger, writing: tokio::spawn(writer.start(named, closing.clone()).unwrap()), closing }
    }

    /// Ends the writer, which writes everything first.
    pub(crate) async fn close(self) {
        self.closing.cancel();
        self.writing.await.unwrap();
    }
}

async fn postgres() -> LedgerUrl {
    static SERVER: OnceCell<Postgres> = OnceCell::const_new();
    SERVER.get_or_init(Postgres::start).await.database().parse().unwrap()
}

/// A new ledger of each kind.
pub(crate) async fn both() -> [LedgerUrl; 2] {
    [LedgerUrl::Sqlite(folder("ledger").join("ledger.db")), postgres().await]
}

fn object(kind: &str, namespace: &str, name: &str) -> ObjectId {
    let group = if kind == "Deployment" { "apps" } else { "" };
    ObjectId::namespaced(group, kind, namespace, name)
}

fn release(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: name.into() }
}

/// A row of `user`, this many seconds after some time in the past.
pub(crate) fn row(seconds: i64, namespace: &str, name: &str, user: &str, verdict: &'static str) -> LedgerRow {
    let time = begin() + SignedDuration::from_secs(seconds);
    let (id, object) = (release(namespace, name), object("Deployment", namespace, name));
    let detail = format!("row {seconds}");
    let row = LedgerRow::repair(time, (&id, 7), &object, Repaired::Recreated, Vec::new(), &detail);
    let actor = Actor { user: user.to_owned(), groups: vec!["people".to_owned()], ..Actor::default() };
    LedgerRow { verdict, actor, ..row }
}

pub(crate) fn begin() -> Timestamp {
    "2026-11-20T00:00:00Z".parse().unwrap()
}

/// An allowance of Alice's, made five seconds after some time in the past.
fn allowance(object: &ObjectId) -> Allowance {
    let resource = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
        "metadata": {
            "name": "a", "namespace": "shop", "uid": "u", "generation": 1,
            "creationTimestamp": (begin() + SignedDuration::from_secs(5)).to_string(),
        },
        "spec": {
            "object": {"group": object.group, "kind": object.kind, "name": object.name},
            "paths": ["/spec/unschedulable"], "until": "2026-11-20T01:00:00Z", "reason": "INC-1",
            "requestedBy": {"user": "alice", "groups": ["people", "ops"]},
        },
    });
    Allowance::compile(&serde_json::from_value(resource).unwrap()).unwrap()
}

pub(crate) fn details(page: &EntryPage) -> Vec<&str> {
    page.items.iter().map(|entry| entry.detail.as_str()).collect()
}

async fn everything(url: &LedgerUrl) -> Vec<LedgerEntry> {
    let store = Store::read(url).await.unwrap();
    let page = store.page(&Filter::default()).await.unwrap();
    store.close().await;
    page.items
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_comes_back_as_it_was_recorded() {
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        let config = object("ConfigMap", "shop", "settings");
        let shown = |value: &str| Some(Shown::new(&config, &"/data/a".parse().unwrap(), &json!(value)));
        let fields = vec![RowChange {
            path: "/data/a".to_owned(),
            declared: shown("1"),
            old: shown("1"),
            new: shown("2"),
            difference: None,
        }];
        let id = release("shop", "web");
        let time = begin() + SignedDuration::from_micros(123_456);
        let failed =
            LedgerRow::repair(time, (&id, 7), &config, Repaired::Failed, fields, "the server said \0no");
        written.ledger.record(failed);
        let node = ObjectId { namespace: None, ..object("Node", "", "n1") };
        let allowance = allowance(&node);
        // Whoever sees it, and however often.
        for now in [time, time + SignedDuration::from_secs(60)] {
            written.ledger.record(LedgerRow::allowance(now, None, &node, &allowance, ExceptionEvent::Opened));
        }
        written.close().await;

        let rows = everything(&url).await;
        let mut found = serde_json::to_value(&rows).unwrap();
        for row in found.as_array_mut().unwrap() {
            row.as_object_mut().unwrap().remove("id");
        }
        // Where in its second a row is that every guard writes says nothing.
        let opened = found[0]["time"].take();
        assert!(opened.as_str().unwrap().starts_with("2026-11-20T00:00:05"), "{opened}");
        let expected = json!([
            {
                "time": null, "kind": "allowance", "cluster": "east", "namespace": "",
                "release": null, "revision": null,
                "object": {"group": "", "kind": "Node", "namespace": null, "name": "n1"},
                "operation": null, "user": "alice", "groups": ["people", "ops"], "verdict": "Opened", "reason": "",
                "detail": "until 2026-11-20T01:00:00Z; INC-1", "fields": [{"path": "/spec/unschedulable"}], "moreFields": 0, "uid": "",
            },
            {
                "time": "2026-11-20T00:00:00.123456Z", "kind": "repair", "cluster": "east", "namespace": "shop",
                "release": "web", "revision": 7,
                "object": {"group": "", "kind": "ConfigMap", "namespace": "shop", "name": "settings"},
                "operation": null, "user": "", "groups": [], "verdict": "Failed", "reason": "drift",
                "detail": "the server said \u{fffd}no",
                "fields": [{"path": "/data/a", "declared": "\"1\"", "old": "\"1\"", "new": "\"2\""}],
                "moreFields": 0, "uid": "",
            },
        ]);
        assert_eq!(found, expected, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn every_writer_of_a_ledger_seals_with_its_one_key() {
    for url in both().await {
        let secret = object("Secret", "shop", "db");
        for value in ["aHVudGVyMg==", "aHVudGVyMg==", "b3RoZXI="] {
            let written = Written::start(&url, "east", FOREVER);
            let new = Some(Shown::new(&secret, &"/data/password".parse().unwrap(), &json!(value)));
            let fields = vec![RowChange {
                path: "/data/password".to_owned(),
                declared: None,
                old: None,
                new,
                difference: None,
            }];
            let id = release("shop", "db");
            written.ledger.record(LedgerRow::repair(
                Timestamp::now(),
                (&id, 1),
                &secret,
                Repaired::Restored,
                fields,
                "",
            ));
            written.close().await;
        }
        let hashes: Vec<_> =
            everything(&url).await.iter().map(|row| row.fields[0].new.clone().unwrap()).collect();
        let [third, second, first] = &hashes[..] else { panic!("{hashes:?}") };
        assert!(first.starts_with("(redacted "), "{first}");
        assert_eq!(first, second, "{url}");
        assert_ne!(first, third, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn event_seen_by_replicas_at_different_times_is_stored_once() {
    for url in both().await {
        let node = ObjectId { namespace: None, ..object("Node", "", "n1") };
        let allowance = allowance(&node);
        // It is taken back; nothing tells when, so that each says when it saw it.
        for seconds in [60, 63] {
            let written = Written::start(&url, "east", FOREVER);
            let now = begin() + SignedDuration::from_secs(seconds);
            written.ledger.record(LedgerRow::allowance(now, None, &node, &allowance, ExceptionEvent::Closed));
            written.close().await;
        }
        // Another cluster's is another, though it be named the same.
        let written = Written::start(&url, "west", FOREVER);
        written.ledger.record(LedgerRow::allowance(begin(), None, &node, &allowance, ExceptionEvent::Closed));
        written.close().await;
        let found: Vec<_> =
            everything(&url).await.into_iter().map(|row| (row.cluster, row.verdict, row.time)).collect();
        let [(east, closed, time), (west, _, _)] = &found[..] else { panic!("{url}: {found:?}") };
        assert_eq!((east.as_str(), closed.as_str(), west.as_str()), ("east", "Closed", "west"), "{url}");
        assert!(*time < begin() + SignedDuration::from_secs(62), "{url}: {time}");
    }
}

/// A column by which rows are asked for, in a filter and in a row.
type Asked = (fn(&mut Filter, String), fn(&LedgerEntry) -> &str, [&'static str; 3]);

#[tokio::test(flavor = "multi_thread")]
async fn filters_together_find_what_each_of_them_finds() {
    const ROWS: usize = 5000;
    let columns: [Asked; 4] = [
        (|filter, it| filter.namespace = Some(it), |row| &row.namespace, ["shop", "prod", "nowhere"]),
        (
            |filter, it| filter.release = Some(it),
            |row| row.release.as_deref().unwrap(),
            ["web", "db", "none"],
        ),
        (|filter, it| filter.user = Some(it), |row| &row.user, ["alice", "rare", "nobody"]),
        (|filter, it| filter.verdicts = vec![it], |row| &row.verdict, ["Warn", "Deny", "Failed"]),
    ];
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        for number in 0..i64::try_from(ROWS).unwrap() {
            let namespace = if number % 3 == 0 { "prod" } else { "shop" };
            let name = if number % 7 < 4 { "web" } else { "db" };
            let user = if number % 1000 == 17 { "rare" } else { "alice" };
            // Never of one release: frequent by itself, and not at all together.
            let verdict = if name == "db" && number % 2 == 0 { "Deny" } else { "Warn" };
            written.ledger.record(row(number, namespace, name, user, verdict));
        }
        written.close().await;
        let store = Store::read(&url).await.unwrap();
        let pages = async |mut filter: Filter| {
            let mut rows = Vec::new();
            loop {
                let page = store.page(&filter).await.unwrap();
                rows.extend(page.items);
                let Some(next) = page.next else { return rows };
                filter.before = Some(next.parse().unwrap());
            }
        };
        let all = pages(Filter::default()).await;
        assert_eq!(all.len(), ROWS, "{url}");
        // Each column asked for one of its three names, or not at all.
        for choice in 0..4_usize.pow(4) {
            let mut filter = Filter::default();
            let mut expected: Vec<&LedgerEntry> = all.iter().collect();
            for (place, (ask, of, names)) in (0..).zip(&columns) {
                let Some(name) = names.get(choice / 4_usize.pow(place) % 4) else { continue };
                ask(&mut filter, (*name).to_owned());
                expected.retain(|row| of(row) == *name);
            }
            let found = pages(filter.clone()).await;
            assert!(found.iter().eq(expected.iter().copied()), "{url}: {filter:?}: {} rows", found.len());
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_surplus_rows_go_while_others_are_written() {
    for url in both().await {
        let now = Timestamp::now();
        let at = |age: i64, user: &str| LedgerRow {
            time: now - SignedDuration::from_secs(age),
            ..row(age, "shop", "web", user, "Deny")
        };
        let written = Written::start(&url, "east", FOREVER);
        for age in 0..3000 {
            written.ledger.record(at(100_000 - age, "old"));
            written.ledger.record(at(50_000 - age, "surplus"));
        }
        for age in 0..100 {
            written.ledger.record(at(1000 - age, "recent"));
        }
        written.close().await;
        let other = Written::start(&url, "west", FOREVER);
        other.ledger.record(at(200_000, "elsewhere"));
        other.close().await;

        let retention = Retention { age: Duration::from_secs(80_000), rows: 150 };
        let trimmed = Written::start(&url, "east", retention);
        let store = Store::read(&url).await.unwrap();
        let count = async |user: &str| {
            let filter = Filter { user: Some(user.to_owned()), limit: Some(1000), ..Filter::default() };
            store.page(&filter).await.unwrap().items.len()
        };
        let asked = AtomicUsize::new(0);
        let ask = || async {
            // However often it is asked, the recent ones have room.
            if asked.fetch_add(1, Relaxed) < 40 {
                trimmed.ledger.record(at(0, "writer"));
            }
            let (old, surplus) = (count("old").await, count("surplus").await);
            if old == 0 && surplus < 60 { Ok(()) } else { Err(format!("{old} old, {surplus} surplus")) }
        };
        eventually("what is old or too much is deleted", SOON, ask).await;
        assert_eq!((count("recent").await, count("elsewhere").await), (100, 1), "{url}");
        eventually("those meanwhile are written", SOON, || async { count("writer").await > 0 }).await;
        store.close().await;
        trimmed.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_one_namespace_pushes_out_no_rows_of_others() {
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        for number in 0..30 {
            written.ledger.record(row(number, "shop", "web", "alice", "Deny"));
        }
        for number in 30..3030 {
            written.ledger.record(row(number, "loud", "web", "mallory", "Deny"));
        }
        written.close().await;
        let trimmed = Written::start(&url, "east", Retention { rows: 100, ..FOREVER });
        let store = Store::read(&url).await.unwrap();
        let of = async |user: &str| {
            let filter = Filter { user: Some(user.to_owned()), limit: Some(1000), ..Filter::default() };
            details(&store.page(&filter).await.unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let loud = eventually("the flood is trimmed", SOON, || async {
            let loud = of("mallory").await;
            if loud.len() <= 70 { Ok(loud) } else { Err(format!("{} rows", loud.len())) }
        })
        .await;
        assert_eq!((loud.len(), loud[0].as_str(), loud[69].as_str()), (70, "row 3029", "row 2960"), "{url}");
        assert_eq!(of("alice").await.len(), 30, "{url}");
        store.close().await;
        trimmed.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_refusals_within_a_minute_are_one_row_with_a_count() {
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        let refusal = |seconds, user| {
            let row = row(seconds, "shop", "web", user, "Deny");
            LedgerRow { kind: RowKind::Verdict, detail: String::new(), ..row }
        };
        for second in 0..50 {
            written.ledger.record(refusal(second, "mallory"));
            written.ledger.record(refusal(second, if second < 2 { "alice" } else { "mallory" }));
        }
        written.ledger.record(refusal(70, "mallory"));
        written.close().await;
        let rows: Vec<_> = everything(&url).await.into_iter().map(|row| (row.user, row.repeats)).collect();
        let expected =
            [("mallory", 0), ("alice", 1), ("mallory", 97)].map(|(user, count)| (user.to_owned(), count));
        assert_eq!(rows, expected, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_write_to_one_database_at_once() {
    let url = postgres().await;
    let replicas = [Written::start(&url, "east", FOREVER), Written::start(&url, "east", FOREVER)];
    for number in 0..500 {
        for (replica, user) in replicas.iter().zip(["one", "two"]) {
            replica.ledger.record(row(number, "shop", "web", user, "Deny"));
        }
    }
    for replica in replicas {
        replica.close().await;
    }
    assert_eq!(everything(&url).await.len(), 1000);
}
