use crate::flux::*;

fn helm_release(spec: Value) -> Value {
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "web", "namespace": "apps"}, "spec": spec,
    })
}

#[test]
fn release_has_the_name_and_namespace_that_flux_gives_it() {
    let check = |spec: Value, expected: (&str, &str)| {
        let (namespace, name) = release(&helm_release(spec.clone()));
        assert_eq!((namespace.as_str(), name.as_str()), expected, "{spec}");
    };
    check(json!({}), ("apps", "web"));
    check(json!({"releaseName": "shop"}), ("apps", "shop"));
    check(json!({"targetNamespace": "prod"}), ("prod", "prod-web"));
    check(json!({"targetNamespace": "prod", "releaseName": "shop"}), ("prod", "shop"));
    check(json!({"targetNamespace": "", "releaseName": ""}), ("apps", "web"));
    let long = "a".repeat(54);
    let sum = Sha256::digest(long.as_bytes());
    let start: String = sum.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    check(json!({"releaseName": long}), ("apps", &format!("{}-{start}", "a".repeat(40))));
    check(json!({"releaseName": "a".repeat(53)}), ("apps", &"a".repeat(53)));
}

#[test]
fn flux_ignore_rules_without_equivalent_are_reported_as_lost() {
    let check = |rule: Value, ignored: usize, field: &str, words: &str| {
        let imported = import(&helm_release(json!({"driftDetection": {"ignore": [rule]}})));
        let rules = imported.policy.map_or(0, |policy| policy["spec"]["ignore"].as_array().unwrap().len());
        let [lost] = imported.unsupported.as_slice() else { panic!("{rule}: {:?}", imported.unsupported) };
        assert_eq!((rules, lost.field.as_str()), (ignored, field), "{rule}");
        assert!(lost.reason.contains(words), "{lost:?}");
    };
    let at = |field: &str| format!("spec.driftDetection.ignore[0]{field}");
    let paths = |paths: Value| json!({"paths": paths});
    check(paths(json!(["/a", "/metadata/annotations/*"])), 1, &at(".paths[1]"), "here it is a pattern");
    check(paths(json!(["/data/[x]"])), 0, &at(".paths[0]"), "here it is a pattern");
    check(paths(json!(["/spec/containers/-1"])), 0, &at(".paths[0]"), "from the end");
    check(paths(json!(["/spec/containers/-"])), 0, &at(".paths[0]"), "from the end");
    check(paths(json!(["spec"])), 0, &at(".paths[0]"), "");
    check(paths(json!(["/a//b"])), 0, &at(".paths[0]"), "empty segment");
    let target = |target: Value| json!({"paths": ["/spec"], "target": target});
    check(target(json!({"name": "("})), 0, &at(".target.name"), "does not compile");
    check(target(json!({"name": "a[b-d&&c]"})), 0, &at(".target.name"), "a different meaning");
    check(target(json!({"kind": "[a[b]"})), 0, &at(".target.kind"), "a different meaning");
    check(target(json!({"labelSelector": "a in ("})), 0, &at(".target.labelSelector"), "");
    check(target(json!({"names": "a"})), 0, &at(""), "unknown field");
}

#[test]
fn nothing_is_imported_where_flux_ignores_nothing() {
    for spec in
        [json!({}), json!({"driftDetection": {"mode": "enabled"}}), json!({"driftDetection": {"ignore": []}})]
    {
        let imported = import(&helm_release(spec));
        assert!(imported.policy.is_none() && imported.unsupported.is_empty());
    }
    let elsewhere = json!({"kubeConfig": {"secretRef": {"name": "x"}}, "driftDetection": {"ignore": [{"paths": ["/a"]}]}});
    let imported = import(&helm_release(elsewhere));
    assert!(imported.policy.is_none());
    assert_eq!(imported.unsupported[0].field, "spec.kubeConfig");
}

#[test]
fn many_paths_become_several_rules() {
    let paths: Vec<_> = (0..100).map(|number| format!("/data/k{number}")).collect();
    let imported = import(&helm_release(json!({"driftDetection": {"ignore": [{"paths": paths}]}})));
    let policy = imported.policy.unwrap();
    assert_eq!(policy["metadata"]["name"], "flux-apps-web");
    assert_eq!(policy["spec"]["releases"], json!({"names": ["web"], "namespaces": ["apps"]}));
    let lengths: Vec<_> = policy["spec"]["ignore"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["paths"].as_array().unwrap().len())
        .collect();
    assert_eq!(lengths, [64, 36]);
    assert!(crate::compile::policy(policy).is_ok());
}
