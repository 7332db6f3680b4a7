use super::super::samples::try_policy;
use super::*;

use FlawReason::*;

#[track_caller]
fn check(spec: &str, field: &str, reason: FlawReason) {
    let flaws = try_policy("p", spec).unwrap_err();
    assert_eq!((flaws[0].field.as_str(), flaws[0].reason), (field, reason), "{spec}: {flaws:?}");
}

#[test]
fn invalid_policy_is_rejected_with_field_and_reason() {
    check("{ignore: [{paths: [spec/replicas]}]}", "spec.ignore[0].paths[0]", InvalidPath);
    check("{ignore: [{paths: [/a]}, {paths: [/a, delete]}]}", "spec.ignore[1].paths[1]", InvalidPath);
    check("{ignore: [{paths: []}]}", "spec.ignore[0].paths", Missing);
    check("{ignore: [{target: {kind: '['}, paths: [/a]}]}", "spec.ignore[0].target.kind", InvalidRegex);
    check("{allow: [{name: a, paths: [a]}]}", "spec.allow[0].paths[0]", InvalidPath);
    check(
        "{allow: [{name: a, paths: [/a], schedule: {cron: '0 0 30 2 *', duration: 1h}}]}",
        "spec.allow[0].schedule.cron",
        NeverFires,
    );
    check(
        "{allow: [{name: a, paths: [/a], schedule: {cron: '0 0 * * *', duration: 1h, timeZone: X}}]}",
        "spec.allow[0].schedule.timeZone",
        UnknownTimeZone,
    );
    check(
        "{allow: [{name: a, paths: [/a], subjects: [{kind: ServiceAccount, name: x}]}]}",
        "spec.allow[0].subjects[0]",
        InvalidSubject,
    );
    check("{exempt: [{kind: Group, name: ''}]}", "spec.exempt[0]", InvalidSubject);
    check("{operators: [{kind: User, name: a, namespace: b}]}", "spec.operators[0]", InvalidSubject);
    check("{releases: {names: [Shop]}}", "spec.releases.names[0]", InvalidGlob);
    check(
        "{releases: {namespaceSelector: {matchLabels: {'-': a}}}}",
        "spec.releases.namespaceSelector.matchLabels",
        InvalidSelector,
    );
    check(
        "{clusterSelector: {matchExpressions: [{key: a, operator: In}]}}",
        "spec.clusterSelector.matchExpressions[0]",
        InvalidSelector,
    );
    check("{edits: Denied}", "spec.edits", InvalidValue);
    check("{edit: Deny}", "spec.edit", UnknownField);
    check("{allow: [{paths: [/a]}]}", "spec.allow[0]", Missing);
    check("{priority: high}", "spec.priority", InvalidValue);
    check(&format!("{{notify: [{}]}}", "a,".repeat(101)), "spec.notify", TooMany);
    check(&format!("{{ignore: [{{paths: [{}]}}]}}", "/a,".repeat(65)), "spec.ignore[0].paths", TooMany);
}

#[test]
fn invalid_storage_is_rejected_with_field_and_reason() {
    check("{storage: [{records: flux-system}]}", "spec.storage[0]", Missing);
    check("{storage: [{records: flux-system, releases: []}]}", "spec.storage[0].releases", Missing);
    check("{storage: [{records: '*', releases: [shop]}]}", "spec.storage[0].records", InvalidValue);
    check(
        "{storage: [{records: a, releases: [shop, 'shop-*']}]}",
        "spec.storage[0].releases[1]",
        InvalidValue,
    );
    check("{storage: [{records: a, releases: [b, a]}]}", "spec.storage[0].releases[1]", InvalidValue);
    check(
        &format!("{{storage: [{{records: a, releases: [{}]}}]}}", "b,".repeat(101)),
        "spec.storage[0].releases",
        TooMany,
    );
    check(&format!("{{storage: [{}]}}", "{records: a, releases: [b]},".repeat(101)), "spec.storage", TooMany);
}

#[test]
fn all_flaws_are_told_at_once() {
    let flaws =
        try_policy("p", "{ignore: [{paths: [a, /b, c]}], exempt: [{kind: User, name: ''}]}").unwrap_err();
    let fields: Vec<_> = flaws.iter().map(|flaw| flaw.field.as_str()).collect();
    assert_eq!(fields, ["spec.exempt[0]", "spec.ignore[0].paths[0]", "spec.ignore[0].paths[2]"]);
}

#[test]
fn the_policy_of_the_documentation_compiles() {
    let compiled = try_policy(
        "production",
        r#"
priority: 10
releases: {names: ["shop-*"], namespaces: ["shop", "prod-*"], namespaceSelector: {matchLabels: {tier: prod}}}
clusterSelector: {matchLabels: {env: prod}}
edits: Revert
drift: Ignore
repair: {rbac: false, clusterScoped: true}
autoscalers: Declared
ignore:
- target: {group: apps, version: v1, kind: Deployment, namespace: shop, name: web, labelSelector: a, annotationSelector: b}
  paths: ["/spec/replicas", "/spec/template/spec/containers/[name=app]/image", "/metadata/annotations/*"]
allow:
- name: weekend-downtime
  target: {kind: StatefulSet, name: jenkins}
  paths: ["/spec/replicas"]
  schedule: {cron: "30 7 * * SAT,SUN", duration: 10h, timeZone: America/New_York}
  subjects: [{kind: Group, name: jenkins-admins}]
exempt: [{kind: Group, name: break-glass}]
operators: [{kind: ServiceAccount, namespace: ci, name: deployer}]
notify: [oncall]
storage: [{records: flux-system, releases: [shop]}]
"#,
    )
    .unwrap();
    assert_eq!((compiled.edits, compiled.drift), (Some(EditsMode::Revert), Some(DriftMode::Ignore)));
    assert_eq!((compiled.repair.rbac, compiled.repair.cluster_scoped), (Some(false), Some(true)));
}

#[test]
fn a_policy_is_for_releases_by_name_and_namespace() {
    let release = |namespace: &str, name: &str| ReleaseId { namespace: namespace.into(), name: name.into() };
    let prod = BTreeMap::from([("tier".to_owned(), "prod".to_owned())]);
    let check = |spec: &str, namespace: &str, name: &str, expected: bool| {
        let policy = try_policy("p", spec).unwrap();
        assert_eq!(policy.is_for(&release(namespace, name), &prod), expected, "{spec}: {namespace}/{name}");
    };
    check("{}", "any", "thing", true);
    check("{releases: {names: ['shop-*']}}", "x", "shop-web", true);
    check("{releases: {names: ['shop-*']}}", "x", "web", false);
    check("{releases: {names: ['shop-*'], namespaces: [shop]}}", "x", "shop-web", false);
    check("{releases: {names: ['shop-*'], namespaces: [shop, x]}}", "x", "shop-web", true);
    check("{releases: {namespaceSelector: {matchLabels: {tier: prod}}}}", "x", "web", true);
    check("{releases: {namespaceSelector: {matchLabels: {tier: dev}}}}", "x", "web", false);
    check("{releases: {namespaces: [x], namespaceSelector: {matchLabels: {tier: dev}}}}", "x", "web", false);
}
