//! Several declarations of one object, and declarations whose meaning only the
//! API server can tell.

use super::*;

const TOLERATIONS: &str = "/spec/template/spec/tolerations";

fn declaring(replicas: u32) -> String {
    MANIFEST.replace("replicas: 2", &format!("replicas: {replicas}"))
}

fn named<'a>(namespace: &'a str, name: &'a str, manifest: &'a str) -> Release {
    assembled(SampleRecord { namespace, name, manifest, ..SampleRecord::default() }, None)
}

/// The object of [`MANIFEST`] as a release of another namespace declares it.
fn abroad(replicas: u32) -> Release {
    let manifest = declaring(replicas).replace("{name: web}", "{name: web, namespace: shop}");
    named("bank", "loans", &manifest)
}

#[test]
fn any_claim_of_the_namespace_lets_an_edit_pass() {
    let claims = |first: u32, then: u32| {
        vec![named("shop", "web", &declaring(first)), named("shop", "api", &declaring(then))]
    };
    // The annotations that the other release owns are declared as well.
    let owned_by_api = |replicas: u32| {
        let name = "/metadata/annotations/meta.helm.sh~1release-name";
        Some(live(&[(name, json!("api")), ("/spec/replicas", json!(replicas))]))
    };
    check(JudgeCase { claims: claims(2, 3), new: scaled(3), ..JudgeCase::default() }, "Allow as-declared");
    check(
        JudgeCase { claims: claims(3, 2), old: scaled(5), new: scaled(3), ..JudgeCase::default() },
        "Allow as-declared",
    );
    check(
        JudgeCase { claims: claims(2, 3), new: owned_by_api(3), ..JudgeCase::default() },
        "Allow as-declared",
    );
    check(
        JudgeCase { claims: claims(2, 3), new: scaled(4), ..JudgeCase::default() },
        "Deny drift /spec/replicas",
    );
}

#[test]
fn a_foreign_claim_counts_only_if_the_object_names_it() {
    let loans = || ObjectOwner::Release(release("bank", "loans"));
    let both = || JudgeCase { claims: vec![deployed(MANIFEST), abroad(3)], ..JudgeCase::default() };
    check(JudgeCase { new: scaled(3), ..both() }, "Deny drift /spec/replicas");
    check(JudgeCase { new: scaled(3), owner: loans(), ..both() }, "Allow as-declared");
    check(JudgeCase { new: scaled(4), owner: loans(), ..both() }, "Deny drift /spec/replicas");
    let alone = || JudgeCase { claims: vec![abroad(3)], new: scaled(4), ..JudgeCase::default() };
    check(alone(), "Allow not-declared");
    check(JudgeCase { owner: ObjectOwner::Nobody, ..alone() }, "Allow not-declared");
    check(JudgeCase { owner: loans(), ..alone() }, "Deny drift /spec/replicas");
}

#[test]
fn no_foreign_claim_counts_while_the_owner_is_not_known() {
    let bare = |n: u32| Some(json!({"spec": {"replicas": n}}));
    let scale = |claims| JudgeCase {
        claims,
        scale: true,
        owner: ObjectOwner::Unknown,
        old: bare(2),
        ..JudgeCase::default()
    };
    check(JudgeCase { new: bare(4), ..scale(vec![abroad(3)]) }, "Allow not-declared");
    check(JudgeCase { new: bare(3), ..scale(vec![abroad(3)]) }, "Allow not-declared");
    check(
        JudgeCase { new: bare(3), ..scale(vec![deployed(MANIFEST), abroad(3)]) },
        "Deny drift /spec/replicas",
    );
    check(
        JudgeCase { new: bare(3), ..scale(vec![abroad(3), deployed(MANIFEST)]) },
        "Deny drift /spec/replicas",
    );
    check(
        JudgeCase { old: bare(3), new: bare(2), ..scale(vec![abroad(3), deployed(MANIFEST)]) },
        "Allow as-declared",
    );
}

#[test]
fn a_claim_has_a_say_in_its_own_version_alone() {
    let edit = |version| JudgeCase { version, new: scaled(5), ..JudgeCase::default() };
    check(edit(Some("v1")), "Deny drift /spec/replicas");
    check(edit(Some("v2")), "Allow not-declared");
    check(edit(None), "Deny drift /spec/replicas");
    let delete = |version| JudgeCase { operation: Operation::Delete, new: None, ..edit(version) };
    check(delete(Some("v1")), "Deny deletion");
    check(delete(Some("v2")), "Allow not-declared");
}

#[test]
fn change_counts_only_in_the_api_version_of_latest_manifest() {
    let moved = |status| {
        let mut release = second(status, &declaring(3), &declaring(2));
        for declarations in Arc::make_mut(&mut release.objects).values_mut() {
            let latest = declarations.latest.as_mut().map(Arc::make_mut).unwrap();
            (latest.version, latest.facts) = ("v2".into(), None);
        }
        release
    };
    let edit = |status, version, replicas: u32| JudgeCase {
        claims: vec![moved(status)],
        version: Some(version),
        old: scaled(7),
        new: scaled(replicas),
        ..JudgeCase::default()
    };
    for status in [ReleaseStatus::PendingUpgrade, ReleaseStatus::Failed, ReleaseStatus::Deployed] {
        check(edit(status, "v2", 3), "Allow as-declared");
        let arguable = if status.is_pending() { "?" } else { "" };
        check(edit(status, "v2", 2), &format!("Deny drift{arguable} /spec/replicas"));
        check(edit(status, "v1", 2), "Allow not-declared");
    }
}

#[test]
fn a_failed_release_is_content_with_either_manifest() {
    let case = |replicas: u32| JudgeCase {
        claims: vec![second(ReleaseStatus::Failed, &declaring(3), &declaring(2))],
        old: scaled(7),
        new: scaled(replicas),
        ..JudgeCase::default()
    };
    check(case(3), "Allow as-declared");
    check(case(2), "Allow as-declared");
    check(case(4), "Deny drift /spec/replicas");
}

#[test]
fn only_the_pending_manifest_counts_until_the_release_is_locked() {
    for status in [ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback] {
        let case = |replicas: u32| JudgeCase {
            claims: vec![second(status, &declaring(3), &declaring(2))],
            old: scaled(7),
            new: scaled(replicas),
            ..JudgeCase::default()
        };
        check(case(3), "Allow as-declared");
        check(case(2), "Deny drift? /spec/replicas");
        let locked = |replicas| JudgeCase { now: "2026-05-01T14:00:00Z", ..case(replicas) };
        check(locked(3), "Allow as-declared");
        check(locked(2), "Allow as-declared");
        check(locked(4), "Deny drift /spec/replicas");
    }
}

/// What the server may fill in a field of, one that no known server has.
fn doubted() -> String {
    MANIFEST.replace("tolerations: []", "tolerations: [{key: gpu}]")
}

/// An edit that makes of something else what the API server may make of the
/// manifest.
fn doubtful() -> JudgeCase<'static> {
    JudgeCase {
        claims: vec![deployed(&doubted())],
        old: Some(live(&[(TOLERATIONS, json!([{"key": "old"}]))])),
        new: Some(tolerating("gpu")),
        ..JudgeCase::default()
    }
}

fn tolerating(unheard: &str) -> Value {
    live(&[(TOLERATIONS, json!([{"key": "gpu", "yetUnheardOf": unheard}]))])
}

fn pending() -> Vec<Release> {
    vec![second(ReleaseStatus::PendingUpgrade, &doubted(), &doubted())]
}

#[test]
fn a_refusal_in_doubt_may_be_turned_by_the_arbiter() {
    check(doubtful(), &format!("Deny drift? {TOLERATIONS}"));
    check(JudgeCase { claims: pending(), ..doubtful() }, &format!("Deny drift? {TOLERATIONS}"));
    check(JudgeCase { mode: EditsMode::Warn, ..doubtful() }, &format!("Warn drift? {TOLERATIONS}"));
    let mut both = tolerating("gpu");
    both["spec"]["replicas"] = json!(5);
    let found = JudgeCase { new: Some(both), ..doubtful() }.verdict();
    assert_eq!((found.outcome, found.arguable), (EditOutcome::Deny, false), "{found:?}");
    // The replicas alone reach a scale, and no dry run tells them.
    let bare = |n: u32| Some(json!({"spec": {"replicas": n}}));
    let scale =
        JudgeCase { claims: pending(), scale: true, old: bare(2), new: bare(5), ..JudgeCase::default() };
    check(scale, "Deny drift /spec/replicas");
}

#[test]
fn the_arbiter_settles_a_doubt_either_way() {
    let (same, other, without) = (tolerating("gpu"), tolerating("ssd"), live(&[]));
    let refused = format!("Deny drift {TOLERATIONS}");
    for claims in [pending(), vec![deployed(&doubted())]] {
        let case = |canonical| JudgeCase {
            claims: claims.clone(),
            evidence: DryRunEvidence::Canonical(canonical),
            ..doubtful()
        };
        check(case(&same), "Allow as-declared");
        check(case(&other), &refused);
        check(case(&without), &refused);
    }
}

#[test]
fn change_matching_the_dry_run_is_allowed_during_helm_operation() {
    let (five, six) = (scaled(5).unwrap(), scaled(6).unwrap());
    let case = |canonical, claims| JudgeCase {
        claims,
        new: scaled(5),
        evidence: DryRunEvidence::Canonical(canonical),
        ..JudgeCase::default()
    };
    check(case(&five, pending()), "Allow as-declared");
    check(case(&six, pending()), "Deny drift /spec/replicas");
    check(case(&five, vec![deployed(MANIFEST)]), "Deny drift /spec/replicas");
}

#[test]
fn a_doubt_that_nobody_settles_never_stops_an_operation() {
    let case = |claims| JudgeCase { claims, evidence: DryRunEvidence::Unavailable, ..doubtful() };
    check(case(pending()), &format!("Record unsettled {TOLERATIONS}"));
    check(case(vec![deployed(&doubted())]), &format!("Deny drift {TOLERATIONS}"));
    let unavailable =
        || JudgeCase { claims: pending(), evidence: DryRunEvidence::Unavailable, ..JudgeCase::default() };
    check(JudgeCase { new: scaled(5), ..unavailable() }, "Deny drift /spec/replicas");
    // A webhook may have added it to what Helm sends.
    check(added(unavailable()), &format!("Record unsettled {TOLERATIONS}"));
}

#[test]
fn where_there_is_no_arbiter_a_doubt_warns_at_most() {
    for (mode, word) in [
        (EditsMode::Allow, "Allow"),
        (EditsMode::Record, "Record"),
        (EditsMode::Warn, "Warn"),
        (EditsMode::Deny, "Warn"),
    ] {
        for claims in [pending(), vec![deployed(&doubted())]] {
            let case = JudgeCase { mode, claims, evidence: DryRunEvidence::Nowhere, ..doubtful() };
            check(case, &format!("{word} unsettled {TOLERATIONS}"));
        }
    }
    check(
        JudgeCase { evidence: DryRunEvidence::Nowhere, new: scaled(5), ..JudgeCase::default() },
        "Deny drift /spec/replicas",
    );
}

#[test]
fn dry_run_settles_the_arguable_claim_regardless_of_claim_order() {
    let patient = doubted().replace("{replicas: 2", "{minReadySeconds: 1, replicas: 2");
    let api = || named("shop", "api", &patient);
    let waiting = |key: &str| {
        let mut object = tolerating(key);
        object["spec"]["minReadySeconds"] = json!(3);
        object
    };
    let (same, other) = (waiting("gpu"), waiting("ssd"));
    for claims in [vec![deployed(&doubted()), api()], vec![api(), deployed(&doubted())]] {
        let case = || JudgeCase { claims: claims.clone(), new: Some(waiting("gpu")), ..doubtful() };
        assert!(case().verdict().arguable);
        check(JudgeCase { evidence: DryRunEvidence::Canonical(&same), ..case() }, "Allow as-declared");
        assert_eq!(
            JudgeCase { evidence: DryRunEvidence::Canonical(&other), ..case() }.verdict().outcome,
            EditOutcome::Deny
        );
    }
}

/// The edit that adds an element to a list.
fn added(case: JudgeCase<'_>) -> JudgeCase<'_> {
    let old = live(&[(TOLERATIONS, json!([{"key": "gpu"}]))]);
    let new = live(&[(TOLERATIONS, json!([{"key": "gpu"}, {"operator": "Exists"}]))]);
    JudgeCase { old: Some(old), new: Some(new), ..case }
}

#[test]
fn an_addition_is_refused_without_asking_the_arbiter() {
    let idle = || added(JudgeCase { claims: vec![deployed(&doubted())], ..JudgeCase::default() });
    check(idle(), &format!("Deny drift {TOLERATIONS}"));
    check(JudgeCase { evidence: DryRunEvidence::Nowhere, ..idle() }, &format!("Deny drift {TOLERATIONS}"));
    // An operation under way may have sent it through a webhook.
    let (new, old) = (idle().new.unwrap(), idle().old.unwrap());
    let busy = || JudgeCase { claims: pending(), ..idle() };
    check(busy(), &format!("Deny drift? {TOLERATIONS}"));
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&new), ..busy() }, "Allow as-declared");
    check(
        JudgeCase { evidence: DryRunEvidence::Canonical(&old), ..busy() },
        &format!("Deny drift {TOLERATIONS}"),
    );
}

#[test]
fn a_doubt_is_settled_by_what_was_there_before() {
    let with = |unheard: Value| {
        let mut element = json!({"key": "gpu"});
        element["yetUnheardOf"] = unheard;
        Some(live(&[(TOLERATIONS, json!([element]))]))
    };
    let declared = || Some(live(&[(TOLERATIONS, json!([{"key": "gpu"}]))]));
    let case = |old, new| JudgeCase { claims: vec![deployed(&doubted())], old, new, ..JudgeCase::default() };
    let refused = format!("Deny drift {TOLERATIONS}");
    // A default would have been there.
    check(case(declared(), with(json!(1))), &refused);
    check(case(with(json!(1)), with(json!(2))), &refused);
    check(case(with(json!(1)), declared()), "Allow as-declared");
}

#[test]
fn a_declared_empty_value_that_nobody_else_fills_is_judged() {
    let old = || Some(live(&[]));
    let tolerated = Some(live(&[(TOLERATIONS, json!([{"operator": "Exists"}]))]));
    check(
        JudgeCase { old: old(), new: tolerated, ..JudgeCase::default() },
        &format!("Deny drift {TOLERATIONS}"),
    );
    let classes = MANIFEST.replace("tolerations: []", "serviceAccountName: null");
    let new = Some(live(&[("/spec/template/spec/serviceAccountName", json!("mine"))]));
    check(
        JudgeCase { claims: vec![deployed(&classes)], old: old(), new, ..JudgeCase::default() },
        "Deny drift /spec/template/spec/serviceAccountName",
    );
}

#[test]
fn fields_missing_at_creation_may_be_dropped_by_the_server() {
    let without = || {
        let mut object = live(&[]);
        object["spec"].as_object_mut().unwrap().remove("replicas");
        object
    };
    let case = |claims, new, evidence| JudgeCase {
        claims,
        operation: Operation::Create,
        old: None,
        new: Some(new),
        evidence,
        ..JudgeCase::default()
    };
    let pending = || vec![second(ReleaseStatus::PendingUpgrade, MANIFEST, MANIFEST)];
    let (whole, lacking, deployed) = (live(&[]), without(), || vec![deployed(MANIFEST)]);
    for nobody in [DryRunEvidence::Unavailable, DryRunEvidence::Nowhere] {
        check(case(pending(), without(), nobody), "Record unsettled /spec/replicas");
    }
    check(case(deployed(), without(), DryRunEvidence::None), "Deny drift? /spec/replicas");
    check(case(deployed(), without(), DryRunEvidence::Canonical(&lacking)), "Allow as-declared");
    check(case(deployed(), without(), DryRunEvidence::Canonical(&whole)), "Deny drift /spec/replicas");
    // Without a dry run only Helm is believed.
    check(case(deployed(), without(), DryRunEvidence::Unavailable), "Deny drift /spec/replicas");
    check(case(deployed(), without(), DryRunEvidence::Nowhere), "Deny drift /spec/replicas");
    let other = live(&[("/spec/replicas", json!(5))]);
    check(case(pending(), other, DryRunEvidence::Unavailable), "Deny drift /spec/replicas");
    // What the server has kept until now it does not drop.
    let update = JudgeCase { claims: pending(), new: Some(without()), ..JudgeCase::default() };
    check(JudgeCase { evidence: DryRunEvidence::Unavailable, ..update }, "Deny drift /spec/replicas");
}

#[test]
fn null_entry_of_a_map_is_held_to_the_empty_text() {
    const TEAM: &str = "/metadata/annotations/team";
    let manifest = MANIFEST.replace("{name: web}", "{name: web, annotations: {team: }}");
    let case = |old: &[(&str, Value)], new: &[(&str, Value)]| JudgeCase {
        claims: vec![deployed(&manifest)],
        old: Some(live(old)),
        new: Some(live(new)),
        ..JudgeCase::default()
    };
    let (unset, set) = ([(TEAM, json!(""))], [(TEAM, json!("a"))]);
    check(case(&unset, &set), &format!("Deny drift {TEAM}"));
    check(case(&unset, &[]), &format!("Deny drift {TEAM}"));
    check(case(&set, &unset), "Allow as-declared");
    check(case(&[], &unset), "Allow as-declared");
}

#[test]
fn null_for_a_map_that_is_one_value_is_held_to() {
    const NODES: &str = "/spec/template/spec/nodeSelector";
    let manifest = MANIFEST.replace("tolerations: []", "nodeSelector: ");
    let case = |old: &[(&str, Value)], new: &[(&str, Value)]| JudgeCase {
        claims: vec![deployed(&manifest)],
        old: Some(live(old)),
        new: Some(live(new)),
        ..JudgeCase::default()
    };
    let disk = [(NODES, json!({"disk": "ssd"}))];
    check(case(&[], &disk), &format!("Deny drift {NODES}"));
    check(case(&disk, &[]), "Allow as-declared");
}

#[test]
fn account_of_the_release_fills_empty_values_of_its_secrets() {
    const MANIFEST: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: certs}, data: {tls.crt: '', ca: YQ==}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: rotator}}
";
    let secret = |certificate: &str, authority: &str| {
        let mut secret = live(&[]);
        secret.as_object_mut().unwrap().remove("spec");
        secret["data"] = json!({"tls.crt": certificate, "ca": authority});
        secret
    };
    let object = ObjectId::namespaced("", "Secret", "shop", "certs");
    let (circumstances, resolver) = (ObjectContext::default(), resolver(EditsMode::Deny));
    let rules = Rules { resolver: &resolver, own_account: None };
    let check = |user: &str, old: &Value, new: &Value, wanted: &str| {
        let actor = Actor { user: user.to_owned(), ..Actor::default() };
        let edit = Edit {
            operation: Operation::Update,
            actor: &actor,
            object: &object,
            old: Some(old),
            new: Some(new),
            version: Some("v1"),
            scale: false,
            owner: ObjectOwner::Release(release("shop", "web")),
            dry_run: false,
            field_manager: "rotator",
            circumstances: &circumstances,
        };
        let claims = [Arc::new(deployed(MANIFEST))];
        let now = "2026-05-01T12:05:00Z".parse().unwrap();
        assert_eq!(describe(&judge(&edit, &claims, &rules, DryRunEvidence::None, now).0), wanted, "{user}");
    };
    let (empty, filled, renewed) = (secret("", "YQ=="), secret("Yg==", "YQ=="), secret("Yw==", "YQ=="));
    let rotator = "system:serviceaccount:shop:rotator";
    check(rotator, &empty, &filled, "Allow identity");
    check(rotator, &filled, &renewed, "Allow identity");
    check(rotator, &empty, &secret("", "eA=="), "Deny drift /data/ca");
    for other in ["alice", "system:serviceaccount:shop:default", "system:serviceaccount:bank:rotator"] {
        check(other, &empty, &filled, "Deny drift /data/tls.crt");
    }
    check("alice", &filled, &empty, "Allow as-declared");
}
