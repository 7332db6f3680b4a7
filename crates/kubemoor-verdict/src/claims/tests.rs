use crate::claims::*;
use crate::sample_policies::{policies, policy};
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_declare::model::ReleaseId;

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn claims(names: &[&str]) -> Vec<Arc<Release>> {
    let given = |name| SampleRecord { namespace: "shop", name, ..SampleRecord::default() };
    names.iter().map(|name| Arc::new(assembled(given(name), None))).collect()
}

#[test]
fn beside_an_owner_with_operators_only_their_releases_count() {
    let of = |releases: &str, operators: &str| {
        let users = operators.split(' ').map(|user| format!("{{kind: User, name: {user}}}"));
        let users = users.collect::<Vec<_>>().join(", ");
        policy(releases, &format!("{{releases: {{names: [{releases}]}}, operators: [{users}]}}"))
    };
    let resolver = PolicyResolver::of_policies(policies([
        of("web", "ci flux"),
        of("cache", "ci"),
        of("wide", "ci mallory"),
        policy("lax", "{releases: {names: [lax]}, edits: Record, operators: [{kind: User, name: ci}]}"),
        policy(
            "excused",
            "{releases: {names: [excused]}, operators: [{kind: User, name: ci}], exempt: [{kind: User, name: eve}]}",
        ),
    ]));
    let check = |owner: &ObjectOwner, names: &[&str], expected: &[&str]| {
        let mut claims = claims(names);
        retain_operators(&mut claims, owner, &resolver);
        let left: Vec<_> = claims.iter().map(|claim| claim.id.name.as_str()).collect();
        assert_eq!(left, expected, "{owner:?}");
    };
    let all = ["web", "cache", "wide", "lax", "excused", "forged"];
    check(&ObjectOwner::Release(release("web")), &all, &["web", "cache"]);
    check(&ObjectOwner::Release(release("cache")), &all, &["cache"]);
    check(&ObjectOwner::Release(release("forged")), &all, &all);
    check(&ObjectOwner::Nobody, &all, &all);
    // Without the owner's own claim nobody would refuse anything.
    check(&ObjectOwner::Release(release("web")), &["forged"], &["forged"]);
}

#[test]
fn owner_matters_where_one_of_several_releases_has_operators() {
    let operated = policy("web", "{releases: {names: [web]}, operators: [{kind: User, name: ci}]}");
    let resolver = PolicyResolver::of_policies(policies([operated]));
    for (names, expected) in
        [(&["web"][..], false), (&["forged", "web"], true), (&["forged", "other"], false)]
    {
        assert_eq!(depends_on_owner(&claims(names), &resolver), expected, "{names:?}");
    }
}

mod deletion {
    use serde_json::json;

    use crate::claims::*;

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "web")
    }

    fn blocking(kind: &str, live: Value, now: &str) -> Option<String> {
        let change = blocking_finalizers(&object(kind), &live, now.parse().unwrap())?;
        Some(format!("{} {}", change.path, change.new.unwrap()))
    }

    #[test]
    fn finalizers_count_as_drift_five_minutes_after_the_deletion() {
        let live = |finalizers: Value| json!({"metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z", "finalizers": finalizers}});
        let held = || live(json!(["example.org/hold"]));
        let found = Some("/metadata/finalizers [\"example.org/hold\"]".to_owned());
        assert_eq!(blocking("ConfigMap", held(), "2026-05-01T12:05:00Z"), found);
        assert_eq!(blocking("ConfigMap", held(), "2026-05-01T12:04:59Z"), None);
        for ends in [json!([]), json!(null), json!("x")] {
            assert_eq!(blocking("ConfigMap", live(ends), "2026-05-01T13:00:00Z"), None);
        }
        let alive = json!({"metadata": {"finalizers": ["example.org/hold"]}});
        assert_eq!(blocking("ConfigMap", alive, "2026-05-01T13:00:00Z"), None);
    }

    #[test]
    fn a_namespace_is_also_held_by_the_finalizers_of_its_spec() {
        let live = json!({
            "metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z"}, "spec": {"finalizers": ["kubernetes"]},
        });
        let now = "2026-05-01T12:05:00Z";
        let found = Some("/spec/finalizers [\"kubernetes\"]".to_owned());
        assert_eq!(blocking("Namespace", live.clone(), now), found);
        assert_eq!(blocking("ConfigMap", live, now), None);
    }

    #[test]
    fn only_the_removal_of_finalizers_is_a_step_of_a_deletion() {
        let is_step = |kind: &str, path: &str| is_of_finalizers(&object(kind), &path.parse().unwrap());
        assert!(is_step("ConfigMap", "/metadata/finalizers"));
        assert!(is_step("Namespace", "/spec/finalizers"));
        for path in ["/spec/finalizers", "/metadata/labels/finalizers", "/data/k", "/metadata"] {
            assert!(!is_step("ConfigMap", path), "{path}");
        }
    }
}

mod dependants {
    use serde_json::{Value, json};

    use crate::claims::*;
    use crate::edit::{ObjectContext, ObjectOwner};
    use crate::sample_releases::{SampleRecord, assembled};
    use crate::samples::resolver;
    use kubemoor_declare::model::{Actor, EditsMode};
    use kubemoor_helm::record::ReleaseStatus;

    const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    const NOW: &str = "2026-05-01T12:05:00Z";

    fn object(group: &str, kind: &str, name: &str) -> ObjectId {
        ObjectId { group: group.into(), kind: kind.into(), namespace: None, name: name.into() }
    }

    fn shop() -> CascadeScope {
        CascadeScope::Namespace("shop".to_owned())
    }

    fn named<'a>(namespace: &'a str, name: &'a str, manifest: &'a str) -> SampleRecord<'a> {
        SampleRecord { namespace, name, manifest, ..SampleRecord::default() }
    }

    fn found(taken: &CascadeScope, releases: Vec<Release>) -> Vec<Dependant> {
        let mut index = Index::default();
        releases.into_iter().for_each(|release| index.set(release));
        let resolver = resolver(EditsMode::Deny);
        let rules = Rules { resolver: &resolver, own_account: None };
        dependants(taken, &index, &rules, NOW.parse().unwrap())
    }

    /// The releases with the objects that go along.
    #[track_caller]
    fn check_found(taken: &CascadeScope, releases: Vec<Release>, wanted: &[&str]) {
        let found: Vec<_> =
            found(taken, releases).iter().map(|it| format!("{} {}", it.release.id, it.object.name)).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn namespaces_and_definitions_take_others_along() {
        assert_eq!(cascade_scope(&object("", "Namespace", "shop")), Some(shop()));
        let kind = CascadeScope::Kind { group: "example.org".to_owned(), plural: "things".to_owned() };
        let definition = |group, name| object(group, "CustomResourceDefinition", name);
        assert_eq!(cascade_scope(&definition("apiextensions.k8s.io", "things.example.org")), Some(kind));
        assert_eq!(cascade_scope(&definition("apiextensions.k8s.io", "things")), None);
        assert_eq!(cascade_scope(&definition("example.org", "things.example.org")), None);
        assert_eq!(cascade_scope(&object("example.org", "Namespace", "shop")), None);
        assert_eq!(cascade_scope(&object("", "ConfigMap", "shop")), None);
    }

    #[test]
    fn a_namespace_takes_one_object_of_each_release_in_it() {
        let two = format!("{CONFIG}---\n{}", CONFIG.replace("settings", "another"));
        let elsewhere = CONFIG.replace("{name: settings}", "{name: settings, namespace: shop}");
        let releases = vec![
            assembled(named("shop", "web", &two), None),
            assembled(named("shop", "api", CONFIG), None),
            assembled(named("bank", "loans", CONFIG), None),
            assembled(named("bank", "cards", &elsewhere), None),
        ];
        check_found(&shop(), releases, &["shop/api settings", "shop/web another"]);
        check_found(&shop(), Vec::new(), &[]);
    }

    #[test]
    fn uninstalled_or_opted_out_objects_are_not_counted_as_dependants() {
        let in_state = |status, wanted: &[&str]| {
            let release = assembled(SampleRecord { status, ..named("shop", "web", CONFIG) }, None);
            check_found(&shop(), vec![release], wanted);
        };
        for status in [
            ReleaseStatus::Deployed,
            ReleaseStatus::Failed,
            ReleaseStatus::PendingUpgrade,
            ReleaseStatus::Superseded,
        ] {
            in_state(status, &["shop/web settings"]);
        }
        in_state(ReleaseStatus::Uninstalling, &[]);
        in_state(ReleaseStatus::Uninstalled, &[]);
        let out = CONFIG
            .replace("{name: settings}", "{name: settings, annotations: {kubemoor.dev/guard: disabled}}");
        check_found(&shop(), vec![assembled(named("shop", "web", &out), None)], &[]);
    }

    #[test]
    fn a_kind_takes_the_objects_of_that_kind() {
        let kind = |group: &str, plural: &str| CascadeScope::Kind {
            group: group.to_owned(),
            plural: plural.to_owned(),
        };
        let release = || vec![assembled(named("shop", "web", CONFIG), None)];
        check_found(&kind("", "configmaps"), release(), &["shop/web settings"]);
        check_found(&kind("", "secrets"), release(), &[]);
        check_found(&kind("example.org", "configmaps"), release(), &[]);
    }

    struct ClaimCase<'a> {
        operation: Operation,
        user: &'a str,
        old: Value,
        new: Option<Value>,
        /// The release that declares the namespace itself.
        claims: Vec<Release>,
        dependants: Vec<Dependant>,
        mode: EditsMode,
    }

    impl Default for ClaimCase<'_> {
        fn default() -> Self {
            Self {
                operation: Operation::Delete,
                user: "alice",
                old: json!({"metadata": {"name": "shop"}}),
                new: None,
                claims: Vec::new(),
                dependants: found(&shop(), vec![assembled(named("shop", "web", CONFIG), None)]),
                mode: EditsMode::Deny,
            }
        }
    }

    #[track_caller]
    fn check(case: ClaimCase<'_>, wanted: &str) {
        let actor = Actor { user: case.user.to_owned(), ..Actor::default() };
        let circumstances = ObjectContext::default();
        let edit = Edit {
            circumstances: &circumstances,
            operation: case.operation,
            actor: &actor,
            object: &object("", "Namespace", "shop"),
            old: Some(&case.old),
            new: case.new.as_ref(),
            version: None,
            scale: false,
            owner: ObjectOwner::named_by(&case.old),
            dry_run: false,
            field_manager: "",
        };
        let claims: Vec<_> = case.claims.into_iter().map(Arc::new).collect();
        let resolver = resolver(case.mode);
        let rules = Rules { resolver: &resolver, own_account: Some("moor") };
        let verdict = judge_deletion(&edit, &claims, &case.dependants, &rules, NOW.parse().unwrap());
        assert_eq!(format!("{} {}", verdict.outcome.as_str(), verdict.reason.as_str()), wanted);
    }

    #[test]
    fn cascading_deletion_of_declared_objects_follows_the_edits_mode() {
        for (mode, word) in [
            (EditsMode::Allow, "Allow"),
            (EditsMode::Record, "Record"),
            (EditsMode::Warn, "Warn"),
            (EditsMode::Deny, "Deny"),
        ] {
            check(ClaimCase { mode, ..ClaimCase::default() }, &format!("{word} dependants"));
        }
        check(ClaimCase { dependants: Vec::new(), ..ClaimCase::default() }, "Allow not-declared");
        check(ClaimCase { operation: Operation::Update, ..ClaimCase::default() }, "Allow not-declared");
    }

    #[test]
    fn a_new_owner_is_judged_as_the_deletion_that_it_causes() {
        let owned = |names: &[&str]| {
            let owner =
                |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"});
            json!({"metadata": {"name": "shop", "ownerReferences": names.iter().map(owner).collect::<Vec<_>>()}})
        };
        let case = || ClaimCase {
            operation: Operation::Update,
            new: Some(owned(&["gone"])),
            ..ClaimCase::default()
        };
        for (mode, word) in
            [(EditsMode::Allow, "Allow"), (EditsMode::Warn, "Warn"), (EditsMode::Deny, "Deny")]
        {
            check(ClaimCase { mode, ..case() }, &format!("{word} dependants"));
        }
        check(ClaimCase { mode: EditsMode::Revert, ..case() }, "Deny dependants");
        check(ClaimCase { old: owned(&["here"]), ..case() }, "Deny dependants");
        check(ClaimCase { old: owned(&["gone"]), ..case() }, "Allow not-declared");
        check(ClaimCase { old: owned(&["gone"]), new: Some(owned(&[])), ..case() }, "Allow not-declared");
        check(ClaimCase { dependants: Vec::new(), ..case() }, "Allow not-declared");
        let labelled = json!({"metadata": {"name": "shop", "labels": {"tier": "prod"}}});
        check(ClaimCase { new: Some(labelled), ..case() }, "Allow not-declared");
        let mut going = owned(&[]);
        going["metadata"]["deletionTimestamp"] = json!("2026-05-01T12:00:00Z");
        check(ClaimCase { old: going, ..case() }, "Allow not-declared");
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        check(ClaimCase { user: collector, ..case() }, "Allow not-declared");
    }

    #[test]
    fn terminating_objects_and_built_in_controllers_may_delete_dependants() {
        let going = json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-05-01T12:00:00Z"}});
        check(ClaimCase { old: going, ..ClaimCase::default() }, "Allow not-declared");
        let controller = "system:serviceaccount:kube-system:namespace-controller";
        check(ClaimCase { user: controller, ..ClaimCase::default() }, "Allow not-declared");
    }

    #[test]
    fn helm_deletes_what_its_own_release_declares_whatever_it_takes() {
        let manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
        let claims =
            |status| vec![assembled(SampleRecord { status, ..named("bank", "base", manifest) }, None)];
        let owned = json!({"metadata": {"name": "shop", "annotations": {
        "meta.helm.sh/release-name": "base", "meta.helm.sh/release-namespace": "bank"}}});
        let case = |status| ClaimCase { claims: claims(status), old: owned.clone(), ..ClaimCase::default() };
        check(case(ReleaseStatus::Uninstalling), "Allow in-band");
        check(case(ReleaseStatus::Deployed), "Deny deletion");
        check(ClaimCase { mode: EditsMode::Warn, ..case(ReleaseStatus::Deployed) }, "Warn dependants");
    }
}
