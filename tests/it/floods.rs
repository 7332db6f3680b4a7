//! Somebody who has edits denied as fast as he can: what it costs is bounded, and costs nobody else anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger_outages::{kept, spilled};
use crate::support::{
    Caller, ControlPlane, Guard, Identity, RELEASE, SOON, Scene, data_review, eventually, folder, reply,
};

/// Connections on which edits come without a pause.
const CONNECTIONS: usize = 32;

/// Denied edits that are a flood, and upgrades beside one.
const FLOOD: usize = 5000;
const UPGRADES: usize = 10;

/// Rows that the ledger may keep.
const ROWS: usize = 500;

/// What the guard may take above what it takes at rest.
const ABOVE: u64 = 64 << 20;

/// Connections to the API server: few enough that it makes none of them wait for another.
const REQUESTERS: usize = 16;

/// The most edits of one connection.
const MOST: usize = 3000;

/// Two ConfigMaps. Its value: `color`, of the second.
const MODE_AND_COLOR: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {color: '{{ .Values.color | default \"blue\" }}'}
";

/// An edit of the declared ConfigMap by this user.
fn edit_by(user: &str, image: &str) -> String {
    let [old, new] = ["a", image].map(|image| json!({"image": image}));
    let review = data_review(("shop", "web"), "settings", &old, &new);
    review.replace(r#""username":"alice""#, &format!(r#""username":"{user}""#))
}

/// What became of rows so far, added up.
async fn rows(guard: &Guard) -> usize {
    let metrics = guard.metrics().await;
    let counts = metrics.lines().filter_map(|line| line.strip_prefix("kubemoor_ledger_rows_total{"));
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: make test-all"]
async fn flood_of_denied_edits_uses_little_memory_and_fails_nobody() {
    let ledger = format!("sqlite:{}", folder("ledger").join("ledger.db").display());
    let flags = ["--edits=Deny", &format!("--ledger={ledger}"), &format!("--ledger-rows={ROWS}")];
    let mut guard = Guard::start_embedded(&flags).await;
    let idle = guard.peak_memory();
    let (denied, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let floods: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (client, url) = (guard.https(), guard.review_url());
            let (denied, over) = (Arc::clone(&denied), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    // Equal refusals within a minute are one row.
                    let edit = denied.fetch_add(1, Ordering::Relaxed);
                    let post = client.post(&url).header("content-type", "application/json");
                    assert!(!reply(post.body(edit_by("mallory", &format!("b{edit}")))).await.passes());
                }
            })
        })
        .collect();
    let (client, mut honest) = (guard.https(), 0);
    while denied.load(Ordering::Relaxed) < FLOOD {
        let (passes, image) =
            if honest % 2 == 0 { (false, format!("c{honest}")) } else { (true, "a".to_owned()) };
        let post = client.post(guard.review_url()).header("content-type", "application/json");
        assert_eq!(reply(post.body(edit_by("alice", &image))).await.passes(), passes);
        honest += 1;
    }
    over.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.await.unwrap();
    }
    let peak = guard.peak_memory();
    assert!(peak < idle + ABOVE, "{} MiB, at rest {} MiB", peak >> 20, idle >> 20);

    // Each denial and the start of the guard is a row, in the database or on standard output; the oldest go again.
    let expected = 1 + denied.load(Ordering::Relaxed) + honest / 2 + honest % 2;
    eventually("each denial is recorded", SOON, || async {
        let rows = rows(&guard).await;
        if rows == expected { Ok(()) } else { Err(format!("{rows} of {expected}")) }
    })
    .await;
    assert!(guard.metrics().await.contains("outcome=\"lost\"} 0\n"));
    assert!(guard.terminate().success());
    guard.start_again().await;
    eventually("the ledger keeps what it may", SOON, || async { kept(&ledger).len() <= ROWS }).await;
}

/// Has a user try edits of the ConfigMap at `path` without a pause, until `stop`: the values that were refused.
async fn flood(user: Caller, path: String, connection: usize, stop: CancellationToken) -> Vec<String> {
    let mut refused = Vec::new();
    while !stop.is_cancelled() && refused.len() < MOST {
        let value = format!("{connection:02}-{:05}", refused.len());
        user.merge(&path, &json!({"data": {"mode": value}})).await.refused(RELEASE).unwrap();
        refused.push(format!("\"{value}\""));
    }
    refused
}

/// Asks one thing after the other, until `stop`: how often.
async fn ask(stop: &CancellationToken, request: impl AsyncFn(usize) -> Result<(), String>) -> usize {
    let mut asked = 0;
    while !stop.is_cancelled() {
        request(asked).await.unwrap();
        asked += 1;
    }
    asked
}

/// Has others go on beside a flood, until `stop`: one makes allowed edits of the ConfigMap `settings` of this release,
/// and another denied ones.
async fn others(beside: &Scene, stop: &CancellationToken) {
    let path = &beside.config_map("settings");
    let deployer = &Caller::new(&beside.control_plane, Identity::Deployer).await;
    let passes = ask(stop, async |number| {
        let note = json!({"metadata": {"annotations": {"note": number.to_string()}}});
        beside.alice.merge(path, &note).await.done().map(drop)
    });
    let refusals = ask(stop, async |number| {
        deployer.merge(path, &json!({"data": {"mode": number.to_string()}})).await.refused(RELEASE)
    });
    let (passes, refusals) = tokio::join!(passes, refusals);
    assert!(passes > 1 && refusals > 1, "{passes} edits passed and {refusals} were refused beside the flood");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: make test-all"]
async fn flood_of_denied_requests_costs_no_other_request_under_fail() {
    let shop = Scene::on(ControlPlane::start()).install("flooded", MODE_AND_COLOR).await;
    let beside = shop.install_beside("beside").await;
    let flooded = shop.config_map("settings");
    let ledger = format!("sqlite:{}", folder("ledger").join("ledger.db").display());
    let to = format!("--ledger={ledger}");
    let mut guard = shop.start_guard(&["--register", "--edits=Deny", "--cluster-name=here", &to]).await;
    shop.wait_until_guarded(&flooded).await;
    beside.wait_until_guarded(&beside.config_map("settings")).await;
    Guard::extend_webhook_timeouts(&shop.control_plane, "Fail").await;
    let idle = guard.peak_memory();

    let (stop, mut floods) = (CancellationToken::new(), JoinSet::new());
    for connection in 0..REQUESTERS {
        let bob = Caller::new(&shop.control_plane, Identity::Bob).await;
        floods.spawn(flood(bob, flooded.clone(), connection, stop.clone()));
    }
    let upgraded = async {
        for number in 1..=UPGRADES {
            shop.upgrade(json!({"values": {"color": format!("color{number}")}})).await.unwrap();
        }
        stop.cancel();
    };
    tokio::join!(upgraded, others(&beside, &stop));
    let refused = floods.join_all().await.concat();
    assert!(guard.metrics().await.contains("outcome=\"lost\"} 0\n"));
    let peak = guard.peak_memory();
    assert!(peak < idle + ABOVE, "{} MiB, at rest {} MiB", peak >> 20, idle >> 20);
    shop.assert_value(&flooded, "/data/mode", &json!("fast")).await;
    shop.assert_value(&shop.config_map("extra"), "/data/color", &json!(format!("color{UPGRADES}"))).await;

    assert!(refused.len() > REQUESTERS * 4, "{} denials are no flood", refused.len());
    assert!(guard.terminate().success());
    let mut rows = HashMap::<_, usize>::new();
    for value in [kept(&ledger), spilled(&guard)].concat() {
        *rows.entry(value).or_default() += 1;
    }
    // An API server may ask twice about one request.
    for value in refused {
        let found = rows.remove(&value).unwrap_or_default();
        assert!((1..=2).contains(&found), "{value} has {found} rows");
    }
    // Those of the other release have numbers.
    assert!(rows.keys().all(|value| !value.contains('-')), "{rows:?}");
}
