//! An OpenAPI document, as an aggregated API server may serve it: as version 3 and as version 2, and what is declared by the
//! types in it.
#![no_main]

use kubemoor_declare::declare::declare;
use kubemoor_declare::openapi::{Reduction, facts};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|document: &[u8]| {
    let mut reduction = Reduction::default();
    let _ = reduction.add(document, &|_| true);
    let _ = facts(document);
    let object = json!({
        "metadata": {"name": "a", "labels": {"a": "b"}},
        "spec": {"a": [{"name": "x", "b": 1}, {"name": "y"}], "b": {"a": {"a": {"a": null}}}, "c": "1Gi"},
    });
    for (_, schema) in reduction.finish() {
        let fields = declare(&object, Some(&schema));
        let _ = fields.changed(&object, &json!({"metadata": {}, "spec": []}));
        let _ = fields.drift(&object);
    }
});
