//! The first line of every command that reads says what keeps the guard from its work.

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
    check(Some("Kubemoor has no registered webhooks, so no change is checked"));
}
