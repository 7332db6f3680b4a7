use super::*;

fn release(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: name.into() }
}

#[track_caller]
fn check(needed: Needed<'_>, stored: (&str, &str), is_included: bool) {
    let storage: Storage = [("flux-system", "shop")].into_iter().collect();
    let stored = release(stored.0, stored.1);
    assert_eq!(needed.includes(&stored, &storage), is_included, "{needed:?} {stored}");
}

#[test]
fn records_of_a_namespace_are_those_that_may_speak_for_it() {
    check(Needed::Namespace("shop"), ("shop", "web"), true);
    check(Needed::Namespace("shop"), ("flux-system", "web"), true);
    check(Needed::Namespace("shop"), ("other", "web"), false);
    check(Needed::Namespace("flux-system"), ("shop", "web"), false);
}

#[test]
fn records_of_a_release_lie_where_they_are_trusted() {
    let web = release("shop", "web");
    check(Needed::Release(&web), ("shop", "web"), true);
    check(Needed::Release(&web), ("flux-system", "web"), true);
    check(Needed::Release(&web), ("other", "web"), false);
    check(Needed::Release(&web), ("shop", "api"), false);
}

#[test]
fn all_includes_every_record() {
    check(Needed::All, ("other", "web"), true);
}
