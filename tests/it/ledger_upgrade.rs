//! Databases of before: every row stays, is found by what is searched for, and is covered by the indexes of this version.

use std::time::Duration;

use kubemoor_ledger::query::Filter;
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, raw_sql};

use crate::ledger::{FOREVER, Written, row};
use crate::ledger_months::Shared;
use crate::support::{SOON, eventually, folder};

/// Rows as the program wrote them whose indexes held hashes of names, and the same as JSON.
const WRITTEN: &str = include_str!("ledger_before.sql");
const EXPECTED: &str = include_str!("ledger_before.json");

/// The tables of that program, in SQLite.
const SQLITE: [&str; 4] = [
    include_str!("../../crates/kubemoor-ledger/src/migrations/sqlite.1.sql"),
    include_str!("../../crates/kubemoor-ledger/src/migrations/sqlite.2.sql"),
    include_str!("../../crates/kubemoor-ledger/src/migrations/sqlite.3.sql"),
    include_str!("../../crates/kubemoor-ledger/src/migrations/sqlite.4.sql"),
];

/// Has a guard open the ledger and add a row; all rows of before are there and found.
async fn check(url: &LedgerUrl) {
    let written = Written::start(url, "east", FOREVER);
    written.ledger.record(row(3_000_000, "shop", "web", "alice", "Deny"));
    written.close().await;
    let store = Store::read(url).await.unwrap();
    let page = async |filter: Filter| store.page(&filter).await.unwrap().items;
    let all = page(Filter::default()).await;
    assert_eq!(all[0].detail, "row 3000000", "{url}");
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    assert_eq!(serde_json::to_value(&all[1..]).unwrap(), expected, "{url}");
    for row in &all {
        let filter = Filter {
            cluster: Some(row.cluster.clone()),
            namespace: Some(row.namespace.clone()),
            release: row.release.clone(),
            user: Some(row.user.clone()),
            verdicts: vec![row.verdict.clone()],
            object: Some(row.object.short().parse().unwrap()),
            ..Filter::default()
        };
        assert_eq!(page(filter).await, std::slice::from_ref(row), "{url}");
    }
    let edits = page(Filter { facts: true, ..Filter::default() }).await;
    let mut edits = edits.iter().filter(|row| row.kind == "verdict");
    assert_eq!(edits.nth(1).unwrap().facts.as_deref(), Some("{\"edit\":\"cut\"}"), "{url}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_of_before_keeps_every_row() {
    let file = folder("upgrade").join("ledger.db");
    let url = LedgerUrl::Sqlite(file.clone());
    Written::start(&url, "east", FOREVER).close().await;
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    let undo = "DROP VIEW ledger; DROP TABLE entries; DROP TABLE clusters; DROP TABLE sealing_key; \
                DELETE FROM kubemoor_migrations WHERE version > 4";
    for script in [undo].into_iter().chain(SQLITE).chain([WRITTEN]) {
        raw_sql(script).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    check(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn months_of_before_keep_every_row_and_get_indexes() {
    let shared = Shared::start().await;
    Written::start(&shared.url, "east", FOREVER).close().await;
    shared.make_older(8);
    shared.ask("TRUNCATE clusters RESTART IDENTITY CASCADE");
    shared.ask(WRITTEN);
    shared.ask("INSERT INTO entry_marks SELECT cluster, same, id FROM entries WHERE same IS NOT NULL");
    check(&shared.url).await;
    // A guard of before still writes to it.
    let columns = "revision, more_fields, namespace_key, release_key, user_key, verdict_key, cluster, kind, namespace, \
                   release, object_group, object_kind, object_name, user_name, user_groups, verdict, reason, fields, uid";
    shared.ask(&format!(
        "INSERT INTO entries (id, detail, {columns}) SELECT 9223372036854771712, 'of before', {columns} FROM entries \
         WHERE user_name = 'mallory'"
    ));
    // The next guard that looks for old rows builds the indexes, also those that one before it left half built.
    let indexes = "SELECT count(*) FILTER (WHERE NOT indisvalid), count(*) FROM pg_index \
                   WHERE indrelid = 'entries'::regclass";
    eventually("all indexes are built", SOON, || async {
        let guard = Written::start(&shared.url, "west", FOREVER);
        tokio::time::sleep(Duration::from_millis(500)).await;
        guard.close().await;
        let found = shared.ask(indexes);
        if found == "0|7" { Ok(()) } else { Err(found) }
    })
    .await;
    let store = Store::read(&shared.url).await.unwrap();
    let rows =
        store.page(&Filter { user: Some("mallory".to_owned()), ..Filter::default() }).await.unwrap().items;
    assert_eq!(rows.iter().map(|row| row.detail.as_str()).collect::<Vec<_>>(), ["of before", ""]);
    store.close().await;
}
