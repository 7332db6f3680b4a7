use super::*;

fn storage(pairs: &[(&str, &str)]) -> TrustedRecordNamespaces {
    pairs.iter().copied().collect()
}

/// Whether records in the one namespace may speak for releases in the other.
#[track_caller]
fn check(storage: &TrustedRecordNamespaces, records: &str, releases: &str, wanted: bool) {
    assert_eq!(storage.can_store(records, releases), wanted, "records in {records}, releases in {releases}");
}

#[test]
fn records_are_trusted_in_own_namespace_and_for_configured_pairs() {
    let storage = storage(&[("flux-system", "shop"), ("flux-system", "web"), ("ci", "shop")]);
    check(&storage, "shop", "shop", true);
    check(&storage, "elsewhere", "elsewhere", true);
    check(&storage, "flux-system", "shop", true);
    check(&storage, "flux-system", "web", true);
    check(&storage, "ci", "shop", true);
    check(&storage, "ci", "web", false);
    check(&storage, "shop", "flux-system", false);
    check(&storage, "flux-system", "billing", false);
    check(&storage, "shop", "web", false);
    assert_eq!(storage.namespaces_in("flux-system").collect::<Vec<_>>(), ["shop", "web"]);
    assert!(storage.is_shared("flux-system") && storage.is_shared("ci") && !storage.is_shared("shop"));
}

#[test]
fn release_records_are_searched_in_every_possible_namespace() {
    let id = |namespace: &str| ReleaseId { namespace: namespace.into(), name: "web".into() };
    let storage = storage(&[("flux-system", "shop"), ("ci", "shop"), ("shop", "shop")]);
    assert_eq!(storage.places(&id("shop")), [id("shop"), id("ci"), id("flux-system")]);
    assert_eq!(storage.places(&id("flux-system")), [id("flux-system")]);
}

#[test]
fn a_guard_of_some_namespaces_trusts_no_others() {
    let all = storage(&[("flux-system", "shop"), ("ci", "shop"), ("flux-system", "web")]);
    let namespaces = ["flux-system".to_owned(), "shop".to_owned()];
    assert_eq!(all.clone().within(&namespaces), storage(&[("flux-system", "shop")]));
    assert_eq!(all.clone().within(&namespaces[..1]), TrustedRecordNamespaces::default());
    assert_eq!(all.clone().within(&[]), all);
}

#[test]
fn storage_change_returns_the_affected_record_namespaces() {
    let before = storage(&[("flux-system", "shop"), ("ci", "shop")]);
    let after = storage(&[("flux-system", "shop"), ("ci", "web")]);
    assert_eq!(before.changed(&after), BTreeSet::from(["ci".to_owned()]));
    assert_eq!(before.changed(&before), BTreeSet::new());
    assert_eq!(TrustedRecordNamespaces::default().changed(&before).len(), 2);
}
