//! A chart's values, a template, and the manifest, each before the next NUL; then what the revision before has for values
//! and both have for helpers. The guard names the values that set the fields of an object.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::PackedRecord;
use kubemoor_helm::values::{ValueQuestion, candidates, likeliest};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|text: &str| {
    let mut parts = text.split('\0');
    let [values, template, manifest, earlier] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let source = |revision: u64, values: &str| {
        let record = json!({
            "name": "shop", "namespace": "ns", "version": revision, "config": read(values), "manifest": manifest,
            "chart": {
                "metadata": {"name": "shop", "version": "1.0.0"},
                "values": read(values),
                "templates": [
                    {"name": "templates/web.yaml", "data": STANDARD.encode(template)},
                    {"name": "templates/_helpers.tpl", "data": STANDARD.encode(earlier)},
                ],
            },
        });
        PackedRecord::new(STANDARD.encode(record.to_string()), false).source().ok()
    };
    let sources: Vec<_> = [source(2, values), source(1, earlier)].into_iter().flatten().collect();
    for (kind, group) in [("ConfigMap", ""), ("Deployment", "apps")] {
        let object = ObjectId {
            group: group.into(),
            kind: kind.into(),
            namespace: Some("ns".into()),
            name: "web".into(),
        };
        for path in ["/data/a", "/spec/replicas", "/spec/template/spec/containers/[name=app]/image"] {
            let Ok(path) = path.parse::<Path>() else { continue };
            let question =
                ValueQuestion { object: &object, path: &path, place: None, new: Some(&json!("x")) };
            let found = candidates(&sources, question);
            assert!(found.iter().all(|it| it.score <= 100));
            let named = likeliest(found.clone());
            assert!(named.iter().all(|it| found.contains(it)));
        }
    }
});
