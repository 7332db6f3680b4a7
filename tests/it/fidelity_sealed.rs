//! Sealed fields that were set while nobody stood in the way are drift: the loop finds them, `diff` and `explain` say
//! so, and a repair undoes what may be undone.

use serde_json::{Value, json};

use crate::support::{RELEASE, SOON, Scene, charts, eventually};

const TEMPLATES: &str = concat!(
    charts::deployment!(1, r#"{name: app, image: "registry.example/shop:1"}"#),
    "---",
    charts::config_map!("settings", "{level: info}"),
    "---",
    charts::config_map!("owned", "{level: info}"),
    "---",
    charts::config_map!("kept", "{level: info}"),
);

/// Sets every sealed field while edits are only recorded.
async fn seal(shop: &Scene, drift: &str) {
    shop.policy("record", json!({"edits": "Record", "drift": drift})).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = shop.alice.post(&shop.at("api/v1", "configmaps"), &owner).await.done().unwrap();
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    for (api, object, edit) in [
        ("apis/apps/v1", "deployments/web", json!({"spec": {"paused": true}})),
        ("api/v1", "configmaps/settings", json!({"immutable": true})),
        ("api/v1", "configmaps/owned", json!({"metadata": {"ownerReferences": [owner]}})),
        (
            "api/v1",
            "configmaps/kept",
            json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}}),
        ),
    ] {
        let path = format!("{}?fieldManager=kubectl-edit", shop.at(api, object));
        eventually("the edit passes", SOON, || async { shop.alice.merge(&path, &edit).await.done() }).await;
    }
}

/// Waits until these fields drift, and no other.
async fn wait_for_drifts(shop: &Scene, wanted: &[&str]) -> Value {
    let meant = |status: &Value| {
        let drifted = status["drifts"].as_array().into_iter().flatten();
        let fields = drifted.flat_map(|it| it["fields"].as_array().into_iter().flatten());
        let mut found: Vec<&str> = fields.map(|it| it["path"].as_str().unwrap()).collect();
        found.sort_unstable();
        found == wanted
    };
    shop.status(&format!("that {wanted:?} drift"), meant).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn sealed_fields_that_were_set_are_drift() {
    let shop = Scene::policed().install("seals", TEMPLATES).await;
    seal(&shop, "Report").await;
    let paths = [
        "/immutable",
        "/metadata/annotations/helm.sh~1resource-policy",
        "/metadata/ownerReferences",
        "/spec/paused",
    ];
    let status = wait_for_drifts(&shop, &paths).await;
    assert_eq!(status["conditions"][0]["reason"], "Drifted", "{status}");
    let diff = shop.moor(&["diff", RELEASE]);
    assert_eq!(diff.code, 1, "{diff:?}");
    for path in paths {
        assert!(diff.out.contains(path), "{path}: {diff:?}");
    }
    let explained = shop.moor(&["explain", "deployment/web", "--path", "/spec/paused"]);
    assert!(explained.out.contains("/spec/paused: drifted"), "{explained:?}");
    let explained = shop.moor(&["explain", "configmap/owned", "--path", "/immutable"]);
    assert!(explained.out.contains("the guard checks changes of it"), "{explained:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn sealed_fields_that_may_be_undone_are_repaired() {
    let shop = Scene::policed().install("seals", TEMPLATES).await;
    seal(&shop, "Repair").await;
    let status = wait_for_drifts(&shop, &["/immutable"]).await;
    let message = status["drifts"][0]["message"].as_str().unwrap();
    assert!(message.contains("delete the object"), "{status}");
    let web = shop.get(&shop.deployment("web")).await;
    assert_eq!(web["spec"].get("paused"), None, "{web}");
    let owned = shop.get(&shop.config_map("owned")).await;
    assert_eq!(owned["metadata"].get("ownerReferences"), None, "{owned}");
    let kept = shop.get(&shop.config_map("kept")).await;
    assert_eq!(kept["metadata"]["annotations"].get("helm.sh/resource-policy"), None, "{kept}");
    shop.upgrade(json!({})).await.unwrap();
}
