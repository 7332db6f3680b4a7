use serde_json::{Value, json};

use super::*;

fn check(metadata: Value, expected: Option<(&str, &str, Origin)>) {
    let meta: Meta = serde_json::from_value(metadata.clone()).unwrap();
    let id = |namespace: &str, name: &str| ReleaseId { namespace: namespace.into(), name: name.into() };
    let expected = expected.map(|(namespace, name, origin)| (id(namespace, name), origin));
    assert_eq!(release(&meta), expected, "{metadata}");
}

#[test]
fn release_is_taken_from_the_most_reliable_label_or_annotation() {
    let helm =
        json!({RELEASE_NAME: "web", RELEASE_NAMESPACE: "shop", ARGO_TRACKING: "argo:apps/Deployment:a/b"});
    check(json!({"namespace": "elsewhere", "annotations": helm}), Some(("shop", "web", Origin::Helm)));
    check(
        json!({"namespace": "shop", "annotations": {RELEASE_NAME: "web"}}),
        Some(("shop", "web", Origin::Helm)),
    );
    for tracking in ["web:apps/Deployment:shop/x", "argocd_web:apps/Deployment:shop/x"] {
        let metadata = json!({"namespace": "shop", "annotations": {ARGO_TRACKING: tracking}});
        check(metadata, Some(("shop", "web", Origin::ArgoCd)));
    }
    let labels = json!({ARGO_INSTANCE: "web", INSTANCE: "other"});
    check(json!({"namespace": "shop", "labels": labels}), Some(("shop", "web", Origin::ArgoCd)));
    let labels = json!({INSTANCE: "web"});
    check(json!({"namespace": "shop", "labels": labels}), Some(("shop", "web", Origin::Unknown)));
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
