use crate::ObjectRules;
use crate::resolver::*;
use crate::resource::{AllowedAutoscalers, SubjectKind, SubjectSpec};
use crate::samples::{declared, policies, policy};
use kubemoor_declare::model::DriftMode;

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn resolved(specs: &[(&str, &str)]) -> Policy {
    policies(specs.iter().map(|(name, spec)| policy(name, spec))).resolve(&release("web"), &Labels::new())
}

#[test]
fn single_values_come_from_the_highest_priority_that_sets_them() {
    use DriftMode::{Repair, Report};
    use EditsMode::{Allow, Deny, Record, Warn};
    let check = |specs: &[(&str, &str)], edits: EditsMode, drift: DriftMode| {
        let policy = resolved(specs);
        assert_eq!((policy.edits, policy.drift), (edits, drift), "{specs:?}");
        assert_eq!(policy.ties(), [], "{specs:?}");
    };
    check(&[], Warn, Report);
    check(&[("a", "{edits: Deny}")], Deny, Report);
    check(&[("a", "{edits: Deny}"), ("b", "{drift: Repair}")], Deny, Repair);
    check(&[("a", "{edits: Deny}"), ("b", "{priority: 1, edits: Record}")], Record, Report);
    check(&[("a", "{edits: Deny}"), ("b", "{priority: 1, drift: Repair}")], Deny, Repair);
    check(&[("a", "{priority: -1, edits: Deny}"), ("b", "{edits: Allow}")], Allow, Report);
    check(&[("a", "{edits: Deny, releases: {names: [other]}}")], Warn, Report);
}

#[test]
fn a_tie_is_broken_by_name_and_named() {
    let policy = resolved(&[
        ("b", "{edits: Allow}"),
        ("a", "{edits: Deny}"),
        ("c", "{edits: Deny}"),
        ("d", "{priority: -1, edits: Warn}"),
    ]);
    assert_eq!(policy.edits, EditsMode::Deny);
    assert_eq!(
        policy.ties().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["spec.edits of policy a takes precedence over that of policy b: both have priority 0, and its \
             name comes first"]
    );
}

#[test]
fn every_value_says_where_it_comes_from() {
    let policy = resolved(&[
        ("a", "{edits: Deny, repair: {rbac: true}}"),
        ("b", "{priority: 1, repair: {clusterScoped: true}, autoscalers: Declared}"),
    ]);
    assert_eq!((policy.repair.rbac, policy.repair.cluster_scoped), (true, true));
    assert_eq!(policy.autoscalers, Some(AllowedAutoscalers::Declared));
    assert_eq!((policy.edits_by.as_deref(), policy.drift_by.as_deref()), (Some("a"), None));
    assert_eq!(policy.matched().collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn lists_are_unions() {
    let policy = resolved(&[
        ("a", "{exempt: [{kind: Group, name: x}], notify: [oncall], ignore: [{paths: [/a]}]}"),
        (
            "b",
            "{priority: 5, exempt: [{kind: Group, name: x}, {kind: User, name: alice}], notify: [chat], ignore: [{paths: [/b]}], allow: [{name: local, paths: [/c]}]}",
        ),
    ]);
    let subject = |kind, name: &str| SubjectSpec { kind, name: name.to_owned(), namespace: None };
    assert_eq!(policy.exempt, [subject(SubjectKind::Group, "x"), subject(SubjectKind::User, "alice")]);
    assert_eq!(policy.notify, ["chat", "oncall"]);
    let (object, declared) =
        declared("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}");
    let rules = policy.rules(&object, &Arc::new(declared));
    for path in ["/a", "/b"] {
        assert!(rules.ignored.covers(&path.parse().unwrap()), "{path}");
    }
    assert_eq!(rules.standing.len(), 1);
}

#[test]
fn objects_that_the_same_targets_select_share_their_rules() {
    let object = |kind: &str, name: &str, more: &str| {
        let (object, declared) = declared(&format!(
            "{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}, namespace: shop{more}}}, data: {{a: b}}}}"
        ));
        (object, Arc::new(declared))
    };
    let config_maps = ["a", "b", "c"].map(|name| object("ConfigMap", name, ""));
    let secret = object("Secret", "a", "");
    let allowing = object("ConfigMap", "d", ", annotations: {kubemoor.dev/allow: /data/b}");
    let check = |spec: &str, are_shared: bool| {
        let policy = resolved(&[("a", spec)]);
        let rules = |(object, declared): &(_, _)| policy.rules(object, declared);
        let [first, second, third] = config_maps.each_ref().map(rules);
        assert_eq!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &third), are_shared, "{spec}");
        let is_covered = |rules: &ObjectRules| rules.ignored.covers(&"/data/a".parse().unwrap());
        assert!(is_covered(&first) && is_covered(&third) && is_covered(&rules(&allowing)), "{spec}");
        assert_eq!((first.standing.len(), rules(&allowing).standing.len()), (0, 1), "{spec}");
        assert!(!is_covered(&rules(&secret)), "{spec}");
    };
    check("{ignore: [{target: {kind: ConfigMap}, paths: [/data]}]}", true);
    check("{ignore: [{target: {kind: ConfigMap}, paths: [/data, /spec/list/0]}]}", false);
    check("{ignore: [{target: {kind: ConfigMap}, paths: [/data]}, {target: {name: b}, paths: [/b]}]}", false);
}

#[test]
fn a_place_in_a_list_is_that_in_the_manifest() {
    let policy = resolved(&[(
        "a",
        "{ignore: [{paths: [/spec/template/spec/containers/1/image, /data/0]}], allow: [{name: port, paths: [/spec/template/spec/containers/0/ports/0/hostPort]}]}",
    )]);
    let catalog = kubemoor_declare::catalog::Catalog::with_core();
    let document: serde_json::Value = serde_saphyr::from_str(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {containers: [{name: app, image: a, ports: [{containerPort: 80}]}, {name: side, image: b}]}}}}",
    )
    .unwrap();
    let (object, mut declared) =
        declared("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}");
    let schema = catalog.schema(&kubemoor_helm::release::gvk(&document));
    declared.packed = kubemoor_declare::declare::declare(&document, schema.as_deref()).into();
    let rules = policy.rules(&object, &Arc::new(declared));
    let shown = |mask: &crate::mask::Mask| mask.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&rules.ignored), ["/spec/template/spec/containers/[name=side]/image", "/data/0"]);
    let port = "/spec/template/spec/containers/[name=app]/ports/[containerPort=80,protocol=TCP]/hostPort";
    assert_eq!(shown(&rules.standing[0].grant.mask), [port]);
}

#[test]
fn a_cluster_that_does_not_match_has_no_policy() {
    let compiled = policy("p", "{edits: Deny, clusterSelector: {matchLabels: {env: prod}}}");
    let check = |cluster: &[(&str, &str)], expected: EditsMode| {
        let cluster = cluster.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let defaults = policies([]).defaults().clone();
        let policies = Policies::new(defaults, &cluster, [Arc::clone(&compiled)]);
        assert_eq!(policies.resolve(&release("web"), &Labels::new()).edits, expected, "{cluster:?}");
    };
    check(&[("env", "prod")], EditsMode::Deny);
    check(&[("env", "dev")], EditsMode::Warn);
    check(&[], EditsMode::Warn);
}

#[test]
fn a_book_knows_the_labels_of_namespaces_and_remembers() {
    let compiled = policy("p", "{edits: Deny, releases: {namespaceSelector: {matchLabels: {tier: prod}}}}");
    let labels = Labels::from([("tier".to_owned(), "prod".to_owned())]);
    let resolver = PolicyResolver::of_policies(policies([compiled]));
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Warn);
    let held = resolver.policy(&release("web"));
    assert!(resolver.set_namespace("shop", Some(labels.clone())));
    drop(held);
    assert!(!resolver.set_namespace("shop", Some(labels)));
    let other = ReleaseId { namespace: "dev".into(), name: "web".into() };
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Deny);
    assert_eq!(resolver.policy(&other).edits, EditsMode::Warn);
    assert!(Arc::ptr_eq(&resolver.policy(&release("web")), &resolver.policy(&release("web"))));
    assert_eq!(resolver.defaults().edits, EditsMode::Warn);
    let held = resolver.policy(&release("web"));
    assert!(resolver.set_namespace("shop", None) && !resolver.set_namespace("shop", None));
    drop(held);
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Warn);
}

#[test]
fn a_namespace_of_which_nobody_holds_an_answer_changes_none() {
    let labels = |tier: &str| Some(Labels::from([("tier".to_owned(), tier.to_owned())]));
    let resolver = PolicyResolver::of_policies(policies([policy("p", "{edits: Deny}")]));
    resolver.policy(&release("web"));
    assert!(!resolver.set_namespace("ci-1", labels("dev")));
    assert!(!resolver.set_namespace("ci-1", labels("prod")));
    assert!(!resolver.set_namespace("ci-1", None));
    assert!(!resolver.set_namespace("shop", labels("dev")), "the release is gone");
    let held = resolver.policy(&release("web"));
    assert!(resolver.set_namespace("shop", labels("prod")));
    drop(held);
    let without = PolicyResolver::of_policies(policies([]));
    without.policy(&release("web"));
    assert!(!without.set_namespace("shop", labels("dev")));
}

#[test]
fn answers_that_nobody_holds_any_more_are_dropped() {
    let resolver = PolicyResolver::of_policies(policies([policy("p", "{edits: Deny}")]));
    let held: Vec<_> = (0..MANY).map(|number| resolver.policy(&release(&format!("held-{number}")))).collect();
    for number in 0..10 * MANY {
        resolver.policy(&release(&format!("gone-{number}")));
    }
    let remembered = resolver.current.read().resolved.len();
    assert!(remembered <= 2 * MANY, "{remembered}");
    assert!(Arc::ptr_eq(&held[0], &resolver.policy(&release("held-0"))));
}

#[test]
fn new_policies_hold_for_releases_that_were_asked_for_before() {
    let resolver = PolicyResolver::of_policies(policies([policy("p", "{edits: Deny}")]));
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Deny);
    resolver.set_policies(policies([policy("p", "{edits: Record}")]));
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Record);
    resolver.set_policies(policies([]));
    assert_eq!(resolver.policy(&release("web")).edits, EditsMode::Warn);
}

#[test]
fn records_are_stored_elsewhere_only_for_named_pairs() {
    let policies = policies([
        policy("p", "{storage: [{records: flux-system, releases: [shop, web]}]}"),
        policy("q", "{releases: {names: [other]}, storage: [{records: ci, releases: [shop]}]}"),
        policy(
            "r",
            "{clusterSelector: {matchLabels: {env: none}}, storage: [{records: test, releases: [shop]}]}",
        ),
    ]);
    let storage = policies.storage();
    assert!(storage.can_store("flux-system", "shop") && storage.can_store("flux-system", "web"));
    assert!(storage.can_store("ci", "shop") && storage.can_store("shop", "shop"));
    assert!(!storage.can_store("shop", "flux-system") && !storage.can_store("flux-system", "other"));
    assert!(!storage.can_store("ci", "web") && !storage.can_store("test", "shop"));
}

#[test]
fn reverts_are_needed_only_where_a_policy_says_so() {
    assert!(policies([policy("p", "{edits: Revert}")]).reverts());
    assert!(!policies([policy("p", "{edits: Deny}"), policy("q", "{}")]).reverts());
}

mod conflict {
    use crate::resolver::{Labels, *};
    use crate::samples::{policies, policy};
    use kubemoor_declare::model::ReleaseId;

    /// The conflicts of policies with these specs, each as a line.
    #[track_caller]
    fn check(specs: &[(&str, &str)], expected: &[&str]) {
        let policies = policies(specs.iter().map(|(name, spec)| policy(name, spec)));
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let found = policies.resolve(&release, &Labels::new()).conflicts();
        let line = |it: &PolicyConflict| {
            let PolicyConflict {
                field,
                policy,
                value: says,
                overridden_policy: over,
                overridden_value: otherwise,
                why,
            } = it;
            format!("{field}: {policy} {says}, not {over} {otherwise}: {why}")
        };
        assert_eq!(found.iter().map(line).collect::<Vec<_>>(), expected, "{specs:?}");
    }

    #[test]
    fn different_values_of_matching_policies_are_conflicts_with_the_one_that_counts() {
        let strict = ("strict", "{edits: Deny, drift: Repair}");
        check(
            &[strict, ("calm", "{priority: 5, edits: Warn}")],
            &["spec.edits: calm Warn, not strict Deny: priority 5 against 0"],
        );
        check(
            &[strict, ("calm", "{edits: Warn, drift: Repair}")],
            &["spec.edits: calm Warn, not strict Deny: both have priority 0, and its name comes first"],
        );
        check(&[strict, ("same", "{edits: Deny}"), ("silent", "{exempt: [{kind: User, name: a}]}")], &[]);
        check(&[strict, ("other", "{edits: Warn, releases: {names: [other]}}")], &[]);
        check(
            &[
                ("a", "{repair: {rbac: true}, autoscalers: Any}"),
                ("b", "{repair: {rbac: false}, autoscalers: Declared}"),
            ],
            &[
                "spec.repair.rbac: a true, not b false: both have priority 0, and its name comes first",
                "spec.autoscalers: a Any, not b Declared: both have priority 0, and its name comes first",
            ],
        );
        // Each two of them.
        let three = [("a", "{edits: Deny}"), ("b", "{edits: Warn}"), ("c", "{priority: 1, edits: Record}")];
        check(
            &three,
            &[
                "spec.edits: c Record, not a Deny: priority 1 against 0",
                "spec.edits: c Record, not b Warn: priority 1 against 0",
                "spec.edits: a Deny, not b Warn: both have priority 0, and its name comes first",
            ],
        );
    }

    #[test]
    fn fields_that_one_policy_ignores_and_another_seals_are_conflicts() {
        let seal = ("seal", "{priority: 9, seal: [{target: {kind: Deployment}, paths: [/spec/template]}]}");
        let ignore =
            |target: &str, path: &str| format!("{{ignore: [{{target: {target}, paths: [{path}]}}]}}");
        let ignored = |path: &str| {
            format!(
                "spec.seal: ignore ignores {path}, not seal seals /spec/template: {}",
                PrecedenceReason::Ignored
            )
        };
        for (target, path, is_conflict) in [
            ("{kind: Deployment}", "/spec/template/metadata", true),
            ("{}", "/spec", true),
            ("{kind: Deployment|Job}", "/spec/*/metadata", true),
            ("{kind: Job}", "/spec/template", false),
            ("{kind: Job|CronJob}", "/spec/template", false),
            ("{kind: Deployment}", "/spec/replicas", false),
        ] {
            let expected = ignored(path);
            let expected: &[&str] = if is_conflict { &[expected.as_str()] } else { &[] };
            check(&[seal, ("ignore", ignore(target, path).as_str())], expected);
        }
    }
}
