//! What is said of a release while not all of it has been looked at.

use super::*;
use crate::sample_releases::second;

#[test]
fn release_is_not_in_sync_before_changed_object_is_checked() {
    for value in [None, Some("x")] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        assert_eq!(scene.report.take().map(|report| report.health().reason), Some(HealthReason::InSync));
        scene.change(value);
        // Something else makes the guard say how the release stands.
        let (id, ruled) = (scene.release.id.clone(), scene.ruled());
        scene.tell(LoopEvent::Release(id, ruled));
        assert_ne!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
        scene.work();
        assert_eq!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
    }
}

#[test]
fn release_is_not_in_sync_after_outdated_api_server_answer() {
    for value in [None, Some("x")] {
        let mut scene = Scene::new(DriftMode::Report, settings());
        scene.outdated = Some(("v", 1));
        scene.report = None;
        scene.change(value);
        for _ in 0..5 {
            scene.work();
            assert_ne!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
            if scene.timer.is_some() {
                scene.wait();
            }
        }
    }
}

#[test]
fn release_is_not_in_sync_before_the_watch_of_a_new_kind_has_listed() {
    let secrets = WatchScope { kind: "Secret".to_owned(), ..scope() };
    let manifest = format!("{MANIFEST}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: web}}\n");
    let wanted = || LoopEvent::Scopes {
        wanted: BTreeSet::from([scope(), secrets.clone()]),
        unserved: BTreeSet::new(),
    };
    let broken = ObjectNews::Broken(WorkFailure::unanswered("no"));
    for (news, expected) in [
        (vec![ObjectNews::Relisting, ObjectNews::Listed], None),
        (vec![broken], Some(HealthReason::Unwatched)),
    ] {
        let mut scene = Scene::new(DriftMode::Report, settings());
        scene.report = None;
        scene.record(Arc::new(second(ReleaseStatus::Deployed, &manifest, MANIFEST)));
        scene.work();
        assert_eq!(scene.reason(), None, "it is not watched yet");
        scene.tell(wanted());
        scene.work();
        assert_eq!(scene.reason(), None, "it is not listed yet");
        for news in news {
            scene.tell(LoopEvent::Watch(secrets.clone(), news));
        }
        if expected.is_none() {
            // It is looked for by its name.
            assert!(
                matches!(scene.work.front(), Some((_, ApiWork::ReadObject { object, .. })) if object.kind == "Secret")
            );
        }
        assert_eq!(scene.reason(), expected);
    }
}

#[test]
fn stopping_loop_reports_what_it_still_sees() {
    let changed = MANIFEST.replace("k: v", "k: w");
    for status in [ReleaseStatus::PendingUpgrade, ReleaseStatus::Deployed] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        scene.record(Arc::new(second(status, &changed, MANIFEST)));
        let before = scene.report.clone().unwrap();
        scene.tell(LoopEvent::Stop);
        scene.change(Some("w"));
        scene.work();
        let report = scene.report.clone().unwrap();
        assert_eq!((report.confirmed, report.records.revision), (1, 2), "{status}");
        assert_ne!(report.seen_alive, before.seen_alive, "{status}");
    }
}

#[test]
fn stopping_loop_does_not_say_in_sync_of_what_it_has_not_read() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.tell(LoopEvent::Stop);
    scene.change(None);
    assert!(scene.work.is_empty(), "it reads nothing any more");
    assert_ne!(scene.report.as_ref().map(|it| it.health().reason), Some(HealthReason::InSync));
}
