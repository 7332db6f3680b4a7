//! Input that is wrong, and surroundings that fail: each is said, and takes nothing else with it.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Guard, Identity, SOON, Scene, bomb, charts, data_review, encoded, eventually, folder,
    forged, holding, record_name, refusal, reply, token_file,
};

/// What the warning says, and the record that it is about in a namespace.
type Forgery = (&'static str, fn(&str) -> Secret);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn malformed_review_gets_http_400_with_the_reason() {
    let mut guard = Guard::launch(&[&format!("--store=dir:{}", folder("store").display())]);
    guard.ready().await;
    let review = |api_version: &str, request: Value| {
        json!({"apiVersion": api_version, "kind": "AdmissionReview", "request": request}).to_string()
    };
    let v1 = "admission.k8s.io/v1";
    let nested = "[".repeat(100_000);
    let cases = [
        ("nothing", String::new(), "ends before"),
        ("no JSON", "who is there?".to_owned(), "not an AdmissionReview"),
        ("half a review", r#"{"kind":"AdmissionReview","apiVersion":"#.to_owned(), "ends before"),
        ("a list", "[]".to_owned(), "not an AdmissionReview"),
        ("levels", nested, "the body"),
        ("another kind", json!({"apiVersion": "v1", "kind": "Pod"}).to_string(), "Pod of v1"),
        ("another version", review("admission.k8s.io/v1beta1", json!({"uid": "1"})), "v1beta1"),
        ("no request", review(v1, Value::Null), "lacks"),
        ("an empty request", review(v1, json!({})), "lacks"),
        ("a number for a uid", review(v1, json!({"uid": 1})), "not an AdmissionReview"),
    ];
    let count = cases.len();
    for (what, body, says) in cases {
        let reply = guard.judge(body).await;
        let error = reply.body["error"].as_str().unwrap_or_default();
        assert!(reply.code == 400 && error.contains(says), "{what}: {reply:?}");
    }
    let url = guard.review_url();
    let got = reply(guard.https().get(&url)).await;
    assert_eq!((got.code, &got.body["error"]), (400, &json!("reviews must be sent by POST, not by GET")));
    let text = reply(guard.https().post(&url).header(CONTENT_TYPE, "text/plain").body("hello")).await;
    assert!(text.code == 400 && text.body["error"].as_str().unwrap().contains("text/plain"), "{text:?}");
    guard.wait_for_metric(&format!("kubemoor_malformed_reviews_total {}", count + 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_record_causes_one_warning_and_keeps_last_valid_revision() {
    let cases: [Forgery; 6] = [
        ("not base64", |namespace| holding(namespace, "shop", 2, "deployed", b"!!".to_vec())),
        ("does not decompress", |namespace| {
            holding(namespace, "shop", 2, "deployed", encoded(b"\x1f\x8b\x08.."))
        }),
        ("has no `name`", |namespace| holding(namespace, "shop", 2, "deployed", encoded(b"{}"))),
        ("manifest has more than 16777216 bytes", |namespace| {
            holding(namespace, "shop", 2, "deployed", bomb(80_000_000))
        }),
        ("its release is shop in the metadata", |namespace| {
            let data = forged(namespace, "web", 2, "deployed", "").data;
            Secret { data, ..forged(namespace, "shop", 2, "deployed", "") }
        }),
        ("its label `version` is", |namespace| {
            let mut record = forged(namespace, "shop", 2, "deployed", "");
            record.metadata.labels.as_mut().unwrap().insert("version".to_owned(), "9".to_owned());
            record
        }),
    ];
    let good = Scene::on(ControlPlane::start()).install("believable", charts::IMAGE_AND_COLOR).await;
    let mut shops = Vec::new();
    for (reason, record) in cases {
        let shop = good.install_beside("unbelievable").await;
        let record = json!(record(&shop.namespace));
        shop.alice.post(&shop.core("secrets"), &record).await.done().unwrap();
        shops.push((shop, reason));
    }
    let guard = good.start_guard(&["--register", "--edits", "Deny"]).await;
    good.wait_until_guarded(&good.config_map("settings")).await;
    good.data("settings", json!({"image": "b"})).await.refusal().unwrap();
    for (shop, reason) in &shops {
        let message = shop
            .data("settings", json!({"image": "b"}))
            .await
            .refusal()
            .unwrap_or_else(|error| panic!("{reason}: {error}"));
        assert!(message.contains("(revision 1)"), "{reason}: {message}");
        shop.data("settings", json!({"undeclared": "b"})).await.done().unwrap();
        let warnings = || {
            let is_warning = |line: &&str| {
                line.contains(&shop.namespace)
                    && line.contains("WARN")
                    && line.contains(&record_name("shop", 2))
            };
            guard.log().lines().filter(is_warning).map(str::to_owned).collect::<Vec<_>>()
        };
        eventually("the guard warns of the record", SOON, || async { !warnings().is_empty() }).await;
        let warnings = warnings();
        assert!(matches!(&warnings[..], [warning] if warning.contains(reason)), "{reason}: {warnings:#?}");
    }
    for (fault, count) in
        [("encoding", 1), ("compression", 1), ("syntax", 1), ("too_large", 1), ("disagrees", 2)]
    {
        let counted = format!("kubemoor_records_undecodable_total{{reason=\"{fault}\"}} {count}\n");
        guard.wait_for_metric(&counted).await;
    }
    guard.wait_for_metric(r#"state="record-invalid"} 6"#).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn invalid_manifest_document_is_logged_and_other_objects_are_guarded() {
    let guard = Guard::shared().await;
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("bad-document").await;
    let client = control_plane.client(Identity::Alice).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    maps.create(&PostParams::default(), &charts::labelled("rest", json!({"a": "1"}))).await.unwrap();
    let manifest = "---\n# Source: odd/templates/notes.yaml\njust a sentence\n---\n# Source: odd/templates/rest.yaml\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rest}\ndata: {a: '1'}\n";
    let record = forged(&namespace, "odd", 1, "deployed", manifest);
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    secrets.create(&PostParams::default(), &record).await.unwrap();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let edit = Patch::Merge(json!({"data": {"a": "2"}}));
    eventually("the rest is guarded", SOON, || async { refusal(maps.patch("rest", &dry_run, &edit).await) })
        .await;
    let named = |line: &str| line.contains(&namespace) && line.contains("odd/templates/notes.yaml");
    let lines = || guard.log().lines().filter(|line| named(line)).count();
    eventually("the document is named", SOON, || async { lines() > 0 }).await;
    assert_eq!(lines(), 1, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_waits_for_api_server_and_uses_last_known_state() {
    let mut shop = Scene::on(ControlPlane::start()).install("outage", charts::IMAGE_AND_COLOR).await;
    // Leaves the rights behind that the next one needs.
    drop(shop.start_guard(&["--edits", "Deny"]).await);
    shop.control_plane.kill_apiserver();
    let kubeconfig = format!("--kubeconfig={}", shop.control_plane.kubeconfig(Identity::Guard).display());
    let mut guard = Guard::launch(&["--edits=Deny", &kubeconfig]);
    guard.wait_for_log("failed to query the API server; retrying").await;
    assert!(!guard.is_ready().await);
    shop.control_plane.start_apiserver();
    guard.ready().await;

    let ask = async |key: &str| {
        let (old, new) = (json!({"image": "a"}), json!({"image": "a", key: "b"}));
        guard.judge(data_review((&shop.namespace, "shop"), "settings", &old, &new)).await
    };
    // An API server that has just started may take longer for a record than a verdict waits.
    let is_refused = || async {
        let answer = ask("image").await;
        if answer.code == 200 { Ok(!answer.passes()) } else { Err(format!("{answer:?}")) }
    };
    assert!(eventually("the guard judges", SOON, is_refused).await);
    shop.control_plane.kill_apiserver();
    assert!(ask("undeclared").await.passes());
    // Without a look at the record nothing is refused: the webhook's failurePolicy decides.
    let undecided = ask("image").await;
    let error = undecided.body["error"].as_str().unwrap_or_default();
    assert!(undecided.code == 500 && error.contains("could not be read"), "{undecided:?}");
    let row =
        eventually("the ledger says so", SOON, || async { guard.rows(&["-A", "--verdict", "Error"]).pop() })
            .await;
    assert_eq!(
        (&row["reason"], &row["user"], &row["release"], &row["object"]["name"]),
        (&json!("unreached"), &json!("alice"), &json!("shop"), &json!("settings")),
        "{row}"
    );
    assert!(row["detail"].as_str().unwrap().contains("could not be read"), "{row}");
    assert!(guard.is_ready().await);
    shop.control_plane.start_apiserver();
    assert!(eventually("the guard judges again", SOON, is_refused).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn notifier_that_cannot_be_built_ends_the_process() {
    let _rights = Guard::shared().await;
    let folder = folder("notifier");
    let notifiers = folder.join("notifiers.yaml");
    fs::write(&notifiers, "notifiers:\n- {name: pager, url: 'https://pager.example/s3cret'}\n").unwrap();
    // One that goes on would be ended with 124.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_kubemoor"), "serve", "--read-only"]);
    command.args(["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log=warn"]);
    command.arg(format!("--tls-dir={}", folder.join("tls").display()));
    command.arg(format!("--ledger=sqlite:{}", folder.join("ledger.db").display()));
    command.arg(format!("--notifiers={}", notifiers.display()));
    let kubeconfig = ControlPlane::get().kubeconfig(Identity::Guard);
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.env("KUBEMOOR_CALLER_TOKEN_FILE", token_file(&folder));
    // A machine without the authorities that sign the certificates of receivers.
    let output =
        command.env("SSL_CERT_FILE", "/nowhere/ca.crt").env("SSL_CERT_DIR", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.lines().last().unwrap().contains("pager") && !said.contains("s3cret"), "{said}");
}

#[test]
fn startup_failure_is_reported_in_one_sentence_with_exit_2() {
    let folder = folder("serve");
    let store = format!("--store=dir:{}", folder.display());
    let broken = folder.join("broken.kubeconfig");
    fs::write(&broken, "users:\n- name: a\n  user: {token: s3cret, exec: 5}\n").unwrap();
    let token = token_file(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let check = |flags: &[&str], says: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(["serve", &format!("--tls-dir={}", folder.join("tls").display()), "--log=warn"]);
        command.env("KUBEMOOR_CALLER_TOKEN_FILE", &token);
        let output = command.args(flags).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
        assert!(!error.contains("s3cret"), "{flags:?}: {error}");
        let first = error.lines().next().unwrap_or_default();
        assert!(first.contains(says), "{flags:?}: {error}");
        error.lines().count()
    };
    let free = "--listen=127.0.0.1:0";
    let admin = "--admin-listen=127.0.0.1:0";
    for (flags, says) in [
        ([&store, &format!("--listen={address}"), admin], address.as_str()),
        ([&store, free, &format!("--admin-listen={address}")], address.as_str()),
        (["--kubeconfig=/nowhere/kubeconfig", free, admin], "/nowhere/kubeconfig"),
        ([&format!("--kubeconfig={}", broken.display()), free, admin], "broken.kubeconfig"),
        (["--store=dir:/nowhere", free, admin], "/nowhere"),
        ([&store, "--register", admin], "--register and --store cannot be used together"),
    ] {
        assert_eq!(check(&flags, says), 1, "{flags:?}");
    }
    // The parser adds a hint at --help below its sentence.
    check(&["--edits=Perhaps"], "'Perhaps' for '--edits");
    check(&["--log=what=ever="], "--log");
    check(&["--no-such-flag"], "'--no-such-flag'");
}
