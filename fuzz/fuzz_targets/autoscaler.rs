//! An autoscaler that anybody may create, and the ScaledObject of a release that may have made it: the input has both, as
//! `autoscaler` and `scaledObject`.
#![no_main]

use kubemoor_cluster::mirror::autoscalers::read;
use kubemoor_cluster::mirror::directory::{ReleaseFile, assemble};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::ReleaseId;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let Ok(input) = serde_json::from_slice::<Value>(text) else { return };
    let Some((id, scales)) = read(&input["autoscaler"]) else { return };
    let release = ReleaseId { namespace: "ns".into(), name: "release".into() };
    let record = ReleaseFile::Manifest(input["scaledObject"].to_string()).into_record(&release);
    let release = assemble(record, &Catalog::with_core()).release;
    let range =
        scales.autoscaler(&id, |object| release.declared(object).map(|_| &release).into_iter().collect());
    assert!(range.declared_by.iter().all(|by| *by == release.id));
    assert!(scales.autoscaler(&id, |_| Vec::new()).declared_by.is_empty(), "no release declares it");
});
