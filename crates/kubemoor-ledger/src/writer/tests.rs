//! The queue, and rows that find no room in it.

use std::io::Write;

use super::*;
use crate::id;
use crate::row::Repaired;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_runtime::config;
use tempfile::TempDir;

/// Standard output as a test reads it.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<Vec<u8>>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Out {
    fn rows(&self) -> Vec<LedgerEntry> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| {
                let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                serde_json::from_value(line["ledger"].take()).unwrap()
            })
            .collect()
    }
}

fn row(number: usize) -> LedgerRow {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    let object = ObjectId::namespaced("", "ConfigMap", "shop", &format!("c{number}"));
    LedgerRow::repair(jiff::Timestamp::now(), (&release, 1), &object, Repaired::Recreated, Vec::new(), "")
}

/// A ledger at this URL that keeps so many rows.
fn ledger(url: &str, rows: u64, out: &Out) -> (LedgerHandle, LedgerWriter) {
    let retention = Retention { age: Duration::MAX, rows };
    let settings = config::LedgerSettings { url: url.parse().unwrap(), retention };
    LedgerHandle::spilling_to(out.clone(), settings, LedgerMetrics::default()).unwrap()
}

/// The URL of a database in this directory.
fn database_in(directory: &TempDir) -> String {
    format!("sqlite:{}", directory.path().join("ledger.db").display())
}

/// The name of the cluster, which is known from the start.
fn named() -> oneshot::Receiver<String> {
    let (name, named) = oneshot::channel();
    name.send("east".to_owned()).unwrap();
    named
}

/// Writes the queued rows.
async fn drain(writer: LedgerWriter) {
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(named(), closing).await;
}

/// Waits until the database has so many rows.
async fn until_written(ledger: &LedgerHandle, rows: usize) {
    let written = async {
        while ledger.shared.metrics.rows_written(LedgerWriteResult::Database) < rows {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, written).await.expect("the rows are written");
}

#[tokio::test]
async fn rows_beyond_the_full_queue_are_logged_without_blocking() {
    let (out, directory) = (Out::default(), tempfile::tempdir().unwrap());
    let url = database_in(&directory);
    let (ledger, writer) = ledger(&url, u64::MAX, &out);
    // Nobody writes yet.
    for number in 0..QUEUE + 10 {
        ledger.record(row(number));
    }
    drain(writer).await;
    let spilled: Vec<_> = out.rows().into_iter().map(|row| row.object.name).collect();
    let expected: Vec<_> = (QUEUE..QUEUE + 10).map(|number| format!("c{number}")).collect();
    assert_eq!(spilled, expected);

    let store = Store::read(&url.parse().unwrap()).await.unwrap();
    let mut kept = 0;
    let mut filter = crate::query::Filter::default();
    loop {
        let page = store.page(&filter).await.unwrap();
        kept += page.items.len();
        let Some(next) = page.next else { break };
        filter.before = Some(next.parse().unwrap());
    }
    assert_eq!(kept, QUEUE);
}

#[tokio::test]
async fn old_rows_are_deleted_though_their_deletion_broke_down() {
    let directory = tempfile::tempdir().unwrap();
    let (ledger, mut writer) = ledger(&database_in(&directory), 1, &Out::default());
    writer.shared.cluster.set("east".to_owned()).unwrap();
    writer.attempt_to_open().await;
    writer.open.as_ref().unwrap().trimming.abort();
    (0..3).for_each(|number| ledger.record(row(number)));
    let closing = CancellationToken::new();
    let (_, unnamed) = oneshot::channel();
    let writing = tokio::spawn(writer.run(unnamed, closing.clone()));
    let store = ledger.shared.store.lock().clone().unwrap().0;
    until_written(&ledger, 3).await;
    let deleted = async {
        while store.page(&crate::query::Filter::default()).await.unwrap().items.len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, deleted).await.expect("old rows are deleted");
    closing.cancel();
    writing.await.unwrap();
}

#[tokio::test]
async fn yielding_rows_leave_half_of_the_queue_to_other_rows() {
    let (out, directory) = (Out::default(), tempfile::tempdir().unwrap());
    let url = database_in(&directory);
    let (ledger, writer) = ledger(&url, u64::MAX, &out);
    // Nobody writes yet.
    for number in 0..QUEUE {
        ledger.record(LedgerRow { is_low_priority: true, ..row(number) });
    }
    for number in QUEUE..QUEUE + QUEUE / 2 {
        ledger.record(row(number));
    }
    drain(writer).await;
    let spilled: Vec<_> = out.rows().into_iter().map(|row| row.object.name).collect();
    // Standard output has bounds of its own.
    let first = format!("c{}", QUEUE / 2);
    assert_eq!(spilled.first(), Some(&first));
    assert!(!spilled.contains(&format!("c{QUEUE}")), "{}", spilled.len());
}

/// The rows of a ledger, newest first.
async fn rows_of(url: &str) -> Vec<LedgerEntry> {
    let store = Store::read(&url.parse().unwrap()).await.unwrap();
    let page = store.page(&crate::query::Filter::default()).await.unwrap();
    store.close().await;
    page.items
}

#[tokio::test]
async fn flood_of_one_namespace_pushes_out_no_rows_of_others() {
    let (out, directory) = (Out::default(), tempfile::tempdir().unwrap());
    let url = database_in(&directory);
    let in_namespace = |namespace: &str, number| {
        let object = ObjectId::namespaced("", "ConfigMap", namespace, &format!("c{number}"));
        LedgerRow { release: None, object, ..row(number) }
    };
    let (flooded, writer) = ledger(&url, u64::MAX, &out);
    (0..3).for_each(|number| flooded.record(in_namespace("quiet", number)));
    (0..100).for_each(|number| flooded.record(in_namespace("loud", number)));
    (0..5).for_each(|number| flooded.record(in_namespace("other", number)));
    drain(writer).await;

    let (_ledger, writer) = ledger(&url, 20, &out);
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named(), closing.clone()));
    let count =
        |rows: &[LedgerEntry], namespace: &str| rows.iter().filter(|row| row.namespace == namespace).count();
    let trimmed = async {
        while count(&rows_of(&url).await, "loud") > 12 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, trimmed).await.expect("the flood is trimmed");
    closing.cancel();
    writing.await.unwrap();
    let rows = rows_of(&url).await;
    assert_eq!(["quiet", "other", "loud"].map(|namespace| count(&rows, namespace)), [3, 5, 12]);
    let newest: Vec<_> = rows.iter().filter(|row| row.namespace == "loud").collect();
    assert_eq!(newest.last().unwrap().object.name, "c88", "the oldest go");
}

#[tokio::test]
async fn equal_refusals_within_a_minute_are_one_row_with_a_count() {
    let (out, directory) = (Out::default(), tempfile::tempdir().unwrap());
    let url = database_in(&directory);
    let (ledger, writer) = ledger(&url, u64::MAX, &out);
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named(), closing.clone()));
    let refusal = |number| LedgerRow { kind: crate::row::RowKind::Verdict, verdict: "Deny", ..row(number) };
    // One after the other, then in one batch.
    for written in 1..=6 {
        ledger.record(refusal(1));
        until_written(&ledger, written).await;
    }
    (0..4).for_each(|_| ledger.record(refusal(1)));
    ledger.record(refusal(2));
    until_written(&ledger, 11).await;
    closing.cancel();
    writing.await.unwrap();
    let told: Vec<_> = rows_of(&url).await.into_iter().map(|row| (row.object.name, row.repeats)).collect();
    assert_eq!(told, [("c2".to_owned(), 0), ("c1".to_owned(), 9)]);
    assert!(out.rows().is_empty());
}

#[tokio::test]
async fn every_row_is_written_in_batches_and_one_by_one() {
    let (out, directory) = (Out::default(), tempfile::tempdir().unwrap());
    let url = database_in(&directory);
    let (ledger, writer) = ledger(&url, u64::MAX, &out);
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named(), closing.clone()));
    let mut number = 0;
    // Of every size that a statement has, and others.
    for many in [1, 3, 4, 63, 400, 1, 2 * BATCH + 341, 1] {
        for _ in 0..many {
            ledger.record(row(number));
            number += 1;
        }
        until_written(&ledger, number).await;
    }
    closing.cancel();
    timeout(PATIENCE, writing).await.unwrap().unwrap();
    assert!(out.rows().is_empty());
}

#[tokio::test]
async fn every_row_is_logged_in_order_without_a_database() {
    let out = Out::default();
    let (ledger, writer) = ledger("sqlite:/proc/nowhere/ledger.db", u64::MAX, &out);
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named(), closing.clone()));
    for number in 0..100 {
        ledger.record(row(number));
    }
    closing.cancel();
    writing.await.unwrap();
    let rows = out.rows();
    assert!(rows.iter().all(|row| row.cluster == "east"), "{rows:?}");
    let names: Vec<_> = rows.into_iter().map(|row| row.object.name).collect();
    let expected: Vec<_> = (0..100).map(|number| format!("c{number}")).collect();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn invalid_ledger_url_fails_at_once_without_showing_the_password() {
    let retention = Retention { age: Duration::MAX, rows: 1 };
    let url: LedgerUrl = "postgres://moor:hunter2@db:notaport/x".parse().unwrap();
    let settings = config::LedgerSettings { url, retention };
    let error = LedgerHandle::new(settings, LedgerMetrics::default()).err().unwrap().to_string();
    assert!(error.starts_with("the ledger postgres://db:notaport/x cannot be used"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

/// A refusal so many seconds after the first, with this reason.
fn refusal(seconds: i64, reason: &str) -> LedgerEntry {
    let time: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
    let id = id::first(time + SignedDuration::from_secs(seconds)) + seconds;
    let text = serde_json::json!({
        "id": id.to_string(), "time": time + SignedDuration::from_secs(seconds), "kind": "verdict",
        "cluster": "east", "namespace": "shop", "release": "web", "revision": 3,
        "object": {"group": "", "kind": "ConfigMap", "namespace": "shop", "name": "settings"},
        "operation": "UPDATE", "user": "mallory", "groups": [], "verdict": "Deny", "reason": reason,
        "detail": "", "fields": [{"path": "/data/a", "new": "b"}], "moreFields": 0, "uid": id.to_string(),
    });
    serde_json::from_value(text).unwrap()
}

fn folded(refusals: &mut Refusals, entries: &[LedgerEntry]) -> usize {
    refusals.fold(entries).rows.len()
}

#[test]
fn equal_refusals_within_a_minute_are_counted_on_the_first() {
    let mut refusals = Refusals::default();
    let first = refusal(0, "drift").id;
    let entries = [refusal(0, "drift"), refusal(1, "drift"), refusal(2, "drift")];
    let batch = refusals.fold(&entries);
    assert_eq!((batch.rows, batch.repeats), (vec![&entries[0]], BTreeMap::from([(first, 2)])));
    let later = [refusal(59, "drift")];
    let batch = refusals.fold(&later);
    assert_eq!((batch.rows, batch.repeats), (vec![], BTreeMap::from([(first, 3)])));
    let next = [refusal(61, "drift"), refusal(62, "drift")];
    assert_eq!(folded(&mut refusals, &next), 1, "another minute");
}

#[test]
fn whatever_differs_is_a_row_of_its_own() {
    let change = |change: fn(&mut LedgerEntry)| {
        let mut entry = refusal(1, "drift");
        change(&mut entry);
        entry
    };
    for entry in [
        change(|entry| entry.user = "alice".to_owned()),
        change(|entry| entry.groups = vec!["people".to_owned()]),
        change(|entry| entry.object.name = "other".to_owned()),
        change(|entry| entry.operation = Some("DELETE".to_owned())),
        change(|entry| entry.reason = "busy".to_owned()),
        change(|entry| entry.revision = Some(4)),
        change(|entry| entry.fields.iter_mut().for_each(|field| field.new = Some("c".to_owned()))),
        // No refusals.
        change(|entry| entry.verdict = "Warn".to_owned()),
        change(|entry| entry.kind = "repair".to_owned()),
        // The clock was set back.
        change(|entry| entry.time -= SignedDuration::from_hours(1)),
    ] {
        assert_eq!(folded(&mut Refusals::default(), &[refusal(0, "drift"), entry.clone()]), 2, "{entry:?}");
    }
}

#[test]
fn refusals_of_the_last_minute_are_remembered_within_a_bound() {
    let mut refusals = Refusals::default();
    let many = i64::try_from(MOST_REFUSALS).unwrap() * 2;
    let flood: Vec<_> = (0..many).map(|number| refusal(1, &format!("r{number}"))).collect();
    assert_eq!(folded(&mut refusals, &flood), MOST_REFUSALS * 2);
    assert!(refusals.first.len() <= MOST_REFUSALS);
    refusals.fold(&[refusal(2, "drift")]);
    refusals.forget();
    assert_eq!(folded(&mut refusals, &[refusal(3, "drift")]), 1);
}
