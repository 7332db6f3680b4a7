//! Users with exactly the rights that a test gives them.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::kubeconfigs::changed;
use super::moor::{Ran, run};
use super::wait::{SOON, eventually};

/// Where the accounts are, which have no other rights there than elsewhere.
const HOME: &str = "default";

/// Some verbs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RbacRule {
    pub(crate) verbs: Vec<String>,
    /// The plural.
    pub(crate) resource: String,
    /// Empty for the core group.
    pub(crate) group: String,
}

/// A service account: a real user of the API server, with a token of its own.
pub(crate) struct Member {
    admin: Caller,
    name: String,
    pub(crate) kubeconfig: PathBuf,
}

impl Member {
    /// A new one, who may do nothing but what every user may.
    pub(crate) async fn new(control_plane: &ControlPlane) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("member-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let accounts = format!("/api/v1/namespaces/{HOME}/serviceaccounts");
        admin.post(&accounts, &json!({"metadata": {"name": name}})).await.done().unwrap();
        let path = format!("{accounts}/{name}/token");
        let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = admin.post(&path, &kind).await.done().unwrap()["status"]["token"].clone();
        let kubeconfig = changed(&control_plane.kubeconfig(Identity::Admin), |config| {
            config["users"][0]["user"] = json!({"token": token});
        });
        Self { admin, name, kubeconfig }
    }

    /// Gives rights in a namespace (`None`: in the whole cluster), once, and waits until they count.
    pub(crate) async fn may(&self, rights: &[RbacRule], namespace: Option<&str>) {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let api = "/apis/rbac.authorization.k8s.io/v1";
        let place =
            namespace.map_or_else(|| api.to_owned(), |namespace| format!("{api}/namespaces/{namespace}"));
        let plural = kind.to_lowercase();
        let rule = |right: &RbacRule| json!({"apiGroups": [right.group], "resources": [right.resource], "verbs": right.verbs});
        let rules: Vec<_> = rights.iter().map(rule).collect();
        let metadata = json!({"name": self.name});
        let role = json!({"metadata": metadata, "rules": rules});
        self.admin.post(&format!("{place}/{plural}s"), &role).await.done().unwrap();
        self.bind(&format!("{place}/{plural}bindings"), kind, &self.name).await;
        for right in rights {
            for verb in &right.verbs {
                let what = format!("{} may {verb} {}", self.name, right.resource);
                eventually(&what, SOON, || self.is_allowed(right, verb, namespace)).await;
            }
        }
    }

    /// Gives a role that the cluster has, in all namespaces.
    pub(crate) async fn has_role(&self, role: &str) {
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.bind(bindings, "ClusterRole", role).await;
    }

    /// Takes the rights in a namespace away.
    pub(crate) async fn may_no_more(&self, namespace: &str) {
        self.admin.delete(&format!("{}/{}", bindings(namespace), self.name)).await.done().unwrap();
    }

    /// Gives the rights in a namespace back that were taken away.
    pub(crate) async fn may_again(&self, namespace: &str) {
        self.bind(&bindings(namespace), "Role", &self.name).await;
    }

    /// The user's bearer token.
    pub(crate) fn token(&self) -> String {
        let config: Value = serde_json::from_str(&fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        config["users"][0]["user"]["token"].as_str().unwrap().to_owned()
    }

    /// Takes the account away, and its token with it.
    pub(crate) async fn delete(&self) {
        let path = format!("/api/v1/namespaces/{HOME}/serviceaccounts/{}", self.name);
        self.admin.delete(&path).await.done().unwrap();
    }

    /// The user's plain requests.
    pub(crate) async fn caller(&self) -> Caller {
        Caller::with(&self.kubeconfig).await
    }

    /// Runs `kubemoor` as this user.
    pub(crate) fn moor(&self, arguments: &[&str], input: &str) -> Ran {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        run(&[arguments, &[kubeconfig.as_str()]].concat(), input)
    }

    async fn bind(&self, bindings: &str, kind: &str, role: &str) {
        let binding = json!({
            "metadata": {"name": self.name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": HOME, "name": self.name}],
        });
        self.admin.post(bindings, &binding).await.done().unwrap();
    }

    async fn is_allowed(&self, right: &RbacRule, verb: &str, namespace: Option<&str>) -> bool {
        let attributes = json!({
            "namespace": namespace.unwrap_or_default(), "verb": verb, "group": right.group, "resource": right.resource,
        });
        let user = format!("system:serviceaccount:{HOME}:{}", self.name);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        });
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        self.admin.post(reviews, &review).await.done().unwrap()["status"]["allowed"] == true
    }
}

impl RbacRule {
    /// Reads `VERB,VERB RESOURCE.GROUP`.
    pub(crate) fn parse(text: &str) -> Self {
        let (verbs, resource) = text.split_once(' ').unwrap_or_else(|| panic!("{text:?} is no right"));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let verbs = verbs.split(',').map(str::to_owned).collect();
        Self { verbs, resource: resource.to_owned(), group: group.to_owned() }
    }
}

/// Where the bindings of roles in a namespace are.
fn bindings(namespace: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
}
