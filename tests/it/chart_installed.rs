//! The guard as its chart installs it: on a real control plane, with the real Helm SDK, and as a process with the
//! arguments, environment, files and account of the Deployment.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::chart::{cases, offline, with};
use crate::support::{
    Caller, Chart, ControlPlane, Guard, HOME, Helm, Identity, Installed, Pod, Postgres, RELEASE, SOON,
    eventually, folder, moor, root, run, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
const STATUS: &str = "/apis/kubemoor.dev/v1alpha1/namespaces/kubemoor-system/guardedreleases/kubemoor";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/guardedreleases.kubemoor.dev";

/// The chart of the release before: docs/releases.md says when it is replaced.
const PREVIOUS: &str = "tests/it/chart/previous";

/// Installs a release to guard, and says where its ConfigMap is.
pub(crate) async fn shop(control_plane: &ControlPlane) -> String {
    let namespace = control_plane.namespace("shop").await;
    let chart = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    format!("/api/v1/namespaces/{namespace}/configmaps/settings")
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_refuse_edits_and_one_takes_over_after_leader_dies() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    // The modes come from a file of policies, and the rights with them.
    let policy = json!({"name": "all", "spec": {"edits": "Deny", "drift": "Repair"}});
    let receiver = json!({"name": "nobody", "url": "https://127.0.0.1:1/"});
    chart
        .install(json!({"policies": [policy], "notifiers": {"receivers": [receiver]}, "cluster": {"name": "west"}}))
        .await
        .unwrap();
    let mut pods = chart.start(2).await;
    let settings = shop(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    for pod in &pods {
        assert!(!pod.log().contains("removed or overwritten"), "{}", pod.log());
    }
    // Either replica may be asked.
    for edit in 0..20 {
        let edit = json!({"data": {"mode": format!("slow-{edit}")}});
        alice.merge(&settings, &edit).await.refused(RELEASE).unwrap();
    }

    eventually("the release of the guard is in sync", SOON, || async {
        let status = chart.admin.get(STATUS).await.done()?["status"].clone();
        if status["conditions"][0]["reason"] == "InSync" { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let (tested, ran) = chart.test().await;
    assert!(tested.is_ok() && ran.code == 0, "{tested:?} {ran:?}");

    let leader = if pods[0].leads().await { 0 } else { 1 };
    pods.remove(leader).kill();
    chart.route(&pods.iter().collect::<Vec<_>>()).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    eventually("the other replica leads", SOON, || async { pods[0].leads().await }).await;
    assert!(pods[0].terminate().success(), "{}", pods[0].log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn namespaces_without_their_label_are_noted_until_they_have_it() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny"})).await.unwrap();
    let left_out = ["kube-system", "kube-node-lease", HOME];
    let label = async |value: fn(&str) -> Value| {
        for name in left_out {
            let labels = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": value(name)}}});
            chart.admin.merge(&format!("/api/v1/namespaces/{name}"), &labels).await.done().unwrap();
        }
    };
    label(|name| json!(name)).await;
    let pods = chart.start(1).await;
    let says = |expected: String| {
        let pods = &pods;
        eventually("the condition follows the labels", SOON, move || {
            let expected = expected.clone();
            async move {
                let condition = pods[0].condition("labels").await;
                if condition == expected { Ok(()) } else { Err(format!("{condition}, not {expected}")) }
            }
        })
    };
    says("[+]labels ok".to_owned()).await;
    // Versions of before 1.21 set no label; later ones set it again.
    if control_plane.minor() < 21 {
        label(|_| Value::Null).await;
        let all = left_out.join(", ");
        says(format!("[!]labels: namespaces without the label kubernetes.io/metadata.name: {all}")).await;
        assert!(pods[0].log().contains("namespaces lack the label kubernetes.io/metadata.name"));
        label(|name| json!(name)).await;
        says("[+]labels ok".to_owned()).await;
    }
}

/// How often the guard wrote Services and Deployments so far.
fn repairs(control_plane: &ControlPlane) -> usize {
    let own = format!("system:serviceaccount:{HOME}:kubemoor");
    let is_write = |event: &&Value| {
        event["user"]["username"] == own.as_str()
            // A controller may be faster: the guard's write is refused, and it looks again.
            && event["responseStatus"]["code"].as_u64().unwrap() < 300
            && ["create", "patch", "update", "delete"].contains(&event["verb"].as_str().unwrap())
            && ["services", "deployments"].contains(&event["objectRef"]["resource"].as_str().unwrap_or_default())
            && !event["requestURI"].as_str().unwrap().contains("dryRun")
    };
    control_plane.audit_events(&[&own]).iter().filter(is_write).count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn own_release_is_repaired_and_upgraded_without_a_fight() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny", "drift": "Repair"})).await.unwrap();
    let pods = chart.start(2).await;
    let in_sync = async |revision: u64| {
        eventually(&format!("revision {revision} is in sync"), SOON, || async {
            let status = chart.admin.get(STATUS).await.done()?["status"].clone();
            let is = status["conditions"][0]["reason"] == "InSync"
                && status["revision"] == revision
                // The guard's own Secrets and Lease are opted out.
                && status["confirmed"].as_u64().map(|confirmed| json!(confirmed + 3)) == Some(status["declared"].clone());
            if is { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    };
    in_sync(1).await;

    // The webhook never sees the guard's own namespace; the loop repairs it.
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let service = format!("/api/v1/namespaces/{HOME}/services/kubemoor");
    let deployment = format!("/apis/apps/v1/namespaces/{HOME}/deployments/kubemoor");
    alice.delete(&service).await.done().unwrap();
    alice.merge(&deployment, &json!({"spec": {"replicas": 0}})).await.done().unwrap();
    eventually("both are as declared", SOON, || async {
        alice.get(&service).await.done()?;
        let replicas = alice.get(&deployment).await.done()?["spec"]["replicas"].clone();
        if replicas == 2 { Ok(()) } else { Err(format!("{replicas} replicas")) }
    })
    .await;
    in_sync(1).await;
    assert_eq!(repairs(&control_plane), 2, "one write for each repair");

    // Helm upgrades and rolls back the guard while it runs, its roles and certificates included.
    chart
        .upgrade(json!({"edits": "Deny", "drift": "Repair", "podLabels": {"team": "platform"}}))
        .await
        .unwrap();
    in_sync(2).await;
    let path = format!("/api/v1/namespaces/{HOME}/secrets/kubemoor-certificate");
    let certificate = async || chart.admin.get(&path).await.done().map(|secret| secret["data"].clone());
    let before = certificate().await;
    chart.upgrade(json!({"edits": "Deny", "drift": "Repair", "rights": {"privileged": true}})).await.unwrap();
    in_sync(3).await;
    assert_eq!(certificate().await, before, "a new certificate");
    // Deleted, it comes back as it was.
    alice.delete(&path).await.done().unwrap();
    eventually("the certificate is back", SOON, || async {
        let now = certificate().await;
        if now == before { Ok(()) } else { now.and(Err("another certificate".to_owned())) }
    })
    .await;
    in_sync(3).await;
    chart.helm.rollback(HOME, "kubemoor", json!({"version": 1})).await.unwrap();
    in_sync(4).await;
    assert_eq!(repairs(&control_plane), 2, "the guard fights Helm: {}", pods[0].log());
}

/// Waits until the release of the guard is in sync with this revision.
async fn wait_until_in_sync(chart: &Installed<'_>, revision: u64) {
    eventually(&format!("revision {revision} is in sync"), SOON, || async {
        let status = chart.admin.get(STATUS).await.done()?["status"].clone();
        let is = status["conditions"][0]["reason"] == "InSync" && status["revision"] == revision;
        if is { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Kinds of others, whose definitions this control plane lacks, and kinds that its version may lack.
const NOT_SERVED: [&str; 6] = [
    "Certificate",
    "Issuer",
    "PrometheusRule",
    "ServiceMonitor",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// kubectl refuses unknown fields: of itself by the schemas of an old API server, else by asking a new one to be strict.
#[tokio::test(flavor = "multi_thread")]
async fn every_value_renders_objects_that_fit_the_schemas_of_this_kubernetes() {
    let control_plane = ControlPlane::start();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    for namespace in [HOME, "shop", "billing"] {
        let named = json!({"metadata": {"name": namespace}});
        admin.post("/api/v1/namespaces", &named).await.done().unwrap();
    }
    let (helm, chart) = offline();
    let version = format!("v1.{}.0", control_plane.minor());
    let mut objects = BTreeSet::new();
    for case in cases("values.yaml") {
        let values = with(&case["given"], case["path"].as_str().unwrap(), &case["value"]);
        let options = json!({"values": values, "kube_version": version});
        let files = helm.template(HOME, "kubemoor", &chart, options).await.unwrap();
        for (_, text) in files.as_object().unwrap().iter().filter(|(file, _)| !file.ends_with(".txt")) {
            let mut text = text.as_str().unwrap().to_owned();
            if control_plane.minor() < 21 {
                // Helm knows by discovery what a cluster serves; without a cluster it takes what its own library knows.
                text = text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n");
            }
            let rendered: Vec<Value> = serde_saphyr::from_multiple(text.as_str()).unwrap();
            objects.extend(rendered.iter().filter(|it| !it.is_null()).map(Value::to_string));
        }
    }
    assert!(objects.len() > 100, "{}", objects.len());

    let place = folder("rendered").join("objects.yaml");
    let errors = |text: String| -> Vec<String> {
        fs::write(&place, text).unwrap();
        let dry_run = if control_plane.minor() < 27 { "--dry-run=client" } else { "--dry-run=server" };
        let file = place.to_str().unwrap();
        let ran = control_plane.kubectl(Identity::Admin, &["create", dry_run, "--validate=true", "-f", file]);
        let lines = String::from_utf8(ran.stderr).unwrap();
        let is_served =
            |line: &&str| !NOT_SERVED.iter().any(|kind| line.contains(&format!("kind \"{kind}\"")));
        // No account is there for the pod of the chart's test.
        let is_of_object = |line: &&str| is_served(line) && !line.contains("service account");
        lines
            .lines()
            .filter(|line| !line.starts_with("Warning"))
            .filter(is_of_object)
            .map(str::to_owned)
            .collect()
    };
    let found = errors(objects.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(found.is_empty(), "{found:#?}");
    let wrong =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}});
    let found = errors(wrong.to_string());
    assert!(found.iter().any(|line| line.contains("prots")), "{found:?}");
}

/// Whether the upgrade from the previous chart changes the definition that these tests look at.
fn definition_differs() -> bool {
    let declared = |chart: &str| {
        let text = fs::read_to_string(root().join(chart).join("files/crds.yaml")).unwrap();
        let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        all.into_iter()
            .find(|it| DEFINITION.ends_with(it["metadata"]["name"].as_str().unwrap_or("/")))
            .unwrap()
    };
    declared(PREVIOUS) != declared("deploy/chart")
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_chart_is_upgraded_under_fail_and_rolled_back() {
    let control_plane = ControlPlane::start();
    let mut chart = Installed::new(&control_plane).await;
    let (values, current) = (json!({"edits": "Deny", "drift": "Repair"}), chart.chart.clone());
    chart.chart = Chart::shipped(PREVIOUS);
    chart.install(values.clone()).await.unwrap();
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    // As docs/production.md says for Kubernetes 1.20. Later versions do it themselves.
    let named = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": HOME}}});
    alice.merge(&format!("/api/v1/namespaces/{HOME}"), &named).await.done().unwrap();
    let mut pods = chart.start(2).await;
    let settings = shop(&control_plane).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    wait_until_in_sync(&chart, 1).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;
    let defined = async || chart.admin.get(DEFINITION).await.done().unwrap()["spec"]["versions"].take();
    let before = defined().await;

    let denied = async |pods: &[Pod], revision: u64| {
        wait_until_in_sync(&chart, revision).await;
        wait_until_guarded(&alice, RELEASE, &settings).await;
        let edit = json!({"data": {"mode": format!("slow-{revision}")}});
        let answer = alice.merge(&settings, &edit).await;
        answer.refused(RELEASE).unwrap_or_else(|error| panic!("{error}\n{}", pods[0].log()));
    };
    chart.helm.upgrade(HOME, "kubemoor", &current, json!({"values": values})).await.unwrap();
    assert_eq!(defined().await != before, definition_differs());
    let old = std::mem::take(&mut pods);
    pods = chart.start(2).await;
    drop(old);
    denied(&pods, 2).await;

    chart.helm.rollback(HOME, "kubemoor", json!({"version": 1})).await.unwrap();
    assert_eq!(defined().await, before);
    let new = std::mem::take(&mut pods);
    pods = chart.start(2).await;
    drop(new);
    denied(&pods, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ledger_url_of_a_secret_serves_two_replicas_after_one() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await.done().unwrap();
    let server = Postgres::start().await;
    let url = server.database();
    let secret = json!({"metadata": {"name": "ledger"}, "stringData": {"dsn": url}});
    chart.admin.post(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await.done().unwrap();
    let alone = json!({"replicas": 1, "edits": "Deny"});
    chart.install(alone.clone()).await.unwrap();
    let mut pods = chart.start(1).await;
    let settings = shop(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    assert!(pods[0].terminate().success());

    // From one replica to two.
    let shared = json!({"ledger": {"postgres": {"existingSecret": "ledger", "key": "dsn"}}, "edits": "Deny"});
    chart.upgrade(shared).await.unwrap();
    let pods = chart.start(2).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await.refused(RELEASE).unwrap();
    eventually("the ledger is the one of the Secret", SOON, || async {
        let ran = run(&["audit", "--ledger", &url, "-A", "--verdict", "Deny", "-o", "json"], "");
        if ran.code == 0 && !ran.items().is_empty() { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    for pod in &pods {
        // A guard answers before its ledger is open.
        eventually("its ledger is open", SOON, || async {
            let is_up = pod.metrics().await.contains("kubemoor_ledger_up 1\n");
            if is_up { Ok(()) } else { Err(pod.log()) }
        })
        .await;
    }
    drop(pods);
    // And back, also by way of a claim.
    chart.upgrade(json!({"replicas": 1, "ledger": {"persistence": {"enabled": true}}})).await.unwrap();
    chart.upgrade(alone).await.unwrap();
    let _pods = chart.start(1).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn stopped_guard_can_start_and_upgrade_under_failure_policy_fail() {
    let control_plane = ControlPlane::start();
    let mut chart = Installed::new(&control_plane).await;
    let values = json!({"edits": "Deny", "drift": "Repair"});
    // The upgrade brings other definitions too, where they have changed since.
    let current = std::mem::replace(&mut chart.chart, Chart::shipped(PREVIOUS));
    chart.install(values.clone()).await.unwrap();
    let pods = chart.start(1).await;
    let settings = shop(&control_plane).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;
    drop(pods);
    let edit = json!({"data": {"mode": "slow"}});
    eventually("edits fail without the guard", SOON, || async {
        let answer = alice.merge(&settings, &edit).await;
        if answer.to_string().contains("failed calling webhook") { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;

    // New pods are made, and the old version starts.
    let path = format!("/api/v1/namespaces/{HOME}/pods");
    let names = async || {
        let pods = alice.get(&path).await.done().unwrap();
        let names = pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].to_string());
        names.collect::<BTreeSet<_>>()
    };
    let old = names().await;
    alice.delete(&path).await.done().unwrap();
    eventually("there are new pods", SOON, || async {
        let new = names().await;
        if new.len() == 2 && new.is_disjoint(&old) { Ok(()) } else { Err(format!("{new:?}")) }
    })
    .await;

    // Helm writes roles and definitions, which no selector of a webhook can leave out.
    chart.chart = current;
    let before = chart.admin.get(DEFINITION).await.done().unwrap()["spec"].take();
    let refused = chart.upgrade(values.clone()).await.unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/kubemoor");
        chart.admin.delete(&path).await.done().unwrap();
    }
    eventually("Helm upgrades the guard", SOON, || async { chart.upgrade(values.clone()).await }).await;
    let after = chart.admin.get(DEFINITION).await.done().unwrap()["spec"].take();
    assert_eq!(after != before, definition_differs());
    let pods = chart.start(2).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;

    // Where no pod can start, a person runs what the hook would have run.
    drop(pods);
    let ran = moor(&control_plane, Identity::Admin, &["uninstall"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    chart.helm.uninstall(HOME, "kubemoor", json!({"disable_hooks": true})).await.unwrap();
    alice.merge(&settings, &edit).await.done().unwrap();
}
