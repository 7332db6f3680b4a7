//! What is missing comes back, as Helm would have written it; what must not come back stays away.

use serde_json::{Value, json};

use crate::support::charts::{self, SETTINGS};
use crate::support::{ControlPlane, RELEASE, SOON, Scene, eventually, wait_until_recreated};

const DEPLOYMENT: &str = charts::deployment!(
    r#"{name: app, image: registry.example/shop:1, env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]}"#
);

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80, protocol: TCP}]}
";

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
    let templates = format!("{DEPLOYMENT}---{SETTINGS}---{SERVICE}");
    let shop = Scene::shared().options(options).install("repair", &templates).await;
    let paths = [shop.deployment("web"), shop.config_map("settings"), shop.core("services/web")];
    for (path, resource) in paths.iter().zip(["deployments", "configmaps", "services"]) {
        shop.wait_until_guarded(path).await;
        shop.control_plane.wait_until_listed(resource, 0).await;
        let before = shop.get(path).await;
        let operation = if server_side { "Apply" } else { "Update" };
        assert!(writers(&before).iter().any(|(_, how)| how == operation), "{:?}", writers(&before));
        shop.control_plane.delete_unhindered(path).await;
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
    let deployment = shop.get(&paths[0]).await;
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "debug");
    assert_eq!(shop.get(&paths[1]).await["data"]["level"], "debug");
    shop.wait_until_guarded(&paths[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_object_of_server_side_release_returns_owned_by_helm() {
    check_recreated(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_object_of_client_side_release_returns_owned_by_helm() {
    check_recreated(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_claims_and_cluster_roles_are_reported_and_stay_away() {
    let shop = Scene::shared().install("never", &format!("{NEVER}---{SETTINGS}")).await;
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
        shop.control_plane.delete_unhindered(path).await;
        // Nothing uses the claim, and the controller that would see that does not run here.
        let released = shop.alice.merge(path, &json!({"metadata": {"finalizers": null}})).await;
        assert!(matches!(released.code, 200 | 404), "{released}");
        eventually(&format!("{name} is reported"), SOON, || async {
            shop.guard().log().lines().any(|line| {
                line.contains(&format!("{name} of Helm release")) && line.contains("is not re-created")
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
async fn check_others_recreated(shop: &Scene) {
    let path = shop.config_map("settings");
    shop.wait_until_guarded(&path).await;
    shop.control_plane.wait_until_listed("configmaps", 0).await;
    let uid = shop.get(&path).await["metadata"]["uid"].clone();
    shop.control_plane.delete_unhindered(&path).await;
    wait_until_recreated(&shop.alice, &path, &uid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_agrees_in_another_spelling_is_never_written() {
    let limits = "
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, max: {cpu: 1000m}}]}
";
    let shop = Scene::policed().install("agrees", limits).await;
    let limits = shop.core("limitranges/limits");
    shop.wait_until_seen(1).await;
    assert_eq!(shop.get(&limits).await["spec"]["limits"][0]["max"]["cpu"], "1");
    shop.wait_for_pass().await;
    let is_write = |event: &Value| {
        let is_here = event["objectRef"]["namespace"] == shop.namespace.as_str();
        is_here && ["create", "update", "patch"].contains(&event["verb"].as_str().unwrap())
    };
    assert_eq!(shop.control_plane.answers_to_guards("limitranges", is_write), [0; 0], "{}", shop.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalled_object_is_not_recreated() {
    let stays = Scene::shared().install("stays", SETTINGS).await;
    let shop = Scene::shared().install("uninstall", &format!("{DEPLOYMENT}---{SETTINGS}")).await;
    let paths = [shop.deployment("web"), shop.config_map("settings")];
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

/// Whether the guard says that it re-created anything of this release.
fn recreated(shop: &Scene) -> bool {
    let release = format!("of Helm release {}/{RELEASE} was missing and has been re-created", shop.namespace);
    shop.guard().log().lines().any(|line| line.contains(&release))
}

/// A release of two ConfigMaps on a control plane of its own.
async fn apart() -> Scene {
    let templates = format!("{SETTINGS}---{EXTRA}");
    Scene::on(ControlPlane::start()).install("apart", &templates).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_guard_that_was_killed_hinders_nobody_and_catches_up() {
    let shop = apart().await;
    let flags = ["--register", "--edits", "Deny", "--drift", "Repair"];
    let mut guard = shop.start_guard(&flags).await;
    let [settings, extra] = ["settings", "extra"].map(|name| shop.config_map(name));
    shop.wait_until_guarded(&settings).await;

    shop.control_plane.wait_until_listed("configmaps", 0).await;

    guard.kill();
    let listings = shop.control_plane.listings("configmaps");
    shop.alice.merge(&settings, &json!({"data": {"level": "mine"}})).await.done().unwrap();
    shop.alice.delete(&extra).await.done().unwrap();
    let options = json!({"values": {"level": "warn"}, "force_conflicts": true});
    shop.upgrade(options.clone()).await.unwrap();
    shop.alice.delete(&extra).await.done().unwrap();
    let late = shop.control_plane.namespace("late").await;
    shop.helm.install(&late, RELEASE, &shop.chart, json!({})).await.unwrap();

    guard.start_again().await;
    // It knows what was declared meanwhile, by the new revision and by the new release.
    shop.wait_until_guarded(&settings).await;
    shop.alice.merge(&settings, &json!({"data": {"level": "mine"}})).await.refused(RELEASE).unwrap();
    shop.alice.merge(&settings, &json!({"data": {"level": "warn"}})).await.done().unwrap();
    let of_late = format!("/api/v1/namespaces/{late}/configmaps/settings");
    shop.alice.merge(&of_late, &json!({"data": {"level": "mine"}})).await.refused(RELEASE).unwrap();
    // What went meanwhile and it never saw alive it reports: a record alone is no reason to create anything.
    let said = format!("ConfigMap/extra in namespace {} of Helm release", shop.namespace);
    guard.wait_for_log(&said).await;
    assert_eq!(shop.alice.get(&extra).await.code, 404);
    // And repairs as before.
    shop.control_plane.wait_until_listed("configmaps", listings).await;
    let uid = shop.alice.get(&of_late).await.done().unwrap()["metadata"]["uid"].clone();
    shop.control_plane.delete_unhindered(&of_late).await;
    wait_until_recreated(&shop.alice, &of_late, &uid).await;
    // Helm itself passes, and puts back what it declares.
    shop.upgrade(options).await.unwrap();
    shop.alice.get(&extra).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_that_ends_right_after_an_upgrade_repairs_what_changes_meanwhile() {
    let shop = apart().await;
    shop.control_plane.define_policies();
    let mut guard = shop.start_guard(&["--register", "--edits", "Warn", "--drift", "Repair"]).await;
    shop.wait_for_confirmed(2).await;
    let settings = shop.config_map("settings");
    for (round, level) in ["warn", "error", "fatal"].into_iter().enumerate() {
        shop.upgrade(json!({"values": {"level": level}})).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100) * u32::try_from(round).unwrap()).await;
        assert!(guard.terminate().success(), "{}", guard.log());
        shop.edit(&settings, json!({"data": {"level": "mine"}})).await;
        guard.start_again().await;
        shop.wait_for_value(&settings, "/data/level", json!(level)).await;
        shop.wait_for_reason("InSync").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_a_kind_that_was_not_watched_is_in_sync_only_once_it_is_confirmed() {
    let shop = Scene::on(ControlPlane::start()).install("first", SETTINGS).await;
    shop.control_plane.define_policies();
    let _guard = shop.start_guard(&["--register", "--edits", "Warn", "--drift", "Repair"]).await;
    shop.wait_for_confirmed(1).await;
    let admin = &shop.admin;
    let path = shop.guarded_release(RELEASE);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let watch = async {
        tokio::pin!(stopped);
        let mut seen = Vec::new();
        loop {
            let status = admin.get(&path).await.done().unwrap()["status"].clone();
            let reason = status["conditions"][0]["reason"].clone();
            seen.push(json!([status["revision"], reason, status["confirmed"], status["declared"]]));
            tokio::select! {
                _ = &mut stopped => return seen,
                () = tokio::time::sleep(std::time::Duration::from_millis(5)) => {}
            }
        }
    };
    let secret = "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: extra}\nstringData: {a: b}\n";
    let upgrade = async {
        shop.upgrade_to(&format!("{SETTINGS}{secret}"), json!({})).await.unwrap();
        shop.wait_for_confirmed(2).await;
        stop.send(()).unwrap();
    };
    let (seen, ()) = tokio::join!(watch, upgrade);
    let early: Vec<_> = seen.iter().filter(|it| it[1] == "InSync" && it[2] != it[3]).collect();
    assert!(early.is_empty(), "{early:?}");
}
