//! What holds for any object.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::samples::{Deep, any_value, deployment, has_doubled_keys, reordered, texts};

fn deployments() -> Option<Arc<KindSchema>> {
    schema("apps/v1 Deployment")
}

/// Every declared path at which the two objects hold different JSON.
fn differing(fields: &DeclaredFields, old: &Value, new: &Value) -> usize {
    fields.leaves().iter().filter(|(path, _)| path.get(old) != path.get(new)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_object_against_itself_changes_nothing(declared in deployment(), live in deployment()) {
        let fields = declare(&declared, deployments().as_deref());
        prop_assert!(fields.changed(&live, &live).is_empty());
        prop_assert_eq!(fields.drift(&declared), Vec::new());
    }

    #[test]
    fn any_json_gives_an_answer(declared in any_value(), old in any_value(), new in any_value()) {
        for schema in [deployments(), schema("v1 Service"), schema("v1 Secret"), None] {
            let fields = declare(&declared, schema.as_deref());
            prop_assert!(fields.changed(&old, &old).is_empty());
            for change in fields.changed(&old, &new).into_iter().chain(fields.drift(&new)) {
                fields.settler(&old).settle(&change);
            }
            fields.leaves();
        }
    }

    #[test]
    fn comparison_never_panics_when_a_field_holds_arbitrary_json(
        declared in deployment(), live in deployment(), other in any_value(), at in 0_usize..40
    ) {
        let fields = declare(&declared, deployments().as_deref());
        let mut broken = live.clone();
        let leaves = fields.leaves();
        if let Some((path, _)) = leaves.get(at % leaves.len().max(1)) {
            let mut place = &mut broken;
            for segment in path.0.iter().take(at % 7) {
                match segment {
                    crate::path::Segment::Field(name) if place.is_object() => {
                        place = &mut place[name.as_str()];
                    }
                    _ => break,
                }
            }
            *place = other;
        }
        for change in fields.changed(&live, &broken).into_iter().chain(fields.changed(&broken, &live)) {
            fields.settler(&live).settle(&change);
        }
        prop_assert!(fields.changed(&broken, &broken).is_empty());
        declare(&broken, deployments().as_deref()).drift(&live);
    }

    #[test]
    fn the_order_of_maps_keyed_lists_and_sets_never_matters(declared in deployment(), live in deployment()) {
        prop_assume!(!has_doubled_keys(&declared) && !has_doubled_keys(&live));
        let fields = declare(&declared, deployments().as_deref());
        let turned = reordered(&live, "");
        prop_assert!(fields.changed(&live, &turned).is_empty());
        let again = declare(&reordered(&declared, ""), deployments().as_deref());
        let sorted = |changes: Vec<FieldChange>| {
            let mut all: Vec<_> =
                changes.into_iter().map(|c| (c.path.to_string(), c.agreement)).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(fields.drift(&live)), sorted(again.drift(&turned)));
    }

    #[test]
    fn nothing_changed_where_no_declared_path_did(declared in deployment(), live in deployment(), added in texts()) {
        let fields = declare(&declared, deployments().as_deref());
        let mut edited = live.clone();
        edited["metadata"]["annotations"] = added;
        edited["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(7);
        edited["status"] = json!({"replicas": 3});
        prop_assert!(fields.changed(&live, &edited).is_empty());
    }

    #[test]
    fn every_reported_change_is_a_difference(declared in deployment(), old in deployment(), new in deployment()) {
        let fields = declare(&declared, deployments().as_deref());
        let found = fields.changed(&old, &new);
        prop_assert!(found.is_empty() || old != new);
        if !has_doubled_keys(&declared) && differing(&fields, &old, &new) == 0 {
            let beyond: Vec<_> = found.iter().filter(|c| c.declared.is_some() && !c.path.to_string().ends_with("env")).collect();
            prop_assert!(beyond.is_empty(), "{beyond:?}");
        }
        for change in found.iter().filter(|change| change.declared.is_some()) {
            prop_assert!(change.old != change.new, "{change:?}");
        }
    }
}

fn with_spec(spec: &mut Deep) -> Deep {
    let mut object = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}});
    object["spec"] = spec.0.take();
    Deep(object)
}

#[test]
fn any_depth_gives_an_answer_on_a_small_stack() {
    let run = || {
        let one = with_spec(&mut Deep::new(100_000, json!(1)));
        let two = with_spec(&mut Deep::new(100_000, json!(2)));
        for schema in [None, deployments(), schema("v1 ConfigMap")] {
            let fields = declare(&one.0, schema.as_deref());
            assert!(fields.changed(&one.0, &one.0).is_empty());
            assert!(fields.drift(&one.0).iter().all(|change| change.agreement != FieldAgreement::Differs));
            fields.changed(&one.0, &two.0);
            fields.changed(&one.0, &json!({}));
            fields.drift(&two.0);
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_change_as_deep_as_parsers_read_is_found() {
    let spec = |n: i32| with_spec(&mut Deep(Deep::new(100, json!(n)).0.take()));
    let (one, two) = (spec(1), spec(2));
    let fields = declare(&one.0, None);
    assert_eq!(fields.changed(&one.0, &two.0).len(), 1);
}
