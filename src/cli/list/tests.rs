use serde_json::json;

use super::*;

#[test]
fn a_list_has_the_shape_of_kubectls() {
    let list = serde_json::to_value(Items::new([1, 2])).unwrap();
    assert_eq!(list, json!({"apiVersion": "v1", "kind": "List", "items": [1, 2]}));
}

#[test]
fn cells_of_a_spreadsheet_are_text() {
    for (value, expected) in [
        (json!(null), ""),
        (json!("a"), "a"),
        (json!(2), "2"),
        (json!(["a", "b"]), "a,b"),
        (json!({"Drifted": 1, "InSync": 12}), "Drifted 1, InSync 12"),
    ] {
        assert_eq!(cell(&value), expected);
    }
}
