//! What tenants do to each other, without malice, who declare one kind in different API versions.

use serde_json::json;

use crate::helm_scene::{HelmScene, with};
use crate::support::{Caller, Chart, ControlPlane, Guard, Identity, SOON, define_widgets, eventually, moor};

/// A kind of which charts declare objects in two versions.
struct VersionedKind {
    /// As kubectl names it.
    plural: &'static str,
    group: &'static str,
    /// All versions that the API server serves.
    served: Vec<String>,
    /// Templates of an object named `web`, each in another one of them.
    templates: [String; 2],
    /// A merge patch of what both declare, which every version understands.
    edit: &'static str,
}

impl VersionedKind {
    async fn autoscaler(admin: &Caller) -> Self {
        let served = served(admin, "autoscaling", "horizontalpodautoscalers").await;
        // The last one had a beta version first, which old servers have alone.
        let newer = ["v2", "v2beta2"].into_iter().find(|version| served.iter().any(|it| it == version));
        let newer = AUTOSCALER_V2.replace("VERSION", newer.unwrap());
        Self {
            plural: "horizontalpodautoscalers",
            group: "autoscaling",
            served,
            templates: [AUTOSCALER_V1.to_owned(), newer],
            edit: r#"{"spec": {"maxReplicas": 9}}"#,
        }
    }

    /// An Ingress where it is served in two versions, else a kind of the test's own.
    async fn routed(control_plane: &ControlPlane, admin: &Caller) -> Self {
        let (plural, group) = ("ingresses", "networking.k8s.io");
        let served = served(admin, group, plural).await;
        if served.iter().any(|version| version == "v1beta1") {
            let templates = [INGRESS_V1.to_owned(), INGRESS_V1BETA1.to_owned()];
            return Self {
                plural,
                group,
                served,
                templates,
                edit: r#"{"spec": {"rules": [{"host": "mine"}]}}"#,
            };
        }
        let group = "charts-versions.example";
        define_two_versions(control_plane, group).await;
        let template = |version: &str| WIDGET.replace("GROUP", group).replace("VERSION", version);
        Self {
            plural: "widgets",
            group,
            served: vec!["v1".to_owned(), "v2".to_owned()],
            templates: [template("v1"), template("v2")],
            edit: r#"{"spec": {"colours": {"path": "/mine"}}}"#,
        }
    }

    /// The template in one of both versions, of an object of this name.
    fn named(&self, version: usize, name: &str) -> String {
        self.templates[version].replace("name: web}", &format!("name: {name}}}"))
    }

    /// The object of this name in each version, as kubectl names it.
    fn spelled(&self, name: &str) -> Vec<String> {
        let Self { plural, group, served, .. } = self;
        served.iter().map(|version| format!("{plural}.{version}.{group}/{name}")).collect()
    }

    /// The object of this name in whatever version.
    fn target(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.plural, self.group)
    }
}

/// The versions of a group in which the API server serves these resources.
async fn served(admin: &Caller, group: &str, plural: &str) -> Vec<String> {
    // A group that is not served has no versions.
    let group = admin.get(&format!("/apis/{group}")).await.body;
    let mut served = Vec::new();
    for version in group["versions"].as_array().into_iter().flatten() {
        let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
        let resources = admin.get(&path).await.done().unwrap();
        if resources["resources"].as_array().unwrap().iter().any(|resource| resource["name"] == plural) {
            served.push(version["version"].as_str().unwrap().to_owned());
        }
    }
    served
}

/// A chart of these templates.
fn chart(templates: &[String]) -> Chart {
    let chart = Chart::new("versions").values("cpu: 80\npath: /a\n");
    chart.template("all.yaml", &templates.join("---\n"))
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

/// An old API server puts the metric for the CPU last.
const AUTOSCALER_V2: &str = "\
apiVersion: autoscaling/VERSION
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

const WIDGET: &str = "\
apiVersion: GROUP/VERSION
kind: Widget
metadata: {name: web}
spec:
  replicas: 1
  colours: {path: {{ .Values.path }}}
";

#[tokio::test(flavor = "multi_thread")]
async fn charts_that_declare_different_versions_do_not_disturb_each_other() {
    let control_plane = ControlPlane::get();
    let guard = Guard::shared().await;
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let (scaler, routed) =
        (VersionedKind::autoscaler(&admin).await, VersionedKind::routed(control_plane, &admin).await);
    let old = HelmScene::shared("attack-versions-old").await;
    let new = HelmScene::shared("attack-versions-new").await;
    let mut charts = vec![
        (&old, "one", chart(&[scaler.named(0, "web"), routed.named(0, "one")])),
        (&new, "two", chart(&[scaler.named(1, "web"), routed.named(1, "two")])),
    ];
    // The same kind in its first group.
    if !served(&admin, "extensions", routed.plural).await.is_empty() {
        let first = INGRESS_V1BETA1.replace(routed.group, "extensions");
        charts.push((&old, "three", chart(&[first])));
    }
    for (scene, release, chart) in &charts {
        scene.install(release, chart, json!({})).await;
    }
    for (scene, name) in [(&old, "one"), (&new, "two")] {
        for (kind, name) in [(&scaler, "web"), (&routed, name)] {
            assert!(kind.served.len() > 1, "{:?}", kind.served);
            // Whatever version the editor speaks.
            for target in kind.spelled(name) {
                scene.assert_refused(&target, kind.edit).await;
            }
            scene.assert_refused_now(&["delete", &kind.target(name)]);
        }
    }
    // Of an object that is new to the cluster as well, now that all versions are registered.
    let late = chart(&[scaler.named(1, "late"), routed.named(0, "late")]);
    new.install("late", &late, json!({})).await;
    new.upgrade("late", &late, with(json!({"cpu": 60, "path": "/b"}))).await;
    new.assert_as_declared("late").await;
    for (scene, release, chart) in &charts {
        scene.upgrade(release, chart, with(json!({"cpu": 60, "path": "/b"}))).await;
        scene.assert_as_declared(release).await;
        let namespace = &scene.namespace;
        let diff = moor(control_plane, Identity::Alice, &["diff", release, "--namespace", namespace]);
        assert_eq!(diff.code, 0, "{release}: {diff:?}");
        scene.rollback(release, json!({"version": 1})).await;
        scene.assert_as_declared(release).await;
    }
    for (scene, name) in [(&old, "one"), (&new, "two")] {
        let of_one_version = told(&guard, scene, "configmap/primer").await;
        for target in [scaler.target("web"), routed.target(name)] {
            assert_eq!(told(&guard, scene, &target).await, of_one_version, "{target}");
        }
    }
    for (scene, release, _) in &charts {
        scene.uninstall(release, json!({})).await;
    }
}

/// How often the refusal of an edit is told: as often of a kind that is declared in many versions as of one that has
/// one, though the API server asks once for each version. An old one asks again after a refusal, in case that it judged
/// by an old state of its cache.
async fn told(guard: &Guard, scene: &HelmScene<'_>, target: &str) -> usize {
    let (_, name) = target.split_once('/').unwrap();
    let words = format!("told-of-{name}-in-{}", scene.namespace);
    let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": words}}});
    scene.assert_patch_refused_now(target, &patch.to_string()).await;
    let denials = || guard.log().lines().filter(|line| line.contains(&words)).count();
    eventually("the refusal is told", SOON, || async { denials() > 0 }).await;
    denials()
}

/// Widgets of a group of the test's own, in the versions `v1` and `v2`.
async fn define_two_versions(control_plane: &ControlPlane, group: &str) {
    define_widgets(control_plane, group).await;
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}");
    let definition = admin.get(&path).await.done().unwrap();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    admin.patch(&path, "add", "/spec/versions/-", &second).await.done().unwrap();
    let served = format!("/apis/{group}/v2/widgets");
    eventually("the second version is served", SOON, || async { admin.get(&served).await.done() }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn scaling_is_refused_in_both_declared_versions_of_a_kind() {
    let control_plane = ControlPlane::get();
    let group = "two-versions.example";
    define_two_versions(control_plane, group).await;

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
    let first = HelmScene::shared("attack-widgets-one").await;
    let second = HelmScene::shared("attack-widgets-two").await;
    let target = format!("widgets.{group}/web");
    for (scene, version) in [(&first, "v1"), (&second, "v2")] {
        scene.install("web", &chart(version), json!({})).await;
        for spelled in ["v1", "v2"] {
            scene
                .assert_refused(&format!("widgets.{spelled}.{group}/web"), r#"{"spec": {"port": 81}}"#)
                .await;
        }
    }
    for (scene, version) in [(&first, "v1"), (&second, "v2")] {
        for spelled in ["v1", "v2"] {
            let scaled = format!("widgets.{spelled}.{group}/web");
            scene.assert_refused_now(&["scale", &scaled, "--replicas=5"]);
        }
        scene.assert_refused_now(&["delete", &target]);
        scene.upgrade("web", &chart(version), with(json!({"replicas": 3}))).await;
        scene.assert_as_declared("web").await;
        // The chart moves on to the other version, and back.
        let other = if version == "v1" { "v2" } else { "v1" };
        scene.upgrade("web", &chart(other), with(json!({"replicas": 4}))).await;
        scene.assert_refused_now(&["scale", &target, "--replicas=3"]);
        scene.assert_refused(&target, r#"{"spec": {"port": 81}}"#).await;
        scene.rollback("web", json!({"version": 1})).await;
        scene.assert_as_declared("web").await;
    }
}
