use super::*;

#[test]
fn a_path_names_group_version_namespace_and_plural() {
    let deployments = ApiResource::new("apps", "v1", "Deployment", "deployments");
    assert_eq!(deployments.path(Some("shop")).unwrap(), "/apis/apps/v1/namespaces/shop/deployments");
    assert_eq!(deployments.path(None).unwrap(), "/apis/apps/v1/deployments");
    assert_eq!(
        ApiResource::new("", "v1", "Secret", "secrets").path(Some("shop")).unwrap(),
        "/api/v1/namespaces/shop/secrets"
    );
}

#[test]
fn a_name_cannot_leave_its_place_in_a_path() {
    for bad in ["", ".", "..", "a/b", "a%2fb"] {
        assert!(segment(bad).is_err(), "{bad}");
    }
    assert_eq!(segment("system:aggregate-to-view").unwrap(), "system:aggregate-to-view");
    assert_eq!(segment("web?dryRun=All#x y").unwrap(), "web%3FdryRun%3DAll%23x%20y");
}

#[test]
fn odd_times_do_not_make_metadata_unreadable() {
    let meta: Meta = serde_json::from_value(serde_json::json!({
        "name": "web", "creationTimestamp": null, "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": null,
        "managedFields": [
            {"manager": "helm", "operation": "Apply", "time": "10000-01-01T00:00:00Z",
             "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:meta.helm.sh/release-name": {}}}}},
            {"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {"f:k": {}}}},
            {},
        ],
    }))
    .unwrap();
    assert!(meta.deletion_timestamp && meta.creation_timestamp.is_none());
    let managers = meta.managed_fields.unwrap();
    assert_eq!(managers[0].time, None);
    assert!(managers[0].owns_release_name());
    assert!(managers[1].time.is_some() && !managers[1].owns_release_name());
    assert!(!managers[2].owns_release_name());
}
