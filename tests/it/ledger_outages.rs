//! A guard whose ledger fails: it judges on, rows go to standard output, and the ledger recovers by itself.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Guard, Postgres, SOON, Scene, charts, data_review, eventually, folder, items,
};

/// A guard of one release in a directory, with this ledger.
pub(crate) async fn guard(ledger: &str) -> Guard {
    Guard::start_embedded(&["--edits=Deny", &format!("--ledger={ledger}")]).await
}

/// Has an edit refused that carries this value.
pub(crate) async fn refused(guard: &Guard, value: &str) {
    let [old, new] = ["a", value].map(|image| json!({"image": image}));
    let reply = guard.judge(data_review(("shop", "web"), "settings", &old, &new)).await;
    assert!(reply.refusal().contains("/data/image"), "{reply:?}");
}

/// The new values in the rows that went to standard output.
pub(crate) fn spilled(guard: &Guard) -> Vec<String> {
    let lines = guard.log();
    let rows = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.filter_map(|row| Some(row.get("ledger")?["fields"][0]["new"].as_str()?.to_owned())).collect()
}

/// The new values in the rows of the database.
pub(crate) fn kept(ledger: &str) -> Vec<String> {
    kept_by(&[], ledger)
}

/// The same, where these words stand before the command that asks.
pub(crate) fn kept_by(prefix: &[String], ledger: &str) -> Vec<String> {
    let words = [prefix, &[env!("CARGO_BIN_EXE_kubemoor").to_owned()]].concat();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let output =
        command.args(["audit", "--ledger", ledger, "-A", "-o", "json", "--limit", "0"]).output().unwrap();
    // A database that is still starting cannot be asked.
    if !output.status.success() {
        return Vec::new();
    }
    let rows = items(&String::from_utf8_lossy(&output.stdout));
    rows.into_iter()
        .filter_map(|row| {
            assert_eq!(row["cluster"], "here");
            Some(row["fields"][0]["new"].as_str()?.to_owned())
        })
        .collect()
}

fn quoted(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| format!("\"{value}\"")).collect()
}

/// Through a real API server, which waits for each answer.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn database_outage_loses_no_row_and_ledger_recovers() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let shop = Scene::on(ControlPlane::start()).install("outage", charts::IMAGE_AND_COLOR).await;
    let to = format!("--ledger={ledger}");
    let mut guard = shop.start_guard(&["--register", "--edits=Deny", "--cluster-name=here", &to]).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let denied = async |value: &str| {
        shop.data("settings", json!({"image": value})).await.refusal().unwrap();
    };
    denied("before").await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == quoted(&["before"]) }).await;
    server.kill();
    denied("meanwhile").await;
    // Kubernetes 1.20 asks again about an edit that is refused, and only a database counts equal rows as one.
    eventually("the row is on standard output", SOON, || async {
        let mut rows = spilled(&guard);
        let counted = format!("kubemoor_ledger_rows_total{{outcome=\"unavailable\"}} {}\n", rows.len());
        rows.dedup();
        rows == quoted(&["meanwhile"]) && guard.metrics().await.contains(&counted)
    })
    .await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    guard.wait_for_log("the ledger is unavailable").await;

    server.start_again().await;
    let number = std::sync::atomic::AtomicU32::new(0);
    eventually("rows are kept again", SOON, || async {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        denied(&format!("after{number}")).await;
        kept(&ledger).len() > 1
    })
    .await;
    guard.wait_for_metric("kubemoor_ledger_up 1").await;
    assert!(guard.terminate().success());
    // No edit is lost. `ledger_faults` asks the guard itself, and shows that no row is in both places.
    let mut all = [kept(&ledger), spilled(&guard)].concat();
    all.sort();
    all.dedup();
    let after = (0..number.into_inner()).map(|number| format!("\"after{number}\""));
    let mut expected: Vec<_> = quoted(&["before", "meanwhile"]).into_iter().chain(after).collect();
    expected.sort();
    assert_eq!(all, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_replaced_by_an_empty_one_takes_rows_again() {
    let server = Postgres::start().await;
    let ledger = server.database();
    let mut guard = guard(&ledger).await;
    refused(&guard, "before").await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == quoted(&["before"]) }).await;
    let name = ledger.rsplit('/').next().unwrap();
    let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    eventually("the database is dropped", SOON, || async {
        server.psql("postgres", &ended)?;
        server.psql("postgres", &format!("DROP DATABASE IF EXISTS {name}"))
    })
    .await;
    server.psql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    let number = std::sync::atomic::AtomicU32::new(0);
    eventually("rows are kept in the new one", SOON, || async {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        refused(&guard, &format!("after{number}")).await;
        !kept(&ledger).is_empty()
    })
    .await;
    guard.wait_for_metric("kubemoor_ledger_up 1").await;
    assert!(guard.terminate().success());
    // Each row of after is in one place.
    let mut all = [kept(&ledger), spilled(&guard)].concat();
    all.sort();
    let mut expected: Vec<_> = (0..number.into_inner()).map(|number| format!("\"after{number}\"")).collect();
    expected.sort();
    assert_eq!(all, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_works_if_ledger_cannot_be_created() {
    let mut guard = guard("sqlite:/proc/nowhere/ledger.db").await;
    refused(&guard, "b").await;
    eventually("the row is on standard output", SOON, || async { spilled(&guard) == quoted(&["b"]) }).await;
    assert!(guard.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_rows_are_written_before_shutdown() {
    let ledger = format!("sqlite:{}", folder("ledger").join("ledger.db").display());
    let mut guard = guard(&ledger).await;
    let values: Vec<_> = (0..50).map(|number| format!("v{number}")).collect();
    for value in &values {
        refused(&guard, value).await;
    }
    assert!(guard.terminate().success());
    let expected: Vec<_> = values.iter().map(|value| format!("\"{value}\"")).collect();
    assert_eq!(kept(&ledger), expected);
}
