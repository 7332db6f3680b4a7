use serde_json::json;

use super::super::*;

#[test]
fn lookup_finds_same_values_as_path_and_indexes_lists_once() {
    let items: Vec<Value> = (0..50).map(|number| json!({"name": number / 2, "port": "80"})).collect();
    let object = json!({
        "spec": {"items": items, "set": ["a", 1, true, null, {"a": 1}, "1"], "none": {}},
        "odd": [{"name": {"a": 1}}, {"name": [1]}, "text", {"name": null}, {"name": "\"3\""}],
    });
    let mut lookup = PathLookup::new(&object);
    let numbered = (0..30).map(|number| format!("/spec/items/[name={number}]/port"));
    let others = [
        "/spec/items/[name=\"3\"]",
        "/spec/items/[name=3,port=80]",
        "/spec/items/[port=80,name=3]",
        "/spec/items/[none=1]",
        "/spec/none/[name=1]",
        "/spec/set",
        "",
        "/odd/[name=null]",
        "/odd/[name=1]",
        "/odd/[name=text]",
    ];
    let mut paths: Vec<Path> =
        numbered.chain(others.map(str::to_owned)).map(|path| path.parse().unwrap()).collect();
    for element in [json!("a"), json!(1), json!("1"), json!(true), json!(null), json!({"a": 1}), json!(2)] {
        let set: Path = "/spec/set".parse().unwrap();
        paths.push(Path(set.0.iter().cloned().chain([Segment::Element(element)]).collect()));
    }
    for path in &paths {
        let found: Vec<*const Value> = lookup.get(path).into_iter().map(std::ptr::from_ref).collect();
        let wanted: Vec<*const Value> = path.get(&object).into_iter().map(std::ptr::from_ref).collect();
        assert_eq!(found, wanted, "{path}");
    }
    // By name, by both ways round, by a key that none has; the set; by name in the odd ones.
    assert_eq!(lookup.lists.len(), 6);
}
