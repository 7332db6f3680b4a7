//! The resident memory of a guard that knows 1,000 releases of 10 objects.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};

use crate::support::{ControlPlane, Guard, Identity, eventually};

const RELEASES: usize = 1000;
const OBJECTS: usize = 10;
const NAMESPACES: usize = 20;
const BAR: f64 = 100.0;

/// For how long the guard is watched once it knows everything.
const WATCHED: usize = 10;

/// Prints the resident memory, with the drift loop and without.
pub(crate) async fn measure() {
    let control_plane = ControlPlane::start();
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(control_plane.namespace("releases").await);
    }
    let client = control_plane.client(Identity::Admin).await;
    let write = |n: usize| {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespaces[n % NAMESPACES]);
        let record = record(&namespaces[n % NAMESPACES], &format!("shop-{n:04}"));
        async move { secrets.create(&PostParams::default(), &record).await.unwrap() }
    };
    futures::stream::iter((0..RELEASES).map(write)).buffer_unordered(16).for_each(|_| async {}).await;
    println!("resident memory with {RELEASES} releases of {OBJECTS} objects each (at most {BAR} MiB):");
    for drift in ["Report", "Repair"] {
        let guard = Guard::start(&control_plane, &["--edits", "Deny", "--drift", drift]).await;
        knows_all(&guard).await;
        let (mut now, mut most) = (0.0, 0.0_f64);
        for _ in 0..WATCHED {
            tokio::time::sleep(Duration::from_secs(1)).await;
            now = guard.resident_memory() as f64 / f64::from(1 << 20);
            most = most.max(now);
        }
        let missed = if now > BAR { ": missed" } else { "" };
        println!(
            "  --drift {drift}: {now:.1} MiB{missed}; most within {WATCHED} s {most:.1}; peak {:.1}",
            peak(&guard)
        );
    }
}

async fn knows_all(guard: &Guard) {
    eventually("the guard knows all releases", Duration::from_secs(120), || async {
        let metrics = guard.metrics().await;
        let known = metrics.lines().find(|line| line.contains("releases") && line.contains("deployed"));
        match known.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()) {
            Some(RELEASES) => Ok(()),
            other => Err(format!("it knows {other:?}")),
        }
    })
    .await;
}

/// The most memory that was ever resident, in MiB.
fn peak(guard: &Guard) -> f64 {
    guard.peak_memory() as f64 / f64::from(1 << 20)
}

fn record(namespace: &str, release: &str) -> Secret {
    let release_json = json!({
        "name": release,
        "namespace": namespace,
        "version": 1,
        "info": {
            "first_deployed": "2026-03-01T10:00:00Z",
            "last_deployed": "2026-03-01T10:00:00Z",
            "deleted": "",
            "description": "Install complete",
            "status": "deployed",
        },
        "chart": {"metadata": {"name": "shop", "version": "1.2.3", "apiVersion": "v2"}},
        "manifest": manifest(release),
    });
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(release_json.to_string().as_bytes()).unwrap();
    let payload = BASE64_STANDARD.encode(gzip.finish().unwrap());
    let labels = [("owner", "helm"), ("name", release), ("status", "deployed"), ("version", "1")];
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("sh.helm.release.v1.{release}.v1")),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        type_: Some("helm.sh/release.v1".to_owned()),
        data: Some(BTreeMap::from([("release".to_owned(), ByteString(payload.into_bytes()))])),
        ..Secret::default()
    }
}

/// Ten objects as charts have them.
fn manifest(release: &str) -> String {
    let labels = json!({
        "app.kubernetes.io/name": "shop",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/version": "1.2.3",
        "helm.sh/chart": "shop-1.2.3",
    });
    let object = |api_version: &str, kind: &str, suffix: &str, body: Value| {
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": format!("{release}-{suffix}"), "labels": labels},
        });
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        object
    };
    let workload = |suffix: &str| {
        let env =
            |n: usize| json!({"name": format!("SETTING_{n}"), "value": format!("{release}-{suffix}-{n}")});
        json!({"spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app.kubernetes.io/instance": release}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": format!("{release}-runner"),
                    "containers": [{
                        "name": suffix,
                        "image": format!("registry.example/shop/{suffix}:1.2.3"),
                        "env": (0..10).map(env).collect::<Vec<_>>(),
                        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                        "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}},
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                    }],
                },
            },
        }})
    };
    let settings = json!({"data": (0..10).map(|n| (format!("key-{n}"), json!(format!("value {n} of {release}")))).collect::<serde_json::Map<_, _>>()});
    let service = |port: u16| {
        json!({"spec": {
            "selector": {"app.kubernetes.io/instance": release},
            "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}],
        }})
    };
    let documents: [Value; OBJECTS] = [
        object("v1", "ServiceAccount", "runner", json!({})),
        object("v1", "Secret", "keys", json!({"stringData": {"password": format!("secret of {release}")}})),
        object("v1", "ConfigMap", "settings", settings.clone()),
        object("v1", "ConfigMap", "more-settings", settings),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "reader",
            json!({
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}],
            }),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "reader",
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("{release}-reader")},
                "subjects": [{"kind": "ServiceAccount", "name": format!("{release}-runner")}],
            }),
        ),
        object("v1", "Service", "web", service(80)),
        object("apps/v1", "Deployment", "web", workload("web")),
        object("apps/v1", "Deployment", "worker", workload("worker")),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "web",
            json!({"spec": {"rules": [{
                "host": format!("{release}.example.org"),
                "http": {"paths": [{
                    "path": "/", "pathType": "Prefix",
                    "backend": {"service": {"name": format!("{release}-web"), "port": {"name": "http"}}},
                }]},
            }]}}),
        ),
    ];
    documents.iter().map(|document| format!("---\n# Source: shop/templates/all.yaml\n{document}\n")).collect()
}
