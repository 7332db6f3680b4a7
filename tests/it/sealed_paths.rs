//! Sealed paths on a real control plane: what nobody declares is refused, set back or removed there, and Helm, controllers
//! and appliers go on.

use serde_json::{Value, json};

use crate::support::{Identity, RELEASE, SOON, Scene, charts, eventually, moor};

const TEMPLATES: &str = concat!(
    charts::deployment!(
        1,
        r#"{name: app, image: "registry.example/shop:{{ .Values.tag | default "1" }}", env: [{name: LEVEL, value: info}]}"#
    ),
    "---",
    charts::config_map!("settings", r#"{level: {{ .Values.level | default "info" | quote }}}"#),
);

const POD: &str = "/spec/template/spec";

fn seal() -> Value {
    json!([
        {"target": {"kind": "Deployment"}, "paths": [POD, "/metadata/annotations"]},
        {"target": {"kind": "ConfigMap"}, "paths": ["/data"]},
    ])
}

/// JSON patches that add something, with what a refusal names.
fn additions() -> [(&'static str, Value, &'static str); 4] {
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let container = "/spec/template/spec/containers";
    let variable = json!({"name": "EXTRA", "value": "1"});
    [
        ("deployment/web", add(&format!("{container}/-"), side()), "[name=side]"),
        ("deployment/web", add(&format!("{container}/0/env/-"), variable), "[name=EXTRA]"),
        (
            "deployment/web",
            add(&format!("{POD}/volumes"), json!([{"name": "v", "emptyDir": {}}])),
            "[name=v]",
        ),
        ("configmap/settings", add("/data/extra", json!("x")), "/data/extra"),
    ]
}

fn side() -> Value {
    json!({"name": "side", "image": "registry.example/side:1"})
}

/// The names of the containers of a Deployment.
fn containers(object: &Value) -> Vec<&str> {
    let list = object.pointer(&format!("{POD}/containers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|it| it["name"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_are_refused_and_helm_goes_on() {
    let shop = Scene::policed().install("seal", TEMPLATES).await;
    let web = shop.deployment("web");
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&web).await;
    shop.wait_until_guarded(&settings).await;
    shop.policy("seal", json!({"seal": seal()})).await;
    let patch = |object: &str, patch: &Value| {
        shop.kubectl_as("carol", "developers", &["patch", object, "--type=json", "-p", &patch.to_string()])
    };
    for (object, addition, named) in additions() {
        let said = patch(object, &addition).unwrap_err();
        assert!(said.contains(named) && said.contains("(release: absent)"), "{said}");
    }
    let said =
        shop.kubectl_as("carol", "developers", &["set", "env", "deployment/web", "MINE=1"]).unwrap_err();
    assert!(said.contains("[name=MINE]"), "{said}");
    // What controllers note, and what they do.
    shop.kubectl_as("carol", "developers", &["rollout", "restart", "deployment/web"]).unwrap();
    shop.wait_for_value(&web, "/metadata/annotations/deployment.kubernetes.io~1revision", &json!("2")).await;
    // Helm, as versions 4 and 3 write.
    for (tag, apply) in [("2", "true"), ("3", "false"), ("4", "auto")] {
        let options = json!({"server_side_apply": apply, "values": {"tag": tag, "level": tag}});
        shop.upgrade(options).await.unwrap();
        shop.wait_for_value(&settings, "/data/level", &json!(tag)).await;
    }
    shop.helm.rollback(&shop.namespace, RELEASE, json!({"version": 1})).await.unwrap();
    shop.wait_for_value(&settings, "/data/level", &json!("info")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn appliers_add_and_nobody_fights_them() {
    let shop = Scene::policed().install("seal", TEMPLATES).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    shop.policy("seal", json!({"seal": seal()})).await;
    let mut applied = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": shop.namespace},
    });
    applied["spec"]["template"]["spec"]["containers"] = json!([side()]);
    shop.alice.apply(&format!("{web}?fieldManager=injector"), &applied).await.done().unwrap();
    shop.wait_for_pass().await;
    let options = json!({"values": {"tag": "2"}});
    shop.upgrade(options).await.unwrap();
    let object = shop.get(&web).await;
    let mut names = containers(&object);
    names.sort_unstable();
    assert_eq!(names, ["app", "side"], "{object}");
    // Somebody else's change of it is none of the applier's.
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "evil:1"}]}}}});
    let said = shop.kubectl_as("carol", "developers", &["patch", "deployment/web", "-p", &image.to_string()]);
    assert!(said.unwrap_err().contains("[name=side]/image"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn reverted_edit_loses_its_additions_alone() {
    let shop = Scene::policed().install("seal", TEMPLATES).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    let mut policy = charts::shipped("sealed-workloads.yaml");
    policy["edits"] = json!("Revert");
    shop.policy("seal", policy).await;
    let edit = json!({
        "metadata": {"labels": {"mine": "yes"}},
        "spec": {"template": {"spec": {"containers": [side()], "hostPID": true}}},
    });
    let edit = edit.to_string();
    eventually("the edit is set back", SOON, || async {
        shop.kubectl_as("carol", "developers", &["patch", "deployment/web", "-p", &edit])
    })
    .await;
    let object = shop.get(&web).await;
    assert_eq!(containers(&object), ["app"], "{object}");
    assert_eq!(object.pointer(&format!("{POD}/hostPID")), None, "{object}");
    assert_eq!(object["metadata"]["labels"]["mine"], "yes");
    assert!(!object["metadata"]["managedFields"].to_string().contains("side"), "{object}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn loop_removes_new_sealed_fields_and_only_reports_older_ones() {
    let scene = Scene::own().install("seal", TEMPLATES).await;
    let (web, settings) = (scene.deployment("web"), scene.config_map("settings"));
    // Before there is a policy.
    scene.edit(&settings, json!({"data": {"before": "x"}})).await;
    scene.policy_for_all(json!({"drift": "Repair", "seal": seal()})).await;
    // Orders come through the webhook.
    let flags = ["--register", "--edits", "Allow", "--drift", "Repair"];
    let _guard = scene.start_guard(&flags).await;
    scene.wait_for_reason("Unconfirmed").await;
    let app = |more: Value| {
        let mut app = json!({"name": "app", "image": "registry.example/shop:1", "env": [{"name": "LEVEL", "value": "info"}]});
        app["env"].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        app
    };
    let with = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    scene.edit(&web, with(json!([app(json!([])), side()]))).await;
    wait_until_removed(&scene, &web).await;
    scene.edit(&web, with(json!([app(json!([{"name": "EXTRA", "value": "1"}]))]))).await;
    wait_until_removed(&scene, &web).await;
    scene.edit(&web, json!({"metadata": {"annotations": {"mine": "yes"}}})).await;
    wait_until_removed(&scene, &web).await;
    // What is declared is put right beside an addition that stays.
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let object = scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    assert_eq!(object["data"]["before"], "x");
    scene.wait_for_reason("Unconfirmed").await;
    eventually("an order confirms it", SOON, || async {
        let ran =
            moor(&scene.control_plane, Identity::Admin, &["reconcile", RELEASE, "-n", &scene.namespace]);
        if ran.code == 0 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    scene.wait_for_value(&settings, "/data", json!({"level": "info"})).await;
    scene.wait_for_reason("InSync").await;
    // Now it has been seen without one.
    scene.edit(&settings, json!({"data": {"after": "x"}})).await;
    scene.wait_for_value(&settings, "/data", json!({"level": "info"})).await;
    scene.upgrade_to(&TEMPLATES.replace("info", "debug"), json!({})).await.unwrap();
    scene.wait_for_value(&settings, "/data", json!({"level": "debug"})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn field_older_than_its_seal_stays_across_an_upgrade() {
    let scene = Scene::own().install("seal", TEMPLATES).await;
    let web = scene.deployment("web");
    let edit = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    scene.edit(&web, edit(json!({"hostname": "mine"}))).await;
    scene.policy_for_all(json!({"drift": "Repair", "seal": seal()})).await;
    let _guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("Unconfirmed").await;
    scene.upgrade_to(&TEMPLATES.replace("shop:", "store:"), json!({})).await.unwrap();
    let is_second = |status: &Value| {
        status["revision"] == 2
            && status["drifted"] == 1
            && status["conditions"][0]["reason"] == "Unconfirmed"
    };
    scene.status("revision 2 is unconfirmed", is_second).await;
    // Other drift is put right beside it.
    scene.edit(&web, json!({"spec": {"replicas": 3}})).await;
    let object = scene.wait_for_value(&web, "/spec/replicas", json!(1)).await;
    assert_eq!(object["spec"]["template"]["spec"]["hostname"], "mine");
    scene.status("revision 2 is unconfirmed", is_second).await;
}

/// Waits until nothing is left of what was added to the Deployment.
async fn wait_until_removed(scene: &Scene, web: &str) {
    eventually("the addition is gone", SOON, || async {
        let object = scene.alice.get(web).await.done()?;
        let app = &object["spec"]["template"]["spec"]["containers"][0];
        let is_clean = containers(&object) == ["app"]
            && app["env"].as_array().is_some_and(|env| env.len() == 1)
            && object["metadata"]["annotations"]["mine"].is_null();
        if is_clean { Ok(()) } else { Err(object["spec"].to_string()) }
    })
    .await;
}
