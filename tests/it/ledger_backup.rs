//! The commands of docs/ledger.md that back a ledger up and restore it: the same rows are there, and the guard writes on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::ledger_outages::{guard, kept, refused};
use crate::support::{Document, Guard, Postgres, SOON, eventually, folder, items, run, statements};

/// The commands below a heading: those that back up, and those that restore.
fn commands(heading: &str) -> [String; 2] {
    let blocks = Document::named("docs/ledger.md").blocks();
    let own = blocks.into_iter().filter(|block| block.heading == heading && block.language == "console");
    let texts: Vec<_> = own.map(|block| block.text).collect();
    assert!(texts.iter().all(|text| !statements(text).is_empty()), "{texts:?}");
    texts.try_into().unwrap_or_else(|texts| panic!("{heading} has other commands: {texts:?}"))
}

/// Runs commands in a folder, as a person would who has this ledger and these programs.
fn bash(commands: &str, folder: &Path, (ledger, programs): (&str, &Path)) {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", commands]).current_dir(folder);
    let output = command.env("PATH", path).env("KUBEMOOR_LEDGER", ledger).output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The rows of denied edits, as `kubemoor audit` shows them.
fn rows(ledger: &str) -> Vec<Value> {
    let denied = ["audit", "--ledger", ledger, "-A", "--verdict", "Deny", "-o", "json", "--limit", "0"];
    let ran = run(&denied, "");
    assert_eq!(ran.code, 0, "{ran:?}");
    items(&ran.out)
}

/// Has edits refused, and waits until the ledger has so many rows.
async fn refuse(guard: &Guard, ledger: &str, (values, rows): (&[&str], usize)) {
    for value in values {
        refused(guard, value).await;
    }
    eventually(&format!("the ledger has {rows} rows"), SOON, || async {
        let kept = kept(ledger);
        if kept.len() == rows { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
}

/// Backs a ledger up while the guard writes, loses and restores it while the guard is stopped.
async fn survives(heading: &str, folder: &Path, (ledger, programs): (&str, &Path), lose: impl FnOnce()) {
    let [back_up, restore] = commands(heading);
    let mut guard = guard(ledger).await;
    refuse(&guard, ledger, (&["a1", "a2"], 2)).await;
    let before = rows(ledger);
    bash(&back_up, folder, (ledger, programs));
    refuse(&guard, ledger, (&["lost"], 3)).await;
    assert!(guard.terminate().success(), "{}", guard.log());
    lose();
    bash(&restore, folder, (ledger, programs));
    assert_eq!(rows(ledger), before);
    guard.start_again().await;
    refuse(&guard, ledger, (&["b1", "b2"], 4)).await;
    assert_eq!(rows(ledger)[..2], before);
    assert!(guard.terminate().success(), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_sqlite_ledger_shows_the_same_rows_and_takes_more() {
    let folder = folder("ledger");
    let ledger = format!("sqlite:{}", folder.join("ledger.db").display());
    let lose = || fs::write(folder.join("ledger.db"), "nothing of it is left").unwrap();
    survives("### An SQLite file", &folder, (&ledger, Path::new("/usr/bin")), lose).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_postgresql_ledger_shows_the_same_rows_and_takes_more() {
    let server = Postgres::start().await;
    let ledger = server.database();
    let name = ledger.rsplit_once('/').unwrap().1;
    let lose = || {
        server.psql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
        server.psql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    };
    survives("### PostgreSQL", &folder("ledger"), (&ledger, server.programs()), lose).await;
}
