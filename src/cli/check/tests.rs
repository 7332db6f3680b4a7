use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;

const MANIFEST: &str = "\
---
# Source: web/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: app
        image: web:1
---
# Source: web/templates/secret.yaml
apiVersion: v1
kind: Secret
metadata:
  name: web
stringData:
  password: hunter2
";

fn deployment(edit: impl FnOnce(&mut Value)) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "app", "image": "web:1"}]}}}
    });
    edit(&mut object);
    object
}

fn request(operation: &str, resource: [&str; 3], kind: &str, name: &str, objects: [Value; 2]) -> Value {
    let [object, old_object] = objects;
    let [group, version, plural] = resource;
    json!({
        "uid": "1", "operation": operation, "name": name, "namespace": "shop",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": plural},
        "userInfo": {"username": "alice"},
        "object": object, "oldObject": old_object, "dryRun": false
    })
}

fn update(edit: impl FnOnce(&mut Value)) -> Value {
    request(
        "UPDATE",
        ["apps", "v1", "deployments"],
        "Deployment",
        "web",
        [deployment(edit), deployment(|_| {})],
    )
}

fn policies(edits: EditsMode, accepted: Vec<Arc<CompiledPolicy>>, cluster: &Labels) -> Policies {
    Policies::new(Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT), cluster, accepted)
}

/// The report on the review of one file by the release of another, without
/// policies.
fn given(manifest: &Path, review: &Path, edits: EditsMode) -> anyhow::Result<CheckReport> {
    report(
        manifest,
        review,
        policies(edits, Vec::new(), &Labels::new()),
        "2026-01-02T03:04:05Z".parse().unwrap(),
    )
}

/// The report on a request by a release of this text.
fn judged(release: &str, request: &Value, edits: EditsMode) -> anyhow::Result<CheckReport> {
    let folder = tempfile::tempdir().unwrap();
    let (manifest, review) = (folder.path().join("web.yaml"), folder.path().join("review.json"));
    fs::write(&manifest, release).unwrap();
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    fs::write(&review, body.to_string()).unwrap();
    given(&manifest, &review, edits)
}

fn verdict(request: &Value) -> String {
    let report = judged(MANIFEST, request, EditsMode::Deny).unwrap();
    format!("{} {}", report.verdict.outcome.as_str(), report.verdict.reason.as_str())
}

#[test]
fn the_verdict_is_the_webhook_s() {
    let check =
        |what: &str, request: Value, expected: &str| assert_eq!(verdict(&request), expected, "{what}");
    check("a declared field", update(|it| it["spec"]["replicas"] = json!(5)), "Deny drift");
    check("an undeclared field", update(|it| it["spec"]["minReadySeconds"] = json!(5)), "Allow unchanged");
    check(
        "an object that nobody declares",
        request(
            "UPDATE",
            ["apps", "v1", "deployments"],
            "Deployment",
            "other",
            [deployment(|_| {}), deployment(|_| {})],
        ),
        "Allow not-declared",
    );
    check(
        "a deletion, as an item of a collection",
        {
            let mut request = request(
                "DELETE",
                ["apps", "v1", "deployments"],
                "Deployment",
                "",
                [Value::Null, deployment(|_| {})],
            );
            request.as_object_mut().unwrap().remove("name");
            request
        },
        "Deny deletion",
    );
    check(
        "the creation of the declared object",
        request(
            "CREATE",
            ["apps", "v1", "deployments"],
            "Deployment",
            "web",
            [deployment(|_| {}), Value::Null],
        ),
        "Allow unchanged",
    );
    let scale = |replicas: u32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}});
    let mut scaling = request("UPDATE", ["apps", "v1", "deployments"], "Scale", "web", [scale(0), scale(3)]);
    scaling["subResource"] = json!("scale");
    scaling["kind"] = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    check("a scale", scaling.clone(), "Deny drift");
    scaling["object"] = scale(3);
    scaling["oldObject"] = scale(1);
    check("a scale back to what is declared", scaling, "Allow as-declared");
    let mut namespace = request(
        "DELETE",
        ["", "v1", "namespaces"],
        "Namespace",
        "shop",
        [Value::Null, json!({"metadata": {"name": "shop"}})],
    );
    namespace.as_object_mut().unwrap().remove("namespace");
    check("the deletion of its namespace", namespace, "Deny dependants");
}

#[test]
fn the_mode_decides_what_becomes_of_drift() {
    let drift = update(|it| it["spec"]["replicas"] = json!(5));
    for (mode, expected) in [
        (EditsMode::Allow, edit::EditOutcome::Allow),
        (EditsMode::Record, edit::EditOutcome::Record),
        (EditsMode::Warn, edit::EditOutcome::Warn),
        (EditsMode::Deny, edit::EditOutcome::Deny),
    ] {
        assert_eq!(judged(MANIFEST, &drift, mode).unwrap().verdict.outcome, expected);
    }
}

#[test]
fn manifest_release_comes_from_object_annotations_or_else_file_name() {
    let owner = |request: &Value| {
        judged(MANIFEST, request, EditsMode::Deny).unwrap().verdict.grounds.unwrap().release.to_string()
    };
    let named = request(
        "UPDATE",
        ["apps", "v1", "deployments"],
        "Deployment",
        "web",
        [
            deployment(|it| it["spec"]["replicas"] = json!(5)),
            deployment(|it| it["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("front")),
        ],
    );
    assert_eq!(owner(&named), "shop/front");
    let mut bare = named;
    for object in ["object", "oldObject"] {
        bare[object]["metadata"].as_object_mut().unwrap().remove("annotations");
    }
    assert_eq!(owner(&bare), "shop/web");
}

#[test]
fn the_report_names_the_field_and_keeps_secrets() {
    let report = judged(MANIFEST, &update(|it| it["spec"]["replicas"] = json!(5)), EditsMode::Deny).unwrap();
    let table = report.table().as_str().to_owned();
    for wanted in ["Deployment/web in namespace shop", "UPDATE", "Deny", "drift", "shop/web (revision 1)"] {
        assert!(table.contains(wanted), "{wanted} is not in:\n{table}");
    }
    let row = table.lines().find(|line| line.starts_with("/spec/replicas")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["/spec/replicas", "3", "3", "5"]);
    assert!(table.lines().all(|line| line == line.trim_end()), "{table}");

    let value = serde_json::to_value(&report).unwrap();
    assert_eq!((&value["outcome"], &value["operation"]), (&json!("Deny"), &json!("UPDATE")));
    assert_eq!(value["fields"][0]["path"], "/spec/replicas");

    let secret = |password: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": "shop"},
               "data": {"password": BASE64_STANDARD.encode(password)}})
    };
    let edit =
        request("UPDATE", ["", "v1", "secrets"], "Secret", "web", [secret("stolen"), secret("hunter2")]);
    let report = judged(MANIFEST, &edit, EditsMode::Deny).unwrap();
    assert_eq!(report.verdict.outcome, edit::EditOutcome::Deny);
    let printed = report.table().as_str().to_owned() + &serde_json::to_string(&report).unwrap();
    for password in ["stolen", "hunter2"] {
        assert!(
            !printed.contains(password) && !printed.contains(&BASE64_STANDARD.encode(password)),
            "{printed}"
        );
    }
}

#[test]
fn a_declared_field_too_deep_to_read_is_refused() {
    let deep = |name: &str| {
        let nested = "[".repeat(200) + &"]".repeat(200);
        let head = update(|_| {})
            .to_string()
            .replace("\"object\":", "\"unused\":")
            .replace("\"name\":\"web\",\"namespace\"", &format!("\"name\":\"{name}\",\"namespace\""));
        head.trim_end_matches('}').to_owned()
            + &format!("}},\"object\":{{\"spec\":{{\"replicas\":{nested}}}}}}}")
    };
    let run = |name: &str| {
        let folder = tempfile::tempdir().unwrap();
        let (manifest, review) = (folder.path().join("web.yaml"), folder.path().join("review.json"));
        fs::write(&manifest, MANIFEST).unwrap();
        let request = deep(name);
        fs::write(
            &review,
            format!("{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{request}}}"),
        )
        .unwrap();
        let report = given(&manifest, &review, EditsMode::Deny).unwrap();
        format!("{} {}", report.verdict.outcome.as_str(), report.verdict.reason.as_str())
    };
    assert_eq!(run("web"), "Deny too-deep");
    assert_eq!(run("other"), "Allow not-declared");
}

#[test]
fn check_error_names_the_unusable_manifest_or_review_file() {
    let check = |release: &str, request: Value, wanted: &str| {
        let error = judged(release, &request, EditsMode::Deny).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains(wanted), "{said}");
    };
    check("a: [", update(|_| {}), "web.yaml: document 0 is not a Kubernetes object");
    check(MANIFEST, json!({}), "review.json: the review lacks");
    let mut connect = update(|_| {});
    connect["operation"] = json!("CONNECT");
    check(MANIFEST, connect, "review.json: its operation is not CREATE, UPDATE or DELETE");
    let missing = given(Path::new("/nowhere/web.yaml"), Path::new("/nowhere/review"), EditsMode::Deny);
    assert!(
        format!("{:#}", missing.unwrap_err())
            .contains("cannot read the review /nowhere/review: No such file")
    );
}

#[test]
fn policies_count_that_select_the_cluster_by_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {name: p}\n\
                  spec: {clusterSelector: {matchLabels: {env: prod}}, edits: Record}\n";
    fs::write(folder.path().join("p.yaml"), policy).unwrap();
    let (manifest, review) = (folder.path().join("web.txt"), folder.path().join("review.txt"));
    fs::write(&manifest, MANIFEST).unwrap();
    let request = update(|it| it["spec"]["replicas"] = json!(5));
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    fs::write(&review, body.to_string()).unwrap();
    for (env, expected) in [("prod", edit::EditOutcome::Record), ("dev", edit::EditOutcome::Deny)] {
        let cluster = Labels::from([("env".to_owned(), env.to_owned())]);
        let policies = policies(EditsMode::Deny, read_policy_folder(folder.path()).unwrap(), &cluster);
        let report = report(&manifest, &review, policies, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(report.verdict.outcome, expected, "{env}");
    }
}
