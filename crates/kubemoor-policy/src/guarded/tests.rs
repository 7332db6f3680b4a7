use super::*;

#[test]
fn a_reference_names_its_object_again() {
    let object = |namespace: Option<&str>| ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: namespace.map(Into::into),
        name: "web".into(),
    };
    for namespace in [Some("shop"), Some("other"), None] {
        let object = object(namespace);
        assert_eq!(ObjectReference::of(&object, "shop").id("shop"), object);
    }
    let own = serde_json::to_value(ObjectReference::of(&object(Some("shop")), "shop")).unwrap();
    assert_eq!(own, serde_json::json!({"group": "apps", "kind": "Deployment", "name": "web"}));
}
