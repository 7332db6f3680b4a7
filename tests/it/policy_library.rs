//! Every policy of `policies/` on a real object: the edit that its case is about is refused without it, passes with it,
//! and is left alone by the loop, or undone where the case says so.

use serde_json::{Value, json};

use crate::support::{Caller, CustomKind, Identity, POLICED, SOON, Scene, charts, eventually};

/// One case of the library.
pub(crate) struct Case {
    pub(crate) file: &'static str,
    pub(crate) templates: &'static str,
    /// As kubectl names the object.
    pub(crate) object: &'static str,
    /// Where it is: the API and the resource.
    pub(crate) at: (&'static str, &'static str),
    pub(crate) user: &'static str,
    pub(crate) group: &'static str,
    /// A JSON patch.
    pub(crate) edit: Value,
    /// What of the object becomes which value.
    pub(crate) becomes: (&'static str, Value),
    /// Whether the loop leaves it so. Whoever is exempt may edit, and what holds stays what the chart says.
    pub(crate) stays: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            file: "",
            templates: "",
            object: "",
            at: ("", ""),
            user: "carol",
            group: "developers",
            edit: Value::Null,
            becomes: ("", Value::Null),
            stays: true,
        }
    }
}

pub(crate) async fn check(case: Case) {
    let shop = Scene::policed().install("library", case.templates).await;
    assert_cured(&shop, case).await;
}

/// Symptom, then cure, of the edit of a case.
async fn assert_cured(shop: &Scene, case: Case) {
    let Case { file, templates: _, object, at: (api, resource), user, group, edit, becomes, stays } = case;
    let (path, edit, (pointer, value)) = (&shop.at(api, resource), edit.to_string(), becomes);
    let patch = || shop.kubectl_as(user, group, &["patch", object, "--type=json", "-p", &edit]);
    let before = shop.get(path).await.pointer(pointer).cloned();
    shop.wait_until_guarded(path).await;
    let refused = patch().unwrap_err();
    assert!(refused.contains("denied the request"), "{file}: {refused}");

    let mut spec = charts::shipped(file);
    if let Some(schedule) = spec.pointer_mut("/allow/0/schedule") {
        *schedule = json!({"cron": "* * * * *", "duration": "1h"});
    }
    shop.policy("library", spec).await;
    eventually(&format!("{file} lets the edit pass"), SOON, || async { patch() }).await;
    // Not everything passes.
    shop.wait_until_guarded(path).await;
    shop.wait_for_pass().await;
    if stays {
        shop.assert_value(path, pointer, &value).await;
    } else {
        shop.wait_for_value(path, pointer, &before.unwrap_or_default()).await;
    }
}

pub(crate) const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {keel.sh/policy: minor, downscaler/uptime: always}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, istio.io/rev: old}}
    spec: {containers: [{name: app, image: 'registry.example/shop:1'}]}
";

pub(crate) const WEB: (&str, &str) = ("apis/apps/v1", "deployments/web");

pub(crate) fn replace(pointer: &str, value: Value) -> Value {
    json!([{"op": "replace", "path": pointer, "value": value}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_for_emergencies_edits_what_it_wants() {
    check(Case {
        file: "break-glass.yaml",
        templates: charts::SETTINGS,
        object: "configmap/settings",
        at: ("api/v1", "configmaps/settings"),
        group: "break-glass",
        edit: replace("/data/level", json!("debug")),
        becomes: ("/data/level", json!("debug")),
        stays: false,
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_restore_brings_back_what_was() {
    check(Case {
        file: "restore-tools.yaml",
        templates: charts::SETTINGS,
        object: "configmap/settings",
        at: ("api/v1", "configmaps/settings"),
        user: "system:serviceaccount:velero:velero",
        edit: replace("/data/level", json!("older")),
        becomes: ("/data/level", json!("older")),
        stays: false,
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn image_updater_may_set_image_of_workload_that_opts_in() {
    let image = "/spec/template/spec/containers/0/image";
    check(Case {
        file: "image-updaters.yaml",
        templates: DEPLOYMENT,
        object: "deployment/web",
        at: WEB,
        user: "system:serviceaccount:keel:keel",
        edit: replace(image, json!("registry.example/shop:1.1")),
        becomes: (image, json!("registry.example/shop:1.1")),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jenkins_is_scaled_to_nothing_for_the_weekend() {
    check(Case {
        file: "jenkins-weekend.yaml",
        templates: charts::JENKINS,
        object: "statefulset/jenkins",
        at: ("apis/apps/v1", "statefulsets/jenkins"),
        group: "jenkins-admins",
        edit: replace("/spec/replicas", json!(0)),
        becomes: ("/spec/replicas", json!(0)),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_queue_decides_how_wide_a_job_runs() {
    const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: import, labels: {kueue.x-k8s.io/queue-name: batch}}
spec:
  parallelism: 4
  template:
    spec: {restartPolicy: Never, containers: [{name: import, image: 'registry.example/import:1'}]}
";
    check(Case {
        file: "queued-jobs.yaml",
        templates: JOB,
        object: "job/import",
        at: ("apis/batch/v1", "jobs/import"),
        user: "system:serviceaccount:kueue-system:kueue-controller-manager",
        edit: replace("/spec/parallelism", json!(2)),
        becomes: ("/spec/parallelism", json!(2)),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_operator_renews_a_secret_that_says_so() {
    const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: tls, annotations: {kubemoor.dev/rotated: 'true'}}
stringData: {password: first}
";
    check(Case {
        file: "rotated-secrets.yaml",
        templates: SECRET,
        object: "secret/tls",
        at: ("api/v1", "secrets/tls"),
        user: "system:serviceaccount:secrets:rotator",
        edit: replace("/data/password", json!("c2Vjb25k")),
        becomes: ("/data/password", json!("c2Vjb25k")),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn third_party_scaler_may_scale_workload_that_opts_in() {
    check(Case {
        file: "scaled-by-others.yaml",
        templates: DEPLOYMENT,
        object: "deployment/web",
        at: WEB,
        user: "system:serviceaccount:kube-downscaler:kube-downscaler",
        edit: replace("/spec/replicas", json!(0)),
        becomes: ("/spec/replicas", json!(0)),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_bound_claim_is_enlarged() {
    const CLAIM: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: 'elastic-{{ .Release.Namespace }}'}
provisioner: storage.example
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: 'elastic-{{ .Release.Namespace }}'
  volumeName: 'none-{{ .Release.Namespace }}'
  resources: {requests: {storage: 1Gi}}
";
    let shop = Scene::policed().install("library", CLAIM).await;
    let claim = shop.at("api/v1", "persistentvolumeclaims/data");
    // There is nobody here who binds it.
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    shop.alice.merge(&format!("{claim}/status"), &bound).await.done().unwrap();
    let storage = "/spec/resources/requests/storage";
    let case = Case {
        file: "volume-claims.yaml",
        object: "pvc/data",
        at: ("api/v1", "persistentvolumeclaims/data"),
        edit: replace(storage, json!("2Gi")),
        becomes: (storage, json!("2Gi")),
        ..Case::default()
    };
    assert_cured(&shop, case).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_operator_of_prometheus_writes_its_annotation() {
    const RULE: &str = "
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: alerts, annotations: {prometheus-operator-validated: 'true'}}
spec: {groups: []}
";
    let control_plane = POLICED.control_plane();
    POLICED.guard().await;
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": "kubemoor-prometheus-rules",
            "labels": {"kubemoor.dev/aggregate-to-guard": "true", "kubemoor.dev/aggregate-to-arbiter": "true"},
        },
        "rules": [{
            "apiGroups": ["monitoring.coreos.com"], "resources": ["prometheusrules"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        }],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.done().unwrap();
    let rules = CustomKind {
        group: "monitoring.coreos.com",
        version: "v1",
        kind: "PrometheusRule",
        plural: "prometheusrules",
        scope: "Namespaced",
    };
    rules.define(&admin).await;
    let annotation = "/metadata/annotations/prometheus-operator-validated";
    check(Case {
        file: "prometheus-operator-validation.yaml",
        templates: RULE,
        object: "prometheusrule/alerts",
        at: ("apis/monitoring.coreos.com/v1", "prometheusrules/alerts"),
        user: "system:serviceaccount:monitoring:prometheus-operator",
        edit: replace(annotation, json!("false")),
        becomes: (annotation, json!("false")),
        ..Case::default()
    })
    .await;
}
