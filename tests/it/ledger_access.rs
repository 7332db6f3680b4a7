//! Who may read the ledger of a real guard through its API, and how.

use serde_json::{Value, json};

use crate::ledger_audit::DeniedRelease;
use crate::support::{Caller, ControlPlane, Guard, Identity, SOON, eventually};

/// The code and the body of the guard's answer.
async fn ask(guard: &Guard, token: Option<&str>, query: &str) -> (u16, Value) {
    let request = guard.https().get(guard.admin_url(&format!("/api/v1/ledger{query}")));
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Allows a user to list the GuardedReleases of a namespace.
async fn let_list(user: &str, namespace: &str) {
    let admin = Caller::new(ControlPlane::get(), Identity::Admin).await;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["kubemoor.dev"], "resources": ["guardedreleases"], "verbs": ["list"]}],
    });
    admin.post(&format!("{rbac}/roles"), &role).await.done().unwrap();
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_the_ledger_requires_permission_to_list_guarded_releases() {
    let DeniedRelease { shop, .. } = DeniedRelease::install("audit-rights").await;
    let here = format!("?namespace={}", shop.namespace);
    let nowhere = "?namespace=there-is-no-such-namespace";
    let plain = Identity::Autoscaler.token();
    let guard = shop.guard();

    for token in [None, Some("made-up"), Some("")] {
        assert_eq!(ask(guard, token, &here).await.0, 401, "{token:?}");
    }
    let forbidden = ask(guard, Some(plain), &here).await;
    assert_eq!(forbidden.0, 403, "{forbidden:?}");
    // The same answer, whether or not there is anything.
    for query in [nowhere, "", &format!("{here}&release=shop"), &format!("{here}&release=none")] {
        assert_eq!(ask(guard, Some(plain), query).await, forbidden, "{query}");
    }

    let_list(Identity::Autoscaler.user(), &shop.namespace).await;
    let page = eventually("the right counts", SOON, || async {
        let (code, page) = ask(guard, Some(plain), &here).await;
        (code == 200 && !page["items"].as_array().unwrap().is_empty()).then_some(page)
    })
    .await;
    let foreign = |row: &&Value| row["namespace"] != shop.namespace.as_str();
    assert!(!page["items"].as_array().unwrap().iter().any(|row| foreign(&row)), "{page}");
    // There, and nowhere else.
    assert_eq!(ask(guard, Some(plain), "").await, forbidden);
    assert_eq!(ask(guard, Some(plain), nowhere).await, forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_is_read_page_by_page_and_refuses_invalid_queries() {
    let denied = DeniedRelease::install("audit-pages").await;
    denied.wait_for_records().await;
    let (guard, admin) = (denied.shop.guard(), Some(Identity::Admin.token()));
    for query in [
        "?limit=0",
        "?limit=1001",
        "?since=yesterday",
        "?until=tomorrow",
        "?continue=x",
        "?nmespace=shop",
        "?verdict=Denied",
        "?verdict=Deny,",
        "?operation=PATCH",
        "?object=web",
    ] {
        let (code, body) = ask(guard, admin, query).await;
        assert_eq!((code, &body["kind"]), (400, &json!("Status")), "{query}: {body}");
    }
    let (code, page) = ask(guard, admin, "?limit=1").await;
    assert_eq!((code, page["items"].as_array().unwrap().len()), (200, 1));
    let next = format!("?limit=1&continue={}", page["continue"].as_str().unwrap());
    let (_, next) = ask(guard, admin, &next).await;
    assert_ne!(page["items"][0]["id"], next["items"][0]["id"]);
}
