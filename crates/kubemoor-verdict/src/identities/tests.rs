use crate::identities::*;

const NAMESPACES: &str = "system:serviceaccount:kube-system:namespace-controller";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const TTL: &str = "system:serviceaccount:kube-system:ttl-after-finished-controller";
const JOBS: &str = "system:serviceaccount:kube-system:job-controller";
const POD_COLLECTOR: &str = "system:serviceaccount:kube-system:pod-garbage-collector";
const NODES: &str = "system:serviceaccount:kube-system:node-controller";
const TAINTS: &str = "system:serviceaccount:kube-system:taint-eviction-controller";
const AGGREGATION: &str = "system:serviceaccount:kube-system:clusterrole-aggregation-controller";
const BINDER: &str = "system:serviceaccount:kube-system:persistent-volume-binder";
const AUTOSCALER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
const STATEFULSETS: &str = "system:serviceaccount:kube-system:statefulset-controller";

const AUTOSCALED: Autoscaler = Autoscaler { minimum: 1, maximum: 9, by_keda: false, declared_by: Vec::new() };

fn actor(user: &str) -> Actor {
    Actor { user: user.to_owned(), groups: vec!["system:masters".to_owned()], ..Actor::default() }
}

fn object(kind: &str) -> ObjectId {
    let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
    ObjectId::namespaced(group, kind, "shop", "web")
}

#[test]
fn each_controller_deletes_what_it_is_there_for() {
    #[track_caller]
    fn check(user: &str, kind: &str, wanted: bool) {
        assert_eq!(deletes(&actor(user), &object(kind)), wanted, "{user} {kind}");
    }
    for kind in ["Secret", "apps/Deployment", "batch/Job", "Pod", "example.org/Thing"] {
        check(NAMESPACES, kind, true);
        check(COLLECTOR, kind, true);
        check(ALL_CONTROLLERS, kind, true);
        check(TTL, kind, kind == "batch/Job");
        for account in [JOBS, POD_COLLECTOR, NODES, TAINTS] {
            check(account, kind, kind == "Pod");
        }
        for account in [AGGREGATION, BINDER, AUTOSCALER, STATEFULSETS] {
            check(account, kind, false);
        }
    }
    check(BINDER, "PersistentVolume", true);
    check(BINDER, "PersistentVolumeClaim", false);
    check(TTL, "example.org/Job", false);
}

#[test]
fn users_that_delete_everything_may_delete_any_kind() {
    let users: Vec<_> = delete_everything().collect();
    assert_eq!(users, [ALL_CONTROLLERS, NAMESPACES, COLLECTOR]);
    for user in &users {
        assert!(deletes(&actor(user), &object("example.org/Thing")), "{user}");
    }
}

#[test]
fn nobody_else_is_a_controller() {
    for user in [
        "",
        "alice",
        "system:admin",
        "namespace-controller",
        "system:serviceaccount:shop:namespace-controller",
        "system:serviceaccount:kube-system:namespace-controller2",
        "system:serviceaccount:kube-system:x:namespace-controller",
        "system:serviceaccount:kube-system",
        "system:kube-controller-manager2",
        "system:kube-scheduler",
    ] {
        assert!(!deletes(&actor(user), &object("Pod")), "{user}");
        let path = "/rules".parse().unwrap();
        assert!(!writes(&actor(user), &object("rbac.authorization.k8s.io/ClusterRole"), &path), "{user}");
        assert!(!autoscales(&actor(user), &AUTOSCALED), "{user}");
    }
}

#[test]
fn each_controller_writes_what_it_is_there_for() {
    #[track_caller]
    fn check(user: &str, kind: &str, path: &str, wanted: bool) {
        let path: Path = path.parse().unwrap();
        assert_eq!(writes(&actor(user), &object(kind), &path), wanted, "{user} {kind} {path}");
    }
    let role = "rbac.authorization.k8s.io/ClusterRole";
    for user in [AGGREGATION, ALL_CONTROLLERS] {
        check(user, role, "/rules", true);
        check(user, role, "/rules/[a=b]/verbs", true);
        check(user, role, "/rulesets", false);
        check(user, role, "/metadata/labels/rules", false);
        check(user, "rbac.authorization.k8s.io/Role", "/rules", false);
        check(user, "example.org/ClusterRole", "/rules", false);
    }
    for user in [BINDER, ALL_CONTROLLERS] {
        check(user, "PersistentVolumeClaim", "/spec/volumeName", true);
        check(user, "PersistentVolumeClaim", "/spec/storageClassName", true);
        check(user, "PersistentVolumeClaim", "/spec/resources", false);
        check(user, "PersistentVolume", "/spec/claimRef/uid", true);
        check(user, "PersistentVolume", "/spec/capacity", false);
    }
    for user in [COLLECTOR, ALL_CONTROLLERS] {
        check(user, "apps/Deployment", "/metadata/ownerReferences", true);
        check(user, "apps/Deployment", "/metadata/finalizers/[=a]", true);
        check(user, "apps/Deployment", "/metadata", false);
        check(user, "apps/Deployment", "/metadata/labels/a", false);
    }
    check(NAMESPACES, "apps/Deployment", "/spec/replicas", false);
    check(STATEFULSETS, "apps/StatefulSet", "/spec/replicas", false);
}

#[test]
fn autoscalers_scale_and_keda_where_it_made_the_autoscaler() {
    let kedas = Autoscaler { by_keda: true, ..AUTOSCALED };
    for user in [AUTOSCALER, ALL_CONTROLLERS] {
        assert!(autoscales(&actor(user), &AUTOSCALED) && autoscales(&actor(user), &kedas), "{user}");
    }
    let keda = actor("system:serviceaccount:keda:keda-operator");
    assert!(autoscales(&keda, &kedas));
    assert!(!autoscales(&keda, &AUTOSCALED));
    assert!(!autoscales(&actor("system:serviceaccount:shop:keda-operator"), &kedas));
    assert!(!autoscales(&actor("alice"), &kedas));
}
