//! List elements that somebody gave other keys: they are told as moved, and come back in place of what they were made. An
//! element that holds the name of a declared one goes.

use serde_json::{Value, json};

use crate::support::{ControlPlane, Identity, RELEASE, Scene, moor};

const TEMPLATES: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: {{ .Values.port | default 8080 }}, targetPort: 8080, protocol: TCP}
  - {name: admin, port: {{ .Values.admin | default 9090 }}, targetPort: 9090, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: cache, emptyDir: {}}]
      containers:
      - name: app
        image: registry.example/shop:one
        env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]
        volumeMounts: [{name: cache, mountPath: /cache}]
"#;

fn service(scene: &Scene) -> String {
    scene.core("services/web")
}

fn port(name: &str, port: u16, target: u16) -> Value {
    json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"})
}

/// Gives a port, a variable and a mount other keys, and the name of a port to another one, as `kubectl edit` does.
async fn move_elements(scene: &Scene) {
    let without = json!([port("http", 8081, 8080), port("admin", 9091, 9090)]);
    // The editor owns all of a port that is made again.
    let again = json!([port("http", 8081, 8080), port("mine", 9090, 9090), port("admin", 9091, 9090)]);
    for ports in [without, again] {
        scene.edit(&service(scene), json!({"spec": {"ports": ports}})).await;
    }
    let mut web = scene.get(&scene.deployment("web")).await;
    let container = &mut web["spec"]["template"]["spec"]["containers"][0];
    container["env"][0]["name"] = json!("MINE");
    container["volumeMounts"][0]["mountPath"] = json!("/mine");
    scene.edit(&scene.deployment("web"), json!({"spec": web["spec"]})).await;
}

fn container(web: &Value) -> &Value {
    &web["spec"]["template"]["spec"]["containers"][0]
}

fn ports(service: &Value) -> Vec<u64> {
    let ports = service["spec"]["ports"].as_array().unwrap().iter();
    let mut numbers: Vec<u64> = ports.map(|port| port["port"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Beside what is told before, with and without server-side apply.
async fn come_back(server_side: bool) {
    let control_plane = ControlPlane::start_defined();
    let options = json!({"server_side_apply": server_side});
    let scene = Scene::on(control_plane).options(options).install("moved", TEMPLATES).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    guard.terminate();
    move_elements(&scene).await;
    let told = |command: &str| {
        let ran = moor(&scene.control_plane, Identity::Admin, &[command, RELEASE, "-n", &scene.namespace]);
        assert_eq!(ran.code, 1, "{ran:?}");
        ran.out
    };
    let drift = told("diff");
    for moved in [
        "moved: {\"port\":8081,\"protocol\":\"TCP\"}",
        "moved: {\"name\":\"MINE\"}",
        "moved: {\"mountPath\":\"/mine\"}",
    ] {
        assert!(drift.contains(moved), "{moved} is not in\n{drift}");
    }
    if server_side {
        let ahead = told("forecast");
        assert!(ahead.contains("(moved to /spec/ports/[port=8081,protocol=TCP])"), "{ahead}");
    }

    guard.start_again().await;
    scene.wait_for_value(&service(&scene), "/spec/ports/0/port", json!(8080)).await;
    let web = scene
        .wait_for_value(
            &scene.deployment("web"),
            "/spec/template/spec/containers/0/env/0/name",
            json!("LEVEL"),
        )
        .await;
    let only = json!([{"name": "LEVEL", "value": "info"}]);
    assert_eq!(container(&web)["env"], only, "{}", web["metadata"]["managedFields"]);
    assert_eq!(container(&web)["volumeMounts"], json!([{"name": "cache", "mountPath": "/cache"}]));
    let restored = scene.wait_for_value(&service(&scene), "/spec/ports/1/name", json!("admin")).await;
    assert_eq!(ports(&restored), [8080, 9090]);
    scene.wait_for_reason("InSync").await;

    // What is as if nobody had edited it can be upgraded.
    let values = json!({"port": 8090, "admin": 9100, "level": "debug"});
    let server_side = if server_side { "true" } else { "false" };
    scene.upgrade_to(TEMPLATES, json!({"server_side_apply": server_side, "values": values})).await.unwrap();
    assert_eq!(ports(&scene.get(&service(&scene)).await), [8090, 9100]);
    let web = scene.get(&scene.deployment("web")).await;
    assert_eq!(container(&web)["env"], json!([{"name": "LEVEL", "value": "debug"}]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn moved_elements_return_in_server_side_release_and_upgrade_passes() {
    come_back(true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn moved_elements_return_in_client_side_release_and_upgrade_passes() {
    come_back(false).await;
}
