//! What is missing comes back, as Helm would have written it; what must not come back stays away.

use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, ControlPlane, Guard, Helm, Identity, RELEASE, SOON, Shop, eventually, wait_until_guarded,
};

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default \"info\" }}}
";

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: app, image: registry.example/shop:1, env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]}
"#;

const NEVER: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "registry.example/job:1"}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "nodes-of-{{ .Release.Namespace }}"}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
"#;

const EXTRA: &str = "
{{- if not .Values.drop }}
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {a: b}
{{- end }}
";

/// Deletes an object in a way that the guard does not stand in: controllers may delete.
async fn delete_unhindered(path: &str) {
    let controller = Caller::new(ControlPlane::get(), Identity::NamespaceController).await;
    controller.delete(path).await.done().unwrap();
}

/// How often a guard has listed all objects of a resource, as it does before it watches them.
fn listings(control_plane: &ControlPlane, resource: &str) -> usize {
    let is_listing = |event: &Value| {
        event["verb"] == "list"
            && event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == resource
            && event["responseStatus"]["code"] == 200
    };
    control_plane.audit_events().iter().filter(|event| is_listing(event)).count()
}

/// Waits until a guard has listed a resource more than `before` times: what it never saw alive it does not re-create.
async fn wait_until_seen(control_plane: &ControlPlane, resource: &str, before: usize) {
    eventually(&format!("the guard watches {resource}"), SOON, || async {
        listings(control_plane, resource) > before
    })
    .await;
}

/// Waits until another object is where the one with this uid was.
async fn wait_until_recreated(caller: &Caller, path: &str, uid: &Value) -> Value {
    eventually(&format!("{path} is back"), SOON, || async {
        let object = caller.get(path).await.done()?;
        if object["metadata"]["uid"] == *uid { Err("it is still the old one".to_owned()) } else { Ok(object) }
    })
    .await
}

/// Who wrote an object, and how; without the controllers, which write the status.
fn writers(object: &Value) -> Vec<(String, String)> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let writers = entries.map(|entry| (text(entry, "manager"), text(entry, "operation")));
    writers.filter(|(manager, _)| manager != "kube-controller-manager").collect()
}

/// An object that goes is back with the same owner of its fields, and the next upgrade changes it.
async fn check_recreated(server_side: bool) {
    let options = json!({"server_side_apply": server_side});
    let shop = Shop::install_with("repair", &format!("{DEPLOYMENT}---{CONFIG_MAP}"), options).await;
    let paths = [shop.at("apis/apps/v1", "deployments/web"), shop.core("configmaps/settings")];
    for (path, resource) in paths.iter().zip(["deployments", "configmaps"]) {
        shop.wait_until_guarded(path).await;
        wait_until_seen(ControlPlane::get(), resource, 0).await;
        let before = shop.alice.get(path).await.done().unwrap();
        let operation = if server_side { "Apply" } else { "Update" };
        assert!(writers(&before).iter().any(|(_, how)| how == operation), "{:?}", writers(&before));
        delete_unhindered(path).await;
        let after = wait_until_recreated(&shop.alice, path, &before["metadata"]["uid"]).await;
        assert_eq!(writers(&after), writers(&before));
        for declared in ["labels", "annotations"] {
            let metadata = |object: &Value| {
                let mut map = object["metadata"][declared].as_object().unwrap().clone();
                map.remove("deployment.kubernetes.io/revision");
                map
            };
            assert_eq!(metadata(&after), metadata(&before));
        }
        assert_eq!((&after["spec"], &after["data"]), (&before["spec"], &before["data"]));
    }
    let apply = if server_side { "true" } else { "false" };
    shop.upgrade(json!({"server_side_apply": apply, "values": {"level": "debug"}})).await.unwrap();
    let deployment = shop.alice.get(&paths[0]).await.done().unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "debug");
    assert_eq!(shop.alice.get(&paths[1]).await.done().unwrap()["data"]["level"], "debug");
    shop.wait_until_guarded(&paths[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_of_a_server_side_release_comes_back_and_is_helms() {
    check_recreated(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_of_a_client_side_release_comes_back_and_is_helms() {
    check_recreated(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_claims_and_cluster_roles_are_reported_and_stay_away() {
    let shop = Shop::install("never", &format!("{NEVER}---{CONFIG_MAP}")).await;
    let role = format!("nodes-of-{}", shop.namespace);
    let objects = [
        (format!("Job/once in namespace {}", shop.namespace), shop.at("apis/batch/v1", "jobs/once")),
        (
            format!("PersistentVolumeClaim/data in namespace {}", shop.namespace),
            shop.core("persistentvolumeclaims/data"),
        ),
        (format!("ClusterRole/{role}"), format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")),
    ];
    for (_, path) in &objects {
        shop.wait_until_guarded(path).await;
    }
    for (name, path) in &objects {
        delete_unhindered(path).await;
        // Nothing uses the claim, and the controller that would see that does not run here.
        let released = shop.alice.merge(path, &json!({"metadata": {"finalizers": null}})).await;
        assert!(matches!(released.code, 200 | 404), "{released}");
        eventually(&format!("{name} is reported"), SOON, || async {
            shop.guard.log().lines().any(|line| {
                line.contains(&format!("{name}, which Helm release")) && line.contains("is not re-created")
            })
        })
        .await;
    }
    // Something that does come back afterwards shows that the loop has not simply been slow.
    check_others_recreated(&shop).await;
    for (_, path) in &objects {
        assert_eq!(shop.alice.get(path).await.code, 404, "{path} is back");
    }
}

/// Deletes the release's ConfigMap and waits until it is back.
async fn check_others_recreated(shop: &Shop) {
    let path = shop.core("configmaps/settings");
    shop.wait_until_guarded(&path).await;
    wait_until_seen(ControlPlane::get(), "configmaps", 0).await;
    let uid = shop.alice.get(&path).await.done().unwrap()["metadata"]["uid"].clone();
    delete_unhindered(&path).await;
    wait_until_recreated(&shop.alice, &path, &uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helm_uninstalls_does_not_come_back() {
    let stays = Shop::install("stays", CONFIG_MAP).await;
    let shop = Shop::install("uninstall", &format!("{DEPLOYMENT}---{CONFIG_MAP}")).await;
    let paths = [shop.at("apis/apps/v1", "deployments/web"), shop.core("configmaps/settings")];
    for path in &paths {
        shop.wait_until_guarded(path).await;
    }
    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
    check_others_recreated(&stays).await;
    for path in &paths {
        assert_eq!(shop.alice.get(path).await.code, 404, "{path} is back");
    }
    assert!(!recreated(&shop), "something was re-created and taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upgrade_drops_does_not_come_back() {
    let shop = Shop::install("drop", &format!("{CONFIG_MAP}---{EXTRA}")).await;
    let path = shop.core("configmaps/extra");
    shop.wait_until_guarded(&path).await;
    shop.upgrade(json!({"values": {"drop": true}})).await.unwrap();
    assert_eq!(shop.alice.get(&path).await.code, 404);
    assert!(!recreated(&shop), "something was re-created and taken back");
    check_others_recreated(&shop).await;
    assert_eq!(shop.alice.get(&path).await.code, 404, "{path} is back");
}

/// Whether the guard says that it re-created anything of this release.
fn recreated(shop: &Shop) -> bool {
    let release =
        format!("Helm release {}/{RELEASE} declares, was missing and is re-created", shop.namespace);
    shop.guard.log().lines().any(|line| line.contains(&release))
}

/// A control plane of its own with a release of two ConfigMaps.
async fn apart(control_plane: &ControlPlane) -> (String, Helm, Chart, Caller) {
    let namespace = control_plane.namespace("apart").await;
    let chart = Chart::new(RELEASE).template("all.yaml", &format!("{CONFIG_MAP}---{EXTRA}"));
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    let alice = Caller::new(control_plane, Identity::Alice).await;
    (namespace, helm, chart, alice)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_only_reports_re_creates_nothing() {
    let control_plane = ControlPlane::start();
    let (namespace, _helm, _chart, alice) = apart(&control_plane).await;
    let guard = Guard::start(&control_plane, &["--register", "--edits", "Warn", "--drift", "Report"]).await;
    for name in ["settings", "extra"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        alice.delete(&path).await.done().unwrap();
        let said = format!("ConfigMap/{name} in namespace {namespace}, which Helm release");
        eventually("the guard reports it", SOON, || async { guard.log().contains(&said) }).await;
        assert_eq!(alice.get(&path).await.code, 404);
    }
    let metrics = guard.metrics().await;
    assert!(metrics.contains("kubemoor_repairs_total{kind=\"missing\",outcome=\"reported\"} 2"), "{metrics}");
    assert!(metrics.contains("kubemoor_drift_found_total{kind=\"missing\"} 2"), "{metrics}");
    assert!(!metrics.contains("outcome=\"repaired\""), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_was_killed_hinders_nobody_and_catches_up() {
    let control_plane = ControlPlane::start();
    let (namespace, helm, chart, alice) = apart(&control_plane).await;
    let flags = ["--register", "--edits", "Deny", "--drift", "Repair"];
    let mut guard = Guard::start(&control_plane, &flags).await;
    let [settings, extra] =
        ["settings", "extra"].map(|name| format!("/api/v1/namespaces/{namespace}/configmaps/{name}"));
    wait_until_guarded(&alice, RELEASE, &settings).await;

    wait_until_seen(&control_plane, "configmaps", 0).await;

    guard.kill();
    let listings = listings(&control_plane, "configmaps");
    alice.merge(&settings, &json!({"data": {"level": "mine"}})).await.done().unwrap();
    alice.delete(&extra).await.done().unwrap();
    let options = json!({"values": {"level": "warn"}, "force_conflicts": true});
    helm.upgrade(&namespace, RELEASE, &chart, options.clone()).await.unwrap();
    alice.delete(&extra).await.done().unwrap();
    let late = control_plane.namespace("late").await;
    helm.install(&late, RELEASE, &chart, json!({})).await.unwrap();

    guard.start_again().await;
    // It knows what was declared meanwhile, by the new revision and by the new release.
    wait_until_guarded(&alice, RELEASE, &settings).await;
    alice.merge(&settings, &json!({"data": {"level": "mine"}})).await.refused(RELEASE).unwrap();
    alice.merge(&settings, &json!({"data": {"level": "warn"}})).await.done().unwrap();
    let of_late = format!("/api/v1/namespaces/{late}/configmaps/settings");
    alice.merge(&of_late, &json!({"data": {"level": "mine"}})).await.refused(RELEASE).unwrap();
    // What went meanwhile and it never saw alive it reports: a record alone is no reason to create anything.
    let said = format!("ConfigMap/extra in namespace {namespace}, which Helm release");
    eventually("the guard reports it", SOON, || async { guard.log().contains(&said) }).await;
    assert_eq!(alice.get(&extra).await.code, 404);
    // And repairs as before.
    wait_until_seen(&control_plane, "configmaps", listings).await;
    let uid = alice.get(&of_late).await.done().unwrap()["metadata"]["uid"].clone();
    let controller = Caller::new(&control_plane, Identity::NamespaceController).await;
    controller.delete(&of_late).await.done().unwrap();
    wait_until_recreated(&alice, &of_late, &uid).await;
    // Helm itself passes, and puts back what it declares.
    helm.upgrade(&namespace, RELEASE, &chart, options).await.unwrap();
    alice.get(&extra).await.done().unwrap();
}
