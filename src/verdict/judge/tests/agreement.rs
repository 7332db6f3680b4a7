//! Several declarations of one object, and declarations whose meaning only the
//! API server can tell.

use super::*;

const TOLERATIONS: &str = "/spec/template/spec/tolerations";

fn declaring(replicas: u32) -> String {
    MANIFEST.replace("replicas: 2", &format!("replicas: {replicas}"))
}

fn named<'a>(namespace: &'a str, name: &'a str, manifest: &'a str) -> Release {
    assembled(Given { namespace, name, manifest, ..Given::default() }, None)
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
    check(Case { claims: claims(2, 3), new: scaled(3), ..Case::default() }, "Allow as-declared");
    check(
        Case { claims: claims(3, 2), old: scaled(5), new: scaled(3), ..Case::default() },
        "Allow as-declared",
    );
    check(Case { claims: claims(2, 3), new: owned_by_api(3), ..Case::default() }, "Allow as-declared");
    check(Case { claims: claims(2, 3), new: scaled(4), ..Case::default() }, "Deny drift /spec/replicas");
}

#[test]
fn a_foreign_claim_counts_only_if_the_object_names_it() {
    let loans = || Owner::Release(release("bank", "loans"));
    let both = || Case { claims: vec![deployed(MANIFEST), abroad(3)], ..Case::default() };
    check(Case { new: scaled(3), ..both() }, "Deny drift /spec/replicas");
    check(Case { new: scaled(3), owner: loans(), ..both() }, "Allow as-declared");
    check(Case { new: scaled(4), owner: loans(), ..both() }, "Deny drift /spec/replicas");
    let alone = || Case { claims: vec![abroad(3)], new: scaled(4), ..Case::default() };
    check(alone(), "Allow not-declared");
    check(Case { owner: Owner::Nobody, ..alone() }, "Allow not-declared");
    check(Case { owner: loans(), ..alone() }, "Deny drift /spec/replicas");
}

#[test]
fn the_claim_seen_first_counts_while_the_annotations_are_not_at_hand() {
    let bare = |n: u32| Some(json!({"spec": {"replicas": n}}));
    let scale = |claims| Case { claims, scale: true, owner: Owner::Unknown, old: bare(2), ..Case::default() };
    check(Case { new: bare(4), ..scale(vec![abroad(3)]) }, "Deny drift /spec/replicas");
    check(Case { new: bare(3), ..scale(vec![abroad(3)]) }, "Allow as-declared");
    check(Case { new: bare(3), ..scale(vec![deployed(MANIFEST), abroad(3)]) }, "Deny drift /spec/replicas");
    check(Case { new: bare(3), ..scale(vec![abroad(3), deployed(MANIFEST)]) }, "Allow as-declared");
}

#[test]
fn a_failed_release_is_content_with_either_manifest() {
    let case = |replicas: u32| Case {
        claims: vec![second(Status::Failed, &declaring(3), &declaring(2))],
        old: scaled(7),
        new: scaled(replicas),
        ..Case::default()
    };
    check(case(3), "Allow as-declared");
    check(case(2), "Allow as-declared");
    check(case(4), "Deny drift /spec/replicas");
}

#[test]
fn a_pending_release_declares_its_pending_manifest_alone_until_it_is_locked() {
    for status in [Status::PendingUpgrade, Status::PendingRollback] {
        let case = |replicas: u32| Case {
            claims: vec![second(status, &declaring(3), &declaring(2))],
            old: scaled(7),
            new: scaled(replicas),
            ..Case::default()
        };
        check(case(3), "Allow as-declared");
        check(case(2), "Deny drift? /spec/replicas");
        let locked = |replicas| Case { now: "2026-05-01T14:00:00Z", ..case(replicas) };
        check(locked(3), "Allow as-declared");
        check(locked(2), "Allow as-declared");
        check(locked(4), "Deny drift /spec/replicas");
    }
}

/// An edit of what the manifest declares as empty: a mutating webhook of the
/// cluster may fill it, and so may a person.
fn doubtful() -> Case<'static> {
    Case { old: Some(tolerating("old")), new: Some(tolerating("gpu")), ..Case::default() }
}

fn tolerating(key: &str) -> Value {
    live(&[(TOLERATIONS, json!([{"key": key, "operator": "Exists"}]))])
}

fn pending() -> Vec<Release> {
    vec![second(Status::PendingUpgrade, MANIFEST, MANIFEST)]
}

#[test]
fn a_refusal_in_doubt_may_be_turned_by_the_arbiter() {
    check(doubtful(), &format!("Deny drift? {TOLERATIONS}"));
    check(Case { claims: pending(), ..doubtful() }, &format!("Deny drift? {TOLERATIONS}"));
    check(Case { mode: EditsMode::Warn, ..doubtful() }, &format!("Warn drift? {TOLERATIONS}"));
    let mut both = tolerating("gpu");
    both["spec"]["replicas"] = json!(5);
    let found = Case { new: Some(both), ..doubtful() }.verdict();
    assert_eq!((found.outcome, found.arguable), (Outcome::Deny, false), "{found:?}");
    // The replicas alone reach a scale, and no dry run tells them.
    let bare = |n: u32| Some(json!({"spec": {"replicas": n}}));
    let scale = Case { claims: pending(), scale: true, old: bare(2), new: bare(5), ..Case::default() };
    check(scale, "Deny drift /spec/replicas");
}

#[test]
fn the_arbiter_settles_a_doubt_either_way() {
    let (same, other, without) = (tolerating("gpu"), tolerating("ssd"), live(&[]));
    let refused = format!("Deny drift {TOLERATIONS}");
    for claims in [pending(), vec![deployed(MANIFEST)]] {
        let case = |canonical| Case {
            claims: claims.clone(),
            evidence: Evidence::Canonical(canonical),
            ..doubtful()
        };
        check(case(&same), "Allow as-declared");
        check(case(&other), &refused);
        check(case(&without), &refused);
    }
}

#[test]
fn what_a_dry_run_would_write_passes_while_an_operation_is_under_way() {
    let (five, six) = (scaled(5).unwrap(), scaled(6).unwrap());
    let case = |canonical, claims| Case {
        claims,
        new: scaled(5),
        evidence: Evidence::Canonical(canonical),
        ..Case::default()
    };
    check(case(&five, pending()), "Allow as-declared");
    check(case(&six, pending()), "Deny drift /spec/replicas");
    check(case(&five, vec![deployed(MANIFEST)]), "Deny drift /spec/replicas");
}

#[test]
fn a_doubt_that_nobody_settles_never_stops_an_operation() {
    let case = |claims| Case { claims, evidence: Evidence::Unavailable, ..doubtful() };
    check(case(pending()), &format!("Record unsettled {TOLERATIONS}"));
    check(case(vec![deployed(MANIFEST)]), &format!("Deny drift {TOLERATIONS}"));
    check(Case { new: scaled(5), ..case(pending()) }, "Deny drift /spec/replicas");
}

#[test]
fn where_there_is_no_arbiter_a_doubt_warns_at_most() {
    for (mode, word) in [
        (EditsMode::Allow, "Allow"),
        (EditsMode::Record, "Record"),
        (EditsMode::Warn, "Warn"),
        (EditsMode::Deny, "Warn"),
    ] {
        for claims in [pending(), vec![deployed(MANIFEST)]] {
            let case = Case { mode, claims, evidence: Evidence::Nowhere, ..doubtful() };
            check(case, &format!("{word} unsettled {TOLERATIONS}"));
        }
    }
    check(
        Case { evidence: Evidence::Nowhere, new: scaled(5), ..Case::default() },
        "Deny drift /spec/replicas",
    );
}

#[test]
fn the_arbiter_is_asked_for_the_release_whose_refusal_it_may_turn() {
    let patient = declaring(2).replace("spec:\n  replicas", "spec:\n  minReadySeconds: 1\n  replicas");
    let api = || named("shop", "api", &patient);
    let waiting = |key: &str| {
        let mut object = tolerating(key);
        object["spec"]["minReadySeconds"] = json!(3);
        object
    };
    let (same, other) = (waiting("gpu"), waiting("ssd"));
    for claims in [vec![deployed(MANIFEST), api()], vec![api(), deployed(MANIFEST)]] {
        let case = || Case { claims: claims.clone(), new: Some(waiting("gpu")), ..doubtful() };
        assert!(case().verdict().arguable);
        check(Case { evidence: Evidence::Canonical(&same), ..case() }, "Allow as-declared");
        assert_eq!(Case { evidence: Evidence::Canonical(&other), ..case() }.verdict().outcome, Outcome::Deny);
    }
}

#[test]
fn a_declared_empty_value_has_no_opinion_of_what_was_absent() {
    check(Case { old: Some(live(&[])), ..doubtful() }, "Allow unchanged");
}
