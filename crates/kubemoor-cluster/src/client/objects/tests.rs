mod live {
    use serde_json::json;

    use super::super::*;

    fn live(text: &str) -> LiveObject {
        let wire: Box<RawValue> = serde_json::from_str(text).unwrap();
        super::super::live(
            &ApiResource::new("apps", "v1", "Deployment", "deployments"),
            WholeObject::read(wire),
        )
    }

    #[test]
    fn live_object_omits_managed_fields_but_keeps_its_field_managers() {
        let managed = json!([{"manager": "helm", "operation": "Apply", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}}}]);
        let annotations =
            json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"});
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
        assert_eq!(live.sighting.managers, [HelmManager { name: "helm".to_owned(), applies: true }]);
        assert_eq!(
            (live.sighting.id.kind.as_str(), live.sighting.resource_version.as_str()),
            ("Deployment", "7")
        );
    }

    #[test]
    fn too_deeply_nested_object_still_yields_its_metadata() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let live =
            live(&format!(r#"{{"metadata": {{"name": "web", "resourceVersion": "7"}}, "spec": {deep}}}"#));
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
}

mod veiled {
    use serde_json::json;

    use super::super::*;

    #[test]
    fn refused_write_of_a_secret_keeps_no_text_of_the_server() {
        let status = json!({
            "status": "Failure", "code": 422, "reason": "Invalid", "message": "hunter2 is invalid",
            "details": {"causes": [{"reason": "FieldValueInvalid", "field": "data", "message": "it is hunter2"}]},
        });
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        for (kind, plural, quotes) in [("Secret", "secrets", false), ("ConfigMap", "configmaps", true)] {
            let resource = ApiResource::new("", "v1", kind, plural);
            let target =
                ObjectTarget { resource, namespace: Some("shop".to_owned()), name: "login".to_owned() };
            let error = target.redact_error(status.clone().into());
            let told = format!("{error} {error:?}");
            assert!(told.contains("422") && told.contains("FieldValueInvalid"), "{told}");
            assert_eq!(told.contains("hunter2"), quotes, "{told}");
        }
    }
}

mod labelled {
    use serde_json::{Value, json};

    use super::super::*;

    fn check(metadata: Value, expected: Option<(&str, &str, LabelOrigin)>) {
        let meta: Meta = serde_json::from_value(metadata.clone()).unwrap();
        let id = |namespace: &str, name: &str| ReleaseId { namespace: namespace.into(), name: name.into() };
        let expected = expected.map(|(namespace, name, origin)| (id(namespace, name), origin));
        assert_eq!(named_release(&meta), expected, "{metadata}");
    }

    #[test]
    fn release_is_taken_from_the_most_reliable_label_or_annotation() {
        let helm = json!({RELEASE_NAME: "web", RELEASE_NAMESPACE: "shop", ARGO_TRACKING: "argo:apps/Deployment:a/b"});
        check(
            json!({"namespace": "elsewhere", "annotations": helm}),
            Some(("shop", "web", LabelOrigin::Helm)),
        );
        check(
            json!({"namespace": "shop", "annotations": {RELEASE_NAME: "web"}}),
            Some(("shop", "web", LabelOrigin::Helm)),
        );
        for tracking in ["web:apps/Deployment:shop/x", "argocd_web:apps/Deployment:shop/x"] {
            let metadata = json!({"namespace": "shop", "annotations": {ARGO_TRACKING: tracking}});
            check(metadata, Some(("shop", "web", LabelOrigin::ArgoCd)));
        }
        let labels = json!({ARGO_INSTANCE: "web", INSTANCE: "other"});
        check(json!({"namespace": "shop", "labels": labels}), Some(("shop", "web", LabelOrigin::ArgoCd)));
        let labels = json!({INSTANCE: "web"});
        check(json!({"namespace": "shop", "labels": labels}), Some(("shop", "web", LabelOrigin::Unknown)));
    }

    #[test]
    fn hooks_and_invalid_names_yield_no_release() {
        for name in ["", "Web", "web\u{1b}[31m", "a/b", ".", "web.", &"w".repeat(254)] {
            check(json!({"namespace": "shop", "annotations": {RELEASE_NAME: name}}), None);
        }
        let metadata =
            json!({"namespace": "shop", "annotations": {RELEASE_NAME: "web", RELEASE_NAMESPACE: "a b"}});
        check(metadata, None);
        let labels = json!({INSTANCE: "web"});
        check(json!({"namespace": "shop", "labels": labels, "annotations": {HOOK: "pre-install"}}), None);
        check(json!({"namespace": "shop"}), None);
        check(json!({"labels": labels}), None);
    }
}
