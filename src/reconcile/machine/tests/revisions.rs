//! Revisions that follow each other, by tables of events.

use super::*;

#[test]
fn object_from_before_a_failed_upgrade_is_judged_by_the_next() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let changed = MANIFEST.replace("k: v", "k: w");
    let failed = Given { manifest: &changed, revision: 2, status: Status::Failed, ..Given::default() };
    let next = Given { manifest: &changed, revision: 3, ..Given::default() };
    for (release, expected) in [
        (assembled(failed, Some(Given { manifest: MANIFEST, ..Given::default() })), Reason::ReleaseFailed),
        (assembled(next, None), Reason::Drifted),
    ] {
        scene.release = Arc::new(release);
        let (id, ruled) = (scene.release.id.clone(), scene.ruled());
        scene.tell(Event::Release(id, ruled));
        assert_eq!(scene.work(), "object");
        assert_eq!(scene.reason(), Some(expected));
    }
}
