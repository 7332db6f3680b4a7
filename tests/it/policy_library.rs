//! Policies of `policies/` of each sort on real objects: the edit that a case is about is refused without its policy,
//! passes with it, and is left alone by the loop, or undone where the case says so. `policies/tests` has the cases of all.

use serde_json::{Value, json};

use crate::support::{SOON, Scene, charts, eventually};

/// One case of the library.
struct LibraryCase {
    file: &'static str,
    templates: &'static str,
    /// As kubectl names the object.
    object: &'static str,
    /// Where it is: the API and the resource.
    at: (&'static str, &'static str),
    user: &'static str,
    group: &'static str,
    /// What becomes which value.
    edit: (&'static str, Value),
    /// Whether the loop leaves it so. Whoever is exempt may edit, and what holds stays what the chart says.
    stays: bool,
}

/// Symptom, then cure, of the edit of a case.
async fn check(case: LibraryCase) {
    let LibraryCase {
        file,
        templates,
        object,
        at: (api, resource),
        user,
        group,
        edit: (pointer, value),
        stays,
    } = case;
    let shop = Scene::policed().install("library", templates).await;
    let path = &shop.at(api, resource);
    let edit = json!([{"op": "replace", "path": pointer, "value": value}]).to_string();
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

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {keel.sh/policy: minor}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: 'registry.example/shop:1'}]}
";

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, protocol: TCP}], externalIPs: [203.0.113.1]}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_group_for_emergencies_edits_what_it_wants() {
    check(LibraryCase {
        file: "break-glass.yaml",
        templates: charts::SETTINGS,
        object: "configmap/settings",
        at: ("api/v1", "configmaps/settings"),
        user: "carol",
        group: "break-glass",
        edit: ("/data/level", json!("debug")),
        stays: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn image_updater_may_set_image_of_workload_that_opts_in() {
    check(LibraryCase {
        file: "image-updaters.yaml",
        templates: DEPLOYMENT,
        object: "deployment/web",
        at: ("apis/apps/v1", "deployments/web"),
        user: "system:serviceaccount:keel:keel",
        group: "developers",
        edit: ("/spec/template/spec/containers/0/image", json!("registry.example/shop:1.1")),
        stays: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jenkins_is_scaled_to_nothing_for_the_weekend() {
    check(LibraryCase {
        file: "jenkins-weekend.yaml",
        templates: charts::JENKINS,
        object: "statefulset/jenkins",
        at: ("apis/apps/v1", "statefulsets/jenkins"),
        user: "carol",
        group: "jenkins-admins",
        edit: ("/spec/replicas", json!(0)),
        stays: true,
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
    check(LibraryCase {
        file: "rotated-secrets.yaml",
        templates: SECRET,
        object: "secret/tls",
        at: ("api/v1", "secrets/tls"),
        user: "system:serviceaccount:secrets:rotator",
        group: "developers",
        edit: ("/data/password", json!("c2Vjb25k")),
        stays: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn certificate_solver_adds_its_path_to_ingress_that_opts_in() {
    const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {acme.cert-manager.io/http01-edit-in-place: 'true'}}
spec:
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";
    let path = |path: &str, kind: &str, service: &str, port: u32| {
        let service = json!({"name": service, "port": {"number": port}});
        json!({"path": path, "pathType": kind, "backend": {"service": service}})
    };
    let challenge = path("/.well-known/acme-challenge/x", "Exact", "solver", 8089);
    check(LibraryCase {
        file: "certificate-solvers.yaml",
        templates: INGRESS,
        object: "ingress.networking.k8s.io/web",
        at: ("apis/networking.k8s.io/v1", "ingresses/web"),
        user: "system:serviceaccount:cert-manager:cert-manager",
        group: "developers",
        edit: ("/spec/rules/0/http/paths", json!([challenge, path("/", "Prefix", "web", 80)])),
        stays: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn canary_controller_points_service_at_its_primary() {
    check(LibraryCase {
        file: "progressive-delivery.yaml",
        templates: SERVICE,
        object: "service/web",
        at: ("api/v1", "services/web"),
        user: "system:serviceaccount:flagger-system:flagger",
        group: "developers",
        edit: ("/spec/selector/app", json!("web-primary")),
        stays: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn load_balancer_gives_service_another_address() {
    check(LibraryCase {
        file: "service-addresses.yaml",
        templates: SERVICE,
        object: "service/web",
        at: ("api/v1", "services/web"),
        user: "system:serviceaccount:kube-system:balancer",
        group: "developers",
        edit: ("/spec/externalIPs", json!(["203.0.113.7"])),
        stays: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn queue_decides_how_wide_a_job_runs() {
    const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: import, labels: {kueue.x-k8s.io/queue-name: batch}}
spec:
  parallelism: 4
  template:
    spec: {restartPolicy: Never, containers: [{name: import, image: 'registry.example/import:1'}]}
";
    check(LibraryCase {
        file: "queued-jobs.yaml",
        templates: JOB,
        object: "job/import",
        at: ("apis/batch/v1", "jobs/import"),
        user: "system:serviceaccount:kueue-system:kueue-controller-manager",
        group: "developers",
        edit: ("/spec/parallelism", json!(2)),
        stays: true,
    })
    .await;
}
