//! Elements that were given other keys: which, and how they are compared.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{fields, object};
use crate::fields::Fields;

#[derive(Deserialize)]
struct Row {
    kind: String,
    declared: Value,
    live: Value,
    /// The paths of declared elements with those of the live ones that were moved.
    #[serde(default)]
    moved: BTreeMap<String, String>,
}

fn check(row: &Row) {
    let fields = fields(&row.kind, &row.declared);
    let mut live = object(&row.kind, &row.live);
    let moves = fields.moved(&live);
    let found = moves.iter().map(|it| (it.declared.to_string(), it.live.to_string())).collect();
    assert_eq!(row.moved, found, "{} {}", row.declared, row.live);
    Fields::put_back(&moves, &mut live);
    let left = fields.drift(&live);
    for path in row.moved.keys() {
        assert!(
            left.iter().all(|change| change.path.to_string() != *path),
            "{path} is still missing in {live}"
        );
    }
    assert_eq!(fields.moved(&live), [], "{live}");
}

#[test]
fn moved_elements_are_told_from_those_that_were_added() {
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("../moved.yaml")).unwrap();
    assert!(rows.len() > 10);
    rows.iter().for_each(check);
}
