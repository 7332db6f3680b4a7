//! `kubemoor policy replay`: what the ledger keeps for it, and what it tells from a database and from a guard.

use std::fs;
use std::path::PathBuf;

use kubemoor_ledger::query::Filter;
use kubemoor_ledger::row::LedgerRow;
use kubemoor_ledger::store::Store;
use serde_json::{Value, json};

use crate::ledger::{FOREVER, Written, both, row};
use crate::support::{
    ControlPlane, Guard, Identity, SOON, Scene, charts, data_review, drift_policy, eventually, folder, moor,
};

/// A directory with one policy.
fn policies(spec: &Value) -> PathBuf {
    let folder = folder("policies");
    fs::write(folder.join("new.yaml"), drift_policy("new", spec).to_string()).unwrap();
    folder
}

/// The exit code and the report of a replay, or its error: a ledger may have no tables yet.
fn replay(spec: &Value, arguments: &[&str]) -> (i32, Value) {
    let directory = policies(spec);
    let first = ["policy", "replay", directory.to_str().unwrap(), "-o", "json"];
    let ran = moor(ControlPlane::get(), Identity::Alice, &[&first, arguments].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|_| ran.error.into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_change_passes_replay_with_policy_that_ignores_it() {
    let shop = Scene::shared().install("replay", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let patch = json!({"data": {"level": "debug"}});
    shop.alice.merge(&settings, &patch).await.refused("shop").unwrap();
    let database = shop.guard().database();
    let asked = shop.guard().asked();
    let here = ["-n", &shop.namespace, "--since", "1h"];

    let ignoring =
        json!({"edits": "Deny", "ignore": [{"target": {"kind": "ConfigMap"}, "paths": ["/data/level"]}]});
    eventually("the denial is replayed", SOON, || async {
        let (code, told) = replay(&ignoring, &[&[database.as_str()], &here[..]].concat());
        if code == 0 && told["permitted"] == 1 { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    let (_, told) = replay(&ignoring, &[&[database.as_str()], &here[..]].concat());
    let changed = &told["changes"][0];
    assert_eq!(
        (&changed["user"], &changed["field"], &changed["was"], &changed["now"], &changed["rule"]),
        (
            &json!("alice"),
            &json!("/data/level"),
            &json!("Deny"),
            &json!("Allow"),
            &json!("ignore (policy new)")
        ),
    );
    // The guard gives what its database holds.
    let (code, by_guard) = replay(&ignoring, &[&asked[..], &here].concat());
    assert_eq!((code, &by_guard["changes"], &by_guard["edits"]), (0, &told["changes"], &told["edits"]));

    // Helm's own writes are among what is replayed.
    let operators = json!({"edits": "Deny", "operators": [{"kind": "User", "name": "nobody"}]});
    let (code, told) = replay(&operators, &[&[database.as_str()], &here[..]].concat());
    let changes = told["changes"].as_array().unwrap();
    assert!(code == 1 && changes.iter().all(|change| change["rule"] == "operators"), "{told}");
    let (code, told) = replay(&json!({"edits": "Deny"}), &[&[database.as_str()], &here[..]].concat());
    assert_eq!((code, &told["refused"]), (0, &json!(0)), "{told}");
    assert_eq!(told["notReplayable"], json!({}), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permitted_change_is_stored_once_an_hour_for_stricter_replay() {
    let directory = policies(&json!({"ignore": [{"paths": ["/data/image"]}]}));
    let flags = ["--edits=Deny".to_owned(), format!("--policies={}", directory.display())];
    let guard = Guard::start_embedded(&flags.each_ref().map(String::as_str)).await;
    let edit = async |image: &str, other: &str| {
        let (old, new) = (json!({"image": "a", "other": ""}), json!({"image": image, "other": other}));
        guard.judge(data_review(("shop", "web"), "settings", &old, &new)).await.passes()
    };
    for image in ["b", "c", "d"] {
        assert!(edit(image, "").await, "{image}");
    }
    assert!(edit("a", "more").await, "nothing declared changes");
    let ledger = guard.database();
    let told = eventually("the change is kept", SOON, || async {
        let (code, told) = replay(&json!({"edits": "Deny"}), &[&ledger, "-A"]);
        if code == 1 { Ok(told) } else { Err(told.to_string()) }
    })
    .await;
    assert_eq!((&told["edits"], &told["refused"]), (&json!(1), &json!(1)), "{told}");
    assert_eq!(told["changes"][0]["was"], "Allow", "{told}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn facts_come_back_only_where_they_are_asked_for() {
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        let facts = |row: LedgerRow, facts: &str| LedgerRow { facts: Some(facts.to_owned()), ..row };
        let verdict = |seconds| LedgerRow {
            kind: kubemoor_ledger::row::RowKind::Verdict,
            ..row(seconds, "shop", "web", "alice", "Warn")
        };
        written.ledger.record(facts(verdict(1), "\"cut\""));
        written.ledger.record(verdict(2));
        written.ledger.record(row(3, "shop", "web", "", "Recreated"));
        written.close().await;
        let store = Store::read(&url).await.unwrap();
        let told = async |facts| {
            let page = store.page(&Filter { facts, ..Filter::default() }).await.unwrap();
            page.items.into_iter().map(|entry| (entry.detail, entry.facts)).collect::<Vec<_>>()
        };
        let plain = ["row 3", "row 2", "row 1"].map(|detail| (detail.to_owned(), None));
        assert_eq!(told(false).await, plain, "{url}");
        let [third, second, (first, _)] = plain;
        assert_eq!(told(true).await, [third, second, (first, Some("\"cut\"".to_owned()))], "{url}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rows_without_facts_are_counted_and_not_judged() {
    let path = folder("older").join("ledger.db");
    let url: kubemoor_runtime::config::LedgerUrl = format!("sqlite:{}", path.display()).parse().unwrap();
    let written = Written::start(&url, "east", FOREVER);
    // Equal rows within a second are one.
    for seconds in [0, 2, 4] {
        let kind = kubemoor_ledger::row::RowKind::Verdict;
        written.ledger.record(LedgerRow { kind, ..row(seconds, "shop", "web", "alice", "Warn") });
    }
    written.close().await;
    let ledger = format!("--ledger=sqlite:{}", path.display());
    let (code, told) = replay(&json!({"edits": "Deny"}), &[&ledger, "-A", "--since", "2026-11-19T00:00:00Z"]);
    assert_eq!((code, &told["edits"], &told["replayed"]), (0, &json!(3), &json!(0)), "{told}");
    assert_eq!(told["notReplayable"], json!({"unrecorded": 3}), "{told}");
}
