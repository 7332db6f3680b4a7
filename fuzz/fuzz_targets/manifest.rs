//! A manifest's text: documents, YAML, JSON, lists, and what becomes of the
//! objects in them.
#![no_main]

use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::manifest::{identify, own, parse, place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let release = ReleaseId { namespace: "ns".into(), name: "release".into() };
    for mut object in parse(text).objects {
        for namespaced in [Some(true), Some(false), None] {
            let id = identify(&object, &release, namespaced);
            assert!(!id.name.is_empty() && !id.kind.is_empty());
            place(&mut object, &id);
            own(&mut object, &release);
            assert_eq!(identify(&object, &release, namespaced), id);
        }
    }
});
