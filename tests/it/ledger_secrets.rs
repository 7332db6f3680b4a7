//! No value of a Secret leaves the guard: not by its log, its ledger, its answers, its metrics or its commands.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::{Caller, ControlPlane, Guard, Identity, Receiver, SOON, Scene, eventually, moor, run};

const DECLARED: &str = "planted-declared-5e8c";
const EDITED: &str = "planted-edited-91ab";
const PATCHED: &str = "planted-patched-c3d7";

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: db, annotations: {note: planted-declared-5e8c}}
stringData: {password: planted-declared-5e8c}
";

/// The planted words in this output, plain or as base64.
fn planted(output: &[u8]) -> Vec<String> {
    let plain = [DECLARED, EDITED, PATCHED].map(str::to_owned);
    let encoded = plain.clone().map(|word| STANDARD.encode(word));
    let is_in = |word: &String| output.windows(word.len()).any(|window| window == word.as_bytes());
    plain.into_iter().chain(encoded).filter(is_in).collect()
}

fn check(what: &str, output: &[u8]) {
    assert!(!output.is_empty(), "{what} is empty");
    let found = planted(output);
    assert!(found.is_empty(), "{what} holds {found:?}");
}

/// The files of a ledger, which nobody but their owner may read.
fn check_files(ledger: &Path) {
    let entries = std::fs::read_dir(ledger.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_of_ledger =
        |path: &PathBuf| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with("ledger.db"));
    let files: Vec<_> = entries.filter(is_of_ledger).collect();
    assert!(!files.is_empty(), "{} is absent", ledger.display());
    for path in files {
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{}", path.display());
        // The file of shared memory is empty of rows by its nature.
        if metadata.len() > 0 {
            check(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}

/// Edits are refused, and no refusal holds a value.
async fn check_refusals(shop: &Scene, secret: &str) {
    let mut messages = Vec::new();
    for edit in [
        json!({"data": {"password": STANDARD.encode(EDITED)}}),
        json!({"stringData": {"password": EDITED}}),
        json!({"metadata": {"annotations": {"note": PATCHED}}}),
        json!({"data": null, "stringData": {"other": PATCHED}}),
    ] {
        let answer = shop.alice.merge(secret, &edit).await;
        answer.refused("shop").unwrap();
        messages.push(answer.body.to_string());
    }
    let patched = json!(STANDARD.encode(PATCHED));
    let answer = shop.alice.patch(secret, "replace", "/data/password", &patched).await;
    answer.refused("shop").unwrap();
    messages.push(answer.body.to_string());
    check("the refusals", messages.concat().as_bytes());
}

/// What a guard says in other places than to who edits.
async fn check_outputs(shop: &Scene) {
    check("the log", shop.guard().log().as_bytes());
    check("the metrics", shop.guard().metrics().await.as_bytes());
    check_files(shop.guard().ledger());
    let (namespace, here) = (shop.namespace.as_str(), ControlPlane::get());
    let asked = shop.guard().admin_url(&format!("/api/v1/ledger?namespace={namespace}"));
    let asked = shop.guard().https().get(asked).bearer_auth(Identity::Admin.token()).send().await.unwrap();
    assert_eq!(asked.status(), 200);
    check("the ledger over HTTP", &asked.bytes().await.unwrap());
    let events = here.kubectl(Identity::Admin, &["get", "events", "-A", "-o", "json"]);
    check("the events", &events.stdout);
    let audited = ControlPlane::get().audit_events(&[&shop.namespace]).into_iter();
    let annotations: String = audited.map(|event| event["annotations"].to_string()).collect();
    check("the audit annotations", annotations.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_output_contains_no_value_of_a_secret() {
    assert_eq!(planted(STANDARD.encode(EDITED).as_bytes()).len(), 1, "the search finds nothing");
    let shop = Scene::shared().install("secrets", SECRET).await;
    let secret = shop.core("secrets/db");
    shop.wait_until_guarded(&secret).await;

    check_refusals(&shop, &secret).await;

    // What the loop never saw alive it does not re-create.
    let lists_secrets = |event: &serde_json::Value| {
        event["verb"] == "list"
            && event["user"]["username"] == Identity::Guard.user()
            && event["requestURI"]
                .as_str()
                .is_some_and(|uri| uri.starts_with("/api/v1/secrets") && uri.contains("managed-by"))
            && event["responseStatus"]["code"] == 200
    };
    eventually("the loop has listed Secrets", SOON, || async {
        ControlPlane::get().audit_events(&[Identity::Guard.user(), "managed-by"]).iter().any(lists_secrets)
    })
    .await;
    // Back again, with the guard's own hands on the values.
    let controller = Caller::new(ControlPlane::get(), Identity::NamespaceController).await;
    controller.delete(&secret).await.done().unwrap();
    eventually("the Secret is back", SOON, || async { shop.alice.get(&secret).await.done() }).await;

    eventually("all five refusals and the repair are kept", SOON, || async {
        let rows = shop.rows(&[]);
        // Two of the refusals are equal.
        let times = |row: &serde_json::Value| 1 + row["repeats"].as_u64().unwrap_or_default();
        let count =
            |verdict: &str| rows.iter().filter(|row| row["verdict"] == verdict).map(times).sum::<u64>();
        count("Deny") >= 5 && count("Recreated") == 1
    })
    .await;
    // That the values differ shows all the same.
    let rows = shop.rows(&[]);
    let row = rows.iter().find(|row| row.to_string().contains("\"/data/password\"")).unwrap();
    let field = row["fields"].as_array().unwrap().iter().find(|it| it["path"] == "/data/password").unwrap();
    assert!(field["old"].as_str().unwrap().starts_with("(redacted "), "{row}");
    assert_eq!(field["declared"], field["old"], "{row}");
    assert_ne!(field["new"], field["old"], "{row}");

    for format in ["table", "json", "yaml"] {
        let ran = run(&["audit", &shop.guard().database(), "-n", &shop.namespace, "-o", format], "");
        check(&format!("audit -o {format}"), ran.out.as_bytes());
    }
    check_outputs(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn drift_reports_contain_no_value_of_a_secret() {
    let scene = Scene::own().install("drifting-secrets", SECRET).await;
    let (namespace, here) = (scene.namespace.as_str(), &scene.control_plane);
    let receiver = Receiver::start();
    let notifiers = format!("--notifiers={}", receiver.file.display());
    let guard = Guard::start(here, &["--edits", "Deny", "--drift", "Report", &notifiers]).await;
    scene.wait_for_confirmed(1).await;
    let secret = format!("/api/v1/namespaces/{namespace}/secrets/db");
    let edit = json!({"data": {"password": STANDARD.encode(EDITED)}, "metadata": {"annotations": {"note": PATCHED}}});
    scene.edit(&secret, edit).await;
    check("the status", scene.wait_for_reason("Drifted").await.to_string().as_bytes());
    for command in [
        &["diff", "shop"][..],
        &["explain", "Secret/db"],
        &["explain", "Secret/db", "--path", "/data/password"],
        &["forecast", "shop"],
        &["get", "releases"],
    ] {
        for format in ["table", "json", "yaml"] {
            let ran = moor(here, Identity::Admin, &[command, &["-n", namespace, "-o", format]].concat());
            assert!(ran.code < 2 && !ran.out.is_empty(), "{command:?} -o {format}: {ran:?}");
            check(&format!("{command:?} -o {format}"), (ran.out + &ran.error).as_bytes());
        }
    }
    scene.order("reconcile");
    scene.wait_for_value(&secret, "/data/password", json!(STANDARD.encode(DECLARED))).await;
    let told = || {
        let received = String::from_utf8(receiver.received()).unwrap();
        let of = |kind: &str| received.contains(&format!("dev.kubemoor.drift.{kind}"));
        if of("detected") && of("repaired") { Ok(()) } else { Err(received) }
    };
    eventually("the drift and the repair are told", SOON, || async { told() }).await;
    let received = String::from_utf8(receiver.received()).unwrap();
    assert!(received.contains("/data/password"), "{received}");
    check("the notifications", &receiver.received());
    check("the log", guard.log().as_bytes());
    check("the metrics", guard.metrics().await.as_bytes());
    eventually("the repair is kept", SOON, || async {
        !guard.rows(&["-A", "--verdict", "Restored"]).is_empty()
    })
    .await;
    check_files(guard.ledger());
    let events = here.kubectl(Identity::Admin, &["get", "events", "-A", "-o", "json"]);
    check("the events", &events.stdout);
}
