//! `kubemoor get releases` on a real control plane: what is not guarded, also where there is no record.

use serde_json::{Value, json};

use crate::command_diff::install;
use crate::support::{Caller, DRIFT_POLICIES, Identity, SOON, eventually, moor, unguarded};

const TEMPLATES: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80, protocol: TCP}]}
"#;

const HELMS_LABEL: &str = "app.kubernetes.io/managed-by";

/// An object of `kind` with Helm's label, and more labels and annotations.
fn labelled(kind: &str, name: &str, mut labels: Value, annotations: Value) -> Value {
    labels[HELMS_LABEL] = json!("Helm");
    let pods = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}});
    let (api_version, spec) = match kind {
        "Service" => ("v1", json!({"ports": [{"port": 80}]})),
        _ => (
            "apps/v1",
            json!({"selector": {"matchLabels": {"app": name}}, "serviceName": name, "template": pods}),
        ),
    };
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn helms(namespace: &str, release: &str) -> Value {
    json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace})
}

/// Creates the objects in a namespace.
async fn create(namespace: &str, objects: &[Value]) {
    let alice = Caller::new(unguarded(), Identity::Alice).await;
    for object in objects {
        let path = match object["kind"].as_str().unwrap() {
            "Service" => format!("/api/v1/namespaces/{namespace}/services"),
            kind => format!("/apis/apps/v1/namespaces/{namespace}/{}s", kind.to_lowercase()),
        };
        alice.post(&path, object).await.done().unwrap();
    }
}

/// The names and messages of what is listed as not guarded.
fn not_guarded(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = answer["items"].as_array().unwrap().iter();
    rows.inspect(|row| assert_eq!(row["guarded"], json!(false), "{row}"))
        .map(|row| (format!("{}/{}", text(&row["namespace"]), text(&row["name"])), text(&row["message"])))
        .collect()
}

/// Objects of a namespace that tell of releases, of which one has a record.
fn without_record(namespace: &str, other: &str) -> Vec<Value> {
    let tracking =
        |app: &str| json!({"argocd.argoproj.io/tracking-id": format!("{app}:apps/Deployment:{namespace}/x")});
    vec![
        // As the SQL driver leaves them, one of them for another namespace.
        labelled("Deployment", "sql", json!({}), helms(namespace, "sql")),
        labelled(
            "Service",
            "sql",
            json!({"app.kubernetes.io/instance": "misnamed"}),
            helms(namespace, "sql"),
        ),
        labelled("Service", "foreign", json!({}), helms(other, "foreign")),
        // As Argo CD leaves them, by each of its ways to track.
        labelled(
            "StatefulSet",
            "tracked",
            json!({"app.kubernetes.io/instance": "x"}),
            tracking("argocd_tracked"),
        ),
        labelled("DaemonSet", "marked", json!({"argocd.argoproj.io/instance": "marked"}), json!({})),
        labelled("Deployment", "plain", json!({"app.kubernetes.io/instance": "plain"}), json!({})),
        // What names a release that has a record, is a hook, or names none.
        labelled("Deployment", "child", json!({"app.kubernetes.io/instance": "shop"}), json!({})),
        labelled(
            "Service",
            "hook",
            json!({"app.kubernetes.io/instance": "gone"}),
            json!({"helm.sh/hook": "test"}),
        ),
        labelled("Service", "odd", json!({}), helms(namespace, "odd\u{1b}[31m")),
        labelled("Service", "anonymous", json!({}), json!({})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn release_without_record_is_listed_as_not_guarded_with_reason() {
    let namespace = install("unrecorded", TEMPLATES).await;
    let other = unguarded().namespace("unrecorded-other").await;
    let objects = without_record(&namespace, &other);
    create(&namespace, &objects).await;
    let named = |name: &str| format!("{namespace}/{name}");
    let get = |arguments: &[&str]| {
        let ran = moor(unguarded(), Identity::Alice, &[&["get", "releases"], arguments].concat());
        assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{ran:?}");
        ran
    };
    let rows = not_guarded(&get(&["-n", &namespace, "-o", "json"]).json());
    let names: Vec<_> = rows.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["marked", "plain", "shop", "sql", "tracked"].map(named));
    for (place, part) in [
        (0, "no record: Argo CD"),
        (1, "no record: its objects have Helm's label without Helm's annotations"),
        (3, "no record: Helm's annotations name it"),
        (4, "no record: Argo CD"),
    ] {
        assert!(rows[place].1.starts_with(part), "{rows:?}");
    }
    assert!(!rows[2].1.contains("no record"), "{rows:?}");
    assert_eq!(not_guarded(&get(&["-n", &other, "-o", "json"]).json()), []);
    let table = get(&["-n", &namespace]).out;
    let line = table.lines().find(|line| line.contains("tracked")).unwrap();
    assert!(line.contains("NotGuarded") && line.ends_with("no record: Argo CD renders it"), "{table}");
    assert_lists_are_kubectls(&namespace);
    // In all namespaces, an object of another namespace tells of the release as well.
    let all = get(&["-A", "-o", "json"]).json();
    let is_listed = |namespace: &str, name: &str| {
        let mut rows = all["items"].as_array().unwrap().iter();
        rows.any(|row| row["namespace"] == namespace && row["name"] == name && row["guarded"] == json!(false))
    };
    assert!(is_listed(&other, "foreign") && is_listed(&namespace, "sql"), "{all}");
}

/// The releases `marked`, `plain`, `shop`, `sql` and `tracked` of a namespace, by every flag of a list.
fn assert_lists_are_kubectls(namespace: &str) {
    let get = |flags: &[&str]| {
        let ran =
            moor(unguarded(), Identity::Alice, &[&["get", "releases", "-n", namespace], flags].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let all = "release/marked\nrelease/plain\nrelease/shop\nrelease/sql\nrelease/tracked\n";
    assert_eq!(get(&["-o", "name"]).out, all);
    assert_eq!(get(&["-o", "name", "--state", "not-guarded"]).out, all);
    // By the labels of the records, as `helm list --selector` has it.
    assert_eq!(get(&["-o", "name", "-l", "name=shop,status=deployed"]).out, "release/shop\n");
    let none = get(&["-l", "name=other"]);
    assert!(none.out.is_empty() && none.error.contains("no releases found in namespace"), "{none:?}");
    let none = get(&["--state", "drifted"]);
    assert!(none.out.is_empty() && none.error.contains("no releases found in namespace"), "{none:?}");
    let bare = get(&["--no-headers"]).out;
    assert_eq!((bare.lines().count(), bare.contains("NAMESPACE")), (5, false), "{bare}");
    let wide = get(&["-o", "wide"]).out;
    assert!(wide.lines().next().unwrap().contains("IN DOUBT"), "{wide}");
    let names = get(&["-o", "jsonpath={.items[?(@.name>\"r\")].name}"]);
    assert_eq!(names.out, "shop sql tracked", "{names:?}");
    let lines = get(&["-o", "jsonpath={range .items[*]}{.name}{\"\\n\"}{end}"]).out;
    assert_eq!(lines, "marked\nplain\nshop\nsql\ntracked\n");
    let told = get(&["-v", "6", "-o", "name"]);
    assert!(told.out == all && told.error.contains("GET ") && told.error.contains("/secrets?"), "{told:?}");
    let listed = get(&["-o", "json"]).json();
    assert_eq!((&listed["apiVersion"], &listed["kind"]), (&json!("v1"), &json!("List")), "{listed}");
    let sheet = get(&["-o", "csv"]).out;
    let lines: Vec<_> = sheet.split("\r\n").collect();
    assert!(lines[0].starts_with("\"namespace\",\"name\",\"guarded\"") && lines.len() == 7, "{sheet}");
    assert!(lines[1].starts_with(&format!("\"{namespace}\",\"marked\",\"false\"")), "{sheet}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_listed_by_priority() {
    let control_plane = unguarded();
    control_plane.define_policies();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    for (name, priority) in [("listed-low", 1), ("listed-high", 20)] {
        let policy = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy",
            "metadata": {"name": name, "labels": {"listed": "yes"}},
            "spec": {"priority": priority, "edits": "Deny", "releases": {"names": ["no-such-release"]}},
        });
        admin.post(DRIFT_POLICIES, &policy).await.done().unwrap();
    }
    let ran = moor(control_plane, Identity::Admin, &["get", "policies", "-l", "listed=yes", "-o", "name"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "driftpolicy.kubemoor.dev/listed-high\ndriftpolicy.kubemoor.dev/listed-low\n"),
        "{ran:?}"
    );
    let rows =
        moor(control_plane, Identity::Admin, &["get", "policies", "-l", "listed=yes", "-o", "json"]).json();
    // No guard has judged them.
    let first = &rows["items"][0];
    assert_eq!((&first["accepted"], &first["edits"]), (&json!("Unknown"), &json!("Deny")), "{rows}");
    let linted = moor(control_plane, Identity::Admin, &["policy", "lint", "-o", "json"]);
    let found: Vec<_> = linted.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["policy"].as_str().is_some_and(|policy| policy.starts_with("listed-")))
        .map(|row| [&row["policy"], &row["field"], &row["check"]].map(|it| it.as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(linted.code, 1, "{linted:?}");
    for expected in [
        ["listed-low", "spec.edits", "Overridden"],
        ["listed-low", "spec.releases.names[0]", "MatchesNothing"],
        ["listed-high", "spec.releases.names[0]", "MatchesNothing"],
    ] {
        assert!(found.contains(&expected.map(str::to_owned)), "{expected:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn kind_without_list_permission_is_named_once_beside_other_results() {
    let namespace = install("unrecorded-rights", TEMPLATES).await;
    let others = install("unrecorded-others", TEMPLATES).await;
    create(&namespace, &[labelled("Deployment", "sql", json!({}), helms(&namespace, "sql"))]).await;
    create(&others, &[labelled("Deployment", "sql", json!({}), helms(&others, "sql"))]).await;
    let admin = Caller::new(unguarded(), Identity::Admin).await;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let rules = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
        {"apiGroups": ["kubemoor.dev"], "resources": ["guardedreleases"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
    ]);
    admin
        .post(&format!("{rbac}/roles"), &json!({"metadata": {"name": "reader"}, "rules": rules}))
        .await
        .done()
        .unwrap();
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dora"}],
    });
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.done().unwrap();
    let dora = |place: &[&str]| {
        let as_dora = ["--as", "dora", "--as-group", "system:authenticated", "-o", "json"];
        moor(unguarded(), Identity::Admin, &[&["get", "releases"], place, &as_dora].concat())
    };
    let ran = eventually("dora has her rights", SOON, || async {
        let ran = dora(&["-n", &namespace]);
        if ran.code == 0 { Ok(ran) } else { Err(format!("{ran:?}")) }
    })
    .await;
    let names: Vec<_> = not_guarded(&ran.json()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [format!("{namespace}/shop"), format!("{namespace}/sql")]);
    let note = format!(
        "kubemoor: cannot look for releases without records among statefulsets, daemonsets, cronjobs, \
         services: you may not list them in namespace {namespace}\n"
    );
    let unread = ran.error.strip_prefix(&note).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(unread.starts_with("kubemoor: releases may be missing: policies cannot be read"), "{ran:?}");
    assert_eq!(unread.lines().count(), 1, "{ran:?}");
    for place in [&["-A"][..], &["-n", &others]] {
        let ran = dora(place);
        ran.assert_failed(&["no permission"]);
        assert!(ran.out.is_empty() && !ran.error.contains("sql"), "{ran:?}");
    }
}
