//! What objects were seen to agree with.

use super::*;

/// That an object was seen as this release declares it, but at some paths.
fn agrees(drifts: &mut Drifts, release: &Arc<Release>, name: &str, spared: &[&str]) -> bool {
    let spared = spared.iter().map(|path| path.parse().unwrap()).collect();
    let matched = MatchedDeclaration::new(release.declared(&id(name)).unwrap());
    drifts.record_agreement(release, &id(name), &MatchedDeclaration { excepted_paths: spared, ..matched })
}

/// Whether all that a release declares of an object was seen; none if it was never seen to agree with any of that.
fn is_seen(drifts: &Drifts, release: &Release, name: &str) -> Option<bool> {
    let agreement = drifts.agreement(&web(), &id(name), release.declared(&id(name))?)?;
    Some(agreement.confirms_all(None))
}

#[test]
fn objects_are_confirmed_one_by_one() {
    let (first, mut drifts) = (deployed(1, &[("a", "1"), ("b", "1")]), in_sync());
    assert_eq!(drifts.confirmed(&first), (0, vec![id("a"), id("b")]));
    assert!(agrees(&mut drifts, &first, "a", &[]) && agrees(&mut drifts, &first, "b", &[]));
    assert!(!agrees(&mut drifts, &first, "a", &[]), "that is no news");
    assert_eq!(drifts.confirmed(&first), (2, vec![]));
    // A revision that says the same of an object leaves it confirmed.
    let second = deployed(2, &[("a", "2"), ("b", "1")]);
    assert_eq!((is_seen(&drifts, &second, "a"), is_seen(&drifts, &second, "b")), (None, Some(true)));
    assert_eq!(drifts.confirmed(&second), (1, vec![id("a")]));
    assert!(agrees(&mut drifts, &second, "a", &[]));
    assert_eq!(drifts.confirmed(&second), (2, vec![]));
    // Only the last agreement counts.
    assert_eq!(is_seen(&drifts, &first, "a"), None);
}

#[test]
fn nothing_is_confirmed_that_was_not_seen_with_annotations() {
    let (release, mut drifts) = (deployed(1, &[("a", "1"), ("b", "1"), ("c", "1")]), in_sync());
    drifts.record_life(id("a"), LastSeen { has_release_annotations: false, ..life("web") });
    drifts.record_life(id("b"), life("api"));
    for name in ["a", "b", "c"] {
        assert!(!agrees(&mut drifts, &release, name, &[]), "{name}");
        assert_eq!(is_seen(&drifts, &release, name), None, "{name}");
    }
    assert_eq!(drifts.confirmed(&release), (0, vec![]), "nobody can confirm what is not the release's");
}

#[test]
fn spared_field_stays_confirmed_when_previous_revision_declared_the_same() {
    let declaring = |revision, other: &str| {
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{same: '1', other: '{other}'}}\n"
        );
        let status = ReleaseStatus::Deployed;
        Arc::new(assembled(
            SampleRecord { manifest: &manifest, revision, status, ..SampleRecord::default() },
            None,
        ))
    };
    let (first, second) = (declaring(1, "1"), declaring(2, "2"));
    let mut drifts = Drifts::new(key());
    drifts.notice(&web(), (None, Some(&first)), |_| false, now());
    drifts.record_life(id("a"), life("web"));
    agrees(&mut drifts, &first, "a", &[]);
    agrees(&mut drifts, &second, "a", &["/data/same"]);
    assert_eq!(is_seen(&drifts, &second, "a"), Some(true));
    agrees(&mut drifts, &first, "a", &[]);
    agrees(&mut drifts, &second, "a", &["/data/other"]);
    assert_eq!(is_seen(&drifts, &second, "a"), Some(false));
}

#[test]
fn release_that_comes_back_has_to_be_seen_anew() {
    let release = deployed(1, &[("a", "1"), ("b", "1")]);
    let uninstalled = declaring(1, "", ReleaseStatus::Uninstalled, &[("a", "1"), ("b", "1")]);
    for gone in [None, Some(&uninstalled)] {
        let mut drifts = in_sync();
        agrees(&mut drifts, &release, "a", &[]);
        drifts.notice(&web(), (Some(&release), gone), |_| true, now());
        assert_eq!(drifts.remembered().count(), 0, "{gone:?}");
        drifts.notice(&web(), (gone.map(|gone| &**gone), Some(&release)), |_| true, now());
        assert_eq!(suspects(&drifts), ["a", "b"], "{gone:?}");
    }
}

#[test]
fn objects_seen_by_an_earlier_process_wait_for_an_unreadable_record() {
    let (mut drifts, current) = (Drifts::new(key()), deployed(1, &[("a", "1")]));
    let mut invalid = Release::clone(&declaring(1, "forged", ReleaseStatus::Deployed, &[]));
    invalid.invalid =
        Some(kubemoor_helm::release::InvalidRecord { secret: "s".to_owned(), reason: "r".to_owned() });
    let invalid = Arc::new(invalid);
    drifts.notice(&web(), (None, Some(&invalid)), |_| false, now());
    drifts.remember(&invalid, earlier(1, current.state.digest), vec![seen("a"), seen("dropped")]);
    assert_eq!(drifts.remembered().count(), 2);
    drifts.notice(&web(), (Some(&invalid), Some(&current)), |_| false, now());
    assert_eq!(drifts.remembered().collect::<Vec<_>>(), [&id("a")]);
}

#[test]
fn agreement_is_told_on_and_remembered() {
    let (release, mut drifts) = (deployed(1, &[("a", "1"), ("b", "1")]), in_sync());
    agrees(&mut drifts, &release, "a", &[]);
    agrees(&mut drifts, &release, "b", &["/data/k"]);
    let told = drifts.seen_alive(&release);
    let mut next = Drifts::new(key());
    next.remember(&release, earlier(1, release.state.digest), told.clone());
    assert_eq!((is_seen(&next, &release, "a"), is_seen(&next, &release, "b")), (Some(true), Some(false)));
    // What was seen meanwhile counts, unless the earlier guard knew more of what is declared now.
    let second = deployed(2, &[("a", "2"), ("b", "1")]);
    agrees(&mut next, &release, "b", &[]);
    next.record_life(
        id("a"),
        LastSeen { agreed: next.last_seen_state(&id("a")).unwrap().agreed.clone(), ..life("web") },
    );
    agrees(&mut next, &second, "a", &[]);
    next.remember(&second, earlier(2, second.state.digest), told.clone());
    assert_eq!((is_seen(&next, &second, "a"), is_seen(&next, &second, "b")), (Some(true), Some(true)));
    next.remember(&release, earlier(1, release.state.digest), told);
    assert_eq!(is_seen(&next, &release, "a"), Some(true));
    // Another guard's marks are none.
    let mut stranger = Drifts::new(SigningKey::new([8; 32]));
    stranger.remember(&release, earlier(1, release.state.digest), drifts.seen_alive(&release));
    assert_eq!(is_seen(&stranger, &release, "a"), None);
}

#[test]
fn additions_are_confirmed_only_after_object_was_seen_without_them() {
    let (first, mut drifts) = (deployed(1, &[("a", "1")]), in_sync());
    let clean = |drifts: &Drifts, release: &Release| {
        drifts.is_seen_without_additions(&web(), &id("a"), release.declared(&id("a")).unwrap())
    };
    let added = |drifts: &mut Drifts, release: &Arc<Release>| {
        let matched = MatchedDeclaration::new(release.declared(&id("a")).unwrap());
        drifts.record_agreement(release, &id("a"), &MatchedDeclaration { has_additions: true, ..matched })
    };
    agrees(&mut drifts, &first, "a", &[]);
    assert!(!clean(&drifts, &first), "without a seal nobody has looked for additions");
    // A seal comes: what was seen without one is known, additions are not.
    drifts.seal(&id("a"), Some("/data".to_owned()));
    assert!(is_seen(&drifts, &first, "a") == Some(true) && !clean(&drifts, &first));
    assert!(!added(&mut drifts, &first) && !clean(&drifts, &first));
    assert!(agrees(&mut drifts, &first, "a", &[]) && clean(&drifts, &first));
    // An addition does not undo that it was seen without one.
    assert!(!added(&mut drifts, &first) && clean(&drifts, &first));
    // Another seal, another revision.
    drifts.seal(&id("a"), Some("/binaryData".to_owned()));
    assert!(!clean(&drifts, &first));
    drifts.seal(&id("a"), Some("/data".to_owned()));
    let second = deployed(2, &[("a", "2")]);
    assert!(!clean(&drifts, &second) && is_seen(&drifts, &second, "a").is_none());
    assert!(added(&mut drifts, &second) && is_seen(&drifts, &second, "a") == Some(true));
    assert!(!clean(&drifts, &second));
}
