mod agreed;

use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_policy::agreement::ObservedObject;

fn id(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", name)
}

fn web() -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: "web".into() }
}

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

fn life(release: &str) -> LastSeen {
    LastSeen {
        release: ReleaseId { name: release.into(), ..web() },
        has_release_annotations: true,
        alive: true,
        version: ResourceVersion::parse("7"),
        managers: Arc::default(),
        judged: None,
        allowed: false,
        agreed: None,
        seal: None,
    }
}

/// The release `web` at this revision and record, declaring these objects.
fn declaring(revision: u64, uid: &str, status: ReleaseStatus, objects: &[(&str, &str)]) -> Arc<Release> {
    let manifest: String = objects
        .iter()
        .map(|(name, value)| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: {value}}}\n"
            )
        })
        .collect();
    let mut release =
        assembled(SampleRecord { manifest: &manifest, revision, status, ..SampleRecord::default() }, None);
    Arc::make_mut(&mut release.latest).uid = uid.to_owned();
    Arc::new(release)
}

fn deployed(revision: u64, objects: &[(&str, &str)]) -> Arc<Release> {
    declaring(revision, &format!("u{revision}"), ReleaseStatus::Deployed, objects)
}

/// A state in which `a` and `b` live and are as revision 1 declares them.
fn in_sync() -> Drifts {
    let mut drifts = Drifts::new(key());
    let release = deployed(1, &[("a", "1"), ("b", "1")]);
    drifts.notice(&web(), (None, Some(&release)), |_| false, now());
    for name in ["a", "b"] {
        drifts.record_life(id(name), life("web"));
        drifts.record_in_sync(&release, &id(name));
    }
    drifts
}

/// An object that was seen alive and never seen to agree with anything.
fn seen(name: &str) -> ObservedObject {
    ObservedObject { object: id(name).into(), agreement: None, settled: None }
}

/// What a process knew that did not say of which record.
fn earlier(revision: u64, digest: [u8; 32]) -> FirstManifest {
    FirstManifest { uid: None, revision, digest }
}

fn first_digest(drifts: &Drifts, revision: u64) -> Option<[u8; 32]> {
    drifts.first(&web(), revision).map(|first| first.digest)
}

fn suspects(drifts: &Drifts) -> Vec<String> {
    let mut names: Vec<_> =
        drifts.suspects(&web()).into_iter().map(|(object, _)| object.name.to_string()).collect();
    names.sort();
    names
}

fn drifting(drifts: &Drifts) -> Vec<(String, DriftKind)> {
    let mut all: Vec<_> = drifts
        .of_release(&web())
        .into_iter()
        .map(|drift| (drift.object.name.to_string(), drift.kind))
        .collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

#[test]
fn deleted_object_is_rechecked_before_it_counts_as_missing() {
    let mut drifts = in_sync();
    assert_eq!(drifts.mark_gone(&id("a"), ResourceVersion::default(), now()), Some(web()));
    assert_eq!((suspects(&drifts), drifting(&drifts)), (vec!["a".to_owned()], vec![]));
    assert!(drifts.record_missing(&web(), &id("a"), now()));
    assert_eq!(drifting(&drifts), [("a".to_owned(), DriftKind::Missing)]);
    assert!(suspects(&drifts).is_empty());
    let life = drifts.last_seen_state(&id("a")).unwrap();
    assert!(!life.alive && life.has_release_annotations, "that it was seen alive is remembered");
    assert_eq!(drifts.mark_gone(&id("nobodys"), ResourceVersion::default(), now()), None);
}

#[test]
fn drift_ends_when_object_returns_as_declared() {
    let mut drifts = in_sync();
    drifts.mark_gone(&id("a"), ResourceVersion::default(), now());
    drifts.record_missing(&web(), &id("a"), now());
    drifts.record_life(id("a"), life("web"));
    let release = deployed(1, &[("a", "1"), ("b", "1")]);
    assert!(drifts.record_in_sync(&release, &id("a")));
    assert!(drifting(&drifts).is_empty() && drifts.oldest(&web()).is_none());
    assert!(!drifts.record_in_sync(&release, &id("a")), "that is no news");
}

#[test]
fn the_same_drift_is_news_once_and_keeps_its_age() {
    let mut drifts = in_sync();
    let later = now() + jiff::SignedDuration::from_secs(9);
    assert!(drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Changed, now())));
    drifts.get_mut(&web(), &id("a")).unwrap().reported = true;
    assert!(!drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Changed, later)));
    assert!(drifts.get_mut(&web(), &id("a")).unwrap().reported);
    assert!(drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Missing, later)));
    assert!(!drifts.get_mut(&web(), &id("a")).unwrap().reported);
    assert_eq!(drifts.oldest(&web()), Some(now()));
}

#[test]
fn new_revision_rechecks_only_the_objects_it_changes() {
    let mut drifts = in_sync();
    let release = deployed(2, &[("a", "1"), ("b", "2"), ("c", "1")]);
    drifts.notice(&web(), (None, Some(&release)), |_| true, now());
    assert_eq!(suspects(&drifts), ["b", "c"]);
    assert_eq!(drifts.last_seen_state(&id("a")).unwrap().judged, Some(release.state.digest));
}

#[test]
fn object_in_sync_during_operation_is_not_rechecked_after_it() {
    let mut drifts = in_sync();
    let pending = declaring(2, "u2", ReleaseStatus::PendingUpgrade, &[("a", "1"), ("b", "2")]);
    drifts.notice(&web(), (None, Some(&pending)), |_| true, now());
    assert!(suspects(&drifts).is_empty(), "its end is awaited");
    drifts.record_in_sync(&pending, &id("b"));
    drifts.notice(&web(), (None, Some(&deployed(2, &[("a", "1"), ("b", "2")]))), |_| true, now());
    assert!(suspects(&drifts).is_empty(), "{:?}", suspects(&drifts));
    // Types may become known later, and with them other fields.
    drifts.notice(&web(), (None, Some(&deployed(2, &[("a", "1"), ("b", "3")]))), |_| true, now());
    assert_eq!(suspects(&drifts), ["b"]);
}

#[test]
fn object_is_rechecked_when_manifest_changes_as_the_operation_ends() {
    // The manifest while the operation is under way, and after it.
    for (pending, deployed, expected) in [("2", "2", None), ("2", "3", Some("b")), ("3", "2", Some("b"))] {
        for revision in [1, 2] {
            let mut drifts = if revision == 1 { Drifts::new(key()) } else { in_sync() };
            let by = |status, value| declaring(revision, "u", status, &[("b", value)]);
            let operation = by(ReleaseStatus::PendingUpgrade, pending);
            drifts.notice(&web(), (None, Some(&operation)), |_| true, now());
            drifts.record_life(id("b"), life("web"));
            drifts.record_in_sync(&operation, &id("b"));
            drifts.notice(&web(), (None, Some(&by(ReleaseStatus::Deployed, deployed))), |_| true, now());
            assert_eq!(suspects(&drifts), Vec::from_iter(expected), "{revision}: {pending} {deployed}");
        }
    }
}

#[test]
fn drift_is_outdated_until_object_is_rechecked_against_new_revision() {
    for (value, is_outdated) in [("1", false), ("2", true)] {
        let mut drifts = in_sync();
        drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Changed, now()));
        assert!(!drifts.has_outdated(&web()));
        drifts.notice(&web(), (None, Some(&deployed(2, &[("a", value), ("b", "2")]))), |_| true, now());
        assert_eq!(suspects(&drifts), ["a", "b"]);
        assert_eq!(drifts.has_outdated(&web()), is_outdated, "{value}");
        drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Changed, now()));
        assert!(!drifts.has_outdated(&web()), "{value}");
    }
}

#[test]
fn drift_from_an_operation_is_outdated_once_that_has_ended_as_the_one_before() {
    for operation in [None, Some(ReleaseStatus::PendingInstall)] {
        let by = |revision: u64, status| declaring(revision, &format!("u{revision}"), status, &[("a", "1")]);
        let mut drifts = Drifts::new(key());
        drifts.notice(&web(), (None, Some(&by(1, ReleaseStatus::Failed))), |_| true, now());
        if let Some(status) = operation {
            drifts.notice(&web(), (None, Some(&by(2, status))), |_| true, now());
        }
        drifts.record_missing(&web(), &id("a"), now());
        drifts.notice(&web(), (None, Some(&by(2, ReleaseStatus::Failed))), |_| true, now());
        assert_eq!(drifts.has_outdated(&web()), operation.is_some(), "{operation:?}");
    }
}

#[test]
fn unsettled_object_is_rechecked_after_the_operation() {
    let mut drifts = in_sync();
    drifts.mark_unsettled(&id("a"));
    drifts.notice(&web(), (None, Some(&deployed(2, &[("a", "1"), ("b", "1")]))), |_| true, now());
    assert_eq!(suspects(&drifts), ["a"]);
}

#[test]
fn nothing_is_suspected_of_which_a_listing_is_to_come() {
    let mut drifts = Drifts::new(key());
    drifts.notice(&web(), (None, Some(&deployed(1, &[("a", "1")]))), |_| false, now());
    assert!(suspects(&drifts).is_empty());
}

/// Whether the object was read after it went, before or after Helm's record changed, decides nothing.
#[test]
fn objects_that_a_release_no_longer_declares_are_forgotten() {
    type Going = fn(&mut Drifts, &ObjectId);
    let ways: [(&str, Going); 5] = [
        ("alive", |_, _| ()),
        ("not read", |drifts, object| {
            drifts.mark_gone(object, ResourceVersion::default(), now());
        }),
        ("missing", |drifts, object| {
            drifts.record_missing(&web(), object, now());
        }),
        ("absent during an operation", |drifts, object| {
            drifts.record_missing(&web(), object, now());
            drifts.clear_drift(&web(), object);
        }),
        ("undeclared", |drifts, object| {
            drifts.record_missing(&web(), object, now());
            drifts.clear(&web(), object);
        }),
    ];
    let (both, one) = (deployed(1, &[("a", "1"), ("b", "1")]), deployed(2, &[("b", "1")]));
    for (what, go) in ways {
        let mut drifts = in_sync();
        for name in ["a", "b"] {
            go(&mut drifts, &id(name));
        }
        let before = drifting(&drifts);
        drifts.notice(&web(), (Some(&both), Some(&one)), |_| false, now());
        assert_eq!(drifts.remembered().collect::<Vec<_>>(), [&id("b")], "{what}");
        let stays: Vec<_> = before.into_iter().filter(|(name, _)| name == "b").collect();
        assert_eq!(drifting(&drifts), stays, "{what}");
        let is_missing = stays == [("b".to_owned(), DriftKind::Missing)];
        assert_eq!(is_missing, what == "missing", "{what}");
        drifts.notice(&web(), (Some(&one), None), |_| true, now());
        assert_eq!(drifts.remembered().count(), 0, "{what}");
        assert!(drifting(&drifts).is_empty() && drifts.concerned().is_empty(), "{what}");
    }
}

#[test]
fn drift_ends_when_another_release_takes_over_the_object() {
    let mut drifts = in_sync();
    drifts.record_drift(&web(), ObjectDrift::new(id("a"), DriftKind::Changed, now()));
    drifts.record_life(id("a"), life("other"));
    assert!(drifting(&drifts).is_empty());
}

#[test]
fn only_certain_drift_and_deletions_count_for_the_brake() {
    let mut drifts = in_sync();
    let count = |drifts: &Drifts| drifts.count(&web(), |_, _| true);
    drifts.suspect(&web(), id("b"), now());
    assert_eq!(count(&drifts), 0, "that somebody has to look means nothing");
    drifts.mark_gone(&id("a"), ResourceVersion::default(), now());
    assert_eq!(count(&drifts), 1);
    drifts.record_missing(&web(), &id("a"), now());
    assert_eq!(count(&drifts), 1);
    let doubt = ObjectDrift { needs_dry_run: true, ..ObjectDrift::new(id("b"), DriftKind::Changed, now()) };
    drifts.record_drift(&web(), doubt);
    assert_eq!(count(&drifts), 1);
    assert_eq!(drifts.count(&web(), |object, _| *object == id("b")), 0);
    drifts.record_missing(&web(), &id("c"), now());
    assert_eq!(count(&drifts), 1, "what was never seen alive does not count");
}

#[test]
fn objects_seen_by_an_earlier_process_count_as_seen() {
    let (mut drifts, current) = (Drifts::new(key()), deployed(1, &[("a", "1")]));
    drifts.notice(&web(), (None, Some(&current)), |_| false, now());
    drifts.remember(&current, earlier(1, [7; 32]), vec![seen("a"), seen("dropped")]);
    assert!(drifts.last_seen_state(&id("a")).is_some_and(|life| life.has_release_annotations && !life.alive));
    assert_eq!(drifts.remembered().collect::<Vec<_>>(), [&id("a")]);
    drifts.notice(&web(), (Some(&current), Some(&current)), |_| false, now());
    assert_eq!(first_digest(&drifts, 1), Some([7; 32]), "what was seen first stays first");
    drifts.remember(&current, earlier(2, [8; 32]), Vec::new());
    assert_eq!(first_digest(&drifts, 1), Some([7; 32]));
}

#[test]
fn missing_object_stays_in_the_list_of_objects_seen_alive() {
    let mut drifts = in_sync();
    let release = deployed(1, &[("a", "1"), ("b", "1"), ("c", "1")]);
    drifts.record_missing(&web(), &id("a"), now());
    assert_eq!(drifts.seen_alive(&release), [seen("a"), seen("b")]);
    let mut next = Drifts::new(key());
    next.remember(&release, earlier(1, release.state.digest), drifts.seen_alive(&release));
    assert_eq!(next.seen_alive(&release), [seen("a"), seen("b")]);
    let dropping = deployed(2, &[("b", "1"), ("c", "1")]);
    drifts.notice(&web(), (Some(&release), Some(&dropping)), |_| false, now());
    assert_eq!(drifts.seen_alive(&dropping), [seen("b")]);
    drifts.record_life(id("b"), LastSeen { has_release_annotations: false, ..life("web") });
    assert_eq!(drifts.seen_alive(&dropping), []);
}

#[test]
fn a_record_that_changes_its_manifest_keeps_its_first_digest() {
    let mut drifts = Drifts::new(key());
    let notice = |drifts: &mut Drifts, release: &Arc<Release>| {
        drifts.notice(&web(), (None, Some(release)), |_| false, now());
    };
    let first = deployed(1, &[("a", "1")]);
    notice(&mut drifts, &first);
    notice(&mut drifts, &deployed(1, &[("a", "2")]));
    assert_eq!(first_digest(&drifts, 1), Some(first.state.digest));
    let mut invalid = Release::clone(&declaring(1, "forged", ReleaseStatus::Deployed, &[("a", "3")]));
    invalid.invalid =
        Some(kubemoor_helm::release::InvalidRecord { secret: "s".to_owned(), reason: "r".to_owned() });
    notice(&mut drifts, &Arc::new(invalid));
    assert_eq!(first_digest(&drifts, 1), Some(first.state.digest));
    let second = deployed(2, &[("b", "1")]);
    notice(&mut drifts, &second);
    assert_eq!(first_digest(&drifts, 2), Some(second.state.digest));
    assert_eq!(first_digest(&drifts, 1), None);
    let anew = declaring(2, "installed anew", ReleaseStatus::Deployed, &[("c", "1")]);
    notice(&mut drifts, &anew);
    assert_eq!(first_digest(&drifts, 2), Some(anew.state.digest));
}

#[test]
fn remembered_release_is_outlived_only_by_a_fresh_install() {
    let current = deployed(1, &[("a", "1")]);
    let first =
        |uid: Option<&str>, revision, digest| FirstManifest { uid: uid.map(str::to_owned), revision, digest };
    let (same, other) = (current.state.digest, [7; 32]);
    for (known, wanted) in [
        (first(Some("u1"), 1, same), false),
        // Rewritten in place.
        (first(Some("u1"), 1, other), false),
        (first(None, 1, other), false),
        // Restored from a backup.
        (first(Some("u0"), 1, same), false),
        (first(Some("u0"), 1, other), true),
        (first(Some("u0"), 2, other), false),
    ] {
        assert_eq!(known.is_replaced_in(&current), wanted, "{known:?}");
    }
    let mut invalid = Release::clone(&current);
    invalid.invalid =
        Some(kubemoor_helm::release::InvalidRecord { secret: "s".to_owned(), reason: "r".to_owned() });
    assert!(!first(Some("u0"), 1, other).is_replaced_in(&invalid));
}

#[test]
fn recreated_record_does_not_inherit_from_an_earlier_process() {
    let (mut drifts, current) = (Drifts::new(key()), deployed(1, &[("a", "1")]));
    drifts.remember(
        &current,
        FirstManifest { uid: Some("u0".to_owned()), ..earlier(1, [7; 32]) },
        Vec::new(),
    );
    drifts.notice(&web(), (None, Some(&current)), |_| false, now());
    let first = FirstManifest { uid: Some("u1".to_owned()), ..earlier(1, current.state.digest) };
    assert_eq!(drifts.first(&web(), 1), Some(&first));
}

#[test]
fn an_answer_that_the_watch_has_overtaken_counts_for_nothing() {
    let mut drifts = Drifts::new(key());
    drifts.record_life(id("a"), life("web"));
    assert!(
        !drifts.is_overtaken(&id("a"), ResourceVersion::parse("7"))
            && drifts.is_overtaken(&id("a"), ResourceVersion::parse("6"))
    );
    assert!(!drifts.is_overtaken(&id("b"), ResourceVersion::parse("6")), "it is not known");
    assert!(!drifts.is_overtaken(&id("a"), ResourceVersion::parse("odd")), "it tells nothing");
    let drift = || ObjectDrift::new(id("a"), DriftKind::Changed, now());
    drifts.record_drift(&web(), drift());
    // Somebody has changed it since the guard wrote it, or the watch has told of that write itself.
    for (version, is_left) in [("6", true), ("7", true), ("8", false)] {
        let left = drifts.record_restored(&web(), &id("a"), ResourceVersion::parse(version));
        assert_eq!((left, drifts.of_release(&web()).len()), (is_left, usize::from(is_left)), "{version}");
    }
    drifts.record_drift(&web(), drift());
    assert!(!drifts.record_restored(&web(), &id("a"), ResourceVersion::parse("odd")), "it tells nothing");
    // An etcd that was restored counts from an earlier version: the watch is right.
    drifts.record_life(id("a"), LastSeen { version: ResourceVersion::parse("3"), ..life("web") });
    assert!(!drifts.is_overtaken(&id("a"), ResourceVersion::parse("3")));
    drifts.mark_gone(&id("a"), ResourceVersion::parse("9"), now());
    assert!(drifts.is_overtaken(&id("a"), ResourceVersion::parse("8")), "it was there before it went");
}

#[test]
fn field_manager_that_no_object_shows_any_more_is_remembered() {
    let release = deployed(1, &[("a", "1"), ("b", "1")]);
    let manager = |drifts: &Drifts| drifts.manager(&release, ApplyMethod::ServerSide);
    let mut drifts = in_sync();
    assert_eq!(manager(&drifts), None);
    drifts.remember_manager(&web(), "x".repeat(129).into());
    assert_eq!(manager(&drifts), None);
    drifts.remember_manager(&web(), "deployer".into());
    assert_eq!(manager(&drifts).as_deref(), Some("deployer"));
    // What is seen counts more, and is what is remembered afterwards.
    let show = |drifts: &mut Drifts, name: &str| {
        let managers = vec![HelmManager { name: name.into(), applies: true }].into();
        drifts.record_life(id("a"), LastSeen { managers, ..life("web") });
        drifts.note_manager(&release);
    };
    show(&mut drifts, "operator");
    assert_eq!(manager(&drifts).as_deref(), Some("operator"));
    // Annotations that somebody wrote by hand show no Helm.
    show(&mut drifts, "kubectl-edit");
    assert_eq!(manager(&drifts).as_deref(), Some("operator"));
    drifts.record_life(id("a"), life("web"));
    assert_eq!(manager(&drifts).as_deref(), Some("operator"));
}
