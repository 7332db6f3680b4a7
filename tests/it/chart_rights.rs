//! What the guard's account may do is what the values of the chart enable, and no more after the next change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    Block, ControlPlane, Document, HOME, House, Identity, Installed, SOON, Shell, Statement, eventually,
    moor, statements,
};

/// A namespace that is not the guard's.
const ELSEWHERE: &str = "default";

/// `VERB RESOURCE.GROUP`, asked for the guard's account.
async fn may(chart: &Installed<'_>, right: &str) -> bool {
    may_in(chart, ELSEWHERE, right).await
}

/// The same in a namespace.
pub(crate) async fn may_in(chart: &Installed<'_>, namespace: &str, right: &str) -> bool {
    let (verb, resource) = right.split_once(' ').unwrap();
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{HOME}:kubemoor"),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{HOME}"), "system:authenticated"],
            "resourceAttributes": {"namespace": namespace, "verb": verb, "group": group, "resource": resource},
        },
    });
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    chart.admin.post(reviews, &review).await.done().unwrap()["status"]["allowed"] == true
}

/// Everything that some value enables.
pub(crate) const RIGHTS: [&str; 8] = [
    "get secrets",
    "patch deployments.apps",
    "create configmaps",
    "delete configmaps",
    "get widgets.example.org",
    "patch widgets.example.org",
    "delete widgets.example.org",
    "escalate clusterroles.rbac.authorization.k8s.io",
];

/// The account has these rights of [`RIGHTS`], and no other of them.
async fn has(chart: &Installed<'_>, rights: &[&str]) {
    eventually(&format!("the rights are {rights:?}"), SOON, || async {
        let mut found = Vec::new();
        for right in RIGHTS {
            if may(chart, right).await {
                found.push(right);
            }
        }
        if found == rights { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// What the guard's account may write while nothing enforces, beside Kubemoor's own kinds: questions that the API server
/// answers and does not keep, events, its webhook configuration, and in its own namespace its Lease and its Secrets.
const WRITES: [&str; 14] = [
    "create events.events.k8s.io",
    "create leases.coordination.k8s.io in kubemoor-system",
    "create mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "create secrets. in kubemoor-system",
    "create subjectaccessreviews.authorization.k8s.io",
    "create tokenreviews.authentication.k8s.io",
    "create validatingwebhookconfigurations.admissionregistration.k8s.io",
    "delete mutatingwebhookconfigurations.admissionregistration.k8s.io/kubemoor",
    "delete validatingwebhookconfigurations.admissionregistration.k8s.io/kubemoor",
    "update leases.coordination.k8s.io/kubemoor in kubemoor-system",
    "update mutatingwebhookconfigurations.admissionregistration.k8s.io/kubemoor",
    "update secrets./kubemoor-caller in kubemoor-system",
    "update secrets./kubemoor-certificate in kubemoor-system",
    "update validatingwebhookconfigurations.admissionregistration.k8s.io/kubemoor",
];

/// Every right of the guard's account to write something that is not of Kubemoor's own kinds, by all of its bindings.
async fn writes(chart: &Installed<'_>) -> BTreeSet<String> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let own = json!({"kind": "ServiceAccount", "name": "kubemoor", "namespace": HOME});
    let mut found = BTreeSet::new();
    for kind in ["clusterrolebindings", "rolebindings"] {
        let bindings = chart.admin.get(&format!("{rbac}/{kind}")).await.done().unwrap();
        let bindings = list(&bindings, "items");
        for binding in bindings.iter().filter(|binding| list(binding, "subjects").contains(&own)) {
            let (role, namespace) = (&binding["roleRef"], binding["metadata"]["namespace"].as_str());
            let name = role["name"].as_str().unwrap();
            let path = match (role["kind"].as_str(), namespace) {
                (Some("Role"), Some(namespace)) => format!("{rbac}/namespaces/{namespace}/roles/{name}"),
                _ => format!("{rbac}/clusterroles/{name}"),
            };
            let rules = list(&chart.admin.get(&path).await.done().unwrap(), "rules");
            for rule in &rules {
                found.extend(written(rule, namespace));
            }
        }
    }
    found
}

/// What one rule permits to write, each as `VERB RESOURCE.GROUP/NAME in NAMESPACE`.
fn written(rule: &Value, namespace: Option<&str>) -> Vec<String> {
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(rule[key].clone()).unwrap_or_default() };
    let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    let mut names: Vec<_> = texts("resourceNames").iter().map(|name| format!("/{name}")).collect();
    if names.is_empty() {
        names.push(String::new());
    }
    let mut found = Vec::new();
    for verb in texts("verbs").iter().filter(|verb| !["get", "list", "watch"].contains(&verb.as_str())) {
        for group in texts("apiGroups").iter().filter(|group| *group != "kubemoor.dev") {
            for resource in texts("resources") {
                found.extend(names.iter().map(|name| format!("{verb} {resource}.{group}{name}{place}")));
            }
        }
    }
    found
}

/// Nothing can be written beside what is listed, while nothing enforces.
async fn writes_little(chart: &Installed<'_>, rights: &[&str]) {
    if !rights.contains(&"patch deployments.apps") {
        let listed: BTreeSet<_> = WRITES.map(str::to_owned).into();
        assert_eq!(writes(chart).await, listed);
    } else {
        assert!(writes(chart).await.len() > WRITES.len());
    }
}

/// No role of the chart holds a wildcard.
pub(crate) async fn names_everything(chart: &Installed<'_>) {
    for kind in ["clusterroles", "roles"] {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/{kind}?labelSelector=app.kubernetes.io/name=kubemoor"
        );
        let roles = chart.admin.get(&path).await.done().unwrap();
        let roles = roles["items"].as_array().unwrap();
        assert!(roles.len() >= 2, "{roles:?}");
        for rule in roles.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
            for key in ["apiGroups", "resources", "verbs"] {
                let values = rule[key].as_array().into_iter().flatten();
                assert!(values.into_iter().all(|value| !value.as_str().unwrap().contains('*')), "{rule}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rights_follow_the_values_on_upgrade_and_rollback() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    let widgets = json!([{"apiGroup": "example.org", "resources": ["widgets"]}]);
    let nothing: &[&str] = &["get secrets"];
    let arbiter: &[&str] = &["get secrets", "patch deployments.apps", "create configmaps"];
    let repair: &[&str] =
        &["get secrets", "patch deployments.apps", "create configmaps", "delete configmaps"];
    let steps: [(Value, &[&str]); 9] = [
        (json!({"edits": "Record"}), nothing),
        (json!({"edits": "Deny"}), arbiter),
        (json!({"edits": "Revert", "drift": "Ignore"}), arbiter),
        (json!({"drift": "Repair"}), repair),
        (json!({"policies": [{"name": "all", "spec": {"edits": "Deny"}}]}), arbiter),
        (json!({"rights": {"customResources": widgets}}), &["get secrets", "get widgets.example.org"]),
        (json!({"rights": {"enforce": true}}), repair),
        (json!({"rights": {"privileged": true, "customResources": widgets}}), &RIGHTS),
        (json!({"edits": "Allow"}), nothing),
    ];
    chart.install(json!({})).await.unwrap();
    has(&chart, nothing).await;
    writes_little(&chart, nothing).await;
    names_everything(&chart).await;
    for (values, rights) in &steps {
        chart.upgrade(values.clone()).await.unwrap_or_else(|error| panic!("{values}: {error}"));
        has(&chart, rights).await;
        writes_little(&chart, rights).await;
        names_everything(&chart).await;
    }
    // Revision 9 had every right, revision 1 none.
    chart.helm.rollback(HOME, "kubemoor", json!({"version": 9})).await.unwrap();
    has(&chart, &RIGHTS).await;
    chart.helm.rollback(HOME, "kubemoor", json!({"version": 1})).await.unwrap();
    has(&chart, nothing).await;
    writes_little(&chart, nothing).await;
}

/// Who is bound to `role` in a namespace may do this there.
async fn person_may(chart: &Installed<'_>, role: &str, right: &str) -> bool {
    let (verb, resource) = right.split_once(' ').unwrap();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("{role}-person"),
            "resourceAttributes": {
                "namespace": ELSEWHERE, "verb": verb, "group": "kubemoor.dev", "resource": resource,
            },
        },
    });
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    chart.admin.post(reviews, &review).await.done().unwrap()["status"]["allowed"] == true
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn people_get_the_roles_that_the_values_add_them_to() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({})).await.unwrap();
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{ELSEWHERE}/rolebindings");
    let roles = [
        "view",
        "edit",
        "admin",
        "kubemoor-auditor",
        "kubemoor-viewer",
        "kubemoor-operator",
        "kubemoor-exceptions",
    ];
    for role in roles {
        let binding = json!({
            "metadata": {"name": format!("{role}-person")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{role}-person")}],
        });
        chart.admin.post(&bindings, &binding).await.done().unwrap();
    }
    let (read, order, except) = ("list guardedreleases", "patch guardedreleases", "create driftallowances");
    let check = async |role: &str, wanted: &[&str]| {
        eventually(&format!("{role} may {wanted:?}"), SOON, || async {
            let mut found = Vec::new();
            for right in [read, order, except] {
                if person_may(&chart, role, right).await {
                    found.push(right);
                }
            }
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    };
    check("view", &[read]).await;
    check("edit", &[read, order]).await;
    check("admin", &[read, order, except]).await;
    check("kubemoor-auditor", &[read]).await;
    check("kubemoor-viewer", &[read]).await;
    check("kubemoor-operator", &[read, order]).await;
    check("kubemoor-exceptions", &[except]).await;

    let nobody = json!({"viewer": "", "operator": "", "exceptions": "", "auditor": ""});
    chart.upgrade(json!({"roles": {"aggregateTo": nobody}})).await.unwrap();
    check("admin", &[]).await;
    check("kubemoor-operator", &[read, order]).await;
    chart.upgrade(json!({"roles": {"create": false}})).await.unwrap();
    check("kubemoor-operator", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emergency_role_permits_only_the_emergency_switch() {
    let house = House::shared().await;
    let (control_plane, chart) = (house.control_plane, &house.chart);
    let binding = json!({
        "metadata": {"name": "dan-in-an-emergency"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubemoor-emergency"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dan"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    chart.admin.post(bindings, &binding).await.done().unwrap();
    let emergency = |command: &str| {
        let ran = moor(control_plane, Identity::Admin, &["emergency", command, "--as", "dan"]);
        (ran.code, ran)
    };
    eventually("the role is in force", SOON, || async {
        let (code, ran) = emergency("status");
        if code == 0 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    for (command, expected) in [("open", 0), ("status", 1), ("close", 0), ("status", 0)] {
        let (code, ran) = emergency(command);
        assert_eq!(code, expected, "{command}: {ran:?}");
    }
    // The same with kubectl alone, by the lines of the page.
    let others = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let registered = format!("{others}/kubemoor");
    let answer = async || chart.admin.get(&registered).await.code;
    eventually("the guard is registered", SOON, || async { answer().await == 200 }).await;
    let blocks = Document::named("docs/operations.md").blocks();
    let is_meant = |block: &&Block| {
        block.heading == "## The emergency switch" && block.text.starts_with("kubectl create")
    };
    let by_kubectl = blocks.iter().find(is_meant).unwrap();
    let shell = Shell::new(control_plane);
    let by_dan = |statement: &Statement| {
        let line = statement.line.replace("kubectl ", "kubectl --as=dan ");
        let ran = shell.run(Identity::Admin, &Statement { line, input: statement.input.clone() });
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    let lines = statements(&by_kubectl.text);
    let [open, close] = &lines[..] else { panic!("{}", by_kubectl.text) };
    by_dan(open);
    // A guard that had not seen the marker creates it again and deletes it.
    eventually("it is deleted", SOON, || async { answer().await == 404 }).await;
    assert_eq!(emergency("status").0, 1);
    by_dan(close);
    assert_eq!(emergency("status").0, 0);
    eventually("the guard registers again", SOON, || async { answer().await == 200 }).await;
    // The configuration of another webhook is not theirs to take away.
    let other = json!({"metadata": {"name": "another-guard"}, "webhooks": []});
    chart.admin.post(others, &other).await.done().unwrap();
    let deletion = ["delete", "validatingwebhookconfiguration", "another-guard", "--as=dan"];
    let refused = control_plane.kubectl(Identity::Admin, &deletion);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("forbidden"), "{refused:?}");
    // The next test finds nothing of it.
    for path in [format!("{others}/another-guard"), format!("{bindings}/dan-in-an-emergency")] {
        chart.admin.delete(&path).await.done().unwrap();
    }
}
