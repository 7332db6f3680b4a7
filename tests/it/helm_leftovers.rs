//! What is left where Helm was interrupted or is not used any more: a rollback on failure that was killed, an
//! object that is to move to a release of another namespace, and a release that Argo CD has taken over.

use serde_json::{Value, json};

use crate::helm_scene::{HelmScene, assert_failed, shop, with};
use crate::support::{
    Caller, ControlPlane, DRIFT_POLICIES, Helm, Identity, RELEASE, SOON, Scene, charts, drift_policy,
    eventually, wait_until_guarded,
};

const OLD: &str = "registry.example/shop:1";
const NEW: &str = "registry.example/shop:2";

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_rolls_back_again_after_a_killed_rollback_on_failure() {
    let scene = HelmScene::shared("killed-atomic").await;
    scene.install("shop", &shop(), json!({})).await;
    let vain = json!({"wait": "legacy", "timeout_seconds": 1, "values": {"image": NEW, "extra": true}});
    scene.fail_upgrade("shop", &shop(), vain, "deadline").await;
    let mut helm = Helm::start(ControlPlane::get(), Identity::Alice);
    let written = || async {
        let status = scene.query("secret/sh.helm.release.v1.shop.v3", ".metadata.labels.status")?;
        let live = scene.query("deployment/web", "..image")?;
        // The deletion of what the former revision lacks is Helm's last write before it waits.
        let extra = scene.query("configmap/extra", ".metadata.name").err();
        let is_gone = extra.is_some_and(|error| error.contains("NotFound"));
        if status == "pending-rollback" && live == OLD && is_gone {
            Ok(())
        } else {
            Err(format!("{status} {live}, extra is gone: {is_gone}"))
        }
    };
    // What an upgrade that is to roll back on failure does then, and never ends: no pod becomes ready.
    let options = json!({"version": 1, "wait": "legacy", "timeout_seconds": 300});
    tokio::select! {
        answer = helm.rollback(&scene.namespace, "shop", options) => panic!("it ended by itself: {answer:?}"),
        () = eventually("Helm waits", SOON, written) => {}
    }
    helm.kill();
    scene.assert_edits_refused().await;
    let answer = scene.helm.upgrade(&scene.namespace, "shop", &shop(), json!({})).await;
    assert_failed(answer, "another operation");
    scene.rollback("shop", json!({"version": 1})).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 failed", "3 pending-rollback", "4 deployed"]);
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_shop_guarded("shop").await;
    scene.upgrade("shop", &shop(), with(json!({"image": NEW, "extra": true}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn object_joins_another_release_only_after_its_owner_drops_it() {
    let (giver, taker) = (HelmScene::shared("gives-away").await, HelmScene::shared("takes-away").await);
    let target = format!("clusterrole/{}-moved", giver.namespace);
    let moved = |annotations: &str, verb: &str| {
        let role = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
             metadata: {{name: {}-moved, annotations: {{{annotations}}}}}\n\
             rules: [{{apiGroups: [''], resources: [pods], verbs: [{verb}]}}]\n",
            giver.namespace
        );
        shop().template("moved.yaml", &role)
    };
    let edit = r#"{"rules": []}"#;
    giver.install("giver", &moved("", "get"), json!({})).await;
    giver.assert_refused(&target, edit).await;
    taker.install("taker", &shop(), json!({})).await;
    // Whoever may write releases of one namespace may not take what one of another declares.
    let taking = json!({"take_ownership": true, "force_conflicts": true});
    let answer = taker.helm.upgrade(&taker.namespace, "taker", &moved("", "list"), taking.clone()).await;
    let error = answer.expect_err("the object is taken");
    let owner = format!("managed by Helm release \"giver\" in namespace {:?}", giver.namespace);
    assert!(error.contains("denied the request") && error.contains(&owner), "{error}");
    assert_eq!(giver.value(&target, ".rules[0].verbs[0]"), "get");

    giver.upgrade("giver", &moved("helm.sh/resource-policy: keep", "get"), json!({})).await;
    giver.upgrade("giver", &shop(), json!({})).await;
    taker.upgrade("taker", &moved("", "list"), taking).await;
    assert_eq!(taker.value(&target, ".rules[0].verbs[0]"), "list");
    taker.assert_refused(&target, edit).await;
    giver.assert_shop_guarded("giver").await;
    taker.assert_shop_guarded("taker").await;
    giver.uninstall("giver", json!({})).await;
    assert_eq!(taker.value(&target, ".rules[0].verbs[0]"), "list");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_adopted_by_argo_cd_stays_guarded_until_record_deletion() {
    let shop = Scene::shared().install("argo", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let argo = Caller::new(ControlPlane::get(), Identity::Bob).await;
    let applies = |level: &str| {
        let tracking = json!({"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:argo/settings"});
        let labels = json!({"app.kubernetes.io/instance": "shop"});
        let metadata = json!({"name": "settings", "annotations": tracking, "labels": labels});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"level": level}})
    };
    let path = format!("{settings}?fieldManager=argocd-controller&force=true");
    // The same manifest with Argo CD's own marks is no change of what is declared; the marks free nothing.
    argo.apply(&path, &applies("info")).await.done().unwrap();
    argo.apply(&path, &applies("debug")).await.refused(RELEASE).unwrap();
    let record = shop.core("secrets/sh.helm.release.v1.shop.v1");
    let refused = shop.alice.delete(&record).await;
    assert_eq!(refused.code, 403, "{refused}");

    let policy = format!("{}-leaves-helm", shop.namespace);
    let spec = json!({
        "releases": {"names": [RELEASE], "namespaces": [shop.namespace]}, "edits": "Allow", "drift": "Ignore",
    });
    let policy = drift_policy(&policy, spec);
    let admin = Caller::new(ControlPlane::get(), Identity::Admin).await;
    ControlPlane::get().define_policies();
    eventually("the policy is made", SOON, || async { admin.post(DRIFT_POLICIES, &policy).await.done() })
        .await;
    eventually("Argo CD writes", SOON, || async { argo.apply(&path, &applies("debug")).await.done() }).await;
    shop.alice.delete(&record).await.done().unwrap();
    let name = policy["metadata"]["name"].as_str().unwrap();
    admin.delete(&format!("{DRIFT_POLICIES}/{name}")).await.done().unwrap();
    // Another release of the namespace shows that the policy is gone; this one is nobody's.
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {level: info}\n";
    let chart = crate::support::Chart::new("other").template("all.yaml", other);
    shop.helm.install(&shop.namespace, "other", &chart, json!({})).await.unwrap();
    wait_until_guarded(&shop.alice, "other", &shop.config_map("other")).await;
    let edited = argo.apply(&path, &applies("warn")).await.done().unwrap();
    assert_eq!(edited["data"], json!({"level": "warn"}));
    let annotations: &Value = &edited["metadata"]["annotations"];
    assert_eq!(annotations["argocd.argoproj.io/tracking-id"], "shop:/ConfigMap:argo/settings");
}
