//! Helm's operations on objects outside the release's namespace and of kinds that the cluster learns with them.

use serde_json::json;

use crate::helm_scene::{HelmScene, with};
use crate::support::{Chart, ControlPlane};

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_installs_changes_and_drops_cluster_scoped_objects() {
    let scene = HelmScene::shared("cluster-scoped").await;
    let text = "\
{{ range .Values.roles }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{{ $.Release.Namespace }}-{{ . }}'}
rules: [{apiGroups: [''], resources: [configmaps], verbs: {{ toJson $.Values.verbs }}}]
{{ end }}
";
    let chart = Chart::new("roles").template("roles.yaml", text);
    let role = |name: &str| format!("clusterrole/{}-{name}", scene.namespace);
    let edit = r#"{"rules": []}"#;
    scene.install("roles", &chart, with(json!({"roles": ["a", "b"], "verbs": ["get"]}))).await;
    scene.assert_refused(&role("a"), edit).await;
    scene.assert_refused(&role("b"), edit).await;
    scene.assert_refused_now(&["delete", &role("a")]);

    scene.upgrade("roles", &chart, with(json!({"roles": ["a", "c"], "verbs": ["get", "list"]}))).await;
    scene.wait_until_gone(&role("b")).await;
    scene.assert_as_declared("roles").await;
    scene.assert_refused(&role("a"), edit).await;
    scene.assert_refused(&role("c"), edit).await;

    scene.rollback("roles", json!({"version": 1})).await;
    scene.wait_until_gone(&role("c")).await;
    scene.assert_as_declared("roles").await;
    scene.assert_refused(&role("b"), edit).await;

    scene.uninstall("roles", json!({})).await;
    scene.wait_until_gone(&role("a")).await;
    scene.wait_until_gone(&role("b")).await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_works_on_objects_in_another_namespace() {
    let scene = HelmScene::shared("here").await;
    let there = ControlPlane::get().namespace("there").await;
    let text = "\
{{ range .Values.names }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: '{{ . }}', namespace: '{{ $.Values.there }}'}
data: {key: '{{ $.Values.value }}'}
{{ end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {key: here}
";
    let chart = Chart::new("far").template("far.yaml", text);
    let values = |names: &[&str], value: &str| with(json!({"there": there, "names": names, "value": value}));
    let edit = r#"{"data": {"key": "mine"}}"#;
    let refuses_there = async |name: &str| {
        let over_there = HelmScene::at(ControlPlane::get(), there.clone()).await;
        over_there.assert_refused(&format!("configmap/{name}"), edit).await;
        over_there.assert_refused_now(&["delete", &format!("configmap/{name}")]);
    };
    scene.install("far", &chart, values(&["a", "b"], "1")).await;
    refuses_there("a").await;
    refuses_there("b").await;
    scene.assert_refused("configmap/a", edit).await;

    scene.upgrade("far", &chart, values(&["a", "c"], "2")).await;
    scene.assert_as_declared("far").await;
    HelmScene::at(ControlPlane::get(), there.clone()).await.wait_until_gone("configmap/b").await;
    refuses_there("a").await;
    refuses_there("c").await;
    scene.rollback("far", json!({"version": 1})).await;
    scene.assert_as_declared("far").await;
    refuses_there("b").await;

    scene.uninstall("far", json!({})).await;
    for name in ["a", "b", "c"] {
        HelmScene::at(ControlPlane::get(), there.clone())
            .await
            .wait_until_gone(&format!("configmap/{name}"))
            .await;
    }
    scene.wait_until_gone("configmap/a").await;
}

/// A definition of Widgets in a group, with a list that is keyed by name.
fn definition(group: &str) -> String {
    format!(
        "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {{type: integer}}
              color: {{type: string, default: grey}}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {{type: string}}
                    count: {{type: integer}}
"
    )
}

fn widget(group: &str) -> String {
    format!(
        "\
{{{{ range .Values.widgets }}}}
---
apiVersion: {group}/v1
kind: Widget
metadata: {{name: '{{{{ . }}}}'}}
spec:
  size: {{{{ $.Values.size }}}}
  parts: [{{name: wheel, count: {{{{ $.Values.size }}}}}}, {{name: door, count: 2}}]
{{{{ end }}}}
"
    )
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_brings_a_kind_and_objects_of_it() {
    let scene = HelmScene::shared("widgets").await;
    let group = format!("{}.example.org", scene.namespace);
    let target = |name: &str| format!("widgets.{group}/{name}");
    let values = |widgets: &[&str], size: u32| with(json!({"widgets": widgets, "size": size}));
    let edit = r#"{"spec": {"size": 9}}"#;
    let parts = r#"{"spec": {"parts": [{"name": "wheel", "count": 1}]}}"#;
    let chart = Chart::new("widgets")
        .crd("widgets.yaml", &definition(&group))
        .template("widgets.yaml", &widget(&group));

    scene.install("widgets", &chart, values(&["a", "b"], 1)).await;
    scene.assert_refused(&target("a"), edit).await;
    scene.assert_refused(&target("b"), parts).await;
    scene.assert_as_declared("widgets").await;

    scene.upgrade("widgets", &chart, values(&["a", "c"], 2)).await;
    scene.wait_until_gone(&target("b")).await;
    scene.assert_as_declared("widgets").await;
    scene.assert_refused(&target("c"), edit).await;
    scene.assert_refused(&target("a"), parts).await;
    scene.assert_refused_now(&["delete", &target("a")]);
    // What the manifest leaves to the definition's default is anybody's.
    let color = r#"{"spec": {"color": "red"}}"#;
    scene.run(&["patch", &target("a"), "--type=merge", "--patch", color]);

    scene.rollback("widgets", json!({"version": 1})).await;
    scene.wait_until_gone(&target("c")).await;
    scene.assert_as_declared("widgets").await;
    scene.assert_refused(&target("b"), edit).await;

    // One more element is nobody's business, until the definition makes the list a single value.
    let parts = json!([{"name": "wheel", "count": 1}, {"name": "door", "count": 2}, {"name": "roof"}]);
    let more = json!({"spec": {"parts": parts}}).to_string();
    scene.run(&["patch", &target("b"), "--type=merge", "--patch", &more, "--dry-run=server"]);
    let list = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/parts/x-kubernetes-list";
    let atomic = json!([
        {"op": "replace", "path": format!("{list}-type"), "value": "atomic"},
        {"op": "remove", "path": format!("{list}-map-keys")},
    ]);
    let crd = format!("widgets.{group}");
    scene.run(&["patch", "crd", &crd, "--type=json", "--patch", &atomic.to_string()]);
    scene.assert_refused(&target("b"), &more).await;

    scene.uninstall("widgets", json!({})).await;
    scene.wait_until_gone(&target("a")).await;
    scene.wait_until_gone(&target("b")).await;
    // The definition came with crds/: nobody's to Helm, so anybody's.
    scene.run(&["delete", "crd", &crd]);
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_uninstall_of_definition_deletes_objects_of_its_kind() {
    let scene = HelmScene::shared("definition").await;
    let group = format!("{}.example.org", scene.namespace);
    let crd = format!("crd/widgets.{group}");
    let definition = Chart::new("definition").template("widgets.yaml", &definition(&group));
    let widgets = Chart::new("widgets").template("widgets.yaml", &widget(&group));
    let values = |size: u32| with(json!({"widgets": ["a"], "size": size}));
    scene.install("definition", &definition, json!({})).await;
    scene.install("widgets", &widgets, values(1)).await;
    scene.assert_refused(&format!("widgets.{group}/a"), r#"{"spec": {"size": 9}}"#).await;
    scene.assert_refused(&crd, r#"{"spec": {"names": {"listKind": "Widgets"}}}"#).await;
    scene.assert_refused_now(&["delete", &crd]);
    scene.upgrade("widgets", &widgets, values(2)).await;
    scene.upgrade("definition", &definition, json!({})).await;
    scene.assert_as_declared("widgets").await;

    scene.uninstall("definition", json!({})).await;
    scene.wait_until_gone(&crd).await;
    scene.uninstall("widgets", json!({"ignore_not_found": true})).await;
}
