//! The definitions of `DriftPolicy` and `DriftAllowance` on a real API server:
//! what is refused before the guard sees it.

use serde_json::{Value, json};

use crate::support::{Caller, ControlPlane, DRIFT_POLICIES, Identity, budget, drift_policy, unguarded};

/// Installs the definitions and waits until they are served.
fn define(control_plane: &ControlPlane) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crds.yaml");
    let applied = control_plane.kubectl(Identity::Admin, &["apply", "-f", file]);
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
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let allowances = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/driftallowances");
    // As a dry run: a policy would count for the releases of other tests.
    let check = async |resource: Value, refused: Option<&str>| {
        let path = if resource["kind"] == "DriftPolicy" { DRIFT_POLICIES } else { &allowances };
        let answer = admin.post(&format!("{path}?dryRun=All"), &resource).await.done();
        match refused {
            None => assert!(answer.is_ok(), "{resource}: {answer:?}"),
            Some(part) => {
                let said = answer.expect_err(part);
                // Later API servers say which element it is.
                assert!(said.replace("[0]", "").contains(part), "{resource}: {said}");
            }
        }
    };
    check(policy(every_field()), None).await;
    check(policy(json!({})), None).await;
    check(policy(json!({"edits": "Denied"})), Some("spec.edits")).await;
    check(policy(json!({"drift": "repair"})), Some("spec.drift")).await;
    check(policy(json!({"ignore": [{"paths": ["spec/replicas"]}]})), Some("spec.ignore.paths")).await;
    check(policy(json!({"ignore": [{"paths": ["delete"]}]})), Some("spec.ignore.paths")).await;
    check(policy(json!({"ignore": [{"paths": []}]})), Some("spec.ignore.paths")).await;
    check(policy(json!({"ignore": [{"target": {"kind": "Job"}}]})), Some("spec.ignore.paths")).await;
    check(policy(json!({"allow": [{"paths": ["/a"]}]})), Some("spec.allow.name")).await;
    check(policy(json!({"releases": {"names": ["Shop"]}})), Some("spec.releases.names")).await;
    let hourly = json!({"cron": "0 * * * *", "duration": "an hour"});
    check(policy(json!({"allow": [{"name": "a", "paths": ["/a"], "schedule": hourly}]})), Some("duration"))
        .await;
    check(policy(json!({"exempt": [{"kind": "Robot", "name": "a"}]})), Some("spec.exempt.kind")).await;
    check(policy(json!({"ignore": vec![json!({"paths": ["/a"]}); 101]})), Some("spec.ignore")).await;
    if control_plane.minor() >= 25 {
        check(policy(json!({"exempt": [{"kind": "ServiceAccount", "name": "a"}]})), Some("has a namespace"))
            .await;
        check(
            policy(json!({"exempt": [{"kind": "User", "name": "a", "namespace": "b"}]})),
            Some("has a namespace"),
        )
        .await;
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
    admin.post(&allowances, &accepted).await.done().unwrap();
    check(allowance(json!({"object": object, "paths": ["/a"]})), Some("spec.until")).await;
    check(allowance(json!({"object": object, "paths": ["/a"], "until": "tomorrow"})), Some("spec.until"))
        .await;
    check(allowance(json!({"object": object, "paths": ["a"], "until": until})), Some("spec.paths")).await;
    check(
        allowance(json!({"object": {"name": "web"}, "paths": ["*"], "until": until})),
        Some("spec.object.kind"),
    )
    .await;

    let table = control_plane.kubectl(Identity::Admin, &["get", "da", "-n", &namespace]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(["KIND", "OBJECT", "UNTIL", "alice", "INC-1"].iter().all(|word| table.contains(word)), "{table}");
}
