use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::sample_releases::deployed;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::DeclaredObject;
use kubemoor_policy::pattern::Pattern;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, template: {spec: {containers: [{name: app, image: "app:1"}, {name: log, image: "log:1"}]}}}
"#;

fn declared() -> (ObjectId, Arc<DeclaredObject>) {
    let release = deployed(DEPLOYMENT);
    let (object, declarations) = release.objects.iter().next().unwrap();
    (ObjectId::clone(object), declarations.latest.clone().unwrap())
}

fn live(replicas: Value, containers: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}},
        "spec": {"replicas": replicas, "paused": true, "template": {"spec": {"containers": containers}}},
    })
}

fn image(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "imagePullPolicy": "Always"})
}

#[track_caller]
fn check_merge(live: Value, expected: Option<Value>) {
    let (object, declared) = declared();
    let changes = declared.fields().drift(&live);
    let (fields, moved) = (&declared.fields(), &declared.fields().moved(&live));
    let restoration = Restoration { object: &object, fields, changes: &changes, moved };
    let patch = restoration.merged(&live, None, &Mask::default());
    let expected = expected.map(|mut patch| {
        patch["metadata"] = json!({"resourceVersion": "7"});
        patch
    });
    assert_eq!(patch, expected);
}

#[test]
fn merge_patch_contains_drifted_fields_and_the_judged_version() {
    let (app, log) = (image("app", "app:1"), image("log", "log:1"));
    check_merge(live(json!(2), json!([app, log])), None);
    check_merge(live(json!(5), json!([app, log])), Some(json!({"spec": {"replicas": 2}})));
    check_merge(live(Value::Null, json!([app, log])), Some(json!({"spec": {"replicas": 2}})));
    let sidecar = image("sidecar", "s");
    check_merge(
        live(json!(2), json!([image("app", "evil"), sidecar, log])),
        Some(json!({"spec": {"template": {"spec": {"containers": [app, sidecar, log]}}}})),
    );
}

#[test]
fn a_merge_patch_gives_what_was_moved_its_keys_again() {
    let manifest = DEPLOYMENT.replace(
        "image: \"app:1\"",
        "image: \"app:1\", env: [{name: A, value: \"1\"}], volumeMounts: [{name: c, mountPath: /a}]",
    );
    let release = deployed(&manifest);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let fields = &declarations.latest.as_ref().unwrap().fields();
    let app = |name: &str, path: &str| {
        let mut app = image("app", "app:1");
        app["env"] = json!([{"name": name, "value": "1"}]);
        app["volumeMounts"] = json!([{"name": "c", "mountPath": path}]);
        app
    };
    let log = image("log", "log:1");
    let moved = live(json!(2), json!([app("B", "/b"), log]));
    let restoration =
        Restoration { object, fields, changes: &fields.drift(&moved), moved: &fields.moved(&moved) };
    let patch = restoration.merged(&moved, None, &Mask::default());
    let containers = json!([app("A", "/a"), log]);
    assert_eq!(patch.unwrap()["spec"], json!({"template": {"spec": {"containers": containers}}}));
}

#[test]
fn one_patch_removes_an_excluding_field_and_sets_the_declared_one() {
    let manifest = DEPLOYMENT.replace(
        "template: {spec: {",
        "strategy: {type: Recreate}, template: {spec: {volumes: [{name: v, configMap: {name: c}}], ",
    );
    let manifest = manifest.replace(
        "image: \"app:1\"",
        "image: \"app:1\", env: [{name: E, value: \"\"}], livenessProbe: {httpGet: {port: 80}}",
    );
    let release = deployed(&manifest);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let fields = &declarations.latest.as_ref().unwrap().fields();
    let app = |env: Value, probe: Value| {
        let mut app = image("app", "app:1");
        app["env"] = json!([env]);
        app["livenessProbe"] = probe;
        app
    };
    let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    let log = image("log", "log:1");
    let edited = app(
        json!({"name": "E", "valueFrom": source}),
        json!({"exec": {"command": ["x"]}, "periodSeconds": 9}),
    );
    // The number of replicas excludes nothing: the apply sets it.
    let mut live = live(json!(5), json!([edited, log]));
    live["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    live["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let (changes, moved) = (&fields.drift(&live), &fields.moved(&live));
    let restoration = Restoration { object, fields, changes, moved };
    let patch = restoration.making_room(&live, None, &Mask::default()).unwrap();
    let restored = app(json!({"name": "E"}), json!({"httpGet": {"port": 80}, "periodSeconds": 9}));
    let template = json!({"spec": {
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        "containers": [restored, log],
    }});
    let strategy = json!({"type": "Recreate", "rollingUpdate": null});
    assert_eq!(patch["spec"], json!({"strategy": strategy, "template": template}));
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
}

#[test]
fn one_patch_removes_an_element_with_a_declared_name_and_sets_the_name() {
    let port =
        |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
    let metadata = json!({"name": "web", "resourceVersion": "7"});
    let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}});
    let release = deployed(&service(json!([port("dns", 80, "TCP"), port("web", 81, "TCP")])).to_string());
    let (object, declarations) = release.objects.iter().next().unwrap();
    let fields = &declarations.latest.as_ref().unwrap().fields();
    // The name of the other port excludes nothing: the apply sets it.
    let live = service(json!([port("8081", 80, "TCP"), port("x", 81, "TCP"), port("dns", 80, "UDP")]));
    let (changes, moved) = (&fields.drift(&live), &fields.moved(&live));
    let patch = Restoration { object, fields, changes, moved }.making_room(&live, None, &Mask::default());
    let ports = json!([port("dns", 80, "TCP"), port("x", 81, "TCP")]);
    assert_eq!(patch.unwrap(), json!({"metadata": {"resourceVersion": "7"}, "spec": {"ports": ports}}));
}

#[test]
fn apply_body_keeps_live_values_of_masked_fields() {
    let document = json!({"apiVersion": "apps/v1", "metadata": {}, "spec": {"replicas": 2}});
    let mask = Mask(vec![Pattern::parse("/spec/replicas").unwrap()]);
    let body = applied((&document, &declared().1.fields()), &live(json!(5), json!([])), &mask, |_| false);
    let expected =
        json!({"apiVersion": "apps/v1", "metadata": {"resourceVersion": "7"}, "spec": {"replicas": 5}});
    assert_eq!(body, expected);
}

#[test]
fn apply_body_of_a_secret_writes_no_text_over_masked_bytes() {
    let secret = |texts: Value| json!({"kind": "Secret", "metadata": {}, "stringData": texts});
    let live =
        json!({"kind": "Secret", "metadata": {"resourceVersion": "7"}, "data": {"crt": "Yg==", "a": "YQ=="}});
    let mask = Mask(vec![Pattern::parse("/data/crt").unwrap()]);
    let document = secret(json!({"crt": "", "a": "a"}));
    let mut expected = secret(json!({"a": "a"}));
    expected["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(applied((&document, &declared().1.fields()), &live, &mask, |_| false), expected);
}

#[test]
fn apply_body_holds_no_masked_field_that_the_document_does_not_declare() {
    let containers = |items: Value| json!({"spec": {"containers": items}});
    let document = json!({
        "metadata": {"annotations": {"own": "a"}},
        "spec": {"template": containers(json!([{"name": "app", "image": "app:1"}]))},
    });
    let live = json!({
        "metadata": {"resourceVersion": "7", "annotations": {"own": "b", "other": "c"}},
        "spec": {
            "template": containers(
                json!([{"name": "app", "image": "app:2"}, {"name": "sidecar", "image": "sidecar:1"}])
            ),
            "paused": true,
        },
    });
    let patterns = [
        "/metadata/annotations",
        "/spec/template/spec/containers/*/image",
        "/spec/template/spec/containers/[name=sidecar]",
        "/spec/paused",
    ];
    let mask = Mask(patterns.map(|text| Pattern::parse(text).unwrap()).into());
    let expected = json!({
        "metadata": {"resourceVersion": "7", "annotations": {"own": "b"}},
        "spec": {"template": containers(json!([{"name": "app", "image": "app:2"}]))},
    });
    let fields = &declared().1.fields();
    assert_eq!(applied((&document, fields), &live, &mask, |_| false), expected);
    // Helm's manager owns one of them.
    assert_eq!(applied((&document, fields), &live, &mask, |_| true), live);
}

#[test]
fn apply_body_keeps_masked_parts_of_values_that_are_replaced_as_a_whole() {
    let pods = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let toleration = |key: &str| json!({"key": key, "operator": "Exists"});
    let declared = json!({"nodeSelector": {"pool": "any"}, "tolerations": [toleration("a")]});
    let spec = &pods(declared.clone())["spec"];
    let release =
        deployed(&format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec: {spec}\n"));
    let (_, declarations) = release.objects.iter().next().unwrap();
    let fields = &declarations.latest.as_ref().unwrap().fields();
    let live = pods(json!({
        "nodeSelector": {"pool": "spot", "zone": "x"}, "tolerations": [toleration("a"), toleration("b")],
    }));
    for (pattern, selector, tolerations) in [
        ("nodeSelector", json!({"pool": "spot", "zone": "x"}), json!([toleration("a")])),
        ("nodeSelector/*", json!({"pool": "spot", "zone": "x"}), json!([toleration("a")])),
        ("nodeSelector/zone", json!({"pool": "any", "zone": "x"}), json!([toleration("a")])),
        ("tolerations/[key=b]", json!({"pool": "any"}), json!([toleration("a"), toleration("b")])),
        ("hostNetwork", json!({"pool": "any"}), json!([toleration("a")])),
    ] {
        let mask = Mask(vec![Pattern::parse(&format!("/spec/template/spec/{pattern}")).unwrap()]);
        let body = applied((&pods(declared.clone()), fields), &live, &mask, |_| false);
        let expected = pods(json!({"nodeSelector": selector, "tolerations": tolerations}));
        assert_eq!(body["spec"], expected["spec"], "{pattern}");
    }
}

#[test]
fn merge_patch_restores_an_atomic_value_except_its_masked_part() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n\
                    spec: {template: {spec: {tolerations: [{key: a, operator: Exists, effect: NoExecute}]}}}\n";
    let release = deployed(manifest);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let fields = &declarations.latest.as_ref().unwrap().fields();
    let mut live = live(json!(2), json!([]));
    let tolerations = |operator: &str, effect: &str| json!({"template": {"spec": {"tolerations": [{"key": "a", "operator": operator, "effect": effect}]}}});
    live["spec"] = tolerations("Equal", "NoSchedule");
    let mask = Mask(vec![Pattern::parse("/spec/template/spec/tolerations/*/effect").unwrap()]);
    let restoration = Restoration { object, fields, changes: &fields.drift(&live), moved: &[] };
    let patch = restoration.merged(&live, None, &mask).unwrap();
    assert_eq!(patch["spec"], tolerations("Exists", "NoSchedule"));
}

#[test]
fn refused_fields_are_found_by_the_names_of_the_refusal() {
    let cause = |field: &str, message: &str| Cause {
        reason: "FieldValueForbidden".to_owned(),
        field: field.to_owned(),
        message: message.to_owned(),
    };
    let refuses = |field: &str, message: &str, path: &str| {
        super::refuses(&cause(field, message), &path.parse().unwrap())
    };
    assert!(refuses("spec.selector", "immutable", "/spec/selector"));
    assert!(refuses("spec.selector", "immutable", "/spec/selector/matchLabels/app"));
    assert!(refuses(
        "spec.template.spec.containers[0].image",
        "",
        "/spec/template/spec/containers/[name=app]/image"
    ));
    assert!(refuses("spec.template", "immutable", "/spec/template/spec"));
    assert!(!refuses("spec.selector", "immutable", "/spec/replicas"));
    assert!(!refuses("", "immutable", "/spec/replicas"));
    let of_set = "updates to statefulset spec for fields other than 'replicas', 'template' are forbidden";
    assert!(refuses("spec", of_set, "/spec/serviceName"));
    assert!(!refuses("spec", of_set, "/spec/replicas"));
    assert!(!refuses("spec", of_set, "/spec/template/spec/hostNetwork"));
}

#[test]
fn a_difference_is_what_a_merge_makes_good() {
    assert_eq!(difference(&json!({"a": 1}), &json!({"a": 1})), None);
    assert_eq!(
        difference(&json!({"a": 1, "b": {"c": [1], "d": 2}}), &json!({"b": {"c": [2], "d": 2}, "e": {}})),
        Some(json!({"a": null, "b": {"c": [2]}, "e": {}}))
    );
}
