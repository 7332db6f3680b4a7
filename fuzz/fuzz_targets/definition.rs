//! A CustomResourceDefinition, whose schema anybody with the right may write.
#![no_main]

use kubemoor_declare::catalog::KindFacts;
use kubemoor_declare::openapi::from_crd;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(definition) = serde_json::from_slice(text) else { return };
    let _ = KindFacts::from_crd(&definition);
    let _ = from_crd(&definition);
});
