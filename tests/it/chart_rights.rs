//! What the guard's account may do is what the values of the chart enable, and no more after the next change.

use serde_json::{Value, json};

use crate::support::{ControlPlane, HOME, Identity, Installed, SOON, eventually, moor};

/// A namespace that is not the guard's.
const ELSEWHERE: &str = "default";

/// `VERB RESOURCE.GROUP`, asked for the guard's account.
async fn may(chart: &Installed<'_>, right: &str) -> bool {
    let (verb, resource) = right.split_once(' ').unwrap();
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{HOME}:kubemoor"),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{HOME}"), "system:authenticated"],
            "resourceAttributes": {"namespace": ELSEWHERE, "verb": verb, "group": group, "resource": resource},
        },
    });
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    chart.admin.post(reviews, &review).await.done().unwrap()["status"]["allowed"] == true
}

/// Everything that some value enables.
const RIGHTS: [&str; 8] = [
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

/// No role of the chart holds a wildcard.
async fn names_everything(chart: &Installed<'_>) {
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
    names_everything(&chart).await;
    for (values, rights) in &steps {
        chart.upgrade(values.clone()).await.unwrap_or_else(|error| panic!("{values}: {error}"));
        has(&chart, rights).await;
        names_everything(&chart).await;
    }
    // Revision 9 had every right, revision 1 none.
    chart.helm.rollback(HOME, "kubemoor", json!({"version": 9})).await.unwrap();
    has(&chart, &RIGHTS).await;
    chart.helm.rollback(HOME, "kubemoor", json!({"version": 1})).await.unwrap();
    has(&chart, nothing).await;
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
async fn emergency_role_suffices_for_the_emergency_switch_and_for_nothing_else_of_it() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({})).await.unwrap();
    let binding = json!({
        "metadata": {"name": "dan-in-an-emergency"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubemoor-emergency"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dan"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    chart.admin.post(bindings, &binding).await.done().unwrap();
    let emergency = |command: &str| {
        let ran = moor(&control_plane, Identity::Admin, &["emergency", command, "--as", "dan"]);
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
    // The configuration of another webhook is not theirs to take away.
    let others = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let other = json!({"metadata": {"name": "another-guard"}, "webhooks": []});
    chart.admin.post(others, &other).await.done().unwrap();
    let deletion = ["delete", "validatingwebhookconfiguration", "another-guard", "--as=dan"];
    let refused = control_plane.kubectl(Identity::Admin, &deletion);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("forbidden"), "{refused:?}");
}
