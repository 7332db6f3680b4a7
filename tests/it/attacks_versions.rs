//! What tenants do to each other, without malice, who declare one kind in different API versions.

use serde_json::json;

use crate::helm_scene::{Scene, WITHIN, with};
use crate::support::{Caller, Chart, ControlPlane, Guard, Identity, define_widgets, eventually, moor};

/// A chart that declares an autoscaler and an Ingress in these versions.
fn versioned(autoscaler: &str, ingress: &str) -> Chart {
    Chart::new("versions")
        .values("cpu: 80\npath: /a\n")
        .template("autoscaler.yaml", autoscaler)
        .template("ingress.yaml", ingress)
}

const AUTOSCALER_V1: &str = "\
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  targetCPUUtilizationPercentage: {{ .Values.cpu }}
";

/// The API server puts the metric for the CPU last.
const AUTOSCALER_V2: &str = "\
apiVersion: autoscaling/v2beta2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {name: memory, target: {type: Utilization, averageUtilization: {{ .Values.cpu }}}}
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .Values.cpu }}}}
";

const INGRESS_V1: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - path: {{ .Values.path }}
        pathType: Prefix
        backend: {service: {name: web, port: {number: 80}}}
";

const INGRESS_V1BETA1: &str = "\
apiVersion: networking.k8s.io/v1beta1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - path: {{ .Values.path }}
        backend: {serviceName: web, servicePort: 80}
";

#[tokio::test(flavor = "multi_thread")]
async fn charts_that_declare_different_versions_do_not_disturb_each_other() {
    let control_plane = ControlPlane::get();
    let guard = Guard::shared().await;
    let old = Scene::shared("attack-versions-old").await;
    let new = Scene::shared("attack-versions-new").await;
    let extensions = INGRESS_V1BETA1.replace("networking.k8s.io", "extensions");
    let charts = [
        (&old, "one", versioned(AUTOSCALER_V1, &INGRESS_V1.replace("name: web}", "name: one}"))),
        (&new, "two", versioned(AUTOSCALER_V2, &INGRESS_V1BETA1.replace("name: web}", "name: two}"))),
        (&old, "three", Chart::new("three").values("path: /a\n").template("all.yaml", &extensions)),
    ];
    for (scene, release, chart) in &charts {
        scene.install(release, chart, json!({})).await;
    }
    let autoscaler = "horizontalpodautoscalers";
    let ingress = |version: &str, name: &str| format!("ingresses.{version}/{name}");
    let path = r#"[{"op": "replace", "path": "/spec/rules/0/http/paths/0/path", "value": "/mine"}]"#;
    let patches = |name: &str| {
        let (v1, beta) = (ingress("v1.networking.k8s.io", name), ingress("v1beta1.networking.k8s.io", name));
        [
            vec!["patch".to_owned(), v1, "--type=json".to_owned(), format!("--patch={path}")],
            vec!["patch".to_owned(), beta, "--type=json".to_owned(), format!("--patch={path}")],
        ]
    };
    for (scene, name) in [(&old, "one"), (&new, "two")] {
        // Whatever version the editor speaks.
        for version in ["v1", "v2beta2", "v2beta1"] {
            let target = format!("{autoscaler}.{version}.autoscaling/web");
            scene.refuses(&target, r#"{"spec": {"maxReplicas": 9}}"#).await;
        }
        for patch in patches(name) {
            scene.is_refused(&patch.iter().map(String::as_str).collect::<Vec<_>>());
        }
        scene.is_refused(&["delete", &format!("{autoscaler}/web")]);
        scene.is_refused(&["delete", &format!("ingress/{name}")]);
    }
    // Of an object that is new to the cluster as well, now that all versions are registered.
    let late = versioned(
        &AUTOSCALER_V2.replace("name: web}", "name: late}"),
        &INGRESS_V1.replace("name: web}", "name: late}"),
    );
    new.install("late", &late, json!({})).await;
    new.upgrade("late", &late, with(json!({"cpu": 60, "path": "/b"}))).await;
    new.is_as_declared("late").await;
    for (scene, release, chart) in &charts {
        scene.upgrade(release, chart, with(json!({"cpu": 60, "path": "/b"}))).await;
        scene.is_as_declared(release).await;
        let namespace = &scene.namespace;
        let diff = moor(control_plane, Identity::Alice, &["diff", release, "--namespace", namespace]);
        assert_eq!(diff.code, 0, "{release}: {diff:?}");
        scene.rollback(release, json!({"version": 1})).await;
        scene.is_as_declared(release).await;
    }
    // Told as often as an edit of a kind that has one version, though the API server asks once for each version. An old
    // one asks again after a refusal, in case that it judged by an old state of its cache.
    let denials = |words: &str| guard.log().lines().filter(|line| line.contains(words)).count();
    for (scene, name) in [(&old, "one"), (&new, "two")] {
        let told = async |target: &str| {
            let words = format!("{}-{}", scene.namespace, target.replace('/', "-"));
            let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": words}}});
            scene.refuses_now(target, &patch.to_string());
            eventually("the refusal is told", WITHIN, || async { denials(&words) > 0 }).await;
            denials(&words)
        };
        assert_eq!(told(&format!("ingress/{name}")).await, told("configmap/primer").await);
    }
    for (scene, release, _) in &charts {
        scene.uninstall(release, json!({})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_of_a_kind_declared_in_two_versions_is_judged_for_both() {
    let control_plane = ControlPlane::get();
    let group = "two-versions.example";
    define_widgets(control_plane, group).await;
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}");
    let definition = admin.get(&path).await.done().unwrap();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    admin.patch(&path, "add", "/spec/versions/-", &second).await.done().unwrap();
    let served = format!("/apis/{group}/v2/widgets");
    eventually("the second version is served", WITHIN, || async { admin.get(&served).await.done() }).await;

    let chart = |version: &str| {
        let text = "\
apiVersion: GROUP/VERSION
kind: Widget
metadata: {name: web}
spec: {replicas: {{ .Values.replicas }}, port: 80}
";
        let text = text.replace("GROUP", group).replace("VERSION", version);
        Chart::new("widgets").values("replicas: 2\n").template("all.yaml", &text)
    };
    let first = Scene::shared("attack-widgets-one").await;
    let second = Scene::shared("attack-widgets-two").await;
    let target = format!("widgets.{group}/web");
    for (scene, version) in [(&first, "v1"), (&second, "v2")] {
        scene.install("web", &chart(version), json!({})).await;
        for spelled in ["v1", "v2"] {
            scene.refuses(&format!("widgets.{spelled}.{group}/web"), r#"{"spec": {"port": 81}}"#).await;
        }
    }
    for (scene, version) in [(&first, "v1"), (&second, "v2")] {
        for spelled in ["v1", "v2"] {
            let scaled = format!("widgets.{spelled}.{group}/web");
            scene.is_refused(&["scale", &scaled, "--replicas=5"]);
        }
        scene.is_refused(&["delete", &target]);
        scene.upgrade("web", &chart(version), with(json!({"replicas": 3}))).await;
        scene.is_as_declared("web").await;
        // The chart moves on to the other version, and back.
        let other = if version == "v1" { "v2" } else { "v1" };
        scene.upgrade("web", &chart(other), with(json!({"replicas": 4}))).await;
        scene.is_refused(&["scale", &target, "--replicas=3"]);
        scene.refuses(&target, r#"{"spec": {"port": 81}}"#).await;
        scene.rollback("web", json!({"version": 1})).await;
        scene.is_as_declared("web").await;
    }
}
