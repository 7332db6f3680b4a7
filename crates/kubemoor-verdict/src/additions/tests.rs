use serde_json::json;

use crate::additions::*;
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::declare::declare;
use kubemoor_helm::release::gvk;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;

const CONTAINERS: &str = "f:containers";

fn deployment(containers: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "spec": {"template": {"spec": {"containers": containers}}},
    })
}

fn id(object: &Value) -> ObjectId {
    let gvk = gvk(object);
    ObjectId {
        group: gvk.group.into(),
        kind: gvk.kind.into(),
        namespace: Some("shop".into()),
        name: "web".into(),
    }
}

fn declared() -> (Value, DeclaredFields) {
    let manifest = deployment(json!([{"name": "app", "image": "a"}]));
    let fields = declare(&manifest, Catalog::with_core().schema(&gvk(&manifest)).as_deref());
    (manifest, fields)
}

fn seal(fields: &DeclaredFields) -> Seal {
    let mut seal = Seal::default();
    seal.add(&Mask(vec![Pattern::parse("*").unwrap()]), fields);
    seal
}

/// An object with a second container that this manager holds, beside Helm's own entry.
fn managed(manager: &str, operation: &str) -> Value {
    let mut live =
        deployment(json!([{"name": "app", "image": "a", "command": ["sh"]}, {"name": "side", "image": "s"}]));
    let label = json!({"f:labels": {"f:app.kubernetes.io/managed-by": {}}});
    let side = json!({"f:template": {"f:spec": {CONTAINERS: {
        "k:{\"name\":\"side\"}": {".": {}, "f:image": {}, "f:name": {}},
        "k:{\"name\":\"app\"}": {"f:command": {}},
    }}}});
    live["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": label}},
        {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": side}},
    ]);
    live
}

const SIDE: &str = "/spec/template/spec/containers/[name=side]";
const COMMAND: &str = "/spec/template/spec/containers/[name=app]/command";

#[test]
fn managers_tell_which_additions_of_a_live_object_are_drift() {
    let (_, fields) = declared();
    let check = |live: &Value, wanted: &[&str]| {
        let found = drift(&id(live), &fields, &seal(&fields), live);
        let found: Vec<String> = found.into_iter().map(|change| change.path.to_string()).collect();
        assert_eq!(found, wanted, "{live}");
    };
    check(&managed("kubectl-edit", "Update"), &[COMMAND, SIDE]);
    check(&managed("argo-rollouts", "Apply"), &[]);
    check(&managed("kube-controller-manager", "Update"), &[]);
    // What Helm left behind; a field of it may be a default.
    check(&managed("helm", "Update"), &[SIDE]);
    // A webhook.
    let mut injected = managed("kubectl-edit", "Update");
    injected["metadata"]["managedFields"].as_array_mut().unwrap().truncate(1);
    check(&injected, &[]);
    let mut unmanaged = injected;
    unmanaged["metadata"]["managedFields"] = json!([]);
    check(&unmanaged, &[SIDE]);
    assert_eq!(drift(&id(&unmanaged), &fields, &Seal::default(), &unmanaged), []);
}

#[test]
fn changing_an_injected_elements_field_does_not_claim_the_element() {
    let (_, fields) = declared();
    let check = |owned: Value, wanted: &[(&str, FieldAgreement)]| {
        let mut live = managed("kubectl-edit", "Update");
        let owned = json!({"f:template": {"f:spec": {CONTAINERS: owned}}});
        live["metadata"]["managedFields"][1]["fieldsV1"] = json!({"f:spec": owned});
        let found = drift(&id(&live), &fields, &seal(&fields), &live);
        let found: Vec<_> = found.into_iter().map(|it| (it.path.to_string(), it.agreement)).collect();
        let wanted: Vec<_> = wanted.iter().map(|(path, it)| ((*path).to_owned(), *it)).collect();
        assert_eq!(found, wanted, "{live}");
    };
    let side = "k:{\"name\":\"side\"}";
    let image = format!("{SIDE}/image");
    check(json!({side: {"f:image": {}}}), &[(&image, FieldAgreement::Within)]);
    check(json!({side: {".": {}, "f:image": {}}}), &[(SIDE, FieldAgreement::Added)]);
    check(json!({side: {}}), &[(SIDE, FieldAgreement::Added)]);
    check(json!({side: {"f:gone": {}}}), &[]);
}

#[test]
fn appliers_may_add_and_nobody_else() {
    let (old, fields) = declared();
    let check = |new: &Value, wanted: usize| {
        assert_eq!(of_edit(&id(new), &fields, &seal(&fields), Some(&old), new).len(), wanted, "{new}");
        assert_eq!(of_edit(&id(new), &fields, &Seal::default(), Some(&old), new), []);
    };
    check(&managed("kubectl-edit", "Update"), 2);
    check(&managed("kubectl", "Apply"), 0);
    // Only a dry run tells of a webhook.
    let side: Path = SIDE.parse().unwrap();
    let is_servers = |canonical: &Value, new: &Value, sent: (model::Operation, bool)| {
        let mut found = vec![Addition { path: side.clone(), old: None, new, is_member: true }];
        drop_server_additions(&mut found, canonical, sent);
        found.is_empty()
    };
    let by_hand = managed("kubectl-edit", "Update");
    let same = side.get(&by_hand)[0].clone();
    let other = json!({"name": "side", "image": "mine"});
    let mut injected = by_hand.clone();
    injected["metadata"]["managedFields"].as_array_mut().unwrap().truncate(1);
    let (create, update) = ((model::Operation::Create, false), (model::Operation::Update, false));
    let pending = (model::Operation::Update, true);
    for (canonical, new, sent, wanted) in [
        (&injected, &same, update, true),
        // The name of what a webhook adds is nobody's leave to add something else by it.
        (&injected, &other, update, false),
        (&injected, &other, pending, false),
        (&injected, &other, create, true),
        (&by_hand, &same, update, false),
        (&by_hand, &same, create, false),
        // A webhook has changed in Helm's own request what somebody once wrote.
        (&by_hand, &same, pending, true),
        (&by_hand, &other, pending, false),
        (&old, &same, create, false),
        (&old, &same, pending, false),
    ] {
        assert_eq!(is_servers(canonical, new, sent), wanted, "{new} {sent:?} of {canonical}");
    }
    // Nobody owns what a webhook or the server adds in the request itself.
    check(&injected, 0);
    let mut odd = injected.clone();
    odd["metadata"]["managedFields"].as_array_mut().unwrap().push(json!({"operation": "?"}));
    check(&odd, 2);
    odd["metadata"]["managedFields"] = json!([]);
    check(&odd, 2);
    // In another version of the kind it may be owned under another name.
    let mut elsewhere = injected.clone();
    elsewhere["metadata"]["managedFields"][0]["apiVersion"] = json!("extensions/v1beta1");
    check(&elsewhere, 2);
    elsewhere["metadata"]["managedFields"][0]["apiVersion"] = elsewhere["apiVersion"].clone();
    check(&elsewhere, 0);
}

#[test]
fn owner_of_an_empty_map_does_not_own_later_additions() {
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {},
    });
    let fields = declare(&manifest, Catalog::with_core().schema(&gvk(&manifest)).as_deref());
    let mut new = manifest.clone();
    new["data"]["k"] = json!("v");
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields});
    let helm = json!({"f:data": {}, "f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}});
    let by = |operation: &str, other: Option<(&str, &str)>| {
        let others = other.map(|(name, operation)| entry(name, operation, json!({"f:data": {"f:k": {}}})));
        let mut new = new.clone();
        let helms = [entry("helm", operation, helm.clone())];
        new["metadata"]["managedFields"] = helms.into_iter().chain(others).collect();
        new
    };
    let check = |new: &Value, wanted: usize| {
        let found = of_edit(&id(new), &fields, &seal(&fields), Some(&manifest), new);
        assert_eq!(found.len(), wanted, "{new}");
        assert_eq!(drift(&id(new), &fields, &seal(&fields), new).len(), wanted, "{new}");
    };
    check(&by("Apply", Some(("kubectl-edit", "Update"))), 1);
    check(&by("Update", Some(("kubectl-edit", "Update"))), 1);
    check(&by("Apply", Some(("other", "Apply"))), 0);
    // A webhook.
    check(&by("Apply", None), 0);
    check(&by("Update", None), 0);
}

#[test]
fn fields_set_by_controllers_are_not_additions() {
    let (old, fields) = declared();
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({
        "deployment.kubernetes.io/revision": "2", "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "meta.helm.sh/release-name": "web", "kubemoor.dev/allow": "*", "mine": "yes",
    });
    new["metadata"]["finalizers"] = json!(["a/b"]);
    new["metadata"]["generation"] = json!(3);
    new["status"] = json!({"replicas": 1});
    new["spec"]["paused"] = json!(true);
    new["spec"]["template"]["metadata"] =
        json!({"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}});
    let found = of_edit(&id(&new), &fields, &seal(&fields), Some(&old), &new);
    let found: Vec<String> = found.into_iter().map(|it| it.path.to_string()).collect();
    assert_eq!(found, ["/metadata/annotations/mine"]);
}

#[test]
fn undone_addition_leaves_no_trace() {
    let check = |path: &str, old: Option<Value>, object: Value, wanted: Value| {
        let mut result = object.clone();
        let path: Path = path.parse().unwrap();
        match &old {
            Some(old) => undo(&path, old, &mut result),
            None => result = take_away([&path], &result),
        }
        assert_eq!(result, wanted, "{path} of {object}");
    };
    let list =
        |names: &[&str]| json!({"a": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    check("/a/[name=y]", None, list(&["x", "y"]), list(&["x"]));
    check("/a/[name=y]", Some(list(&["x"])), list(&["y", "x"]), list(&["x"]));
    check("/a/[name=y]", Some(json!({})), list(&["y"]), json!({}));
    check("/a/b", None, json!({"a": {"b": 1}}), json!({"a": {}}));
    check("/a/b", Some(json!({})), json!({"a": {"b": 1}}), json!({}));
    check("/a/b", Some(json!({"a": {"b": 2}})), json!({"a": {"b": 1}}), json!({"a": {"b": 2}}));
    check("/a/[=y]", Some(json!({"a": ["x"]})), json!({"a": ["y", "x"]}), json!({"a": ["x"]}));
    check("/n/[name=y]/b", None, json!({"n": [{"name": "y", "b": 1}]}), json!({"n": [{"name": "y"}]}));
    check("/none/b", None, json!({"a": 1}), json!({"a": 1}));
    check("/a/[=y]", None, json!({"a": ["y", "x"]}), json!({"a": ["x"]}));
    check("/a/[port=80]", None, json!({"a": [{"port": "80"}, {"port": 81}]}), json!({"a": [{"port": 81}]}));
}

#[test]
fn outputs_of_controllers_are_no_additions() {
    let check = |manifest: Value, at: &str, value: Value, wanted: usize| {
        let fields = declare(&manifest, Catalog::with_core().schema(&gvk(&manifest)).as_deref());
        let mut new = manifest.clone();
        let (above, name) = at.rsplit_once('/').unwrap();
        new.pointer_mut(above).unwrap()[name] = value;
        let found = of_edit(&id(&new), &fields, &seal(&fields), Some(&manifest), &new);
        assert_eq!(found.len(), wanted, "{new}");
    };
    let role = |more: Value| {
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "web"}});
        role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        role
    };
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let aggregated = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    check(role(aggregated), "/rules", rules.clone(), 0);
    check(role(json!({})), "/rules", rules, 1);
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "web"},
        "spec": {"group": "e.org", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
    });
    check(service.clone(), "/spec/caBundle", json!("Q0E="), 0);
    check(service, "/spec/insecureSkipTLSVerify", json!(true), 1);
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "web"}, "webhooks": [{"name": "a.e.org", "clientConfig": {"url": "https://a"}}],
    });
    check(hook, "/webhooks/0/clientConfig/caBundle", json!("Q0E="), 0);
}

#[test]
fn names_of_controllers_are_taken_whole() {
    let (old, fields) = declared();
    let check = |name: &str, wanted: usize| {
        let mut new = old.clone();
        new["metadata"]["labels"][name] = json!("x");
        let found = of_edit(&id(&new), &fields, &seal(&fields), Some(&old), &new);
        assert_eq!(found.len(), wanted, "{name}");
    };
    check("job-name", 0);
    check("job-names", 1);
    check("controller-uid-2", 1);
    check("batch.kubernetes.io/controller-uid", 0);
}
