//! Many managers, and many fields of one.

use super::*;

#[test]
fn owner_among_many_entries_is_found_for_any_path_spelling() {
    let ports = |count: usize| -> serde_json::Map<String, Value> {
        (0..count)
            .map(|port| (format!("k:{{\"containerPort\":{port},\"protocol\":\"TCP\"}}"), json!({".": {}})))
            .collect()
    };
    for count in [10, 1000] {
        let owners = Owners::from_object(&live(&[entry("who", "Update", &json!({"f:ports": ports(count)}))]));
        for (text, owned) in [
            ("/ports/[containerPort=7,protocol=TCP]", true),
            ("/ports/[containerPort=\"7\",protocol=TCP]", true),
            ("/ports/[protocol=TCP,containerPort=7]", true),
            ("/ports/[containerPort=7,protocol=UDP]", false),
            ("/ports/[containerPort=1000,protocol=TCP]", false),
        ] {
            assert_eq!(!owners.of_path(&path(text)).is_empty(), owned, "{text} of {count}");
        }
    }
}

#[test]
fn conflicts_of_many_managers_are_those_of_each() {
    let fields = fields(&live(&[]));
    let entries: Vec<Value> = (0..40)
        .map(|number| match number % 4 {
            0 => entry(&format!("m{number}"), "Update", &image(&json!({"f:image": {}}))),
            1 => entry(&format!("m{number}"), "Apply", &json!({"f:spec": {}})),
            2 => entry(&format!("m{number}"), "Update", &json!({"f:spec": {"f:other": {}}})),
            _ => entry(&format!("m{number}"), "Update", &json!({"f:spec": {"f:template": {".": {}}}})),
        })
        .collect();
    let live = live(&entries);
    let owners = Owners::from_object(&live);
    let found: Vec<_> =
        conflicts(&fields, &live, &owners, None, SSA).into_iter().map(|it| (it.path, it.manager)).collect();
    let mut tried = Vec::new();
    for (path, declared) in fields.leaves() {
        if !declared.is_null() && !is_key(&path) {
            for manager in owners.of_path(&path) {
                let conflict = (path.clone(), manager.clone());
                if !tried.contains(&conflict) {
                    tried.push(conflict);
                }
            }
        }
    }
    assert!(!tried.is_empty());
    assert_eq!(found, tried);
}
