//! Elements that were given other keys and fields that exclude others: which, and how they are compared.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{fields, object};
use crate::fields::DeclaredFields;

#[derive(Deserialize)]
struct MovedRow {
    kind: String,
    declared: Value,
    live: Value,
    /// The paths of declared elements and fields with those of the live ones in their places.
    #[serde(default)]
    moved: BTreeMap<String, String>,
    /// What of a moved element differs besides its keys, and stays for the apply.
    #[serde(default)]
    differs: Vec<String>,
}

fn check(row: &MovedRow) {
    let fields = fields(&row.kind, &row.declared);
    let mut live = object(&row.kind, &row.live);
    let moves = fields.moved(&live);
    let found = moves.iter().map(|it| (it.declared.to_string(), it.live.to_string())).collect();
    assert_eq!(row.moved, found, "{} {}", row.declared, row.live);
    DeclaredFields::undo_moves(&moves, &mut live);
    let excluded = fields.drift(&live).into_iter().map(|change| change.path);
    let excluded: Vec<_> =
        excluded.filter(|path| moves.iter().any(|it| it.is_of_field() && it.concerns(path))).collect();
    fields.restore(&excluded, &Value::Null, &mut live);
    let left = fields.drift(&live);
    let paths: Vec<String> = left.iter().map(|change| change.path.to_string()).collect();
    let differs = &row.differs;
    assert!(differs.iter().all(|path| paths.contains(path)), "{differs:?} in {paths:?}");
    for it in &moves {
        assert!(
            left.iter()
                .all(|change| !it.concerns(&change.path) || differs.contains(&change.path.to_string())),
            "{} is still missing in {live}",
            it.declared
        );
    }
    assert_eq!(fields.moved(&live), [], "{live}");
}

#[test]
fn replaced_elements_and_fields_are_found_and_put_back() {
    let rows: Vec<MovedRow> = serde_saphyr::from_str(include_str!("../moved.yaml")).unwrap();
    assert!(rows.len() > 10);
    rows.iter().for_each(check);
}
