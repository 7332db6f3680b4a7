use serde_json::json;

use super::super::*;

fn digest(text: &str) -> Option<Digest> {
    Digest::new(&serde_json::from_str(text).unwrap())
}

#[test]
fn same_declaration_has_the_same_digest() {
    let one = r#"{"kind": "A", "metadata": {"name": "a"}, "data": {"x": "1", "y": 2}}"#;
    for other in [
        r#"{"data": {"y": 2, "x": "1"}, "metadata": {"name": "a"}, "kind": "A"}"#,
        r#"{"kind": "A", "metadata": {"name": "a", "namespace": "n"}, "data": {"x": "1", "y": 2}}"#,
    ] {
        assert!(digest(one) == digest(other) && digest(one).is_some(), "{other}");
    }
}

#[test]
fn any_other_value_has_another_digest() {
    let texts = [
        r#"{"data": {"x": "1"}}"#,
        r#"{"data": {"x": 1}}"#,
        r#"{"data": {"x": null}}"#,
        r#"{"data": {"x": ""}}"#,
        r#"{"data": {}}"#,
        r#"{"data": {"x": {}}}"#,
        r#"{"data": {"x": []}}"#,
        r#"{"data": {"x": "1", "y": "1"}}"#,
        r#"{"data": {"x": ["1", "2"]}}"#,
        r#"{"data": {"x": ["2", "1"]}}"#,
        r#"{"data": {"x": ["12"]}}"#,
        r#"{"data": {"namespace": "n"}}"#,
        r#"{"spec": {"namespace": {"namespace": "n"}}}"#,
        r#"{"spec": {"namespace": {"namespace": "m"}}}"#,
        r#"{"status": {"x": "1"}}"#,
    ];
    for (index, text) in texts.iter().enumerate() {
        for other in &texts[index + 1..] {
            assert!(digest(text) != digest(other), "{text} {other}");
        }
    }
}

#[test]
fn deeper_document_than_is_compared_has_none() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!([value]));
    assert!(Digest::new(&nested(MAX_DEPTH)).is_some());
    assert!(Digest::new(&nested(MAX_DEPTH + 1)).is_none());
}
