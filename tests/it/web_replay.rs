//! The page on which recorded changes are judged by other policies.

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    Browser, Identity, Look, Page, SOON, Scene, charts, eventually, folder, form_token, moor,
};

const POLICY: &str = "
apiVersion: kubemoor.dev/v1alpha1
kind: DriftPolicy
metadata: {name: stricter}
spec:
  edits: Deny
  ignore: [{target: {kind: ConfigMap}, paths: [/data/mode]}]
";

/// What a page says of a fact.
fn fact(page: &str, name: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("<dt>{name}</dt><dd>")).unwrap_or_else(|| panic!("{name}: {page}"));
    let text = rest.split_once("</dd>").unwrap().0;
    text.split('>').map(|part| part.split('<').next().unwrap()).collect()
}

/// The report of the command on the recorded changes, once it has all three.
async fn told_by_command(scene: &Scene, flags: &[&str]) -> Value {
    let directory = folder("stricter");
    fs::write(directory.join("policy.yaml"), POLICY).unwrap();
    let namespace = scene.namespace.as_str();
    let directory = directory.to_str().unwrap();
    let first = ["policy", "replay", directory, "-o", "json", "--since", "1h", "-n", namespace];
    let arguments = [&first[..], flags].concat();
    eventually("three changes are recorded", SOON, || async {
        let ran = moor(&scene.control_plane, Identity::Alice, &arguments);
        let told: Value = serde_json::from_str(&ran.out).map_err(|_| format!("{ran:?}"))?;
        if told["refused"] == 2 { Ok(told) } else { Err(told.to_string()) }
    })
    .await
}

/// The number leads to the rows that it counts.
async fn assert_number_leads_to_its_rows(page: &Page, replay: &str) {
    let link = replay
        .split("href=\"")
        .find(|it| it.starts_with("ledger?") && it.contains("until=") && it.contains("by="));
    let link = link.unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let rows = page.text(&link).await;
    assert_eq!(rows.matches("/data/level").count() > 0, !rows.contains("No row matches"), "{rows}");
    assert!(rows.contains("ConfigMap/settings"), "{rows}");
}

/// Without policies the mode alone decides; the address says so.
async fn assert_mode_alone_decides(page: &Page, namespace: &str) {
    let by_mode = page.text(&format!("replay?since=1h&namespace={namespace}&edits=Deny")).await;
    assert_eq!(fact(&by_mode, "Passed, would be refused"), "3", "{by_mode}");
    let by_mode = page.text(&format!("replay?since=1h&namespace={namespace}&edits=Allow")).await;
    assert_eq!(fact(&by_mode, "Passed, would be refused"), "0", "{by_mode}");
}

async fn assert_invalid_forms_are_refused(page: &Page, token: &str) {
    for (policies, says) in [
        ("kind: Deployment", "not accepted"),
        ("<script>alert(1)</script>", "&lt;script&gt;"),
        (&POLICY.replace("Deny", "Forbid"), "spec.edits"),
    ] {
        let fields = [("token", token), ("since", "1h"), ("policies", policies)];
        let shown = page.post("replay", &fields).await;
        assert!(shown.text.contains(says) && !shown.text.contains("<script>"), "{policies}: {}", shown.text);
    }
    let forged = page.post("replay", &[("token", "0.0"), ("since", "1h"), ("policies", POLICY)]).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let late = page.get("replay?since=tomorrow").await;
    assert!(late.text.contains("since:"), "{}", late.text);
}

/// The page of policies says what in them is useless.
async fn assert_useless_policy_is_told(scene: &Scene, page: &Page) {
    scene.policy("open", json!({"exempt": [{"kind": "Group", "name": "system:authenticated"}]})).await;
    let told = page.text("policies").await;
    for part in ["Rules without effect", "spec.exempt[0]", "every user and every service account"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replay_page_matches_replay_command_and_links_its_rows() {
    let scene =
        Scene::own().install("replayed", charts::config_map!("settings", "{mode: fast, level: info}")).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    for (key, value) in [("level", "debug"), ("mode", "slow"), ("level", "trace")] {
        scene.data("settings", json!({key: value})).await.done().unwrap();
        // The API server asks about an update twice if its cache lags.
        scene.wait_for_cached(&scene.config_map("settings"), &format!("/data/{key}"), json!(value)).await;
    }
    let flags = guard.asked();
    let told = told_by_command(&scene, &flags).await;
    let namespace = scene.namespace.as_str();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let token = form_token(&page.text("replay").await);
    let fields = [("token", token.as_str()), ("since", "1h"), ("namespace", namespace), ("policies", POLICY)];
    let shown = page.post("replay", &fields).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text);
    assert!(shown.text.contains(POLICY.trim()), "the form holds what was pasted: {}", shown.text);
    for (name, expected) in [
        ("Changes", &told["edits"]),
        ("Judged", &told["replayed"]),
        ("Passed, would be refused", &told["refused"]),
        ("Refused, would pass", &told["permitted"]),
    ] {
        assert_eq!(fact(&shown.text, name), expected.to_string(), "{name}");
    }
    for part in ["By stricter.", "/data/level", "edits: Deny (policy stricter)"] {
        assert!(shown.text.contains(part), "{part} is not in {}", shown.text);
    }
    assert_number_leads_to_its_rows(&page, &shown.text).await;
    assert_mode_alone_decides(&page, namespace).await;
    assert_invalid_forms_are_refused(&page, &token).await;
    assert_compressed(&page).await;
    assert_useless_policy_is_told(&scene, &page).await;

    for look in Look::ALL {
        let browser = Browser::start(look).await;
        browser.go(&page.address).await;
        browser.wait_for("Overview").await;
        browser.go(&format!("{}replay?since=1h&namespace={namespace}&edits=Deny", page.base)).await;
        browser.wait_for("Verdicts that would change").await;
        browser.inspect("replay").await;
        browser.end().await;
    }
}

/// Pages come in fewer bytes for whoever reads gzip.
async fn assert_compressed(page: &Page) {
    let whole = page.get("replay").await;
    assert!(!whole.headers.contains_key("content-encoding"));
    let compressed = page.request("replay").header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    let (length, whole) = (compressed.bytes().await.unwrap().len(), whole.text.len());
    assert!(length * 2 < whole, "{length} of {whole}");
}
