use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::catalog;
use crate::model::Gvk;
use crate::samples::{Deep, any_value};

fn schema() -> Option<Arc<KindSchema>> {
    catalog::core().schema(&Gvk::from_api_version("apps/v1", "Deployment"))
}

/// The document with the schema of a Deployment.
fn packed(document: &Value, cache: &Arc<FieldsCache>) -> PackedFields {
    PackedFields::new(document, declare(document, schema().as_deref()), schema(), cache)
}

fn config_map(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": number.to_string()},
    })
}

proptest! {
    #[test]
    fn packed_fields_equal_the_declared_fields(document in any_value()) {
        let packed = packed(&document, &Arc::default());
        prop_assert!(matches!(packed, PackedFields::Document(_)));
        prop_assert!(*packed.fields() == declare(&document, schema().as_deref()));
    }
}

#[test]
fn packed_document_is_read_once_for_concurrent_requests() {
    let cache = Arc::default();
    let packed = packed(&config_map(0), &cache);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| packed.fields());
        }
    });
    assert_eq!((cache.asked(), cache.read()), (8, 1));
}

#[test]
fn a_full_cache_reads_again_and_gives_the_same() {
    let cache = Arc::new(FieldsCache::within(0));
    let documents: Vec<_> = (0..8).map(config_map).collect();
    let packed: Vec<_> = documents.iter().map(|document| packed(document, &cache)).collect();
    for _ in 0..2 {
        for (document, packed) in documents.iter().zip(&packed) {
            assert!(*packed.fields() == declare(document, schema().as_deref()));
        }
    }
    assert_eq!(cache.read(), 16);
}

#[test]
fn heavy_or_deep_documents_are_kept_as_they_are() {
    let is_packed = |document: &Value| {
        let packed = PackedFields::new(document, declare(document, None), None, &Arc::default());
        matches!(packed, PackedFields::Document(_))
    };
    let data = |length| json!({"kind": "ConfigMap", "data": {"k": "a".repeat(length)}});
    assert!(is_packed(&data(HEAVY / 2)) && !is_packed(&data(HEAVY)));
    // A status declares nothing, and would be read all the same.
    assert!(!is_packed(&json!({"kind": "ConfigMap", "status": "a".repeat(HEAVY)})));
    assert!(is_packed(&Deep::new(DEPTH, Value::Null).0) && !is_packed(&Deep::new(DEPTH + 1, Value::Null).0));
}

#[test]
fn documents_take_a_fraction_of_their_fields_at_rest() {
    let document = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "app", "image": "web:1", "ports": [{"containerPort": 80}],
             "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        ]}}},
    });
    let fields = declare(&document, schema().as_deref()).weight();
    let packed = packed(&document, &Arc::default()).weight();
    assert!(packed * 2 < fields, "{packed} of {fields} bytes");
}
