//! The end of an installation: what is left of it, and what still runs then registers nothing.

use std::collections::BTreeSet;

use serde_json::json;

use crate::chart_installed::shop;
use crate::support::{
    Caller, ControlPlane, Guard, HOME, Identity, Installed, RELEASE, SOON, eventually, moor,
    wait_until_guarded,
};

/// Makes the guard's namespace as `helm install --create-namespace` would.
async fn home(control_plane: &ControlPlane, alice: &Caller) {
    // As docs/production.md says for Kubernetes 1.20. Later versions do it themselves.
    let labels = json!({"kubernetes.io/metadata.name": HOME});
    alice
        .post("/api/v1/namespaces", &json!({"metadata": {"name": HOME, "labels": labels}}))
        .await
        .done()
        .unwrap();
    let default = format!("/api/v1/namespaces/{HOME}/serviceaccounts/default");
    eventually("the namespace is complete", SOON, || async {
        let secrets = alice.get(&default).await.done()?["secrets"].clone();
        if secrets.is_array() || control_plane.minor() >= 24 { Ok(()) } else { Err(secrets.to_string()) }
    })
    .await;
}

/// A cluster with the guard's namespace and a release to guard. Returns where the release's ConfigMap is, and everything
/// that was there before the chart.
async fn prepare(control_plane: &ControlPlane, alice: &Caller) -> (String, BTreeSet<String>) {
    let settings = shop(control_plane).await;
    home(control_plane, alice).await;
    (settings, control_plane.everything())
}

/// Waits until nothing is there beside what was there before, but what `expected` keeps of it.
async fn wait_until_left(
    control_plane: &ControlPlane,
    before: &BTreeSet<String>,
    expected: impl Fn(&BTreeSet<String>) -> BTreeSet<String>,
) {
    eventually("nothing is left", SOON, || async {
        let left: BTreeSet<_> = control_plane.everything().difference(before).cloned().collect();
        if left == expected(&left) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_leaves_nothing_but_the_definitions_that_are_kept() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let (settings, before) = prepare(&control_plane, &alice).await;
    let mut definitions: BTreeSet<String> = ["driftallowances", "driftpolicies", "guardedreleases"]
        .map(|plural| format!("CustomResourceDefinition//{plural}.kubemoor.dev"))
        .into();
    // The API server serves them by it.
    definitions.insert("APIService//v1alpha1.kubemoor.dev".to_owned());
    let modes = json!({"edits": "Deny", "drift": "Repair"});
    let all = json!({
        "rights": {"privileged": true, "customResources": [{"apiGroup": "example.org", "resources": ["widgets"]}]},
        "ui": {"enabled": true, "host": "kubemoor.example.com", "ingress": {"enabled": true}},
        "dashboard": {"enabled": true},
        "policies": [{"name": "all", "spec": {"edits": "Deny", "drift": "Repair"}}],
        "crds": {"keep": false},
    });
    let deny = json!({"edits": "Deny", "crds": {"keep": false}});
    // The last of them during an emergency.
    let rounds = [modes, all, deny];
    for (round, values) in rounds.into_iter().enumerate() {
        let (keep, is_open) = (round == 0, round == 2);
        chart.install(values).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut pods = chart.start(2).await;
        wait_until_guarded(&alice, RELEASE, &settings).await;
        if is_open {
            let ran =
                moor(&control_plane, Identity::Alice, &["emergency", "open", "--reason", "uninstalled"]);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        // The guard runs on while Helm uninstalls, as pods do, and makes nothing anew.
        let (uninstalled, ran) = chart.uninstall().await;
        assert!(uninstalled.is_ok() && ran.code == 0, "{uninstalled:?} {ran:?}");
        for pod in &mut pods {
            assert!(pod.terminate().success(), "{}", pod.log());
        }
        chart.delete_endpoints().await;
        wait_until_left(&control_plane, &before, |left| {
            let mut expected = if keep { definitions.clone() } else { BTreeSet::new() };
            // The statuses go with their definition.
            expected.extend(left.iter().filter(|row| keep && row.starts_with("GuardedRelease/")).cloned());
            expected.extend(is_open.then(|| "ValidatingWebhookConfiguration//kubemoor-emergency".to_owned()));
            expected
        })
        .await;
        alice.merge(&settings, &json!({"data": {"mode": format!("free-{round}")}})).await.done().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_started_after_uninstall_registers_nothing_until_note_is_removed() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny"})).await.unwrap();
    let mut pods = chart.start(1).await;
    let settings = shop(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    let ran = moor(&control_plane, Identity::Admin, &["uninstall"]);
    assert!(ran.code == 0 && ran.out.contains("10 minutes from now"), "{ran:?}");

    assert!(pods.remove(0).terminate().success());
    let pods = chart.start(1).await;
    eventually("the new guard leads and says so", SOON, || async {
        let log = pods[0].log();
        if log.contains("not registering them yet") { Ok(()) } else { Err(log) }
    })
    .await;
    let registered = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";
    assert_eq!(alice.get(registered).await.code, 404, "{}", pods[0].log());
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/kubemoor");
    let unnoted = json!({"metadata": {"annotations": {"kubemoor.dev/withdrawn": null}}});
    alice.merge(&lease, &unnoted).await.done().unwrap();
    wait_until_guarded(&alice, RELEASE, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn uninstall_hook_ends_under_fail_with_and_without_a_guard() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let (settings, before) = prepare(&control_plane, &alice).await;
    for runs in [true, false] {
        let values = json!({"edits": "Deny", "drift": "Repair", "crds": {"keep": false}});
        chart.install(values).await.unwrap();
        let mut pods = chart.start(1).await;
        wait_until_guarded(&alice, RELEASE, &settings).await;
        Guard::extend_webhook_timeouts(&control_plane, "Fail").await;
        if !runs {
            pods.clear();
            eventually("changes fail without the guard", SOON, || async {
                let answer = alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await;
                let fails = answer.to_string().contains("failed calling webhook");
                if fails { Ok(()) } else { Err(answer.to_string()) }
            })
            .await;
        }
        let (uninstalled, ran) = chart.uninstall().await;
        assert!(uninstalled.is_ok() && ran.code == 0, "guard runs: {runs}, {uninstalled:?} {ran:?}");
        for pod in &mut pods {
            assert!(pod.terminate().success(), "{}", pod.log());
        }
        chart.delete_endpoints().await;
        wait_until_left(&control_plane, &before, |_| BTreeSet::new()).await;
        alice.merge(&settings, &json!({"data": {"mode": format!("free-{runs}")}})).await.done().unwrap();
    }
}
