use proptest::prelude::*;
use serde_json::{Value, json};

use crate::mask::*;

fn mask(patterns: &[&str]) -> Mask {
    Mask(patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect())
}

fn check(patterns: &[&str], from: Value, into: Value, expected: Value) {
    let mut result = into.clone();
    mask(patterns).carry(&from, &mut result);
    assert_eq!(result, expected, "{patterns:?} from {from} into {into}");
}

#[test]
fn fields_are_carried_and_absent_ones_taken_away() {
    check(&["/a"], json!({"a": 1, "b": 1}), json!({"a": 2, "b": 2}), json!({"a": 1, "b": 2}));
    check(&["/a"], json!({"b": 1}), json!({"a": 2, "b": 2}), json!({"b": 2}));
    check(&["/a"], json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2}));
    check(&["/a/b"], json!({"a": {"b": 1, "c": 1}}), json!({}), json!({"a": {"b": 1}}));
    check(&["/a/b"], json!({"a": {"b": 1}}), json!({"a": null}), json!({"a": {"b": 1}}));
    check(&["/a/b"], json!({}), json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 2}}));
    check(&["/a/*"], json!({"a": {"x": 1}}), json!({"a": {"y": 2}, "b": 1}), json!({"a": {"x": 1}, "b": 1}));
    check(&["*"], json!({"a": 1}), json!({"b": 2}), json!({"a": 1}));
    check(&["/a"], json!({"a": 1}), json!([1]), json!([1]));
    check(&[], json!({"a": 1}), json!({"a": 2}), json!({"a": 2}));
}

#[test]
fn helms_label_and_annotations_are_outside_every_mask() {
    let object = |label: Value, release: Value, other: &str| {
        let mut object = json!({"metadata": {"labels": {"a": other}, "annotations": {"b": other}}});
        if !label.is_null() {
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = label;
        }
        if !release.is_null() {
            object["metadata"]["annotations"]["meta.helm.sh/release-name"] = release;
        }
        object
    };
    let helms = |other: &str| object(json!("Helm"), json!("web"), other);
    let lost = |other: &str| object(Value::Null, json!("mine"), other);
    for pattern in ["*", "/metadata", "/metadata/*/*"] {
        check(&[pattern], lost("1"), helms("2"), helms("1"));
        check(&[pattern], helms("1"), lost("2"), lost("1"));
    }
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    check(&[label], lost("1"), helms("2"), helms("2"));
    for pattern in ["*", "/metadata/labels/*", label] {
        let mask = mask(&[pattern]);
        let path: Path = label.parse().unwrap();
        assert!(!mask.covers(&path) && !mask.reaches_below(&path), "{pattern}");
        let (here, there) = (json!("Helm"), json!("mine"));
        assert_eq!(mask.carry_at(&path, Some(&there), Some(&here)), Some(here));
    }
    assert_eq!(mask(&[label, "/metadata/labels/*", "*"]).helm_metadata_patterns().count(), 1);
}

#[test]
fn masked_elements_are_matched_by_key_instead_of_position() {
    let live = json!({"c": [{"name": "side", "image": "s2"}, {"name": "app", "image": "a2", "args": 2}]});
    let manifest = json!({"c": [{"name": "app", "image": "a1", "args": 1}, {"name": "side", "image": "s1"}]});
    check(
        &["/c/[name=app]/image"],
        live.clone(),
        manifest.clone(),
        json!({"c": [{"name": "app", "image": "a2", "args": 1}, {"name": "side", "image": "s1"}]}),
    );
    check(
        &["/c/*/image"],
        live.clone(),
        manifest.clone(),
        json!({"c": [{"name": "app", "image": "a2", "args": 1}, {"name": "side", "image": "s2"}]}),
    );
    check(
        &["/c/[name=app]"],
        live.clone(),
        manifest.clone(),
        json!({"c": [{"name": "app", "image": "a2", "args": 2}, {"name": "side", "image": "s1"}]}),
    );
    check(&["/c/*"], live.clone(), manifest.clone(), live);
}

#[test]
fn element_is_added_or_removed_only_when_itself_masked() {
    let one = json!({"c": [{"name": "app", "image": 1}]});
    let two = json!({"c": [{"name": "app", "image": 1}, {"name": "side", "image": 2}]});
    check(&["/c/[name=side]"], two.clone(), one.clone(), two.clone());
    check(&["/c/[name=side]"], one.clone(), two.clone(), one.clone());
    check(&["/c/[name=side]/image"], two.clone(), one.clone(), one.clone());
    check(&["/c/[name=side]/image"], one.clone(), two.clone(), two.clone());
    check(&["/c/[name=side]"], two, json!({}), json!({"c": [{"name": "side", "image": 2}]}));
    check(&["/f/[=b]"], json!({"f": ["a", "b"]}), json!({"f": ["c"]}), json!({"f": ["c", "b"]}));
    check(&["/f/[=b]"], json!({"f": ["a"]}), json!({"f": ["b", "c"]}), json!({"f": ["c"]}));
}

#[test]
fn elements_that_nothing_tells_apart_are_taken_by_their_places() {
    check(
        &["/r/*/w"],
        json!({"r": [{"w": 5, "x": 5}, {"w": 6, "x": 6}]}),
        json!({"r": [{"w": 1, "x": 1}, {"w": 1, "x": 2}], "o": 1}),
        json!({"r": [{"w": 5, "x": 1}, {"w": 6, "x": 2}], "o": 1}),
    );
    check(
        &["/r/*/w"],
        json!({"r": [{"w": 5, "x": 5}]}),
        json!({"r": [{"w": 1, "x": 1}]}),
        json!({"r": [{"w": 5, "x": 1}]}),
    );
}

#[test]
fn indistinguishable_elements_stay_unmasked_when_the_list_length_changes() {
    let one = json!({"r": [{"host": "a", "w": 1, "x": 1}]});
    let two = json!({"r": [{"host": "a", "w": 2, "x": 2}, {"host": "a", "w": 3, "x": 3}]});
    check(&["/r/*/w"], two.clone(), one.clone(), one.clone());
    check(&["/r/*/w"], one, two.clone(), two);
}

#[test]
fn an_element_may_be_named_by_its_place() {
    check(
        &["/r/1/w"],
        json!({"r": [{"w": 1}, {"w": 2}]}),
        json!({"r": [{}, {"w": 3}]}),
        json!({"r": [{}, {"w": 2}]}),
    );
    check(&["/r/2/w"], json!({"r": [{"w": 1}]}), json!({"r": [{"w": 3}]}), json!({"r": [{"w": 3}]}));
    check(&["/r/0"], json!({"r": {"0": 1}}), json!({"r": {"0": 2}}), json!({"r": {"0": 1}}));
}

#[test]
fn a_value_within_an_object_is_carried_alike() {
    let check =
        |patterns: &[&str], path: &str, from: Option<Value>, into: Option<Value>, expected: Option<Value>| {
            let carried = mask(patterns).carry_at(&path.parse().unwrap(), from.as_ref(), into.as_ref());
            assert_eq!(carried, expected, "{patterns:?} at {path}");
        };
    let (a, b) = (Some(json!([{"name": "a", "w": 1}])), Some(json!([{"name": "a", "w": 2}])));
    check(&["/spec/routes/[name=a]/w"], "/spec/routes", a.clone(), b.clone(), a.clone());
    check(&["/spec/routes/[name=b]/w"], "/spec/routes", a.clone(), b.clone(), b.clone());
    check(&["/spec"], "/spec/routes", a.clone(), b.clone(), a.clone());
    check(&["/spec"], "/spec/routes", None, b.clone(), None);
    check(&["/status"], "/spec/routes", a, b.clone(), b);
    check(&["/spec/a/b"], "/spec/a", Some(json!({"b": 1, "c": 1})), None, Some(json!({"b": 1})));
}

/// Objects of a few names, in which lists hold elements told apart by names.
fn objects() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<u8>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::btree_map("[abc]", inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            prop::collection::btree_map("[xyz]", inner, 0..4).prop_map(|map| {
                map.into_iter().map(|(name, value)| json!({"name": name, "a": value})).collect()
            }),
        ]
    })
    .prop_filter("an object", Value::is_object)
}

fn patterns() -> impl Strategy<Value = Vec<String>> {
    let step = prop_oneof![
        3 => "[abc]".prop_map(|name| name),
        1 => Just("*".to_owned()),
        1 => "[xyz]".prop_map(|name| format!("[name={name}]")),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..4), 1..3)
        .prop_map(|all| all.into_iter().map(|steps| format!("/{}", steps.join("/"))).collect())
}

/// Every leaf with its path, elements by their names.
fn leaves(value: &Value, path: &Path, found: &mut Vec<(Path, Value)>) {
    let below = |segment| Path(path.0.iter().cloned().chain([segment]).collect());
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                leaves(value, &below(Segment::Field(name.clone())), found);
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item.get("name").cloned().unwrap_or_default();
                leaves(item, &below(Segment::Key(vec![("name".to_owned(), name)])), found);
            }
        }
        leaf => found.push((path.clone(), leaf.clone())),
    }
}

fn leaves_of(value: &Value, mask: &Mask, masked: bool) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    leaves(value, &Path::default(), &mut found);
    let mut found: Vec<_> = found
        .into_iter()
        .filter(|(path, _)| mask.covers(path) == masked)
        .map(|(path, value)| (path.to_string(), value))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Of which type each container is; where two objects disagree nothing can be
/// carried from one into the other.
fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| b.get(name).is_none_or(|other| same_shape(value, other)))
        }
        (Value::Array(a), Value::Array(b)) => a.iter().all(|item| {
            let named = |other: &&Value| other.get("name") == item.get("name");
            b.iter().find(named).is_none_or(|other| same_shape(item, other))
        }),
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => false,
        _ => true,
    }
}

proptest! {
    #[test]
    fn nothing_outside_a_mask_is_changed(from in objects(), into in objects(), texts in patterns()) {
        let mask = mask(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let mut carried = into.clone();
        mask.carry(&from, &mut carried);
        prop_assume!(same_shape(&from, &into));
        prop_assert_eq!(leaves_of(&carried, &mask, false), leaves_of(&into, &mask, false));
    }

    #[test]
    fn masked_fields_take_their_previous_values(from in objects(), into in objects(), texts in patterns()) {
        let mask = mask(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assume!(same_shape(&from, &into));
        let mut carried = into.clone();
        mask.carry(&from, &mut carried);
        // Within an element that only one of the two has, nothing is masked by
        // itself.
        let elements = |value: &Value| {
            let mut found = Vec::new();
            leaves(value, &Path::default(), &mut found);
            found.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        let holds = |paths: &[Path], path: &Path| {
            path.0.iter().enumerate().filter(|(_, segment)| matches!(segment, Segment::Key(_))).all(|(end, _)| {
                let element = &path.0[..=end];
                mask.covers(&Path(element.into())) || paths.iter().any(|other| other.0.starts_with(element))
            })
        };
        let (now, had) = (elements(&carried), elements(&from));
        let pick = |value: &Value, other: &[Path]| -> Vec<(String, Value)> {
            leaves_of(value, &mask, true)
                .into_iter()
                .filter(|(path, _)| holds(other, &path.parse().unwrap()))
                .collect()
        };
        prop_assert_eq!(pick(&carried, &had), pick(&from, &now));
    }

    #[test]
    fn carrying_twice_is_carrying_once(from in objects(), into in objects(), texts in patterns()) {
        let mask = mask(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let mut once = into;
        mask.carry(&from, &mut once);
        let mut twice = once.clone();
        mask.carry(&from, &mut twice);
        prop_assert_eq!(once, twice);
    }
}

mod seal {
    use std::sync::Arc;

    use crate::flaw::FlawReason;
    use crate::samples::{declared, policies, policy, try_policy};
    use kubemoor_declare::model::{ObjectId, ReleaseId};
    use kubemoor_declare::path::Path;

    const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {tier: web}}, data: {k: v}}";

    /// Which of these paths policies of these specs seal in a ConfigMap.
    #[track_caller]
    fn check(specs: &[&str], wanted: &[&str]) {
        let (object, declared): (ObjectId, _) = declared(CONFIG);
        let declared = Arc::new(declared);
        let compiled = specs.iter().enumerate().map(|(index, spec)| policy(&format!("p{index}"), spec));
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let resolver = crate::resolver::PolicyResolver::of_policies(policies(compiled));
        let rules = resolver.policy(&release).rules(&object, &declared);
        let paths = [
            "/data",
            "/data/k",
            "/binaryData",
            "/metadata/labels/x",
            "/metadata/annotations/x",
            "/immutable",
        ];
        let covered = |path: &&str| rules.sealed.covers(&path.parse::<Path>().unwrap());
        assert_eq!(paths.into_iter().filter(covered).collect::<Vec<_>>(), wanted, "{specs:?}");
        assert_eq!(rules.seal().is_some(), !rules.sealed.is_empty());
    }

    #[test]
    fn seals_of_all_policies_count() {
        check(&["{}"], &[]);
        check(&["{seal: [{paths: [/data]}]}"], &["/data", "/data/k"]);
        check(&["{seal: [{target: {kind: Secret}, paths: [/data]}]}"], &[]);
        check(
            &["{seal: [{target: {labelSelector: tier=web}, paths: [/metadata/labels]}]}"],
            &["/metadata/labels/x"],
        );
        let both =
            ["{seal: [{paths: [/data/k]}]}", "{seal: [{target: {kind: ConfigMap}, paths: [/metadata/*]}]}"];
        check(&both, &["/data/k", "/metadata/labels/x", "/metadata/annotations/x"]);
        let all = [
            "/data",
            "/data/k",
            "/binaryData",
            "/metadata/labels/x",
            "/metadata/annotations/x",
            "/immutable",
        ];
        check(&["{seal: [{paths: ['*']}]}"], &all);
    }

    #[test]
    fn fields_written_by_controllers_cannot_be_sealed() {
        for path in ["/status", "/status/phase", "/kind", "/metadata/finalizers", "/metadata/managedFields/x"]
        {
            let flaws = try_policy("p", &format!("{{seal: [{{paths: [/data, {path}]}}]}}")).unwrap_err();
            let [flaw] = flaws.as_slice() else { panic!("{path}: {flaws:?}") };
            assert_eq!((flaw.field.as_str(), flaw.reason), ("spec.seal[0].paths", FlawReason::InvalidPath));
            assert!(flaw.message.starts_with(path) && flaw.message.contains("/metadata/labels"), "{flaw}");
        }
        for path in ["/metadata", "/metadata/*", "/metadata/labels/a", "'*'", "/spec"] {
            assert!(try_policy("p", &format!("{{seal: [{{paths: [{path}]}}]}}")).is_ok(), "{path}");
        }
    }
}
