//! The first line of every command that reads says what keeps the guard from its work.

use serde_json::json;

use crate::support::{Identity, RELEASE, SOON, Scene, charts, eventually, moor};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn reading_commands_report_guard_problems_first() {
    let scene = Scene::own().install("standing", charts::TWO).await;
    let flags = ["--service=kubemoor-system/kubemoor", "--register", "--edits=Deny"];
    let guard = scene.start_guard(&flags).await;
    scene.wait_for_reason("InSync").await;
    let webhooks = format!("{WEBHOOKS}/kubemoor");
    eventually("the webhooks are there", SOON, || async { scene.admin.get(&webhooks).await.done() }).await;
    // These look at no namespace.
    let everywhere: [&[&str]; 1] = [&["get", "policies", "-o", "json"]];
    let asked = guard.asked();
    let asked = asked.each_ref().map(String::as_str);
    let audit = [&["audit"], &asked[..]].concat();
    let report = [&["audit", "report"], &asked[..]].concat();
    let commands: [&[&str]; 8] = [
        &audit,
        &report,
        &["get", "releases"],
        &["get", "releases", "-o", "json"],
        &["get", "allowances", "-o", "json"],
        &["diff", RELEASE],
        &["explain", "configmap/settings"],
        &["forecast", RELEASE],
    ];
    let check = |expected: Option<&str>| {
        let here: Vec<_> = commands.iter().map(|it| [*it, &["-n", &scene.namespace][..]].concat()).collect();
        for arguments in here.iter().map(Vec::as_slice).chain(everywhere) {
            let ran = moor(&scene.control_plane, Identity::Admin, arguments);
            let first = ran.error.lines().next().unwrap_or_default();
            match expected {
                None => assert_eq!(first, "", "{arguments:?}: {ran:?}"),
                Some(words) => assert!(first.contains(words), "{arguments:?}: {ran:?}"),
            }
            assert!(ran.code < 2, "{arguments:?}: {ran:?}");
        }
    };
    check(None);
    let emergency = |word: &str| {
        let ran = moor(&scene.control_plane, Identity::Admin, &["emergency", word]);
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    emergency("open");
    check(Some("the emergency is open: no change is judged"));
    emergency("close");
    eventually("the webhooks are back", SOON, || async { scene.admin.get(&webhooks).await.done() }).await;
    check(None);
    let ran = moor(&scene.control_plane, Identity::Admin, &["uninstall"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    check(Some("no webhook of Kubemoor is registered, so no change is judged"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn reading_commands_say_first_that_no_guard_runs() {
    let scene = Scene::own().install("standing-down", charts::TWO).await;
    let flags = ["--service=kubemoor-system/kubemoor", "--drift=Repair"];
    let mut guard = scene.start_guard(&flags).await;
    let status = scene.wait_for_reason("InSync").await;
    let lease = |field: &str| status["lease"][field].as_str().unwrap().to_owned();
    let lease =
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", lease("namespace"), lease("name"));
    guard.kill();
    let old = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    scene.admin.merge(&lease, &old).await.done().unwrap();
    let ran = scene.moor(&["get", "releases"]);
    let first = ran.error.lines().next().unwrap_or_default();
    assert!(first.contains("no guard runs") && first.contains("since 2026-01-01T00:00:00Z"), "{ran:?}");
    scene.admin.delete(&lease).await.done().unwrap();
    let ran = scene.moor(&["get", "allowances"]);
    assert!(ran.error.lines().next().unwrap_or_default().contains("the Lease does not exist"), "{ran:?}");
}
