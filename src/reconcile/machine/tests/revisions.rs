//! Revisions that follow each other, by tables of events.

use super::*;
use crate::helm::release::tests::second;

#[test]
fn object_from_before_a_failed_upgrade_is_judged_by_the_next() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let changed = MANIFEST.replace("k: v", "k: w");
    let next = Given { manifest: &changed, revision: 3, ..Given::default() };
    for (release, expected) in [
        (second(Status::Failed, &changed, MANIFEST), Reason::ReleaseFailed),
        (assembled(next, None), Reason::Drifted),
    ] {
        scene.release = Arc::new(release);
        let (id, ruled) = (scene.release.id.clone(), scene.ruled());
        scene.tell(Event::Release(id, ruled));
        assert_eq!(scene.work(), "object");
        assert_eq!(scene.reason(), Some(expected));
    }
}

#[test]
fn object_that_a_failed_upgrade_dropped_and_deleted_is_not_missing() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.release = Arc::new(second(Status::Failed, "", MANIFEST));
    let (id, ruled) = (scene.release.id.clone(), scene.ruled());
    scene.tell(Event::Release(id, ruled));
    scene.work();
    for value in [None, Some("v"), None] {
        scene.change(value);
        scene.work();
        let report = scene.report.as_ref().unwrap();
        let found = (report.health().reason, report.drifted.len(), report.health().counts.matching);
        assert_eq!(found, (Reason::ReleaseFailed, 0, 1), "{value:?}");
    }
}
