//! The policies of `policies/` that are about traffic: Services, Ingresses, the mesh.

use serde_json::json;

use crate::policy_library::{Case, DEPLOYMENT, WEB, check, replace};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_certificate_solver_adds_its_path_to_an_ingress() {
    const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {acme.cert-manager.io/http01-edit-in-place: 'true'}}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
";
    let challenge = json!({
        "path": "/.well-known/acme-challenge/x", "pathType": "Exact",
        "backend": {"service": {"name": "solver", "port": {"number": 8089}}},
    });
    check(Case {
        file: "certificate-solvers.yaml",
        templates: INGRESS,
        object: "ingress.networking.k8s.io/web",
        at: ("apis/networking.k8s.io/v1", "ingresses/web"),
        user: "system:serviceaccount:cert-manager:cert-manager",
        edit: json!([{"op": "add", "path": "/spec/rules/0/http/paths/0", "value": challenge}]),
        becomes: ("/spec/rules/0/http/paths/0/path", json!("/.well-known/acme-challenge/x")),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_canary_gets_the_services_traffic() {
    const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, protocol: TCP}]}
";
    check(Case {
        file: "progressive-delivery.yaml",
        templates: SERVICE,
        object: "service/web",
        at: ("api/v1", "services/web"),
        user: "system:serviceaccount:flagger-system:flagger",
        edit: replace("/spec/selector/app", json!("web-primary")),
        becomes: ("/spec/selector/app", json!("web-primary")),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_load_balancer_gives_a_service_its_addresses() {
    const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, protocol: TCP}], externalIPs: [203.0.113.1]}
";
    check(Case {
        file: "service-addresses.yaml",
        templates: SERVICE,
        object: "service/web",
        at: ("api/v1", "services/web"),
        user: "system:serviceaccount:kube-system:balancer",
        edit: replace("/spec/externalIPs", json!(["203.0.113.7"])),
        becomes: ("/spec/externalIPs", json!(["203.0.113.7"])),
        ..Case::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_workload_moves_to_another_revision_of_the_mesh() {
    let label = "/spec/template/metadata/labels/istio.io~1rev";
    check(Case {
        file: "service-mesh-injection.yaml",
        templates: DEPLOYMENT,
        object: "deployment/web",
        at: WEB,
        group: "mesh-team",
        edit: replace(label, json!("new")),
        becomes: (label, json!("new")),
        ..Case::default()
    })
    .await;
}
