//! The table of spellings is `compare/drift.yaml`; here stands what it cannot
//! reach.

use serde_json::{Value, json};

use super::{Agreement, Place, Spot, agreement, is_same, is_same_scalar};
use crate::declaration::schema::{Scalar, TypeId, Types};

#[test]
fn times_and_bytes_are_equal_by_what_they_stand_for() {
    let same = |kind, a: &str, b: &str| is_same_scalar(kind, &json!(a), &json!(b));
    assert!(same(Scalar::Time, "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00"));
    assert!(!same(Scalar::Time, "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"));
    assert!(!same(Scalar::Time, "soon", "later"));
    assert!(same(Scalar::Bytes, "YWJj\r\nZA==", "YWJjZA=="));
    assert!(!same(Scalar::Bytes, "YWJj", "YWJk"));
}

#[test]
fn texts_are_equal_with_and_without_quotes() {
    let same = |kind, a: Value, b: Value| is_same_scalar(kind, &a, &b);
    assert!(same(Scalar::Text, json!(true), json!("true")));
    assert!(same(Scalar::Text, json!("1"), json!(1)));
    assert!(!same(Scalar::Text, json!("1.0"), json!("1")));
    assert!(same(Scalar::IntOrString, json!(80), json!("80")));
    assert!(!same(Scalar::Plain, json!(80), json!("80")));
    assert!(same(Scalar::Plain, json!(80), json!(80.0)));
    assert!(!same(Scalar::Plain, json!(u64::MAX), json!(u64::MAX - 1)));
}

#[test]
fn a_quantity_too_long_to_hold_exactly_is_in_doubt() {
    let types = Types(vec![super::Shape::Any, super::Shape::Scalar(Scalar::Quantity)]);
    let spot = Spot { name: "cpu", place: Place::Entry };
    let judge = |declared: &str| agreement(&types, TypeId(1), spot, &json!(declared), Some(&json!("1")));
    assert_eq!(judge("1.000000000000000000000000001"), Agreement::Doubt);
    assert_eq!(judge("1000m"), Agreement::Agrees);
    assert_eq!(judge("1001m"), Agreement::Differs);
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
    assert!(Agreement::Agrees < Agreement::Doubt && Agreement::Doubt < Agreement::Differs);
}
