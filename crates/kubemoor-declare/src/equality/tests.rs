//! The table of spellings is `compare/drift.yaml`; here stands what it cannot
//! reach.

use serde_json::{Value, json};

use proptest::prelude::*;

use super::{
    EquivalenceIndex, Family, FieldAgreement, FieldContext, FieldPlace, agreement, is_same, is_same_scalar,
};
use crate::catalog;
use crate::samples::{any_value, deployment};
use crate::schema::{ScalarType, TypeId, Types};

mod quantity;

#[test]
fn times_and_bytes_are_equal_by_what_they_stand_for() {
    let same = |kind, a: &str, b: &str| is_same_scalar(kind, &json!(a), &json!(b));
    assert!(same(ScalarType::Time, "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00"));
    assert!(!same(ScalarType::Time, "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"));
    assert!(!same(ScalarType::Time, "soon", "later"));
    assert!(same(ScalarType::Bytes, "YWJj\r\nZA==", "YWJjZA=="));
    assert!(!same(ScalarType::Bytes, "YWJj", "YWJk"));
}

#[test]
fn texts_are_equal_with_and_without_quotes() {
    let same = |kind, a: Value, b: Value| is_same_scalar(kind, &a, &b);
    assert!(same(ScalarType::Text, json!(true), json!("true")));
    assert!(same(ScalarType::Text, json!("1"), json!(1)));
    assert!(!same(ScalarType::Text, json!("1.0"), json!("1")));
    assert!(same(ScalarType::IntOrString, json!(80), json!("80")));
    assert!(!same(ScalarType::Plain, json!(80), json!("80")));
    assert!(same(ScalarType::Plain, json!(80), json!(80.0)));
    assert!(!same(ScalarType::Plain, json!(u64::MAX), json!(u64::MAX - 1)));
}

#[test]
fn a_quantity_too_long_to_hold_exactly_is_in_doubt() {
    let types = Types(vec![super::Shape::Any, super::Shape::Scalar(ScalarType::Quantity)]);
    let spot = FieldContext::new("cpu", FieldPlace::Entry, Family::Core);
    let judge = |declared: &str| agreement(&types, TypeId(1), spot, &json!(declared), Some(&json!("1")));
    assert_eq!(judge("1.000000000000000000000000001"), FieldAgreement::Doubt);
    assert_eq!(judge("1000m"), FieldAgreement::Agrees);
    assert_eq!(judge("1001m"), FieldAgreement::Differs);
}

#[test]
fn null_and_empty_lists_are_absence_but_zero_is_not() {
    let types = Types::default();
    let same = |a: Option<Value>, b: Option<Value>| is_same(&types, TypeId::ANY, a.as_ref(), b.as_ref());
    assert!(same(None, Some(Value::Null)));
    assert!(same(None, Some(json!([]))));
    assert!(same(Some(json!({"a": null})), Some(json!({"b": []}))));
    assert!(!same(None, Some(json!(false))));
    assert!(!same(None, Some(json!(0))));
    assert!(!same(Some(json!({"a": 0})), Some(json!({}))));
    assert!(!same(Some(json!([1, 2])), Some(json!([2, 1]))));
    assert!(!same(Some(json!([1])), Some(json!({"a": 1}))));
}

#[test]
fn agreements_are_ordered_from_good_to_bad() {
    assert!(
        FieldAgreement::Agrees < FieldAgreement::Doubt && FieldAgreement::Doubt < FieldAgreement::Differs
    );
}

/// Whether an element is found exactly where trying all would find one.
fn check_alike(types: &Types, ty: TypeId, items: &[Value], wanted: &Value) {
    let found = EquivalenceIndex::at(types, ty, items, 0).find(wanted);
    let tried = items.iter().find(|item| is_same(types, ty, Some(item), Some(wanted)));
    assert_eq!(found, tried, "{wanted} in {items:?}");
}

#[test]
fn spellings_of_one_scalar_are_of_one_class() {
    let core = catalog::core();
    let schema = core.schema(&crate::model::Gvk::from_api_version("v1", "ConfigMap")).unwrap();
    let spellings = [
        json!(1),
        json!(1.0),
        json!("1"),
        json!("1.0"),
        json!("1.00"),
        json!(true),
        json!("true"),
        json!(null),
        json!(u64::MAX),
        json!(u64::MAX.to_string()),
        json!(1e3),
        json!("1000"),
        json!("1000.0"),
        json!(-0.0),
        json!(0),
        json!("-0.0"),
        json!([]),
        json!({}),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992.0),
    ];
    // A map of texts, and what has no type.
    let maps: Vec<Value> =
        spellings.iter().map(|it| json!({"metadata": {"annotations": {"a": it}}})).collect();
    for (ty, items) in [(TypeId::ANY, &spellings[..]), (schema.root, &maps)] {
        for wanted in items {
            for item in items {
                check_alike(&schema.types, ty, std::slice::from_ref(item), wanted);
            }
        }
    }
}

proptest! {
    #[test]
    fn an_element_is_found_by_its_class(items in prop::collection::vec(any_value(), 0..6), wanted in any_value()) {
        check_alike(&Types::default(), TypeId::ANY, &items, &wanted);
    }

    #[test]
    fn an_object_is_found_by_its_class(items in prop::collection::vec(deployment(), 0..4), wanted in deployment()) {
        let schema = catalog::core().schema(&crate::model::Gvk::from_api_version("apps/v1", "Deployment")).unwrap();
        check_alike(&schema.types, schema.root, &items, &wanted);
    }
}
