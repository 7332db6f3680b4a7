use serde_json::{Value, json};

use super::super::*;
use crate::catalog;
use crate::declare::declare;
use crate::model::Gvk;

fn pod(container: &Value) -> Value {
    let mut app = json!({"name": "app"});
    app.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [app]}})
}

fn fields(container: &Value) -> DeclaredFields {
    let schema = catalog::core().schema(&Gvk::from_api_version("v1", "Pod"));
    declare(&pod(container), schema.as_deref())
}

/// Whether a merge may confuse what is at `below` in the container, if this is declared and live.
#[track_caller]
fn check(declared: Value, live: Value, below: &str, wanted: bool) {
    let (fields, live) = (fields(&declared), pod(&live));
    let path: Path = format!("/spec/containers/[name=app]{below}").parse().unwrap();
    let found = AmbiguousElements::new([&fields], &live).has_path(&path);
    assert_eq!(found, wanted, "{below} of {declared} and {live}");
}

#[test]
fn elements_with_a_shared_merge_key_are_found_in_declaration_and_object() {
    let none = || json!({});
    let env = |names: &[&str]| {
        let env: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "x"})).collect();
        json!({ "env": env })
    };
    for (declared, live) in [(env(&["A", "B", "A"]), none()), (env(&["A", "B"]), env(&["A", "B", "A"]))] {
        for (below, wanted) in [
            ("/env/[name=A]", true),
            ("/env/[name=A]/value", true),
            ("/env/[name=A]/valueFrom/secretKeyRef/key", true),
            ("/env/[name=B]", false),
            ("/env/[name=B]/value", false),
            ("/image", false),
            ("/volumeMounts/[mountPath=A]", false),
        ] {
            check(declared.clone(), live.clone(), below, wanted);
        }
    }
    // The list itself is compared as one value where the manifest repeats a key.
    check(env(&["A", "B", "A"]), none(), "/env", true);
    check(env(&["A", "B"]), env(&["A", "B", "A"]), "/env", false);
    check(env(&["A", "B"]), env(&["A", "B"]), "/env/[name=A]", false);
}

#[test]
fn ports_that_differ_only_in_protocol_share_a_merge_key() {
    let ports = |protocols: &[&str]| {
        let port = |protocol| json!({"containerPort": 53, "protocol": protocol});
        let mut ports: Vec<Value> = protocols.iter().map(port).collect();
        ports.push(json!({"containerPort": 80, "protocol": "TCP"}));
        json!({ "ports": ports })
    };
    let (both, udp) = (|| ports(&["TCP", "UDP"]), || ports(&["UDP"]));
    for (declared, live) in [(both(), udp()), (udp(), both()), (both(), both())] {
        check(declared.clone(), live.clone(), "/ports/[containerPort=53,protocol=UDP]", true);
        check(declared.clone(), live.clone(), "/ports/[containerPort=53,protocol=TCP]/name", true);
        check(declared, live, "/ports/[containerPort=80,protocol=TCP]", false);
    }
    check(udp(), udp(), "/ports/[containerPort=53,protocol=UDP]", false);
}

#[test]
fn long_lists_are_searched_once() {
    let env: Vec<Value> = (0..2000).map(|n| json!({"name": format!("N{}", n / 2)})).collect();
    let (fields, live) = (fields(&json!({ "env": env })), pod(&json!({ "env": env })));
    let mut elements = AmbiguousElements::new([&fields], &live);
    for n in 0..1000 {
        let path = format!("/spec/containers/[name=app]/env/[name=N{n}]/value").parse().unwrap();
        assert!(elements.has_path(&path));
    }
}
