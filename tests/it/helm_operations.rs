//! Helm's ordinary operations pass under Deny, and what they leave is guarded.

use serde_json::json;

use crate::helm_scene::{HelmScene, shop, with};
use crate::support::Chart;

const OLD: &str = "registry.example/shop:1";
const NEW: &str = "registry.example/shop:2";

#[tokio::test]
async fn helm_installs_what_cannot_be_edited_afterwards() {
    let scene = HelmScene::shared("install").await;
    scene.install("shop", &shop(), json!({})).await;
    assert_eq!(scene.history("shop").await, ["1 deployed"]);
    scene.assert_shop_guarded("shop").await;
    // The same user may do with undeclared fields as he likes.
    scene.run(&["annotate", "configmap/settings", "example.org/seen=yes"]);
}

#[tokio::test]
async fn helm_upgrades_with_changes_additions_and_drops() {
    let scene = HelmScene::shared("upgrade").await;
    let chart = shop();
    scene.install("shop", &chart, with(json!({"extra": true}))).await;
    scene.assert_refused("configmap/extra", r#"{"data": {"image": "mine"}}"#).await;

    let changes = json!({
        "extra": true, "image": NEW, "replicas": 3, "port": 81, "password": "second", "verbs": ["get", "list"],
    });
    scene.upgrade("shop", &chart, with(changes)).await;
    scene.assert_shop_guarded("shop").await;
    // What was declared before is drift now.
    scene.assert_refused("deployment/web", r#"{"spec": {"replicas": 1}}"#).await;

    // One object goes; a key and an environment variable come.
    scene.upgrade("shop", &chart, with(json!({"image": NEW, "motto": "hello"}))).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused("configmap/settings", r#"{"data": {"motto": null}}"#).await;

    // And the other way round.
    scene.upgrade("shop", &chart, with(json!({"extra": true}))).await;
    assert_eq!(scene.value("configmap/settings", ".data.motto"), "");
    assert_eq!(scene.value("deployment/web", "..env"), "");
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused_now(&["delete", "configmap/extra"]);
    // A key that is declared no longer is anybody's.
    scene.run(&["patch", "configmap/settings", "--type=merge", "--patch", r#"{"data": {"motto": "mine"}}"#]);
}

#[tokio::test]
async fn helm_rolls_back() {
    let scene = HelmScene::shared("rollback").await;
    let chart = shop();
    scene.install("shop", &chart, with(json!({"extra": true, "motto": "hello"}))).await;
    scene.upgrade("shop", &chart, with(json!({"image": NEW, "replicas": 2}))).await;
    scene.wait_until_gone("configmap/extra").await;

    scene.rollback("shop", json!({"version": 1})).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 superseded", "3 deployed"]);
    assert_eq!(scene.value("configmap/extra", ".data.image"), OLD);
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused("configmap/extra", r#"{"data": {"image": "mine"}}"#).await;

    scene.rollback("shop", json!({"version": 2})).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused("deployment/web", r#"{"spec": {"replicas": 1}}"#).await;
}

#[tokio::test]
async fn helm_uninstalls_and_installs_again() {
    let scene = HelmScene::shared("uninstall").await;
    scene.install("shop", &shop(), json!({})).await;
    scene.assert_shop_guarded("shop").await;

    scene.uninstall("shop", json!({})).await;
    scene.wait_until_shop_gone().await;
    // The names are free for anybody.
    scene.run(&["create", "configmap", "settings", "--from-literal=image=mine"]);
    scene.run(&["delete", "configmap/settings"]);

    scene.install("shop", &shop(), json!({})).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_uninstalls_with_its_history_kept_and_replaces_that() {
    let scene = HelmScene::shared("keep-history").await;
    scene.install("shop", &shop(), json!({})).await;
    scene.upgrade("shop", &shop(), with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;

    scene.uninstall("shop", json!({"keep_history": true})).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 uninstalled"]);
    scene.wait_until_shop_gone().await;
    scene.run(&["create", "configmap", "settings", "--from-literal=image=mine"]);
    scene.run(&["delete", "configmap/settings"]);

    let options = json!({"replace": true, "values": {"replicas": 2}});
    scene.install("shop", &shop(), options).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 superseded", "3 deployed"]);
    scene.assert_shop_guarded("shop").await;

    scene.uninstall("shop", json!({"keep_history": true})).await;
    scene.rollback("shop", json!({"version": 3})).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_keeps_what_the_manifest_says_to_keep() {
    let scene = HelmScene::shared("keep").await;
    let kept = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}
data: {key: value}
";
    let edit = r#"{"data": {"key": "mine"}}"#;
    let with_it = || shop().template("kept.yaml", kept);
    scene.install("shop", &with_it(), json!({})).await;
    scene.assert_refused("configmap/kept", edit).await;
    scene.assert_refused_now(&["delete", "configmap/kept"]);

    scene.upgrade("shop", &shop(), json!({})).await;
    assert_eq!(scene.value("configmap/kept", ".data.key"), "value");
    scene.assert_shop_guarded("shop").await;

    scene.upgrade("shop", &with_it(), json!({})).await;
    scene.assert_refused("configmap/kept", edit).await;
    scene.uninstall("shop", json!({})).await;
    assert_eq!(scene.value("configmap/kept", ".data.key"), "value");
    scene.run(&["delete", "configmap/kept"]);
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_adopts_an_object_that_somebody_made_by_hand() {
    let scene = HelmScene::shared("adoption").await;
    scene.run(&["create", "configmap", "settings", "--from-literal=image=mine", "--from-literal=own=1"]);
    let options = json!({"take_ownership": true, "force_conflicts": true});
    scene.install("shop", &shop(), options).await;
    assert_eq!(scene.value("configmap/settings", ".data.own"), "1");
    scene.assert_shop_guarded("shop").await;

    // As the manual says: label and annotate it, then upgrade.
    scene.run(&["create", "configmap", "extra", &format!("--from-literal=image={OLD}")]);
    scene.run(&["label", "configmap/extra", "app.kubernetes.io/managed-by=Helm"]);
    let namespace = format!("meta.helm.sh/release-namespace={}", scene.namespace);
    scene.run(&["annotate", "configmap/extra", "meta.helm.sh/release-name=shop", &namespace]);
    scene.upgrade("shop", &shop(), with(json!({"extra": true}))).await;
    scene.assert_refused("configmap/extra", r#"{"data": {"image": "mine"}}"#).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_moves_an_object_from_one_release_to_another() {
    let scene = HelmScene::shared("handover").await;
    let shared = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {by: {{ .Values.by }}}\n";
    let chart = |name: &str| Chart::new(name).template("shared.yaml", shared);
    let empty = |name: &str| {
        let own =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-own'}\ndata: {a: b}\n";
        Chart::new(name).template("own.yaml", own)
    };
    scene.install("giver", &chart("giver"), with(json!({"by": "giver"}))).await;
    scene.install("taker", &empty("taker"), json!({})).await;
    let options = json!({"take_ownership": true, "force_conflicts": true, "values": {"by": "taker"}});
    scene.upgrade("taker", &chart("taker"), options).await;
    assert_eq!(scene.value("configmap/shared", ".data.by"), "taker");
    scene.assert_refused("configmap/shared", r#"{"data": {"by": "mine"}}"#).await;
    scene.upgrade("taker", &chart("taker"), with(json!({"by": "taker-2"}))).await;
    scene.assert_refused("configmap/shared", r#"{"data": {"by": "mine"}}"#).await;
    scene.assert_as_declared("taker").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_runs_two_releases_in_one_namespace() {
    let scene = HelmScene::shared("two").await;
    let other = |image: &str| {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: other}}\ndata: {{image: {image}}}\n");
        Chart::new("other").template("other.yaml", &text)
    };
    let edit = r#"{"data": {"image": "mine"}}"#;
    scene.install("shop", &shop(), json!({})).await;
    scene.install("other", &other(OLD), json!({})).await;
    scene.assert_refused("configmap/other", edit).await;
    scene.upgrade("other", &other(NEW), json!({})).await;
    scene.upgrade("shop", &shop(), with(json!({"image": NEW}))).await;
    scene.assert_refused("configmap/other", edit).await;
    scene.assert_as_declared("other").await;
    scene.assert_shop_guarded("shop").await;

    scene.uninstall("other", json!({})).await;
    scene.wait_until_gone("configmap/other").await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
async fn helm_runs_hooks() {
    let scene = HelmScene::shared("hooks").await;
    let hook = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: hook
  labels: {app.kubernetes.io/managed-by: Helm}
  annotations:
    helm.sh/hook: pre-install,post-install,pre-upgrade,post-upgrade,pre-rollback,pre-delete
data: {revision: '{{ .Release.Revision }}'}
";
    let chart = shop().template("hook.yaml", hook);
    scene.install("shop", &chart, json!({})).await;
    scene.upgrade("shop", &chart, with(json!({"image": NEW}))).await;
    assert_eq!(scene.value("configmap/hook", ".data.revision"), "2");
    scene.rollback("shop", json!({"version": 1})).await;
    scene.assert_shop_guarded("shop").await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_gone("deployment/web").await;
}

#[tokio::test]
async fn helm_writes_client_side() {
    let scene = HelmScene::shared("client-side").await;
    let chart = shop();
    let options = json!({"server_side_apply": false, "values": {"extra": true, "motto": "hello"}});
    scene.install("shop", &chart, options).await;
    scene.assert_shop_guarded("shop").await;

    let client_side = |values| json!({"server_side_apply": "false", "values": values});
    scene.upgrade("shop", &chart, client_side(json!({"image": NEW, "port": 81, "verbs": ["list"]}))).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_shop_guarded("shop").await;

    let options = client_side(json!({"image": "registry.example/shop:3", "broken": true, "extra": true}));
    scene.fail_upgrade("shop", &chart, options, "spec.ports[0].port").await;
    scene.assert_edits_refused().await;
    // Helm goes on as the last revision was written.
    let options = json!({"server_side_apply": "auto", "values": {"image": "registry.example/shop:3"}});
    scene.upgrade("shop", &chart, options).await;
    scene.assert_shop_guarded("shop").await;
    scene.rollback("shop", json!({"version": 1, "server_side_apply": "false"})).await;
    scene.assert_shop_guarded("shop").await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_gone("deployment/web").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_replaces_whole_objects() {
    let scene = HelmScene::shared("replace").await;
    let settings =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {image: {{ .Values.image }}}\n";
    let chart = Chart::new("settings").template("settings.yaml", settings);
    scene.install("settings", &chart, json!({"server_side_apply": false, "values": {"image": OLD}})).await;
    let replace = json!({"server_side_apply": "false", "force_replace": true, "values": {"image": NEW}});
    scene.upgrade("settings", &chart, replace).await;
    scene.assert_as_declared("settings").await;
    scene.assert_refused("configmap/settings", r#"{"data": {"image": "mine"}}"#).await;
}

#[tokio::test]
async fn helm_upgrades_to_two_documents_of_one_object() {
    let scene = HelmScene::shared("documents").await;
    let document = |data: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: twice}}\ndata: {{{data}}}\n---\n")
    };
    let chart = |documents: &[&str]| {
        let text: String = documents.iter().map(|data| document(data)).collect();
        Chart::new("twice").template("twice.yaml", &text)
    };
    scene.install("twice", &chart(&["k: '0'"]), json!({})).await;
    scene.assert_refused("configmap/twice", r#"{"data": {"k": "mine"}}"#).await;
    let both = chart(&["k: '1'", "k: '2', l: x"]);
    scene.upgrade("twice", &both, json!({})).await;
    scene.upgrade("twice", &both, json!({})).await;
    assert_eq!(scene.value("configmap/twice", ".data"), r#"{"k":"2","l":"x"}"#);
    scene.assert_refused("configmap/twice", r#"{"data": {"k": "1"}}"#).await;
    scene.assert_refused("configmap/twice", r#"{"data": {"l": "mine"}}"#).await;

    // Each document declares a part: the last apply removes what the first one alone has set.
    scene.upgrade("twice", &chart(&["a: '1'", "b: '2'"]), json!({})).await;
    assert_eq!(scene.value("configmap/twice", ".data"), r#"{"b":"2"}"#);
    scene.assert_refused("configmap/twice", r#"{"data": {"b": "mine"}}"#).await;
    scene.rollback("twice", json!({"version": 2})).await;
    assert_eq!(scene.value("configmap/twice", ".data"), r#"{"k":"2","l":"x"}"#);
    scene.uninstall("twice", json!({})).await;
    scene.wait_until_gone("configmap/twice").await;
    scene.install("twice", &both, json!({})).await;
}

#[tokio::test]
async fn helm_uninstalls_the_items_of_a_list_whatever_they_say() {
    let scene = HelmScene::shared("list").await;
    let list = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: listed, annotations: {helm.sh/resource-policy: keep}}
  data: {key: value}
";
    let chart = || shop().template("list.yaml", list);
    scene.install("shop", &chart(), json!({})).await;
    scene.assert_refused("configmap/listed", r#"{"data": {"key": "mine"}}"#).await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_gone("configmap/listed").await;

    // An upgrade asks the live object.
    scene.install("shop", &chart(), json!({})).await;
    scene.upgrade("shop", &shop(), json!({})).await;
    assert_eq!(scene.value("configmap/listed", ".data.key"), "value");
}

#[tokio::test]
async fn helm_merges_a_repeated_variable_on_the_client_side() {
    let scene = HelmScene::shared("merge").await;
    let chart = |env: &str| {
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: merged}}\nspec:\n  replicas: 0\n  \
             selector: {{matchLabels: {{app: merged}}}}\n  template:\n    metadata: {{labels: {{app: merged}}}}\n    \
             spec: {{containers: [{{name: app, image: {OLD}, env: {env}}}]}}\n"
        );
        Chart::new("merged").template("merged.yaml", &text)
    };
    let doubled = "[{name: A, value: '1'}, {name: B, value: '2'}, {name: A, value: '3'}]";
    let single = "[{name: A, value: '1'}, {name: B, value: '2'}]";
    scene.install("merged", &chart(doubled), json!({"server_side_apply": false})).await;
    scene.assert_refused("deployment/merged", r#"{"spec": {"replicas": 1}}"#).await;
    scene.upgrade("merged", &chart(single), json!({"server_side_apply": "false"})).await;
    assert_eq!(scene.history("merged").await, ["1 superseded", "2 deployed"]);
}
