use serde_json::Value;
use serde_json::json;

use super::*;

fn sorted(field: &str, rows: &Value) -> Result<Vec<String>, String> {
    let field: FieldPath = field.parse().unwrap();
    let mut rows = rows.as_array().unwrap().clone();
    field.sort(&mut rows).map_err(|error| error.to_string())?;
    Ok(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn rows_are_sorted_by_any_field_as_numbers_or_texts() {
    let rows = json!([
        {"name": "b", "drifted": 10, "object": {"kind": "Service"}},
        {"name": "c", "drifted": null, "object": {"kind": "ConfigMap"}},
        {"name": "a", "drifted": 9, "object": {"kind": "Deployment"}},
    ]);
    for (field, expected) in [
        ("name", ["a", "b", "c"]),
        (".metadata.name", ["a", "b", "c"]),
        ("{.drifted}", ["a", "b", "c"]),
        ("object.kind", ["c", "a", "b"]),
    ] {
        assert_eq!(sorted(field, &rows).unwrap(), expected, "{field}");
    }
    let error = sorted("age", &rows).unwrap_err();
    assert!(error.ends_with("sort by one of drifted, name, object"), "{error}");
    assert_eq!(sorted("age", &json!([])), Ok(Vec::new()));
}

#[test]
fn a_list_has_the_shape_of_kubectls() {
    let list = serde_json::to_value(Items::of([1, 2])).unwrap();
    assert_eq!(list, json!({"apiVersion": "v1", "kind": "List", "items": [1, 2]}));
}
