use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{BLOCK, BlockWriter, CACHE, DEPTH, FieldsCache, HEAVY, Packed};
use crate::declare::declare;
use crate::embedded;
use crate::model::Gvk;
use crate::samples::{Deep, any_value};
use crate::schema::KindSchema;

/// A document of each of these packed into one block, all with the schema of a Deployment.
fn packed(documents: &[Value], cache: &Arc<FieldsCache>) -> Vec<Packed> {
    let mut writer = BlockWriter::default();
    for document in documents {
        assert!(writer.take(document, declare(document, schema().as_deref()).weight()));
    }
    let block = Arc::new(writer.finish(cache).unwrap());
    let packed = |(index, _)| Packed::Document { block: Arc::clone(&block), index, schema: schema() };
    (0..).zip(documents).map(packed).collect()
}

fn schema() -> Option<Arc<KindSchema>> {
    embedded::core().schema(&Gvk::from_api_version("apps/v1", "Deployment"))
}

fn config_map(name: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": name.to_string()}})
}

proptest! {
    #[test]
    fn packed_fields_equal_the_declared_fields(documents in proptest::collection::vec(any_value(), 1..6)) {
        let cache = Arc::default();
        for (document, packed) in documents.iter().zip(packed(&documents, &cache)) {
            prop_assert!(*packed.fields() == declare(document, schema().as_deref()));
        }
    }
}

#[test]
fn a_document_is_read_once_while_there_is_room() {
    let cache = Arc::default();
    let packed = packed(&[config_map(0), config_map(1)], &cache);
    for _ in 0..3 {
        packed.iter().for_each(|packed| drop(packed.fields()));
    }
    assert_eq!((cache.asked(), cache.read()), (6, 2));
}

#[test]
fn packed_document_is_read_once_for_concurrent_requests() {
    let cache = Arc::default();
    let packed = packed(&[config_map(0)], &cache);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| packed[0].fields());
        }
    });
    assert_eq!((cache.asked(), cache.read()), (8, 1));
}

#[test]
fn a_full_cache_reads_again_and_gives_the_same() {
    let cache = Arc::new(FieldsCache::within(0));
    let documents: Vec<_> = (0..8).map(config_map).collect();
    let packed = packed(&documents, &cache);
    for _ in 0..2 {
        for (document, packed) in documents.iter().zip(&packed) {
            assert!(*packed.fields() == declare(document, schema().as_deref()));
        }
    }
    assert_eq!(cache.read(), 16);
}

#[test]
fn fields_that_nobody_asks_for_are_dropped() {
    for (idle, kept) in [(Duration::ZERO, 0), (Duration::from_secs(3600), 8)] {
        let cache = Arc::new(FieldsCache::new(CACHE, idle));
        let packed = packed(&(0..8).map(config_map).collect::<Vec<_>>(), &cache);
        packed.iter().for_each(|packed| drop(packed.fields()));
        cache.drop_idle();
        assert_eq!(cache.fields.entry_count(), kept, "{idle:?}");
    }
}

#[test]
fn heavy_or_deep_documents_are_not_packed() {
    let is_taken = |document: &Value| BlockWriter::default().take(document, declare(document, None).weight());
    let data = |length| json!({"kind": "ConfigMap", "data": {"k": "a".repeat(length)}});
    assert!(is_taken(&data(HEAVY / 2)) && !is_taken(&data(HEAVY)));
    // A status declares nothing, and would be read all the same.
    assert!(!is_taken(&json!({"kind": "ConfigMap", "status": "a".repeat(HEAVY)})));
    assert!(is_taken(&Deep::new(DEPTH, Value::Null).0) && !is_taken(&Deep::new(DEPTH + 1, Value::Null).0));
}

#[test]
fn documents_take_a_fraction_of_their_fields_at_rest() {
    let document = |number: usize| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("web-{number}"), "labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"replicas": number, "template": {"spec": {"containers": [
                {"name": "app", "image": format!("web:{number}"), "ports": [{"containerPort": 80}],
                 "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
            ]}}},
        })
    };
    let documents: Vec<_> = (0..20).map(document).collect();
    let fields: usize = documents.iter().map(|it| declare(it, schema().as_deref()).weight()).sum();
    let packed: usize = packed(&documents, &Arc::default()).iter().map(Packed::weight).sum();
    assert!(packed * 8 < fields, "{packed} of {fields} bytes");
    assert!(documents.iter().map(|it| it.to_string().len()).sum::<usize>() < BLOCK);
}
