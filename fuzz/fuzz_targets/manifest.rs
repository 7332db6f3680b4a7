//! A manifest's text: documents, YAML, JSON, lists, and what becomes of the
//! objects in them.
#![no_main]

use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::manifest::{identify, parse, set_helm_metadata, set_object_namespace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let release = ReleaseId { namespace: "ns".into(), name: "release".into() };
    for mut object in parse(text).objects {
        for namespaced in [Some(true), Some(false), None] {
            let id = identify(&object, &release, namespaced);
            assert!(!id.name.is_empty() && !id.kind.is_empty());
            set_object_namespace(&mut object, &id);
            set_helm_metadata(&mut object, &release);
            assert_eq!(identify(&object, &release, namespaced), id);
        }
    }
});
