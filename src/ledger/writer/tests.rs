//! The queue, and rows that find no room in it.

use crate::config;
use std::io::Write;

use tokio::time::timeout;

use super::handle::QUEUE;
use super::*;
use crate::ledger::opening::PATIENCE;
use crate::ledger::row::{GuardedObject, Repaired};
use crate::model::{ObjectId, ReleaseId};

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
    fn rows(&self) -> Vec<Entry> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| {
                let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                serde_json::from_value(line["ledger"].take()).unwrap()
            })
            .collect()
    }
}

fn row(number: usize) -> Row {
    let release = ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() };
    let object = ObjectId {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("shop".to_owned()),
        name: format!("c{number}"),
    };
    let of = GuardedObject { release: &release, revision: 1, object: &object };
    Row::repair(jiff::Timestamp::now(), of, Repaired::Recreated, Vec::new(), "")
}

fn ledger(url: &str, out: &Out) -> (Ledger, Writer) {
    let retention = Retention { age: Duration::MAX, rows: u64::MAX };
    let settings = config::Ledger { url: url.parse().unwrap(), cluster_name: None, retention };
    Ledger::spilling_to(out.clone(), settings, LedgerMetrics::default()).unwrap()
}

#[tokio::test]
async fn rows_beyond_the_full_queue_are_logged_without_blocking() {
    let out = Out::default();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let (ledger, writer) = ledger(&url, &out);
    // Nobody writes yet.
    for number in 0..QUEUE + 10 {
        ledger.record(row(number));
    }
    let (name, named) = oneshot::channel();
    name.send("east".to_owned()).unwrap();
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(named, closing).await;
    let spilled: Vec<_> = out.rows().into_iter().map(|row| row.object.name).collect();
    let expected: Vec<_> = (QUEUE..QUEUE + 10).map(|number| format!("c{number}")).collect();
    assert_eq!(spilled, expected);

    let store = Store::read(&url.parse().unwrap()).await.unwrap();
    let mut kept = 0;
    let mut filter = crate::ledger::query::Filter::default();
    loop {
        let page = store.page(&filter).await.unwrap();
        kept += page.items.len();
        let Some(next) = page.next else { break };
        filter.before = Some(next.parse().unwrap());
    }
    assert_eq!(kept, QUEUE);
}

#[tokio::test]
async fn yielding_rows_leave_half_of_the_queue_to_other_rows() {
    let out = Out::default();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let (ledger, writer) = ledger(&url, &out);
    // Nobody writes yet.
    for number in 0..QUEUE {
        ledger.record(Row { yields: true, ..row(number) });
    }
    for number in QUEUE..QUEUE + QUEUE / 2 {
        ledger.record(row(number));
    }
    let (name, named) = oneshot::channel();
    name.send("east".to_owned()).unwrap();
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(named, closing).await;
    let spilled: Vec<_> = out.rows().into_iter().map(|row| row.object.name).collect();
    // Standard output has bounds of its own.
    let first = format!("c{}", QUEUE / 2);
    assert_eq!(spilled.first(), Some(&first));
    assert!(!spilled.contains(&format!("c{QUEUE}")), "{}", spilled.len());
}

#[tokio::test]
async fn every_row_is_written_in_batches_and_one_by_one() {
    let out = Out::default();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("ledger.db").display());
    let (ledger, writer) = ledger(&url, &out);
    let (name, named) = oneshot::channel();
    name.send("east".to_owned()).unwrap();
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named, closing.clone()));
    let written = |rows: usize| {
        let metrics = ledger.shared.metrics.clone();
        async move {
            while metrics.rows_written(Written::Database) < rows {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let mut number = 0;
    // Of every size that a statement has, and others.
    for many in [1, 3, 4, 63, 400, 1, 2 * BATCH + 341, 1] {
        for _ in 0..many {
            ledger.record(row(number));
            number += 1;
        }
        timeout(PATIENCE, written(number)).await.unwrap();
    }
    closing.cancel();
    timeout(PATIENCE, writing).await.unwrap().unwrap();
    assert!(out.rows().is_empty());
}

#[tokio::test]
async fn every_row_is_logged_in_order_without_a_database() {
    let out = Out::default();
    let (ledger, writer) = ledger("sqlite:/proc/nowhere/ledger.db", &out);
    let (name, named) = oneshot::channel();
    name.send("east".to_owned()).unwrap();
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer.run(named, closing.clone()));
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
    let settings = config::Ledger { url, cluster_name: None, retention };
    let error = Ledger::new(settings, LedgerMetrics::default()).err().unwrap().to_string();
    assert!(error.starts_with("the ledger postgres://db:notaport/x cannot be used"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
