//! A guard that is down under `Fail` stops nothing that keeps a cluster alive, and comes back by itself: after a restart
//! of the whole cluster, with certificates that have expired, and with Secrets that are gone.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    Answer, Caller, Chart, ControlPlane, Guard, HOME, Helm, Identity, Installed, Pod, RELEASE, SOON,
    eventually, moor, wait_until_guarded,
};

const OBJECTS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n---\n\
                       apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: turn}\nspec: {}\n";

/// The life of an authority of certificates that are valid for ten seconds.
const AUTHORITY: Duration = Duration::from_secs(40);

/// The first Kubernetes version whose webhooks have match conditions by default.
const CONDITIONS: u32 = 28;

/// The values of a guard that denies and repairs.
fn values() -> Value {
    json!({"edits": "Deny", "drift": "Repair"})
}

/// Starts a replica and puts a release under its guard, under `Fail`. Says where the release's ConfigMap is.
async fn guarded(control_plane: &ControlPlane, chart: &Installed<'_>, alice: &Caller) -> (Vec<Pod>, String) {
    // As docs/production.md says for Kubernetes 1.20. Later versions do it themselves.
    for name in [HOME, "kube-system", "kube-node-lease"] {
        let named = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": name}}});
        alice.merge(&format!("/api/v1/namespaces/{name}"), &named).await.done().unwrap();
    }
    let pods = chart.start(1).await;
    let namespace = control_plane.namespace("shop").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, RELEASE, &Chart::new(RELEASE).template("all.yaml", OBJECTS), json!({}))
        .await
        .unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    wait_until_guarded(alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(control_plane, "Fail").await;
    (pods, settings)
}

/// Waits until changes fail, because nobody answers the API server.
async fn wait_until_failing(alice: &Caller, settings: &str) {
    eventually("changes fail without the guard", SOON, || async {
        let answer = alice.merge(settings, &json!({"data": {"mode": "slow"}})).await;
        if answer.to_string().contains("failed calling webhook") { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// Begins to delete a namespace that an object with a finalizer holds up. Says where the object is.
async fn leave_with_finalizer(control_plane: &ControlPlane, alice: &Caller) -> String {
    let namespace = format!("/api/v1/namespaces/{}", control_plane.namespace("terminating").await);
    let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
    let metadata = json!({"name": "held", "labels": labels, "finalizers": ["example.org/held"]});
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    alice.post(&format!("{namespace}/configmaps"), &held).await.done().unwrap();
    alice.delete(&namespace).await.done().unwrap();
    let path = format!("{namespace}/configmaps/held");
    eventually("the namespace controller deletes the object", SOON, || async {
        let held = alice.get(&path).await.done()?;
        if held["metadata"]["deletionTimestamp"].is_string() { Ok(()) } else { Err(held.to_string()) }
    })
    .await;
    path
}

async fn drop_finalizer(alice: &Caller, path: &str) -> Answer {
    alice.merge(path, &json!({"metadata": {"finalizers": null}})).await
}

/// Creates, changes and deletes objects that keep a cluster alive: each with Helm's label, and of kinds that the release
/// declares as well.
async fn assert_vital_writes_pass(alice: &Caller) {
    let metadata = json!({"name": "alive", "labels": {"app.kubernetes.io/managed-by": "Helm"}});
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": "node", "leaseDurationSeconds": 40},
    });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": metadata, "reason": "Alive", "type": "Normal",
        "involvedObject": {"kind": "Node", "name": "node"},
    });
    for (path, object, change) in [
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            &lease,
            json!({"spec": {"leaseDurationSeconds": 41}}),
        ),
        ("/api/v1/namespaces/kube-system/configmaps", &config_map, json!({"data": {"a": "c"}})),
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            &lease,
            json!({"spec": {"holderIdentity": "b"}}),
        ),
        ("/api/v1/namespaces/default/events", &event, json!({"count": 2})),
        (format!("/api/v1/namespaces/{HOME}/configmaps").as_str(), &config_map, json!({"data": {"a": "c"}})),
    ] {
        let said = |error: String| format!("{path}: {error}");
        alice.post(path, object).await.done().map_err(said).unwrap();
        let one = format!("{path}/alive");
        alice.merge(&one, &change).await.done().map_err(said).unwrap();
        alice.delete(&one).await.done().map_err(said).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn vital_cluster_writes_pass_while_guard_is_down_under_fail() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(values()).await.unwrap();
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let (pods, settings) = guarded(&control_plane, &chart, &alice).await;
    let finalized = leave_with_finalizer(&control_plane, &alice).await;
    drop(pods);
    wait_until_failing(&alice, &settings).await;

    assert_vital_writes_pass(&alice).await;
    // The deletion of a namespace is refused as a whole, where it would stop halfway, until everything is opened.
    let namespace = format!("/api/v1/namespaces/{}", control_plane.namespace("leaving").await);
    let refused = alice.delete(&namespace).await;
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    assert_eq!(alice.get(&namespace).await.done().unwrap()["status"]["phase"], "Active");
    // A namespace that is being deleted stays so, where the API server cannot leave out such changes.
    let dropped = drop_finalizer(&alice, &finalized).await;
    if control_plane.minor() >= CONDITIONS {
        dropped.done().unwrap();
    } else {
        assert!(dropped.to_string().contains("failed calling webhook"), "{dropped}");
    }
    let open = moor(&control_plane, Identity::Alice, &["emergency", "open", "--reason", "nobody answers"]);
    assert_eq!(open.code, 0, "{open:?}");
    if control_plane.minor() < CONDITIONS {
        drop_finalizer(&alice, &finalized).await.done().unwrap();
    }
    let (terminating, _) = finalized.split_once("/configmaps").unwrap();
    eventually("the terminating namespace is gone", SOON, || async {
        let answer = alice.get(terminating).await;
        if answer.code == 404 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // Definitions wait for that too: they belong to the release of the guard, and have no namespace.
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/driftpolicies.kubemoor.dev";
    let upgraded = json!({"metadata": {"annotations": {"example.org/upgraded": "yes"}}});
    alice.merge(definition, &upgraded).await.done().unwrap();
    alice.delete(&namespace).await.done().unwrap();
    eventually("the namespace is gone", SOON, || async { alice.get(&namespace).await.code == 404 }).await;
    let close = moor(&control_plane, Identity::Alice, &["emergency", "close"]);
    assert_eq!(close.code, 0, "{close:?}");
    wait_until_failing(&alice, &settings).await;

    let _pods = chart.start(1).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn cluster_restarted_under_failure_policy_fail_is_guarded_again() {
    let mut control_plane = ControlPlane::start();
    let settings = {
        let chart = Installed::new(&control_plane).await;
        chart.install(values()).await.unwrap();
        let alice = Caller::new(&control_plane, Identity::Alice).await;
        let (_pods, settings) = guarded(&control_plane, &chart, &alice).await;
        settings
    };
    // The guard has ended, and no other runs when etcd, the API server and the controllers come back.
    control_plane.restart();
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_failing(&alice, &settings).await;
    // The controllers find their own Leases and make the guard's pods, which a node would start now.
    let pods = format!("/api/v1/namespaces/{HOME}/pods");
    alice.delete(&pods).await.done().unwrap();
    // A controller manager takes over once the Lease of the one that was ended is over.
    eventually("the guard's pods are made anew", SOON * 2, || async {
        let pods = alice.get(&pods).await.done()?;
        let fresh = pods["items"].as_array().into_iter().flatten();
        let fresh = fresh.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
        if fresh == 2 { Ok(()) } else { Err(format!("{fresh} pods")) }
    })
    .await;
    let chart = Installed::new(&control_plane).await;
    let _pods = chart.start(2).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn expired_certificates_and_deleted_secrets_are_made_anew_under_fail() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    let short = json!({"edits": "Deny", "drift": "Repair", "certificates": {"age": "10s"}});
    chart.install(short).await.unwrap();
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let (pods, settings) = guarded(&control_plane, &chart, &alice).await;
    drop(pods);
    wait_until_failing(&alice, &settings).await;
    // Certificate and authority are over by then.
    sleep(AUTHORITY + Duration::from_secs(2)).await;
    let pods = chart.start(1).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;

    // Certificates of an hour from here on, so that a slow machine does not outlive them.
    drop(pods);
    let webhooks = |kind: &str| format!("/apis/admissionregistration.k8s.io/v1/{kind}/kubemoor");
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        chart.admin.delete(&webhooks(kind)).await.done().unwrap();
    }
    let hour = json!({"edits": "Deny", "drift": "Repair", "certificates": {"age": "1h"}});
    eventually("Helm upgrades the guard", SOON, || async { chart.upgrade(hour.clone()).await }).await;
    let pods = chart.start(1).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;
    let secrets = ["kubemoor-certificate", "kubemoor-caller"];
    let secrets = secrets.map(|name| format!("/api/v1/namespaces/{HOME}/secrets/{name}"));
    // Under a guard that runs.
    for path in &secrets {
        let old = alice.get(path).await.done().unwrap()["metadata"]["uid"].clone();
        alice.delete(path).await.done().unwrap();
        eventually("the Secret is back", SOON, || async {
            let new = alice.get(path).await.done()?;
            if new["metadata"]["uid"] == old { Err(new.to_string()) } else { Ok(()) }
        })
        .await;
        alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await.refused(RELEASE).unwrap();
    }
    // While none runs.
    drop(pods);
    for path in &secrets {
        alice.delete(path).await.done().unwrap();
    }
    let _pods = chart.start(1).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
}
