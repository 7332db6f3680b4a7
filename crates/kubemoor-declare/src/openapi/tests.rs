use serde_json::{Value, json};

use super::{Reduction, SchemaError, facts, from_crd};
use crate::model::Gvk;
use crate::schema::{KindSchema, ListKind, ScalarType, Shape, TypeId};

fn bytes(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).unwrap()
}

fn from_v2(document: &[u8], wanted: &dyn Fn(&Gvk) -> bool) -> Vec<(Gvk, KindSchema)> {
    let mut reduction = Reduction::default();
    reduction.add(document, wanted).unwrap();
    reduction.finish()
}

fn from_v3(document: &[u8]) -> Result<Vec<(Gvk, KindSchema)>, SchemaError> {
    let mut reduction = Reduction::default();
    reduction.add(document, &|_| true)?;
    Ok(reduction.finish())
}

/// The shape at a path of field names; `*` is the element of a list or map.
fn at(schema: &KindSchema, path: &str) -> Shape {
    let mut at = schema.root;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = match schema.types.shape(at) {
            Shape::Struct(shape) => shape.field(name).unwrap_or_else(|| panic!("{name} of {path}")).ty,
            Shape::List { item, .. } => *item,
            Shape::Map { value, .. } => *value,
            other => panic!("{name} of {path} in {other:?}"),
        };
    }
    schema.types.shape(at).clone()
}

fn keys(shape: &Shape) -> Vec<(String, Option<Value>)> {
    let Shape::List { kind: ListKind::Map(keys), .. } = shape else { panic!("{shape:?}") };
    keys.iter().map(|key| (key.name.to_string(), key.default.as_deref().cloned())).collect()
}

fn kind(name: &str) -> Value {
    json!([{"group": "example.org", "version": "v1", "kind": name}])
}

/// What an API server publishes that knows no list types for containers, and
/// no defaults.
fn v2() -> Value {
    let metadata = json!({"$ref": "#/definitions/meta.v1.ObjectMeta"});
    json!({"swagger": "2.0", "definitions": {
        "v1.Thing": {
            "type": "object",
            "x-kubernetes-group-version-kind": kind("Thing"),
            "properties": {"metadata": metadata, "spec": {"$ref": "#/definitions/v1.Spec"}},
        },
        "v1.Other": {
            "type": "object",
            "x-kubernetes-group-version-kind": kind("Other"),
            "properties": {"metadata": metadata},
        },
        "v1.ThingList": {
            "type": "object",
            "x-kubernetes-group-version-kind": kind("ThingList"),
            "properties": {"items": {"type": "array"}, "metadata": {"$ref": "#/definitions/meta.v1.ListMeta"}},
        },
        "meta.v1.ObjectMeta": {"type": "object", "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
        }},
        "v1.Spec": {"type": "object", "properties": {
            "containers": {
                "type": "array", "items": {"$ref": "#/definitions/v1.Container"},
                "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge",
            },
            "volumes": {
                "type": "array", "items": {"$ref": "#/definitions/v1.Container"},
                "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge,retainKeys",
            },
            "args": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "raw": {"type": "object"},
            "cpu": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
            "port": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
            "key": {"type": "string", "format": "byte"},
        }},
        "v1.Container": {"type": "object", "properties": {
            "name": {"type": "string"},
            "ports": {
                "type": "array", "items": {"$ref": "#/definitions/v1.Port"},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                "x-kubernetes-patch-merge-key": "containerPort", "x-kubernetes-patch-strategy": "merge",
            },
            "below": {"$ref": "#/definitions/v1.Container"},
        }},
        "v1.Port": {"type": "object", "properties": {"containerPort": {"type": "integer"}, "protocol": {"type": "string"}}},
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    }})
}

#[test]
fn openapi_v2_list_keys_come_from_patch_extensions() {
    let found = from_v2(&bytes(&v2()), &|gvk| gvk.kind != "Other");
    let [(gvk, schema)] = found.as_slice() else { panic!("one kind, not {}", found.len()) };
    assert_eq!(*gvk, Gvk::from_api_version("example.org/v1", "Thing"));
    assert_eq!(keys(&at(schema, "spec/containers")), [("name".to_owned(), None)]);
    assert_eq!(keys(&at(schema, "spec/volumes")), [("name".to_owned(), None)]);
    assert_eq!(
        keys(&at(schema, "spec/containers/*/ports")),
        [("containerPort".to_owned(), None), ("protocol".to_owned(), Some(json!("TCP"))),]
    );
    assert!(matches!(at(schema, "metadata/finalizers"), Shape::List { kind: ListKind::Set, .. }));
    assert!(matches!(at(schema, "spec/args"), Shape::List { kind: ListKind::Atomic, .. }));
    assert!(matches!(at(schema, "spec/selector"), Shape::Map { atomic: true, .. }));
    assert!(matches!(at(schema, "metadata/labels"), Shape::Map { atomic: false, .. }));
    assert_eq!(at(schema, "spec/raw"), Shape::Any);
    assert_eq!(at(schema, "spec/cpu"), Shape::Scalar(ScalarType::Quantity));
    assert_eq!(at(schema, "spec/port"), Shape::Scalar(ScalarType::IntOrString));
    assert_eq!(at(schema, "spec/key"), Shape::Scalar(ScalarType::Bytes));
}

#[test]
fn a_type_in_itself_is_one_type() {
    let found = from_v2(&bytes(&v2()), &|_| true);
    let (_, schema) = found.iter().find(|(gvk, _)| gvk.kind == "Thing").unwrap();
    assert_eq!(at(schema, "spec/containers/*/below/below"), at(schema, "spec/containers/*"));
}

#[test]
fn a_document_of_version_3_states_defaults_and_overrides() {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let document = json!({"openapi": "3.0.0", "components": {"schemas": {
        "v1.Thing": {
            "type": "object",
            "x-kubernetes-group-version-kind": kind("Thing"),
            "properties": {
                "metadata": {"allOf": [reference("meta.v1.ObjectMeta")], "default": {}},
                "ports": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "scheme"],
                    "items": {"allOf": [reference("v1.Port")], "default": {}},
                },
                "whole": {"allOf": [reference("v1.Port")], "x-kubernetes-map-type": "atomic", "default": {}},
                "parts": {"allOf": [reference("v1.Reference")], "x-kubernetes-map-type": "granular"},
                "reference": {"allOf": [reference("v1.Reference")]},
                "mode": {"type": "integer", "default": 420},
                "zero": {"type": "integer", "default": 0},
            },
        },
        "meta.v1.ObjectMeta": {"type": "object", "properties": {"name": {"type": "string"}}},
        "v1.Port": {"type": "object", "properties": {
            "port": {"type": "integer", "default": 0}, "scheme": {"type": "string", "default": "http"},
        }},
        "v1.Reference": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"name": {"type": "string"}}},
    }}});
    let found = from_v3(&bytes(&document)).unwrap();
    let [(_, schema)] = found.as_slice() else { panic!("one kind, not {}", found.len()) };
    let expected = [("port".to_owned(), None), ("scheme".to_owned(), Some(json!("http")))];
    assert_eq!(keys(&at(schema, "ports")), expected);
    let atomic = |path: &str| matches!(at(schema, path), Shape::Struct(shape) if shape.atomic);
    assert!(atomic("whole") && !atomic("parts") && atomic("reference") && !atomic("ports/*"));
    let Shape::Struct(root) = at(schema, "") else { panic!("the root is a struct") };
    let default = |name: &str| root.field(name).unwrap().default.as_deref().cloned();
    assert_eq!((default("mode"), default("zero")), (Some(json!(420)), Some(json!(0))));
    // Of Kubernetes' own an empty default says no more than that the field is no pointer.
    let own = json!({"components": {"schemas": {"io.k8s.api.core.v1.Thing": {
        "type": "object",
        "x-kubernetes-group-version-kind": kind("Thing"),
        "properties": {
            "metadata": {"allOf": [reference("meta.v1.ObjectMeta")], "default": {}},
            "mode": {"type": "integer", "default": 420},
            "zero": {"type": "integer", "default": 0},
        },
    }}}});
    let found = from_v3(&bytes(&own)).unwrap();
    let Shape::Struct(root) = at(&found[0].1, "") else { panic!("the root is a struct") };
    let default = |name: &str| root.field(name).unwrap().default.as_deref().cloned();
    assert_eq!((default("mode"), default("zero"), default("metadata")), (Some(json!(420)), None, None));
}

#[test]
fn circles_and_loose_ends_of_references_are_untyped() {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let document = json!({"components": {"schemas": {
        "v1.Thing": {
            "x-kubernetes-group-version-kind": kind("Thing"),
            "properties": {"metadata": reference("x.ObjectMeta"), "a": reference("a"), "c": reference("c"), "d": reference("nowhere")},
        },
        "x.ObjectMeta": {"type": "object"},
        "a": reference("b"), "b": reference("a"),
        "c": {"allOf": [reference("e")], "x-kubernetes-map-type": "atomic"},
        "e": {"type": "object", "properties": {"f": {"type": "string"}}},
    }}});
    let found = from_v3(&bytes(&document)).unwrap();
    let (_, schema) = found.first().unwrap();
    assert_eq!(at(schema, "a"), Shape::Any);
    assert_eq!(at(schema, "d"), Shape::Any);
    assert!(matches!(at(schema, "c"), Shape::Struct(shape) if shape.atomic));
}

#[test]
fn a_long_chain_of_references_costs_no_stack() {
    let mut schemas = json!({"v1.Thing": {
        "x-kubernetes-group-version-kind": kind("Thing"),
        "properties": {"metadata": {"$ref": "#/x.ObjectMeta"}, "a": {"$ref": "#/n0"}},
    }});
    for n in 0..5_000 {
        let next = json!({"$ref": format!("#/n{}", n + 1)});
        schemas[format!("n{n}")] = json!({"type": "object", "properties": {"a": next}});
    }
    let found = from_v3(&bytes(&json!({"components": {"schemas": schemas}}))).unwrap();
    let (_, schema) = found.first().unwrap();
    assert!(matches!(at(schema, "a/a/a/a/a"), Shape::Struct(_)));
}

#[test]
fn a_text_that_is_no_document_says_why() {
    let error = from_v3(b"{\"components\": 3").unwrap_err();
    assert!(error.to_string().starts_with("cannot read the OpenAPI document: "), "{error}");
    assert!(from_v3(b"{}").unwrap().is_empty());
}

fn crd(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[test]
fn a_definition_gives_the_types_of_its_kind() {
    let schema = crd(&json!({
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "map": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                    "items": {"type": "object", "properties": {"id": {"type": "string", "default": "x"}}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "some": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"a": {"type": "string"}},
                },
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "memory": {
                    "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
                },
                "on": {"type": "boolean", "default": true},
            }},
        },
    }));
    let found = from_crd(&schema).unwrap();
    let [(gvk, schema)] = found.as_slice() else { panic!("one version, not {}", found.len()) };
    assert_eq!(*gvk, Gvk::from_api_version("example.org/v1", "Thing"));
    assert!(matches!(at(schema, "spec/list"), Shape::List { kind: ListKind::Atomic, .. }));
    assert!(matches!(at(schema, "spec/set"), Shape::List { kind: ListKind::Set, .. }));
    assert_eq!(keys(&at(schema, "spec/map")), [("id".to_owned(), Some(json!("x")))]);
    assert_eq!(at(schema, "spec/free"), Shape::Any);
    assert!(matches!(at(schema, "spec/some"), Shape::Struct(shape) if shape.open));
    assert!(matches!(at(schema, "spec"), Shape::Struct(shape) if !shape.open));
    assert_eq!(at(schema, "spec/port"), Shape::Scalar(ScalarType::IntOrString));
    assert_eq!(at(schema, "spec/memory"), Shape::Scalar(ScalarType::Quantity));
    assert_eq!(at(schema, "metadata/labels/*"), Shape::Scalar(ScalarType::Text));
    assert!(matches!(at(schema, "metadata/finalizers"), Shape::List { kind: ListKind::Set, .. }));
}

#[test]
fn a_definition_without_types_leaves_all_but_the_metadata_open() {
    let mut bare = crd(&json!({}));
    bare["spec"]["versions"][0]["schema"].take();
    for crd in [bare, crd(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))] {
        let found = from_crd(&crd).unwrap();
        let (_, schema) = found.first().unwrap();
        let Shape::Struct(root) = at(schema, "") else { panic!("the root is a struct") };
        assert!(root.open);
        assert_ne!(root.field("metadata").unwrap().ty, TypeId::ANY);
    }
}

#[test]
fn a_definition_that_is_none_says_why() {
    let error = from_crd(&json!({"metadata": {"name": "a"}, "spec": {"group": "b"}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the CustomResourceDefinition \"a\": spec.names.kind is missing"
    );
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "array", "items": deep});
    }
    let error = from_crd(&crd(&deep)).unwrap_err();
    assert!(matches!(error, SchemaError::Definition { .. }));
    assert!(error.to_string().ends_with("the schema of version v1 is nested too deeply"), "{error}");
    assert!(from_crd(&crd(&json!({"properties": 3}))).is_err());
}

#[test]
fn paths_state_plurals_scopes_and_scales() {
    let get = |kind: &str| json!({"get": {"x-kubernetes-group-version-kind": {"group": "apps", "version": "v1", "kind": kind}}});
    let document = json!({"paths": {
        "/apis/apps/v1/": {"get": {}},
        "/apis/apps/v1/namespaces/{namespace}/deployments": get("Deployment"),
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}": get("Deployment"),
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": get("Scale"),
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status": get("Deployment"),
        "/apis/apps/v1/things/{name}": get("Thing"),
    }});
    let found = facts(&bytes(&document)).unwrap();
    let [deployment, thing] = found.as_slice() else { panic!("two kinds, not {found:?}") };
    assert_eq!((&*deployment.plural, deployment.namespaced), ("deployments", true));
    assert!(deployment.scale_replicas_path.is_some() && thing.scale_replicas_path.is_none());
    assert_eq!((&*thing.plural, thing.namespaced), ("things", false));
}
