use super::*;

fn facts(group: &str, kind: &str, plural: &str) -> KindFacts {
    KindFacts {
        group: group.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
        versions: vec!["v1".to_owned()],
        scale_replicas_path: None,
    }
}

fn check(text: &str, expected: Result<&str, &str>) {
    let mut catalog = Catalog::default();
    catalog.insert(facts("apps", "Deployment", "deployments"));
    catalog.insert(facts("networking.k8s.io", "Ingress", "ingresses"));
    catalog.insert(facts("extensions", "Ingress", "ingresses"));
    catalog.insert(facts("example.org", "Widget", "widgets"));
    catalog.insert(facts("example.com", "Widget", "widgets"));
    let found = text.parse::<NamedObject>().map_err(|error| InspectError::InvalidInput(error.to_owned()));
    let found = found.and_then(|object| Ok(with_kind(&object, kind(&object, &catalog)?, "shop")));
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(format!("{}.{}/{}", found.kind, found.group, found.name), expected, "{text}");
        }
        (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{text}: {error}"),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn an_object_is_named_by_its_kind_in_any_spelling() {
    check("deployment/web", Ok("Deployment.apps/web"));
    check("Deployment/web", Ok("Deployment.apps/web"));
    check("deployments/web", Ok("Deployment.apps/web"));
    check("deployments.apps/web", Ok("Deployment.apps/web"));
    check("widget.example.org/w", Ok("Widget.example.org/w"));
    check("ingress/web", Ok("Ingress.networking.k8s.io/web"));
}

#[test]
fn ambiguous_unknown_and_malformed_object_references_have_distinct_errors() {
    check("widget/w", Err("widgets.example.com or widgets.example.org"));
    check("gadget/w", Err("serves no kind gadget"));
    check("deployment.batch/web", Err("serves no kind"));
    for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
        check(text, Err("KIND/NAME"));
    }
}
