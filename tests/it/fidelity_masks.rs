//! Helm's own label and annotations are guarded whatever a policy ignores or allows: without them nobody would ask the
//! guard about the next edit.

use serde_json::{Value, json};

use crate::support::{RELEASE, SOON, Scene, eventually};

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {tier: front}, annotations: {example.org/note: a}}
data: {level: info}
";

async fn assert_marks_refused(shop: &Scene) {
    let path = shop.config_map("settings");
    let labels = json!({"metadata": {"labels": {"tier": "back"}, "annotations": {"example.org/note": "b"}}});
    eventually("other labels may be changed", SOON, || async {
        shop.alice.merge(&path, &labels).await.done()
    })
    .await;
    for (map, name) in [
        ("labels", "app.kubernetes.io/managed-by"),
        ("annotations", "meta.helm.sh/release-name"),
        ("annotations", "meta.helm.sh/release-namespace"),
    ] {
        for value in [Value::Null, json!("mine")] {
            let edit = json!({"metadata": {map: {name: value}}});
            shop.alice
                .merge(&path, &edit)
                .await
                .refused(RELEASE)
                .unwrap_or_else(|said| panic!("{edit}: {said}"));
        }
    }
    shop.assert_value(&path, "/metadata/labels/tier", &json!("back")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mask_never_covers_helms_label_and_annotations() {
    let shop = Scene::policed().install("masked", SETTINGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop.policy("mask", json!({"ignore": [{"paths": ["/metadata/labels/*", "/metadata/annotations/*"]}]}))
        .await;
    assert_marks_refused(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_never_covers_helms_label_and_annotations() {
    let shop = Scene::policed().install("masked", SETTINGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop.policy("all", json!({"allow": [{"name": "all", "paths": ["*"]}]})).await;
    assert_marks_refused(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn policy_that_ignores_helms_label_reports_no_effect() {
    let shop = Scene::policed().install("masked", SETTINGS).await;
    let path = "/metadata/labels/app.kubernetes.io~1managed-by";
    shop.policy("named", json!({"ignore": [{"paths": [path, "/data/level"]}]})).await;
    let policy = format!("/apis/kubemoor.dev/v1alpha1/driftpolicies/{}-named", shop.namespace);
    eventually("the policy says so", SOON, || async {
        let condition = shop.alice.get(&policy).await.done()?["status"]["conditions"][0].take();
        let message = condition["message"].as_str().unwrap_or_default();
        if condition["reason"] == "HelmsOwn" && condition["status"] == "True" && message.contains(path) {
            Ok(())
        } else {
            Err(condition.to_string())
        }
    })
    .await;
    let settings = shop.config_map("settings");
    eventually("what else it names is ignored", SOON, || async {
        shop.alice.merge(&settings, &json!({"data": {"level": "mine"}})).await.done()
    })
    .await;
    shop.wait_until_guarded(&settings).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repair_leaves_ignored_fields_to_those_who_apply_them() {
    let options = json!({"server_side_apply": true});
    let shop = Scene::own().options(options).install("applied", SETTINGS).await;
    let _guard = shop.start_guard(&["--drift", "Repair"]).await;
    shop.wait_for_confirmed(1).await;
    shop.policy("spared", json!({"drift": "Repair", "ignore": [{"paths": ["/data/speed"]}]})).await;
    let settings = shop.config_map("settings");
    let apply = async |speed: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"speed": speed},
        });
        shop.alice.apply(&format!("{settings}?fieldManager=operator"), &object).await.done().unwrap();
    };
    apply("slow").await;
    shop.edit(&settings, json!({"data": {"level": "mine"}})).await;
    shop.wait_for_value(&settings, "/data/level", json!("info")).await;
    // Helm's manager does not own it: there is no conflict.
    apply("fast").await;
    shop.assert_value(&settings, "/data/speed", &json!("fast")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repair_by_apply_keeps_ignored_parts_of_values_that_are_replaced_as_a_whole() {
    const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {pool: any}
      tolerations: [{key: a, operator: Exists}]
      containers: [{name: web, image: web}]
";
    let options = json!({"server_side_apply": true});
    let shop = Scene::own().options(options).install("atomic", WEB).await;
    let _guard = shop.start_guard(&["--drift", "Repair"]).await;
    shop.wait_for_confirmed(1).await;
    let pods = "/spec/template/spec";
    let ignored = [format!("{pods}/nodeSelector"), format!("{pods}/tolerations/[key=b]")];
    shop.policy("spared", json!({"drift": "Repair", "ignore": [{"paths": ignored}]})).await;
    let web = shop.deployment("web");
    let tolerations = json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
    let selector = json!({"pool": "spot", "zone": "x"});
    let pod = json!({"nodeSelector": selector, "tolerations": tolerations});
    shop.edit(&web, json!({"spec": {"replicas": 5, "template": {"spec": pod}}})).await;
    shop.wait_for_value(&web, "/spec/replicas", json!(2)).await;
    shop.assert_value(&web, &format!("{pods}/nodeSelector"), &selector).await;
    shop.assert_value(&web, &format!("{pods}/tolerations"), &tolerations).await;
}
