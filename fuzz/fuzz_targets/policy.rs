//! The text of policies and annotations: reading them, the schedules in them,
//! and what their paths cover and carry.
#![no_main]

use std::time::Duration;

use jiff::Timestamp;
use kubemoor_cluster::mirror::directory::{ReleaseFile, assemble};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Actor, DriftMode, EditsMode, ReleaseId};
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::RequestedAllowance;
use kubemoor_policy::compile::read;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::{Pattern, PatternError};
use kubemoor_policy::resolver::{Labels, Policies};
use kubemoor_policy::selector::Selector;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    let release = ReleaseId { namespace: "ns".into(), name: "release".into() };
    let document = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1},
        "metadata": {"name": "release", "namespace": "ns", "annotations": {"kubemoor.dev/allow": text}},
    });
    let record = ReleaseFile::Manifest(document.to_string()).into_record(&release);
    let declarations = assemble(record, &Catalog::with_core()).release.objects;
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
    let policies = Policies::new(defaults, &Labels::new(), read([("fuzz.yaml", text)]).0);
    let now = Timestamp::UNIX_EPOCH;
    for (object, declarations) in &*declarations {
        let Some(declared) = &declarations.latest else { continue };
        for standing in &policies.resolve(&release, &Labels::new()).rules(object, declared).standing {
            standing.applies_to(&Actor::default());
            assert!(standing.next_change(now).is_none_or(|change| change > now));
            standing.is_active(now);
        }
    }
    let _ = RequestedAllowance::read(text, Some(text), Some(text));
    let _ = Selector::parse(text);
    let Ok(pattern) = Pattern::parse(text) else { return };
    match Pattern::parse(&pattern.to_string()) {
        // Some characters are spelled by six.
        Err(PatternError::TooLong) => assert!(pattern.to_string().len() > text.len()),
        again => assert_eq!(again.as_ref(), Ok(&pattern)),
    }
    let mask = Mask(vec![pattern]);
    let from = json!({"a": {"b": [{"name": "x", "c": 1}]}, "d": null});
    let mut once = json!({"a": {"b": [{"name": "x", "c": 2}, {"name": "y"}]}, "d": [1, "two"]});
    mask.carry(&from, &mut once);
    let mut twice = once.clone();
    mask.carry(&from, &mut twice);
    assert_eq!(once, twice);
});
