use serde_json::json;

use super::*;

fn live(text: &str) -> Live {
    let wire: Box<RawValue> = serde_json::from_str(text).unwrap();
    super::live(&Resource::new("apps", "v1", "Deployment", "deployments"), Whole::read(wire))
}

#[test]
fn live_object_omits_managed_fields_but_keeps_its_field_managers() {
    let managed = json!([{"manager": "helm", "operation": "Apply", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}}}]);
    let annotations = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2},
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7",
            "annotations": annotations, "managedFields": managed},
    });
    let live = live(&object.to_string());
    let mut bare = object.clone();
    bare["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(live.object, Some(bare));
    assert_eq!(live.whole(), Some(object));
    assert_eq!(live.sighting.release.as_ref().map(|release| release.name.as_str()), Some("web"));
    assert_eq!(live.sighting.managers, [Manager { name: "helm".to_owned(), applies: true }]);
    assert_eq!(
        (live.sighting.id.kind.as_str(), live.sighting.resource_version.as_str()),
        ("Deployment", "7")
    );
}

#[test]
fn too_deeply_nested_object_still_yields_its_metadata() {
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let live = live(&format!(r#"{{"metadata": {{"name": "web", "resourceVersion": "7"}}, "spec": {deep}}}"#));
    assert_eq!((live.object, live.sighting.id.name.as_str()), (None, "web"));
}

#[test]
fn malformed_live_object_has_empty_name_without_error() {
    for odd in ["1", "[]", "{}", r#"{"metadata": 1}"#, r#"{"metadata": {"name": 1}}"#] {
        let live = live(odd);
        assert_eq!(live.sighting.id.name, "", "{odd}");
    }
}

#[test]
fn the_debug_output_shows_no_value() {
    let live = live(r#"{"metadata": {"name": "web"}, "data": {"password": "aHVudGVyMg=="}}"#);
    assert!(!format!("{live:?}").contains("aHVu"), "{live:?}");
}
