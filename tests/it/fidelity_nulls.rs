//! An explicit null is what the server sets in its place: Helm owns that by server-side apply, and removes what stands
//! there otherwise. What each of Helm's ways makes of an edit is asked of Helm itself.

use serde_json::{Value, json};

use crate::support::{RELEASE, SOON, Scene, eventually};

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: null
  minReadySeconds: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: null}
    spec:
      priorityClassName: null
      containers:
      - name: app
        image: "registry.example/shop:1"
        imagePullPolicy: null
        env: [{name: LEVEL, value: ""}]
"#;

/// The release, written by this way of Helm's.
async fn install(server_side: bool) -> Scene {
    let shop = Scene::policed().install("nulls", WEB).await;
    if !server_side {
        shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
        let options = json!({"server_side_apply": false});
        shop.helm.install(&shop.namespace, RELEASE, &shop.chart, options).await.unwrap();
    }
    shop.wait_until_guarded(&shop.deployment("web")).await;
    shop
}

fn edits() -> [(&'static str, Value, Value); 5] {
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let container = |field: &str, value: Value| {
        let mut container =
            json!({"name": "app", "image": "registry.example/shop:1", "env": [{"name": "LEVEL"}]});
        container[field] = value;
        template(json!({"containers": [container]}))
    };
    [
        ("/spec/replicas", json!({"spec": {"replicas": 5}}), json!(1)),
        ("/spec/minReadySeconds", json!({"spec": {"minReadySeconds": 5}}), Value::Null),
        (
            "/spec/template/spec/priorityClassName",
            template(json!({"priorityClassName": "high"})),
            Value::Null,
        ),
        (
            "/spec/template/spec/containers/0/imagePullPolicy",
            container("imagePullPolicy", json!("Never")),
            json!("IfNotPresent"),
        ),
        (
            "/spec/template/spec/containers/0/env/0/value",
            container("env", json!([{"name": "LEVEL", "value": "mine"}])),
            Value::Null,
        ),
    ]
}

async fn check_nulls(server_side: bool) {
    let shop = install(server_side).await;
    let path = shop.deployment("web");
    let by_hand = format!("{path}?fieldManager=kubectl-edit");
    for (pointer, edit, _) in edits() {
        shop.alice
            .merge(&by_hand, &edit)
            .await
            .refused(RELEASE)
            .unwrap_or_else(|said| panic!("{pointer}: {said}"));
    }
    let scale = format!("{path}/scale");
    shop.alice.merge(&scale, &json!({"spec": {"replicas": 5}})).await.refused(RELEASE).unwrap();
    let restart = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"});
    let restart = json!({"spec": {"template": {"metadata": {"annotations": restart}}}});
    shop.alice.merge(&path, &restart).await.done().unwrap();

    // What Helm makes of each, where nobody repairs it.
    shop.policy("record", json!({"priority": 1, "edits": "Record", "drift": "Report"})).await;
    for (pointer, edit, wanted) in edits() {
        eventually("the edit passes", SOON, || async { shop.alice.merge(&by_hand, &edit).await.done() })
            .await;
        let apply = if server_side { "true" } else { "false" };
        let options = |force| json!({"server_side_apply": apply, "force_conflicts": force});
        let upgrade = |force| shop.upgrade(options(force));
        let upgraded = upgrade(false).await;
        if server_side {
            let conflict = upgraded.unwrap_err();
            assert!(conflict.contains("conflict with \"kubectl-edit\""), "{pointer}: {conflict}");
            upgrade(true).await.unwrap();
        } else {
            upgraded.unwrap();
        }
        let now = shop.get(&path).await;
        assert_eq!(now.pointer(pointer).unwrap_or(&Value::Null), &wanted, "{pointer}");
    }

    // Repaired, it is no conflict.
    shop.policy("repair", json!({"priority": 2, "edits": "Record", "drift": "Repair"})).await;
    for (pointer, edit, wanted) in edits() {
        shop.alice.merge(&by_hand, &edit).await.done().unwrap();
        eventually(&format!("{pointer} is {wanted}"), SOON, || async {
            let now = shop.alice.get(&path).await.done()?;
            let value = now.pointer(pointer).unwrap_or(&Value::Null);
            if *value == wanted { Ok(()) } else { Err(format!("{value}\n{}", shop.log())) }
        })
        .await;
    }
    let apply = if server_side { "true" } else { "false" };
    let options = json!({"server_side_apply": apply});
    shop.upgrade(options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explicit_null_is_guarded_in_server_side_release() {
    check_nulls(true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn explicit_null_is_guarded_in_client_side_release() {
    check_nulls(false).await;
}
