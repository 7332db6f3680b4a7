use serde_json::{Value, json};

use crate::lint::*;

fn policy(name: &str, spec: Value) -> DriftPolicy {
    let mut policy = DriftPolicy::new(name, serde_json::from_value(spec).unwrap());
    policy.metadata.name = Some(name.to_owned());
    policy
}

/// What is found in these policies: `policy field Check`, each.
#[track_caller]
fn check(policies: &[(&str, Value)], expected: &[&str]) {
    let policies: Vec<_> = policies.iter().map(|(name, spec)| policy(name, spec.clone())).collect();
    let told = |it: &LintFinding| format!("{} {} {}", it.policy, it.field, it.check.as_str());
    let found: Vec<_> = lint(&policies).iter().map(told).collect();
    assert_eq!(found, expected, "{policies:#?}");
}

#[test]
fn exempt_groups_that_are_everybody_or_nobody_are_found() {
    let exempt = |kind: &str, name: &str| json!({"exempt": [{"kind": kind, "name": name}]});
    check(&[("a", exempt("Group", "system:authenticated"))], &["a spec.exempt[0] Everybody"]);
    check(&[("a", exempt("Group", "system:unauthenticated"))], &["a spec.exempt[0] Everybody"]);
    check(&[("a", exempt("Group", "system:serviceaccounts"))], &["a spec.exempt[0] Everybody"]);
    check(&[("a", exempt("Group", "*"))], &["a spec.exempt[0] Nobody"]);
    check(&[("a", exempt("User", "dev-*"))], &["a spec.exempt[0] Nobody"]);
    check(&[("a", exempt("Group", "break-glass"))], &[]);
    check(&[("a", exempt("User", "system:authenticated"))], &[]);
}

#[test]
fn value_that_a_stronger_policy_always_sets_is_found() {
    let narrow =
        |edits: &str| json!({"edits": edits, "releases": {"names": ["shop-web"], "namespaces": ["shop"]}});
    let wide =
        |priority: i32| json!({"priority": priority, "edits": "Warn", "releases": {"names": ["shop-*"]}});
    check(&[("a", narrow("Deny")), ("b", wide(1))], &["a spec.edits Overridden"]);
    check(&[("a", narrow("Deny")), ("b", wide(0))], &[]);
    check(&[("c", narrow("Deny")), ("b", wide(0))], &["c spec.edits Overridden"]);
    check(&[("a", narrow("Deny")), ("b", wide(-1))], &[]);
    let other = json!({"priority": 1, "drift": "Repair"});
    check(&[("a", narrow("Deny")), ("b", other)], &[]);
    let elsewhere =
        json!({"priority": 1, "edits": "Warn", "clusterSelector": {"matchLabels": {"env": "prod"}}});
    check(&[("a", narrow("Deny")), ("b", elsewhere)], &[]);
    let all = |priority: i32| {
        json!({
            "priority": priority, "edits": "Deny", "drift": "Repair", "autoscalers": "Any",
            "repair": {"rbac": true, "clusterScoped": false},
        })
    };
    check(
        &[("a", all(0)), ("b", all(1))],
        &[
            "a spec.edits Overridden",
            "a spec.drift Overridden",
            "a spec.repair.rbac Overridden",
            "a spec.repair.clusterScoped Overridden",
            "a spec.autoscalers Overridden",
        ],
    );
}

#[test]
fn rule_that_another_one_makes_useless_is_found_once() {
    let ignore = |kind: &str, path: &str| json!({"target": {"kind": kind}, "paths": [path]});
    let allow = |path: &str, more: Value| {
        let mut rule = json!({"name": "x", "paths": [path]});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let rules = |ignore: Value, allow: Value| json!({"ignore": ignore, "allow": allow});
    let spec = ignore("Deployment", "/spec/replicas");
    check(&[("a", rules(json!([spec, spec]), json!([])))], &["a spec.ignore[1].paths[0] Shadowed"]);
    let wide = json!({"paths": ["/spec"]});
    check(&[("a", rules(json!([wide, spec]), json!([])))], &["a spec.ignore[1].paths[0] Shadowed"]);
    check(&[("a", rules(json!([spec, wide]), json!([])))], &["a spec.ignore[0].paths[0] Shadowed"]);
    check(&[("a", rules(json!([spec, ignore("StatefulSet", "/spec/replicas")]), json!([])))], &[]);
    // Of two policies with the same releases the stronger one keeps its rule; of a narrower one it goes.
    let one = || rules(json!([spec]), json!([]));
    check(&[("b", one()), ("a", one())], &["b spec.ignore[0].paths[0] Shadowed"]);
    let narrow = json!({"releases": {"names": ["web"]}, "ignore": [spec], "priority": 9});
    check(&[("a", one()), ("b", narrow)], &["b spec.ignore[0].paths[0] Shadowed"]);
    // Exceptions.
    check(
        &[("a", rules(json!([wide]), json!([allow("/spec/replicas", json!({}))])))],
        &["a spec.allow[0].paths[0] Shadowed"],
    );
    check(&[("a", rules(json!([{"paths": ["*"]}]), json!([allow("delete", json!({}))])))], &[]);
    let subjects = json!({"subjects": [{"kind": "Group", "name": "ops"}]});
    let (open, some) = (allow("/spec/replicas", json!({})), allow("/spec/replicas", subjects));
    check(&[("a", rules(json!([]), json!([open, some])))], &["a spec.allow[1].paths[0] Shadowed"]);
    check(&[("a", rules(json!([]), json!([some, open])))], &["a spec.allow[0].paths[0] Shadowed"]);
    check(&[("a", rules(json!([]), json!([open, open])))], &["a spec.allow[1].paths[0] Shadowed"]);
    check(&[("a", rules(json!([]), json!([some, some])))], &[]);
    let seal = json!({"seal": [{"paths": ["/spec/template"]}], "ignore": [wide]});
    check(&[("a", seal)], &["a spec.seal[0].paths[0] Shadowed"]);
    let helms = json!({"ignore": [{"paths": ["/metadata/labels/app.kubernetes.io~1managed-by"]}]});
    check(&[("a", helms)], &["a spec.ignore[0].paths[0] Ineffective"]);
}

#[test]
fn policies_with_too_many_paths_are_not_compared() {
    let ignore = |paths: usize| {
        let rule = |number: usize| json!({"paths": vec![format!("/spec/{number}"); 50]});
        json!({"ignore": (0..paths / 50).map(rule).collect::<Vec<_>>()})
    };
    let large =
        |count: usize| (0..count).map(|it| policy(&format!("p{it}"), ignore(1000))).collect::<Vec<_>>();
    let found = lint(&large(6));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].message,
        "there are 6000 paths in total, but at most 5000 can be compared: check fewer policies at once"
    );
    assert_eq!(lint(&large(1)).len(), 980);
    let globs = json!({"releases": {"names": vec!["a*".repeat(100); 100]}, "edits": "Deny"});
    let found = lint(&[policy("a", globs.clone()), policy("b", globs)]);
    assert_eq!((found.len(), found[0].check), (1, Check::TooMany), "{found:?}");
}

#[test]
fn long_unknown_names_are_found_without_a_suggestion() {
    let paths: Vec<_> = (0..64).map(|it| format!("/spec/{}{it}", "a".repeat(1000))).collect();
    let target = json!({"kind": "Deployment", "group": "apps"});
    let rules: Vec<_> = (0..15).map(|_| json!({"target": target, "paths": paths})).collect();
    let found = lint(&[policy("a", json!({"ignore": rules}))]);
    let unknown: Vec<_> = found.iter().filter(|it| it.check == Check::UnknownField).collect();
    assert_eq!(unknown.len(), 960);
    assert!(unknown.iter().all(|it| !it.message.contains("did you mean")));
}

#[test]
fn kinds_that_are_almost_kinds_of_kubernetes_are_found() {
    let ignore = |kind: &str| json!({"ignore": [{"target": {"kind": kind}, "paths": ["/spec"]}]});
    check(&[("a", ignore("deployment"))], &["a spec.ignore[0].target.kind UnknownKind"]);
    check(&[("a", ignore("Deployment|statefulsets"))], &["a spec.ignore[0].target.kind UnknownKind"]);
    check(&[("a", ignore("(Deployment|StatefulSet)"))], &[]);
    check(&[("a", ignore("Widget"))], &[]);
    check(&[("a", ignore(".*Set"))], &[]);
    let seal = json!({"seal": [{"target": {"kind": "configmap"}, "paths": ["/data"]}]});
    check(&[("a", seal)], &["a spec.seal[0].target.kind UnknownKind"]);
}

#[test]
fn paths_that_a_built_in_kind_does_not_have_are_found() {
    let found = ["a spec.ignore[0].paths[0] UnknownField"];
    let ignore = |target: Value, path: &str| json!({"ignore": [{"target": target, "paths": [path]}]});
    let deployment = || json!({"kind": "Deployment"});
    check(&[("a", ignore(deployment(), "/spec/replcas"))], &found);
    check(&[("a", ignore(deployment(), "/spec/template/spec/containers/app/image"))], &found);
    check(&[("a", ignore(deployment(), "/spec/replicas"))], &[]);
    check(&[("a", ignore(deployment(), "*"))], &[]);
    // A custom kind of this name may have the field.
    check(&[("a", ignore(deployment(), "/spec/traffic"))], &[]);
    check(&[("a", ignore(json!({"kind": "Deployment", "group": "apps"}), "/spec/traffic"))], &found);
    check(&[("a", ignore(json!({"kind": "Deployment", "group": "example.org"}), "/spec/replcas"))], &[]);
    check(&[("a", ignore(json!({"kind": "Deployment|StatefulSet"}), "/spec/replcas"))], &[]);
    check(&[("a", ignore(json!({"name": "web"}), "/spec/replcas"))], &[]);
    let allow = json!({"name": "x", "target": {"kind": "ConfigMap"}, "paths": ["delete", "/dta/x"]});
    check(&[("a", json!({"allow": [allow]}))], &["a spec.allow[0].paths[1] UnknownField"]);
}

#[test]
fn globs_that_match_no_release_are_found_each() {
    let policies =
        [policy("a", json!({"releases": {"names": ["shop-*", "web"], "namespaces": ["prod", "s?op"]}}))];
    let releases = [ReleaseId { namespace: "shop".into(), name: "web".into() }];
    let found: Vec<_> = unmatched_globs(&policies, &releases).into_iter().map(|it| it.field).collect();
    assert_eq!(found, ["spec.releases.names[0]", "spec.releases.namespaces[0]"]);
    assert_eq!(unmatched_globs(&[policy("all", json!({}))], &[]), []);
}

#[test]
fn targets_that_select_no_declared_object_are_found() {
    use crate::sample_releases::deployed;
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {tier: front}}\n---\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    let release = deployed(manifest);
    let all = std::slice::from_ref(&release.id);
    let found = |target: Value| {
        let rule = json!({"target": target, "paths": ["/data"]});
        let other = json!({"releases": {"names": ["none-*"]}, "ignore": [{"target": {"name": "x"}, "paths": ["/a"]}]});
        let policies = [policy("a", json!({"ignore": [rule]})), policy("b", other)];
        assert_eq!(releases_with_targets(&policies, all), all);
        let unread = (ReleaseId { name: "b".into(), ..release.id.clone() }, None);
        let read = (release.id.clone(), Some(release.clone().into()));
        assert_eq!(unmatched_targets(&policies, &[read.clone(), unread]), []);
        let found = unmatched_targets(&policies, &[read]);
        found.into_iter().map(|it| it.field).collect::<Vec<_>>()
    };
    assert_eq!(found(json!({"name": "web"})), Vec::<String>::new());
    assert_eq!(found(json!({"name": "we.*", "kind": "Deployment|StatefulSet"})), Vec::<String>::new());
    assert_eq!(found(json!({"labelSelector": "tier=front"})), Vec::<String>::new());
    assert_eq!(found(json!({"name": "wbe"})), ["spec.ignore[0].target.name"]);
    assert_eq!(found(json!({"name": "web-.*", "kind": "ConfigMap"})), ["spec.ignore[0].target.name"]);
    assert_eq!(found(json!({"name": "web", "kind": "ConfigMap"})), ["spec.ignore[0].target"]);
    assert_eq!(found(json!({"labelSelector": "tier=back"})), ["spec.ignore[0].target.labelSelector"]);
    assert_eq!(
        found(json!({"name": "wbe", "namespace": "elsewhere"})),
        ["spec.ignore[0].target.namespace", "spec.ignore[0].target.name"]
    );
    // What is misspelled has a finding already, whatever is declared.
    assert_eq!(found(json!({"kind": "deployment"})), Vec::<String>::new());
    assert_eq!(releases_with_targets(&[policy("a", json!({"edits": "Deny"}))], all), []);
}

mod cover {
    use crate::lint::*;

    #[test]
    fn glob_takes_in_another_only_if_every_name_is_matched() {
        for (wide, narrow, expected) in [
            ("*", "shop", true),
            ("shop-*", "shop-web", true),
            ("shop-*", "shop-*", true),
            ("shop-*", "shop-web-*", true),
            ("*-web", "shop-*-web", true),
            ("s*p", "shop", true),
            ("shop-?", "shop-1", true),
            ("shop-?", "shop-?", true),
            ("shop-*", "shop-?", true),
            ("shop-?", "shop-*", false),
            ("shop-web", "shop-*", false),
            ("shop", "shop-web", false),
            ("*-web", "shop-*", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(globs(&[wide.to_owned()], &[narrow.to_owned()]), expected, "{wide} {narrow}");
        }
        let list = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        for (wide, narrow, expected) in [
            (list(&[]), list(&["a"]), true),
            (list(&["a"]), list(&[]), false),
            (list(&["*"]), list(&[]), true),
            (list(&["a-*", "b"]), list(&["b", "a-c"]), true),
            (list(&["a-*", "b"]), list(&["b", "c"]), false),
        ] {
            assert_eq!(globs(&wide, &narrow), expected, "{wide:?} {narrow:?}");
        }
    }

    #[test]
    fn pattern_covers_what_lies_below_and_what_its_steps_name() {
        for (wide, narrow, expected) in [
            ("*", "/spec", true),
            ("/spec", "/spec/replicas", true),
            ("/spec/replicas", "/spec", false),
            ("/metadata/annotations/*", "/metadata/annotations/a", true),
            ("/metadata/annotations/a", "/metadata/annotations/*", false),
            ("/spec/containers/*/image", "/spec/containers/[name=app]/image", true),
            ("/spec/containers/[name=app]", "/spec/containers/[name=app]/image", true),
            ("/spec/containers/[name=app]", "/spec/containers/[name=web]/image", false),
        ] {
            let pattern = |text| Pattern::parse(text).unwrap();
            assert_eq!(covers(&pattern(wide), &pattern(narrow)), expected, "{wide} {narrow}");
        }
    }
}
