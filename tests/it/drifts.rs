//! What was changed behind the webhook's back is put right so that Helm never notices. The guard of these tests is not
//! registered: nothing is refused, and only the loop stands in the way.

use serde_json::json;

use crate::support::{Chart, Cluster, RELEASE, SOON, Scene, eventually};

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default \"info\" }}, color: blue}
";

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  minReadySeconds: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: "registry.example/shop:{{ .Values.tag | default "1" }}"
        env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]
        resources: {limits: {cpu: 1000m}}
"#;

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: hunter2}
";

/// Of these releases the loop alone takes care.
pub(crate) static UNREGISTERED: Cluster = Cluster::new(&["--edits", "Deny", "--drift", "Repair"]);

async fn revisions(scene: &Scene) -> usize {
    scene.helm.history(&scene.namespace, RELEASE).await.unwrap().as_array().unwrap().len()
}

async fn scene(prefix: &str, templates: &str, server_side: bool) -> Scene {
    let options = json!({"server_side_apply": server_side});
    let scene = Scene::on_cluster(&UNREGISTERED).options(options).install(prefix, templates).await;
    scene.wait_until_seen(1).await;
    scene
}

/// Somebody takes the ownership of a field from Helm, and leaves its value.
async fn take_ownership(scene: &Scene, settings: &str) {
    let object = scene.get(settings).await;
    let taken = json!({
        "manager": "kubectl-set", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:level": {}}},
    });
    let mut entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
    let helms = entries.iter_mut().find(|entry| entry["operation"] == "Apply").unwrap();
    helms["fieldsV1"]["f:data"].as_object_mut().unwrap().remove("f:level").unwrap();
    entries.push(taken);
    scene.edit(settings, json!({"metadata": {"managedFields": entries}})).await;
}

/// Every sort of change, then every operation of Helm's.
async fn check_repairs(server_side: bool) {
    let scene = scene("right", &[CONFIG_MAP, DEPLOYMENT, SECRET].join("---"), server_side).await;
    let (settings, web) = (scene.config_map("settings"), scene.deployment("web"));
    let secret = settings.replace("configmaps/settings", "secrets/password");
    let container = "/spec/template/spec/containers/0";

    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.edit(&settings, json!({"data": {"level": null}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.edit(&settings, json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})).await;
    scene.wait_for_value(&settings, "/metadata/labels/app.kubernetes.io~1managed-by", json!("Helm")).await;
    scene.edit(&settings, json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "other"}}})).await;
    scene.wait_for_value(&settings, "/metadata/annotations/meta.helm.sh~1release-name", json!(RELEASE)).await;

    scene.edit(&secret, json!({"data": {"password": "bWluZQ=="}})).await;
    scene.wait_for_value(&secret, "/data/password", json!("aHVudGVyMg==")).await;
    scene.wait_for_log("data.password: (redacted) (release: (redacted))").await;

    scene.edit(&web, json!({"spec": {"replicas": 5, "progressDeadlineSeconds": 77}})).await;
    let object = scene.wait_for_value(&web, "/spec/replicas", json!(2)).await;
    assert_eq!(object["spec"]["progressDeadlineSeconds"], 77, "what nobody declares is nobody's business");
    let other = json!([{"name": "app", "image": "evil"}, {"name": "sidecar", "image": "s"}]);
    scene.edit(&web, json!({"spec": {"template": {"spec": {"containers": other}}}})).await;
    scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:1")).await;
    let object = scene.wait_for_value(&web, &format!("{container}/env/0/value"), json!("info")).await;
    assert_eq!(object.pointer(&format!("{container}/resources/limits/cpu")), Some(&json!("1")));
    let scaled = format!("{web}/scale?fieldManager=kubectl");
    scene.alice.merge(&scaled, &json!({"spec": {"replicas": 9}})).await.done().unwrap();
    scene.wait_for_value(&web, "/spec/replicas", json!(2)).await;

    assert_eq!(revisions(&scene).await, 1);
    // No conflict, though the upgrade changes what was changed by hand.
    let apply = if server_side { "true" } else { "false" };
    scene
        .upgrade(json!({"server_side_apply": apply, "values": {"level": "debug", "tag": "2"}}))
        .await
        .unwrap();
    scene.wait_for_value(&settings, "/data/level", json!("debug")).await;
    scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:2")).await;
    scene.wait_until_seen(2).await;
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("debug")).await;
    scene
        .helm
        .rollback(&scene.namespace, RELEASE, json!({"version": 1, "server_side_apply": apply}))
        .await
        .unwrap();
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:1")).await;
    assert_eq!(revisions(&scene).await, 3);
    scene.helm.uninstall(&scene.namespace, RELEASE, json!({})).await.unwrap();
    for path in [&settings, &web, &secret] {
        assert_eq!(scene.alice.get(path).await.code, 404, "{path}");
    }
    assert!(!scene.log().contains("could not be repaired"), "{}", scene.log());
    assert!(!scene.log().contains("hunter2") && !scene.log().contains("aHVudGVyMg"), "{}", scene.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_release_is_repaired_and_next_upgrade_passes() {
    check_repairs(true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn client_side_release_is_repaired_and_next_upgrade_passes() {
    check_repairs(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_ownership_returns_to_helm_before_the_next_upgrade() {
    let scene = scene("owned", CONFIG_MAP, true).await;
    let settings = scene.config_map("settings");
    take_ownership(&scene, &settings).await;
    scene.wait_for_log("was owned by another field manager and is owned by Helm again").await;
    scene.upgrade(json!({"values": {"level": "debug"}})).await.unwrap();
    scene.wait_for_value(&settings, "/data/level", json!("debug")).await;
    assert_eq!(revisions(&scene).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn field_ownership_taken_during_an_upgrade_returns_to_helm_after_it() {
    let claim = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    let beside = scene("beside", CONFIG_MAP, true).await;
    let scene = scene("midway", CONFIG_MAP, true).await;
    let settings = scene.config_map("settings");
    // Helm waits until a volume is bound.
    let chart = Chart::from(&format!("{CONFIG_MAP}---{claim}"));
    let options = json!({"wait": "legacy", "timeout_seconds": 600});
    let upgrading = scene.helm.upgrade(&scene.namespace, RELEASE, &chart, options);
    let changing = async {
        scene.status("the upgrade is under way", |status| status["revision"] == 2).await;
        take_ownership(&scene, &settings).await;
        // Both objects come through one watch: once this one is repaired, the change before has been judged.
        let other = beside.config_map("settings");
        beside.edit(&other, json!({"data": {"level": "mine"}})).await;
        beside.wait_for_value(&other, "/data/level", json!("info")).await;
        let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/data", scene.namespace);
        scene.wait_for_value(&path, "/metadata/name", json!("data")).await;
        scene
            .alice
            .merge(&format!("{path}/status"), &json!({"status": {"phase": "Bound"}}))
            .await
            .done()
            .unwrap();
    };
    let (upgraded, ()) = tokio::join!(upgrading, changing);
    upgraded.unwrap();
    scene.wait_for_log("was owned by another field manager and is owned by Helm again").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn immutable_field_is_reported_and_other_fields_are_repaired() {
    let scene = scene("fixed", DEPLOYMENT, true).await;
    let web = scene.deployment("web");
    let mut object = scene.get(&web).await;
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object["spec"]["selector"] = json!({"matchLabels": {"app": "mine"}});
    object["spec"]["template"]["metadata"]["labels"] = json!({"app": "mine"});
    object["spec"]["minReadySeconds"] = json!(7);
    object["spec"]["replicas"] = json!(5);
    scene.alice.delete(&web).await.done().unwrap();
    let collection = web.trim_end_matches("/web");
    // The guard may be faster.
    eventually("the object is Alice's", SOON, || async {
        let made = scene.alice.post(collection, &object).await;
        if made.code == 409 {
            scene.alice.delete(&web).await;
        }
        made.done()
    })
    .await;
    scene.wait_for_value(&web, "/spec/replicas", json!(2)).await;
    scene.wait_for_log("refuses to set these fields").await;
    let object = scene.get(&web).await;
    assert_eq!(object["spec"]["selector"], json!({"matchLabels": {"app": "mine"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_stay_with_autoscaler_unless_scaled_to_zero() {
    let scene = scene("ranged", DEPLOYMENT, true).await;
    let web = scene.deployment("web");
    scene.autoscale("web", "web", (1, 4)).await;
    let container = "/spec/template/spec/containers/0";
    let with = |image: &str| json!([{"name": "app", "image": image}]);
    // One repair, by which time the autoscaler has reached the guard.
    scene.edit(&web, json!({"spec": {"template": {"spec": {"containers": with("evil")}}}})).await;
    scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:1")).await;
    let both = json!({"spec": {"replicas": 4, "template": {"spec": {"containers": with("worse")}}}});
    scene.edit(&web, both).await;
    let object =
        scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:1")).await;
    assert_eq!(object["spec"]["replicas"], 4, "a repair took the replicas along:\n{}", scene.log());
    // Outside of its range the autoscaler brings them in.
    let both = json!({"spec": {"replicas": 9, "template": {"spec": {"containers": with("worst")}}}});
    scene.edit(&web, both).await;
    let object =
        scene.wait_for_value(&web, &format!("{container}/image"), json!("registry.example/shop:1")).await;
    assert_eq!(object["spec"]["replicas"], 9, "{}", scene.log());
    // From none it does not.
    scene.edit(&web, json!({"spec": {"replicas": 0}})).await;
    scene.wait_for_value(&web, "/spec/replicas", json!(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_stuck_in_deletion_is_recreated_after_it_is_gone() {
    let scene = scene("stuck", CONFIG_MAP, true).await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"metadata": {"finalizers": ["example.com/wait"]}})).await;
    let before = scene.alice.delete(&settings).await.done().unwrap();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_log("it is being deleted").await;
    let stuck = scene.get(&settings).await;
    assert_eq!(stuck["data"]["level"], "mine");
    scene.edit(&settings, json!({"metadata": {"finalizers": null}})).await;
    let back = scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    assert_ne!(back["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn concurrent_upgrades_and_edits_end_at_last_revision() {
    let templates = format!(
        "{CONFIG_MAP}---{DEPLOYMENT}---\n{{{{- if .Values.extra }}}}{}{{{{- end }}}}",
        "
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {a: b}
"
    );
    let scene = scene("race", &templates, true).await;
    let (settings, web) = (scene.config_map("settings"), scene.deployment("web"));
    let extra = settings.replace("/settings", "/extra");
    const UPGRADES: usize = 6;
    let upgrades = async {
        for round in 0..UPGRADES {
            let level = format!("level-{round}");
            let values = json!({"level": level, "tag": round.to_string(), "extra": round % 2 == 0});
            scene.upgrade(json!({"values": values, "force_conflicts": true})).await.unwrap();
            // Gone at the moment in which the next upgrade drops it.
            scene.alice.delete(&extra).await;
        }
    };
    let mut edits = 0;
    let editing = async {
        loop {
            scene.alice.merge(&settings, &json!({"data": {"level": "mine", "color": "red"}})).await;
            scene.alice.merge(&web, &json!({"spec": {"replicas": 7}})).await;
            edits += 1;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { () = upgrades => {}, () = editing => {} }
    assert!(edits > UPGRADES);
    let last = UPGRADES - 1;
    let level = format!("level-{last}");
    // The guard waits up to five minutes with what is contested.
    eventually("the value is the declared one", SOON * 9, || async {
        scene.get(&settings).await["data"]["level"] == level
    })
    .await;
    scene.wait_for_value(&settings, "/data/color", json!("blue")).await;
    scene.wait_for_value(&web, "/spec/replicas", json!(2)).await;
    assert_eq!(scene.alice.get(&extra).await.code, 404, "what the last revision drops does not come back");
    assert_eq!(revisions(&scene).await, UPGRADES + 1);
}
