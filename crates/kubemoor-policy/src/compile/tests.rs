use FlawReason::*;

use crate::compile::*;
use crate::samples::try_policy;
use kubemoor_declare::model::{DriftMode, EditsMode};

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

/// So many rules of so many paths each.
fn ignoring(rules: usize, paths: usize) -> String {
    let rule = format!("{{paths: [{}]}},", "/spec/replicas,".repeat(paths));
    format!("{{ignore: [{}]}}", rule.repeat(rules))
}

/// A rule for each of these kinds.
fn ignoring_kinds(kinds: impl Iterator<Item = String>) -> String {
    let rules: String = kinds.map(|kind| format!("{{target: {{kind: '{kind}'}}, paths: [/a]}},")).collect();
    format!("{{ignore: [{rules}]}}")
}

#[test]
fn policy_above_its_bounds_is_rejected_before_it_is_compiled() {
    let refusal = |spec: &str| {
        let flaws = try_policy("p", spec).unwrap_err();
        assert_eq!(flaws.len(), 1, "{flaws:?}");
        flaws[0].to_string()
    };
    assert!(try_policy("p", &ignoring(50, 20)).is_ok());
    assert_eq!(
        refusal(&ignoring(100, 64)),
        "spec: TooMany: the policy has 6400 paths, but at most 1000 are allowed: split it up"
    );
    let part = |part: &str, number: usize| format!("{part}: '{part}-{number}-.{{1,100}}'");
    let rule = |number: usize| {
        let parts = ["group", "version", "kind", "namespace", "name"].map(|name| part(name, number));
        format!("{{target: {{{}}}, paths: [/a]}},", parts.join(", "))
    };
    let rules = |count: usize| format!("{{seal: [{}]}}", (0..count).map(rule).collect::<String>());
    assert!(try_policy("p", &rules(20)).is_ok());
    assert_eq!(
        refusal(&rules(100)),
        "spec: TooMany: the policy has 500 different regular expressions, but at most 100 are allowed: split \
         it up"
    );
    assert!(try_policy("p", &ignoring_kinds((0..100).map(|_| ".*Set".to_owned()))).is_ok());
    assert!(try_policy("p", &ignoring_kinds((0..100).map(|number| format!("Kind{number}")))).is_ok());
}

#[test]
fn text_above_its_bound_is_rejected() {
    check(
        &ignoring_kinds([format!("{}Set", "a".repeat(254))].into_iter()),
        "spec.ignore[0].target.kind",
        InvalidRegex,
    );
    check(
        &ignoring_kinds([format!("{}.", "a".repeat(256))].into_iter()),
        "spec.ignore[0].target.kind",
        InvalidRegex,
    );
    let selector = format!("{{labelSelector: 'a in ({})'}}", "b,".repeat(2048));
    check(
        &format!("{{seal: [{{target: {selector}, paths: [/a]}}]}}"),
        "spec.seal[0].target.labelSelector",
        InvalidSelector,
    );
    let schedule = format!("{{cron: '{}0 0 1 1 *', duration: 1h}}", "0,".repeat(128));
    check(
        &format!("{{allow: [{{name: a, paths: [/a], schedule: {schedule}}}]}}"),
        "spec.allow[0].schedule.cron",
        InvalidSchedule,
    );
    let values = format!("{{matchExpressions: [{{key: a, operator: In, values: [{}]}}]}}", "a,".repeat(65));
    check(&format!("{{clusterSelector: {values}}}"), "spec.clusterSelector.matchExpressions[0]", TooMany);
    let path = format!("/{}", "a".repeat(1024));
    check(&format!("{{ignore: [{{paths: ['{path}']}}]}}"), "spec.ignore[0].paths[0]", InvalidPath);
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
    assert_eq!(
        (compiled.spec.edits, compiled.spec.drift),
        (Some(EditsMode::Revert), Some(DriftMode::Ignore))
    );
    let repair = compiled.spec.repair.as_ref().unwrap();
    assert_eq!((repair.rbac, repair.cluster_scoped), (Some(false), Some(true)));
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

mod read {
    use crate::compile::*;

    fn policy_text(name: &str, spec: &str) -> String {
        format!(
            "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    }

    fn check(files: &[(&str, &str)], accepted: &[&str], flawed: &[(&str, &str, &str, FlawReason)]) {
        let (policies, flaws) = read(files.iter().copied());
        let names: Vec<_> = policies.iter().map(|policy| policy.name.as_str()).collect();
        let found: Vec<_> = flaws
            .iter()
            .map(|it| (it.file.as_str(), it.policy.as_str(), it.flaw.field.as_str(), it.flaw.reason))
            .collect();
        assert_eq!((names.as_slice(), found.as_slice()), (accepted, flawed), "{files:?}: {flaws:?}");
    }

    #[test]
    fn files_hold_any_number_of_policies() {
        let (a, b) = (policy_text("a", "{edits: Deny}"), policy_text("b", "{}"));
        check(&[("1.yaml", &format!("# policies\n---\n{a}---\n{b}---\n"))], &["a", "b"], &[]);
        check(&[("1.yaml", &b), ("2.yaml", &a)], &["a", "b"], &[]);
        check(&[], &[], &[]);
        check(&[("empty.yaml", "")], &[], &[]);
    }

    #[test]
    fn a_flaw_takes_no_other_policy_with_it() {
        let good = policy_text("good", "{edits: Deny}");
        let bad = policy_text("bad", "{ignore: [{paths: [x]}]}");
        check(
            &[("a.yaml", &format!("{good}---\n{bad}")), ("b.yaml", "a: [")],
            &["good"],
            &[
                ("a.yaml", "bad", "spec.ignore[0].paths[0]", FlawReason::InvalidPath),
                ("b.yaml", "1", "", FlawReason::Unreadable),
            ],
        );
    }

    #[test]
    fn invalid_policy_documents_are_reported_with_file_and_name() {
        let other = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: c2VjcmV0}\n";
        check(&[("a.yaml", other)], &[], &[("a.yaml", "s", "apiVersion", FlawReason::InvalidValue)]);
        let unnamed = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {}\nspec: {}\n";
        check(&[("a.yaml", unnamed)], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
        let typo = policy_text("typo", "{ignroe: []}");
        check(&[("a.yaml", &typo)], &[], &[("a.yaml", "typo", "spec.ignroe", FlawReason::UnknownField)]);
        check(&[("a.yaml", "just text")], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
        let large = "#".repeat(MAX_FILE + 1);
        check(&[("a.yaml", &large)], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
    }

    #[test]
    fn first_of_two_policies_with_one_name_counts() {
        let (deny, warn) = (policy_text("p", "{edits: Deny}"), policy_text("p", "{edits: Warn}"));
        check(
            &[("a.yaml", &deny), ("b.yaml", &warn)],
            &["p"],
            &[("b.yaml", "p", "metadata.name", FlawReason::DuplicateName)],
        );
        let (policies, _) = read([("a.yaml", deny.as_str()), ("b.yaml", warn.as_str())]);
        assert_eq!(policies[0].spec.edits, Some(kubemoor_declare::model::EditsMode::Deny));
    }

    #[test]
    fn a_flaw_reads_as_a_sentence_with_its_place() {
        let (_, flaws) = read([("a.yaml", policy_text("p", "{ignore: [{paths: [x]}]}").as_str())]);
        assert_eq!(
            flaws[0].to_string(),
            "a.yaml: policy p: spec.ignore[0].paths[0]: InvalidPath: the path \"x\" does not begin with `/`: \
         write it as a JSON Pointer such as /spec/replicas"
        );
    }
}
