//! The definitions of `DriftPolicy` and `DriftAllowance` on a real API server:
//! what is refused before the guard sees it.

use std::io::Write;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{ControlPlane, Identity, budget, drift_policy, unguarded};

fn apply(control_plane: &ControlPlane, file: &str, flags: &[&str]) -> Output {
    control_plane.kubectl(Identity::Admin, &[&["apply", "-f", file], flags].concat())
}

fn create(control_plane: &ControlPlane, resource: &Value, flags: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(resource.to_string().as_bytes()).unwrap();
    // Unknown fields are the client's affair; here the server speaks.
    apply(control_plane, file.path().to_str().unwrap(), &[&["--validate=false"], flags].concat())
}

/// Installs the definitions and waits until they are served.
fn define(control_plane: &ControlPlane) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crds.yaml");
    let applied = apply(control_plane, file, &[]);
    assert!(applied.status.success(), "{applied:?}");
    let names = ["crd/driftpolicies.kubemoor.dev", "crd/driftallowances.kubemoor.dev"];
    let timeout = format!("--timeout={}s", budget().as_secs());
    let wait = ["wait", "--for=condition=Established", &timeout, names[0], names[1]];
    let waited = control_plane.kubectl(Identity::Admin, &wait);
    assert!(waited.status.success(), "{waited:?}");
    for name in names {
        let output = control_plane.kubectl(Identity::Admin, &["get", name, "-o", "json"]);
        let definition: Value = serde_json::from_slice(&output.stdout).unwrap();
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let structural =
            conditions.iter().all(|it| it["type"] != "NonStructuralSchema" || it["status"] == "False");
        assert!(structural, "{name}: {conditions:?}");
    }
}

fn policy(spec: Value) -> Value {
    drift_policy("p", spec)
}

/// The spec of a policy with a value for every field.
fn every_field() -> Value {
    json!({
        "priority": 10, "edits": "Revert", "drift": "Ignore", "autoscalers": "Declared", "notify": ["oncall"],
        "releases": {"names": ["shop-*"], "namespaces": ["shop"], "namespaceSelector": {"matchLabels": {"tier": "prod"}}},
        "clusterSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]},
        "repair": {"rbac": false, "clusterScoped": true},
        "ignore": [{"target": {"kind": "Deployment", "labelSelector": "app in (a,b)"},
                    "paths": ["*", "/spec/replicas", "/metadata/annotations/*", "/spec/containers/[name=app]/image"]}],
        "allow": [{"name": "weekend", "paths": ["delete", "/spec/replicas"],
                   "schedule": {"cron": "30 7 * * SAT,SUN", "duration": "10h", "timeZone": "America/New_York"},
                   "subjects": [{"kind": "Group", "name": "admins"}]}],
        "exempt": [{"kind": "ServiceAccount", "namespace": "ci", "name": "deployer"}],
        "storage": [{"records": "flux-system", "releases": ["shop", "web"]}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definitions_refuse_what_a_schema_can() {
    let control_plane = unguarded();
    define(control_plane);
    let namespace = control_plane.namespace("definitions").await;
    // As a dry run: a policy would count for the releases of other tests.
    let check = |resource: Value, refused: Option<&str>| {
        let output = create(control_plane, &resource, &["--dry-run=server"]);
        // Later API servers say which element it is.
        let said = String::from_utf8_lossy(&output.stderr).replace("[0]", "");
        match refused {
            None => assert!(output.status.success(), "{resource}: {said}"),
            Some(part) => assert!(!output.status.success() && said.contains(part), "{resource}: {said}"),
        }
    };
    check(policy(every_field()), None);
    check(policy(json!({})), None);
    check(policy(json!({"edits": "Denied"})), Some("spec.edits"));
    check(policy(json!({"drift": "repair"})), Some("spec.drift"));
    check(policy(json!({"ignore": [{"paths": ["spec/replicas"]}]})), Some("spec.ignore.paths"));
    check(policy(json!({"ignore": [{"paths": ["delete"]}]})), Some("spec.ignore.paths"));
    check(policy(json!({"ignore": [{"paths": []}]})), Some("spec.ignore.paths"));
    check(policy(json!({"ignore": [{"target": {"kind": "Job"}}]})), Some("spec.ignore.paths"));
    check(policy(json!({"allow": [{"paths": ["/a"]}]})), Some("spec.allow.name"));
    check(policy(json!({"releases": {"names": ["Shop"]}})), Some("spec.releases.names"));
    let hourly = json!({"cron": "0 * * * *", "duration": "an hour"});
    check(policy(json!({"allow": [{"name": "a", "paths": ["/a"], "schedule": hourly}]})), Some("duration"));
    check(policy(json!({"exempt": [{"kind": "Robot", "name": "a"}]})), Some("spec.exempt.kind"));
    check(policy(json!({"ignore": vec![json!({"paths": ["/a"]}); 101]})), Some("spec.ignore"));
    if control_plane.minor() >= 25 {
        check(policy(json!({"exempt": [{"kind": "ServiceAccount", "name": "a"}]})), Some("has a namespace"));
        check(
            policy(json!({"exempt": [{"kind": "User", "name": "a", "namespace": "b"}]})),
            Some("has a namespace"),
        );
    }
    let allowance = |spec: Value| {
        let metadata = json!({"name": "a", "namespace": namespace});
        json!({"apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": metadata, "spec": spec})
    };
    let object = json!({"group": "apps", "kind": "Deployment", "namespace": "default", "name": "web"});
    let until = "2026-12-24T18:00:00Z";
    let accepted = allowance(json!({
        "object": object, "paths": ["/spec/replicas"], "until": until, "reason": "INC-1",
        "requestedBy": {"user": "alice", "groups": ["dev"]},
    }));
    let created = create(control_plane, &accepted, &[]);
    assert!(created.status.success(), "{created:?}");
    check(allowance(json!({"object": object, "paths": ["/a"]})), Some("spec.until"));
    check(allowance(json!({"object": object, "paths": ["/a"], "until": "tomorrow"})), Some("spec.until"));
    check(allowance(json!({"object": object, "paths": ["a"], "until": until})), Some("spec.paths"));
    check(
        allowance(json!({"object": {"name": "web"}, "paths": ["*"], "until": until})),
        Some("spec.object.kind"),
    );

    let table = control_plane.kubectl(Identity::Admin, &["get", "da", "-n", &namespace]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(["KIND", "OBJECT", "UNTIL", "alice", "INC-1"].iter().all(|word| table.contains(word)), "{table}");
}
