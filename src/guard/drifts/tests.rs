use super::*;
use crate::helm::release::tests::{Given, assembled};

fn id(name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
    }
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".to_owned(), name: name.to_owned() }
}

fn sighting(name: &str, release: Option<ReleaseId>) -> Sighting {
    let managers = vec![Manager { name: "helm".to_owned(), applies: true }];
    let uid = format!("uid-{name}");
    Sighting { id: id(name), uid, resource_version: "1".to_owned(), deleting: false, release, managers }
}

/// A state in which `a` and `b` were seen alive with the release `web`.
fn alive() -> Missing {
    let mut missing = Missing::default();
    missing.lives(sighting("a", Some(release("web"))));
    missing.lives(sighting("b", Some(release("web"))));
    missing
}

/// The release `web` at this revision and record, declaring these objects.
fn declaring(revision: u64, uid: &str, names: &[&str]) -> Arc<Release> {
    let manifest: String = names
        .iter()
        .map(|name| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"))
        .collect();
    let mut release = assembled(Given { manifest: &manifest, revision, ..Given::default() }, None);
    release.latest.uid = uid.to_owned();
    Arc::new(release)
}

#[test]
fn what_went_is_missed_by_the_release_that_it_was_seen_with() {
    let (mut missing, now) = (alive(), Instant::now());
    // The last state may have lost its annotations.
    assert_eq!(missing.went(&sighting("a", None), now), Some(release("web")));
    assert!(!missing.is_alive(&id("a")) && missing.is_alive(&id("b")));
    let gone = missing.of(&release("web"));
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].0, id("a"));
    assert_eq!(gone[0].1.seen.as_ref().unwrap().release, release("web"));
    assert_eq!(gone[0].1.seen.as_ref().unwrap().managers[0].name, "helm");
    assert!(missing.misses(&release("web")) && !missing.misses(&release("other")));
}

#[test]
fn what_nobody_owned_is_not_missed() {
    let mut missing = Missing::default();
    assert_eq!(missing.went(&sighting("a", None), Instant::now()), None);
    missing.lives(sighting("b", Some(release("web"))));
    missing.lives(sighting("b", None));
    assert_eq!(missing.went(&sighting("b", None), Instant::now()), None);
    assert_eq!(missing.count(|_, _| true), 0);
}

#[test]
fn what_comes_back_is_not_missed() {
    let mut missing = alive();
    missing.went(&sighting("a", None), Instant::now());
    missing.lives(sighting("a", Some(release("other"))));
    assert!(!missing.misses(&release("web")));
    assert!(missing.is_alive(&id("a")));
}

#[test]
fn a_listing_tells_what_went_unseen() {
    let mut missing = alive();
    let went = missing.went_but(|_| true, &HashSet::from([id("b")]), Instant::now());
    assert_eq!(went, HashSet::from([release("web")]));
    assert!(!missing.is_alive(&id("a")) && missing.is_alive(&id("b")));
    let went = missing.went_but(|_| false, &HashSet::new(), Instant::now());
    assert!(went.is_empty() && missing.is_alive(&id("b")), "another kind's listing says nothing");
}

#[test]
fn what_was_never_seen_does_not_hide_what_was() {
    let (mut missing, now) = (alive(), Instant::now());
    missing.went(&sighting("a", None), now);
    missing.never_seen(&release("web"), id("a"), now);
    assert!(missing.of(&release("web"))[0].1.seen.is_some());
    missing.never_seen(&release("web"), id("c"), now);
    assert_eq!(missing.of(&release("web")).len(), 2);
    assert_eq!(missing.count(|_, _| true), 1, "only what was seen alive counts for the brake");
}

#[test]
fn only_what_a_release_still_declares_counts_and_is_missed() {
    let (mut missing, now) = (alive(), Instant::now());
    missing.went(&sighting("a", None), now);
    missing.went(&sighting("b", None), now);
    assert_eq!(missing.count(|_, object| *object == id("a")), 1);
    assert_eq!(missing.count(|of, _| *of == release("other")), 0);
    missing.notice(&release("web"), Some(&declaring(1, "u", &["b"])));
    assert_eq!(missing.of(&release("web")).iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), [id("b")]);
    missing.notice(&release("web"), None);
    assert!(!missing.misses(&release("web")));
}

#[test]
fn an_object_is_reported_once_for_each_loss() {
    let (mut missing, now) = (alive(), Instant::now());
    missing.went(&sighting("a", None), now);
    assert!(missing.report(&release("web"), &id("a")));
    assert!(!missing.report(&release("web"), &id("a")));
    assert!(!missing.report(&release("web"), &id("c")));
    missing.lives(sighting("a", Some(release("web"))));
    missing.went(&sighting("a", None), now);
    assert!(missing.report(&release("web"), &id("a")));
    missing.forget(&release("web"), &id("a"));
    assert!(!missing.misses(&release("web")));
}

#[test]
fn a_record_that_changes_its_manifest_keeps_its_first_digest() {
    let (mut missing, web) = (Missing::default(), release("web"));
    let first = declaring(1, "u1", &["a"]);
    missing.notice(&web, Some(&first));
    missing.notice(&web, Some(&declaring(1, "u1", &["a", "b"])));
    assert_eq!(missing.first_digest(&web, 1), Some(first.state.digest));
    assert_eq!(missing.first_digest(&web, 2), None);
    let second = declaring(2, "u2", &["b"]);
    missing.notice(&web, Some(&second));
    assert_eq!(missing.first_digest(&web, 2), Some(second.state.digest));
    assert_eq!(missing.first_digest(&web, 1), None);
}

#[test]
fn a_release_installed_anew_has_a_first_digest_of_its_own() {
    let (mut missing, web) = (Missing::default(), release("web"));
    missing.notice(&web, Some(&declaring(1, "u1", &["a"])));
    let anew = declaring(1, "u2", &["b"]);
    missing.notice(&web, Some(&anew));
    assert_eq!(missing.first_digest(&web, 1), Some(anew.state.digest));
}

#[test]
fn a_record_that_cannot_be_believed_is_no_first_manifest() {
    let (mut missing, web) = (Missing::default(), release("web"));
    let first = declaring(1, "u1", &["a"]);
    missing.notice(&web, Some(&first));
    let mut invalid = Release::clone(&declaring(1, "forged", &["b"]));
    invalid.invalid = Some(crate::helm::release::Invalid { secret: "s".to_owned(), reason: "r".to_owned() });
    missing.notice(&web, Some(&Arc::new(invalid)));
    assert_eq!(missing.first_digest(&web, 1), Some(first.state.digest));
}
